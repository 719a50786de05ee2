r"""Quick looks at a text: whether a slower one can find anything in it.

Each lets through all that the slower look finds, and most other texts not. They are expressions of
RE2 on the bytes of the text: one pass, whatever the number of alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_DIGIT = rb"(?:[0-9]|[\xc2-\xf4][\x80-\xbf]+)"
"""Of any script: what is no ASCII counts as one."""

_NUMBER = _DIGIT + rb"(?:[ ./()\xa0\xc2-]{0,3}" + _DIGIT + rb"){5}"
_CASELESS = ("\u0130", "\u212a")
"""Letters that are others, of ASCII, in lower case."""


class Sieve:
    """Whether an expression stands in the bytes of a text."""

    def __init__(self, pattern: bytes) -> None:
        import re2

        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        self._pattern: Any = re2.compile(pattern, options)

    def lets_through(self, text: str) -> bool:
        """Whether to look closer at it."""
        raw = text.encode("utf-8", "surrogatepass")
        return self._pattern.search(raw) is not None


def of_literals(values: Iterable[str]) -> Sieve:
    """For texts in which one of these stands."""
    return Sieve(b"|".join(map(_literal, values)))


def of_keys(begins: Iterable[str], behind: Iterable[str]) -> Sieve:
    """For keys that begin so, not within a word, or stand behind these; each has 8 signs more."""
    words, anywhere = (b"|".join(map(_literal, part)) for part in (begins, behind))
    pattern = rb"(?:(?:^|[^0-9A-Za-z])(?:%b)|%b)[A-Za-z0-9_.:/+=-]{8}" % (words, anywhere)
    return Sieve(pattern)


def of_numbers() -> Sieve:
    """For numbers of phones and cards: six digits with not much between them."""
    return Sieve(_NUMBER)


def of_names(words: Iterable[str]) -> Sieve:
    """For names with one of these words in them, in any case, that something is assigned to."""
    named = b"|".join(map(_literal, words))
    assigned = rb"[\w\x80-\xff-]*(?:\\*[\"'`])?[ \t]{0,4}[=:]"
    flag = rb"--[\w.\x80-\xff-]*"
    return Sieve(rb"(?i)(?:%b)%b|%b(?:%b)" % (named, assigned, flag, named))


def is_caseless(text: str) -> bool:
    """Whether there are letters in a text that only become ones of ASCII in lower case."""
    return not text.isascii() and any(letter in text for letter in _CASELESS)


def _literal(text: str) -> bytes:
    import re2

    escaped: bytes = re2.escape(text.encode("utf-8", "surrogatepass"))
    return escaped
