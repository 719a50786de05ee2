"""Requests as a shell script of curl: what was sent can be sent again, byte for byte."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import BinaryIO

from xgw.portable.formats.harmless import one_line
from xgw.portable.formats.sendable import Sendable, Text, sendables
from xgw.portable.formats.shelf import shelved
from xgw.portable.source import Source

_HEAD = """\
#!/bin/sh
# Requests that xgw recorded, to be sent again. Keys come from the environment.
"""
_UNSAFE = re.compile(rb"[^ -~]|[\\%']")


def write_curl(source: Source, out: BinaryIO) -> Iterator[str]:
    """Every request of a source, one command each."""
    count = left = 0
    with shelved(source) as shelf:
        out.write(_HEAD.encode())
        for request in sendables(shelf):
            left += bool(request.why)
            count += 1
            out.write(_command(request))
    if not count:
        yield "there is no request in it"
    elif left:
        yield f"{left} of {count} requests cannot be sent again: their bodies are not in the export"


def _command(request: Sendable) -> bytes:
    lines = [f"\n# {one_line(request.told, 300)}"]
    if request.why:
        lines.append(f"# It cannot be sent again: {request.why}.")
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")
    lines += [f': "${{{name}:?set it to the key}}"' for name in request.variables]
    curl = [
        f"curl -sS --no-buffer --globoff --path-as-is -X {shlex.quote(request.method)}",
        *(f"-H {_header(name, value)}" for name, value in request.headers),
        *(f"-H '{name}:'" for name in _unsaid(request)),
        *([] if request.body is None else ["-H 'Expect:'", "--data-binary @-"]),
        _quoted(request.url),
    ]
    body = b"" if request.body is None else _printed(request.body) + b" | "
    told = "\n".join(lines).encode("utf-8", "replace") + b"\n"
    return told + body + " \\\n  ".join(curl).encode("utf-8", "replace") + b"\necho\n"


def _unsaid(request: Sendable) -> list[str]:
    """Headers that curl would add by itself."""
    said = {name.lower() for name, _ in request.headers}
    return [name for name in ("Accept", "User-Agent", "Content-Type") if name.lower() not in said]


def _header(name: str, value: Text) -> str:
    """A header as curl takes it: one without a value ends in a semicolon."""
    return _quoted((f"{name};",) if value == ("",) else (f"{name}: {value[0]}", *value[1:]))


def _quoted(text: Text) -> str:
    """Texts in quotes, the variables between them read by the shell."""
    pieces = (shlex.quote(p) if n % 2 == 0 else f'"${{{p}}}"' for n, p in enumerate(text))
    return "".join(piece for piece in pieces if piece != "''") or "''"


def _printed(body: bytes) -> bytes:
    r"""The shell's own `printf` of these bytes, which no limit of an argument's size holds for.

    Text stands there as it is; with a NUL or other controls or what is no UTF-8, all but plain
    letters is spelled as `\ooo`.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(character >= " " or character in "\n\t" for character in text) and "\x7f" not in text:
        return b"printf '%s' " + shlex.quote(text).encode()
    return b"printf '" + _UNSAFE.sub(_octal, body) + b"'"


def _octal(found: re.Match[bytes]) -> bytes:
    return b"%%" if found[0] == b"%" else b"\\%03o" % found[0][0]
