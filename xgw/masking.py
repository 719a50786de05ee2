"""Secrets taken out of text, bodies, headers and URLs before they are stored, logged or shown.

Two kinds go: the values of credential-named headers, fields and query parameters (which names
those are, `config.credentials` knows), and the configured keys themselves wherever they turn up:
also JSON-escaped, percent-encoded, or partly quoted as providers do in errors (`sk-abcd***wxyz`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote, unquote_plus

from xgw.config.credentials import (
    MASK,
    PASSTHROUGH,
    SHORTEST_SECRET,
    is_credential_name,
    is_credential_parameter,
)
from xgw.credential_fields import without_credentials
from xgw.resent import Body

__all__ = ["MASK", "Masker"]

_MASK = MASK.encode()
_BACKSLASH = ord("\\")
_Span = tuple[int, int]
_URL_HEADERS = frozenset({"content-location", "location", "referer"})
_AUTHORITY = re.compile(r"\A((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)[^/?#]*@")
_PARAMETER = re.compile(r"(?<=[?&;#])([^?=&;#]+)=([^&;#]*)")

_ISSUED_START = b"xk-"
_ISSUED = re.compile(rb"xk-[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])")
"""A client key that xgw made: the store has its digest alone, but knows one by its looks."""

_FILLER = (
    rb"(?:\*{2,}|\.{3,}|[xX]{4,}|(?:\xe2\x80\xa6|\\u2026)+|(?:\xe2\x80\xa2|\xc2\xb7|\\u2022){2,})"
)
_FILLER_AFTER = re.compile(_FILLER)
_FILLER_BEFORE = re.compile(_FILLER + rb"\Z")
_STRICT_FILLER_BEFORE = re.compile(
    rb"(?:\*{3,}|(?:\xe2\x80\xa2|\xc2\xb7|\\u2022){3,}|\bend(?:s|ing) (?:in|with):? ?\\?[\"'`]?)\Z"
)
"""What may stand before a key's end alone; dots and bold type stand before any word."""

_LONGEST_FILLER = 256
_MOST_PLACES = 10_000
_HEAD, _TAIL = 6, 4
"""Characters of a key's begin and end that are looked for: short ones take long to look for."""

_ENOUGH_BEGIN, _ENOUGH_END, _LONG_BEGIN = 3, 2, 10
"""Characters that give a key away: of both sides together, or of its begin alone."""


class Masker:
    """Masks these `secrets` and everything that goes by a credential's name."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = frozenset(secrets) - {PASSTHROUGH}
        long = (secret for secret in self._secrets if len(secret) >= SHORTEST_SECRET)
        self._long = sorted(long, key=len, reverse=True)
        self._keys = [_parts(secret) for secret in self._long]
        self._spellings = [spelling for secret in self._long for spelling in _spellings(secret)]

    def including(self, headers: Iterable[tuple[str, str]]) -> Masker:
        """A masker that knows the credentials in these headers too.

        For a call whose client's own credential goes to the upstream, which may quote it.
        """
        found = {
            part
            for name, value in headers
            if is_credential_name(name)
            for part in (value, value.rpartition(" ")[2])
        }
        return self if found <= self._secrets else Masker(self._secrets | found)

    def text(self, text: str) -> str:
        """`text` without configured secrets."""
        raw = _encoded(text)
        masked = self._without_secrets(raw)
        return text if masked is raw else masked.decode("utf-8", "surrogatepass")

    def identifier(self, text: str) -> str:
        """`text` without configured secrets if a whole one stands in it.

        One that only looks like a shortened secret is kept: two of them must not become one.
        """
        return self.text(text) if any(secret in text for secret in self._long) else text

    def value(self, value: Any) -> Any:
        """Decoded JSON, every text in it without configured secrets."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(entry) for entry in value]
        if isinstance(value, dict):
            return {name: self.value(inner) for name, inner in value.items()}
        return value

    def body(self, raw: bytes, names: Collection[str] | None = None) -> bytes:
        """A body without configured secrets and without the credentials of its top level.

        Those are string values of credential-named fields, where the body is a JSON object.
        Everything else stays byte for byte; a body without secrets is returned as it is.
        `names` are the fields' names, where a strict reader has found them already.
        """
        return self._without_secrets(without_credentials(raw, names))

    @property
    def secrets(self) -> frozenset[str]:
        """What is masked wherever it turns up."""
        return self._secrets

    @cached_property
    def splits_at_braces(self) -> bool:
        """Whether nothing that is masked can have a `{` or `}` in it: then objects that stand in a
        body can be masked one by one."""
        return not any("{" in secret or "}" in secret for secret in self._long)

    def request(self, body: Body) -> Body:
        """A request's body, masked; its known messages were when they came first."""
        if body.has_nothing_for is self:
            return body
        masked = self.body(body.folded)
        return body if masked is body.folded else Body.plain(self.body(body.whole))

    def headers(self, headers: Iterable[tuple[str, str]]) -> list[list[str]]:
        """[name, value] pairs, the values of credential-named ones masked whole."""
        masked = [*map(list, headers)]
        if not _are_plain(tuple([name for name, _ in masked])):
            masked = [[name, _header_value(name, value)] for name, value in masked]
        together = "\n".join([value for _, value in masked])
        if self.text(together) == together:
            return masked
        return [[name, self.text(value)] for name, value in masked]

    def url(self, url: str) -> str:
        """A URL, or a path and query, without user and password and credentials in the query."""
        return self.text(_without_url_credentials(url))

    def _without_secrets(self, raw: bytes) -> bytes:
        # Not by `in`: Python 3.11 raises and drops an error first, whenever bytes are looked for.
        if raw.find(_ISSUED_START) >= 0:
            raw = _ISSUED.sub(_MASK, raw)
        for spelling in self._spellings:
            raw = raw.replace(spelling, _MASK)
        # A backslash alone is found ten times as fast, and many bodies have none.
        if (
            _BACKSLASH in raw
            and self._long
            and raw.find(b"\\u00") >= 0
            and self._escape.search(raw)
        ):
            raw = self._escaped.sub(_MASK, raw)
        for _, head, tail in self._keys:
            if raw.find(head) >= 0 or raw.find(tail) >= 0:
                return _without_keys(raw, self._keys)
        return raw

    @cached_property
    def _escape(self) -> re.Pattern[bytes]:
        r"""Finds a `\u00…` that may stand for a character of a secret: hardly any body has one."""
        codes = sorted({f"{ord(character):04x}" for secret in self._long for character in secret})
        return _any_of([f"\\\\u(?i:{code})".encode() for code in codes])

    @cached_property
    def _escaped(self) -> re.Pattern[bytes]:
        return _any_of([b"".join(map(_spelled, secret)) for secret in self._long])


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=64)
def _are_plain(names: tuple[str, ...]) -> bool:
    """Whether headers of these names are masked like any text: most answers have the same ones."""
    return not any(is_credential_name(name) or name.lower() in _URL_HEADERS for name in names)


def _header_value(name: str, value: str) -> str:
    if is_credential_name(name):
        return MASK
    return _without_url_credentials(value) if name.lower() in _URL_HEADERS else value


def _without_url_credentials(url: str) -> str:
    url = _AUTHORITY.sub(r"\1", url)
    return _PARAMETER.sub(_parameter, url) if "=" in url else url


def _parameter(found: re.Match[str]) -> str:
    if not is_credential_parameter(unquote_plus(found[1])):
        return found[0]
    return f"{found[1]}={MASK}"


def _parts(secret: str) -> tuple[bytes, bytes, bytes]:
    """A secret, its begin and its end."""
    key = _encoded(secret)
    return key, key[:_HEAD], key[-_TAIL:]


@lru_cache(maxsize=256)
def _spellings(secret: str) -> tuple[bytes, ...]:
    """The other ways in which a secret is usually written in JSON and in URLs."""
    in_json = json.dumps(secret, ensure_ascii=False)[1:-1]
    spellings = {in_json, in_json.replace("/", "\\/"), quote(secret, "", errors="surrogatepass")}
    return tuple(_encoded(spelling) for spelling in spellings - {secret})


def _spelled(character: str) -> bytes:
    r"""Matches a character as itself, after a backslash, or as JSON's `\u…`."""
    itself = re.escape(_encoded(character))
    backslash = b"" if character.isalnum() else rb"\\?"
    return rb"(?:%b%b|\\u(?i:%04x))" % (backslash, itself, ord(character))


def _any_of(patterns: list[bytes]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(patterns) or rb"(?!)")


def _without_keys(raw: bytes, parts: Iterable[tuple[bytes, bytes, bytes]]) -> bytes:
    """`raw` without the keys that have these parts, and without what quotes parts of them."""
    keys = [key for key, head, tail in parts if head in raw or tail in raw]
    for key in keys:
        raw = raw.replace(key, _MASK)
    spans = [span for key in keys for span in (*_begun(raw, key), *_ended(raw, key))]
    pieces, kept_to = [], 0
    for start, stop in sorted(spans):
        if start >= kept_to:
            pieces += [raw[kept_to:start], _MASK]
        kept_to = max(kept_to, stop)
    return b"".join([*pieces, raw[kept_to:]]) if pieces else raw


def _begun(raw: bytes, key: bytes) -> Iterator[_Span]:
    """Where the begin of `key`, a filler and its end stand, or a long begin and a filler."""
    for at in _places(raw, key[:_HEAD]):
        begin = _common_prefix(raw[at : at + len(key)], key)
        if filler := _FILLER_AFTER.match(raw, at + begin):
            end = _length_of_end(raw, filler.end(), key)
            if end >= _ENOUGH_END or begin >= _LONG_BEGIN:
                yield at, filler.end() + end


def _ended(raw: bytes, key: bytes) -> Iterator[_Span]:
    """Where a filler and the end of `key` stand, and perhaps its begin before them."""
    for at in _places(raw, key[-_TAIL:]):
        stop = at + _TAIL
        start = stop - _common_prefix(raw[max(0, stop - len(key)) : stop][::-1], key[::-1])
        far = max(0, start - _LONGEST_FILLER)
        if filler := _FILLER_BEFORE.search(raw, far, start):
            begin = _length_of_begin(raw, filler.start(), key)
            if begin >= _ENOUGH_BEGIN:
                yield filler.start() - begin, stop
        if filler := _STRICT_FILLER_BEFORE.search(raw, far, start):
            yield filler.start(), stop


def _places(raw: bytes, part: bytes) -> Iterator[int]:
    """Where `part` stands; not more of them than a body of text has, so that none takes long."""
    at = -1
    for _ in range(_MOST_PLACES):
        at = raw.find(part, at + 1)
        if at < 0:
            return
        yield at


def _common_prefix(one: bytes, other: bytes) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length


def _length_of_end(raw: bytes, at: int, key: bytes) -> int:
    """How many of the last bytes of `key` stand at `at`."""
    lengths = range(len(key) - 1, 0, -1)
    return next((length for length in lengths if raw.startswith(key[-length:], at)), 0)


def _length_of_begin(raw: bytes, at: int, key: bytes) -> int:
    """How many of the first bytes of `key` stand just before `at`."""
    lengths = range(len(key) - 1, 0, -1)
    return next((length for length in lengths if raw.endswith(key[:length], 0, at)), 0)
