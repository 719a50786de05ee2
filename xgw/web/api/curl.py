"""A request log as a curl command that sends the same again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from xgw.masking import MASK

VARIABLE = "${API_KEY}"
"""What stands for a secret, which the store never had."""

_CURLS_OWN = frozenset(
    {"accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding"}
)
_UNSAFE = re.compile(r"[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]")


def render(row: Mapping[str, Any], body: bytes | None) -> str:
    """The command for a POSIX-like shell (bash, zsh), ending in a newline."""
    words = [f"curl {_word(row['url'] or '')}"]
    if row["method"] not in (None, "POST" if body else "GET"):
        words.append(f"-X {_word(row['method'])}")
    if row["stream"]:
        words.append("--no-buffer")
    for name, value in row["request_headers"] or ():
        if name.lower() not in _CURLS_OWN:
            words.append(f"-H {_word(_header(name, value))}")
    if body:
        words.append(f"--data-raw {_quoted(body)}")
    return " \\\n  ".join(words) + "\n"


def _header(name: str, value: str) -> str:
    if name.lower() == "authorization" and value == MASK:
        return f"{name}: Bearer {MASK}"
    return f"{name}: {value}" if value else f"{name};"


def _word(text: str) -> str:
    """A shell word; in double quotes where the shell has to put a secret in."""
    if MASK not in text:
        return _quoted(text.encode())
    parts = [re.sub(r'([\\"$`])', r"\\\1", part) for part in text.split(MASK)]
    return f'"{VARIABLE.join(parts)}"'


def _quoted(body: bytes) -> str:
    """A shell word for these bytes: plain quotes, or ANSI-C ones where there is no other way."""
    text = body.decode("utf-8", "surrogateescape")
    if _UNSAFE.search(text) is None:
        return shlex.quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSAFE.sub(_escaped, escaped)}'"


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in match[0].encode("utf-8", "surrogateescape"))
