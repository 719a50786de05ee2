"""Recorded text that does nothing where it is read: no escape sequence, no turned direction."""

from __future__ import annotations

import re

_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)


def harmless(text: str) -> str:
    """The text with controls and what changes its direction spelled out; lines and tabs stay."""
    return _HARMFUL.sub(_spelled, text.replace("\r\n", "\n"))


def one_line(text: str, most: int = 120) -> str:
    """The text on one line, harmless, cut where it is long."""
    line = " ".join(harmless(text[: most * 4]).split())
    return line if len(line) <= most and len(text) <= most * 4 else f"{line[:most]}…"


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
