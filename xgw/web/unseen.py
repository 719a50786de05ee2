"""Characters that make a text read as something else, drawn as what they are.

Those that turn the reading direction, those that take no room, and controls. On a page they stand
in an element that shows their code and holds them: they act on nothing outside of it, and what is
copied is the true text. Where no element can stand, the code alone does.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from markupsafe import Markup, escape

MOST_DRAWN = 2000
"""Elements in one text; what comes after them is spelled out."""

_JOINERS, _MARKS = "\u200c\u200d", "\u061c\u200e\u200f"
_ALL = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff"
)
_RUN = re.compile(f"[{_ALL}]{{1,8}}")
_EACH = re.compile(f"(?!\r)[{_ALL}]")
_UNHELD = re.compile("[\0\ud800-\udfff]")
"""No page can hold these."""

# What is written with joiners: scripts other than Latin, and pictures.
_JOINED = re.compile(
    "[\u0300-\u061b\u061d-\u180d\u180f-\u1fff\u20d0-\u2fff\u3000-\ud7ff\ue000-\ufefe"
    "\U00010000-\U000dffff]"
)
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001eeff]"
)
_PICTURE = re.compile(
    "(?<=\U0001f3f4)[\U000e0061-\U000e007a]{2,6}\U000e007f"
    "|(?<=[\u3400-\u9fff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"
)
"""What follows on a flag or an ideograph, and is part of it."""

_SIGN = re.compile('<i class="unseen" [^>]*>[^<]*</i>')

Run = re.Match[str]


def literal(value: Any) -> Any:
    """A text with all of them drawn; anything else as it is, and so is what is HTML already."""
    return _drawn(value, lambda run: False) if _is_suspect(value) else value


def prose(value: Any, whole: str | None = None) -> Any:
    """As `literal`, for what people read as language: what writing needs is left.

    Joiners beside scripts and pictures that have them, marks of a direction in a text that has
    letters from right to left, flags, variants of ideographs. `whole` is what the text is of.
    """
    if not _is_suspect(value):
        return value
    right_to_left = _RIGHT_TO_LEFT.search(value if whole is None else whole) is not None
    return _drawn(value, functools.partial(_is_needed, right_to_left))


def spelled(value: Any) -> Any:
    """A text with the codes in their place, for where no element can stand."""
    return _RUN.sub(_codes, value.replace("\r\n", "\n")) if _is_suspect(value) else value


def spelled_json(text: str) -> str:
    """JSON of the same value, in which those of its strings are written as escapes."""
    return _EACH.sub(_escape, text)


def signs_in(text: str) -> Markup:
    """What `prose` draws in a text, each once, a dozen at most: for beside a field that has it."""
    shown = prose(text)
    found = dict.fromkeys(_SIGN.findall(shown) if isinstance(shown, Markup) else ())
    return Markup(" ".join([*found][:12]))


def is_full(text: str) -> bool:
    """Whether it has more of them than are drawn in one text."""
    return _is_suspect(text) and sum(1 for _ in _RUN.finditer(text)) > MOST_DRAWN


FILTERS: dict[str, Callable[..., Any]] = {
    "literal": literal,
    "prose": prose,
    "spelled": spelled,
    "spelled_json": spelled_json,
    "signs_in": signs_in,
}


def _is_suspect(value: Any) -> bool:
    if not isinstance(value, str) or isinstance(value, Markup):
        return False
    plain = value.isascii() and value.isprintable()
    return not plain and _RUN.search(value) is not None


def _drawn(text: str, is_left: Callable[[Run], bool]) -> Markup:
    count = 0

    def shown(run: Run) -> str:
        nonlocal count
        if is_left(run):
            return run[0]
        count += 1
        return _element(run[0]) if count <= MOST_DRAWN else _codes(run)

    # A page has one character for a line's end; escaping brings none of those that are drawn.
    return Markup(_RUN.sub(shown, str(escape(text.replace("\r\n", "\n")))))


def _is_needed(right_to_left: bool, run: Run) -> bool:
    text, start, end = run.string, run.start(), run.end()
    if not run[0].strip(_JOINERS):
        return any(map(_JOINED.match, (text[start - 1 : start], text[end : end + 1])))
    if right_to_left and not run[0].strip(_MARKS + _JOINERS):
        return True
    return _PICTURE.fullmatch(text, start, end) is not None


@functools.lru_cache(512)
def _element(characters: str) -> str:
    held = _UNHELD.sub("\ufffd", characters).replace("\r", "&#13;")
    return f'<i class="unseen" data-code="{_RUN.sub(_codes, characters)}">{held}</i>'


def _codes(run: Run) -> str:
    return "".join(map(_code, run[0]))


def _code(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escape(found: Run) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
