"""Requests as a Python program: what was sent can be sent again, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from xgw.portable.formats.harmless import one_line
from xgw.portable.formats.sendable import Sendable, Text, sendables
from xgw.portable.formats.shelf import shelved
from xgw.portable.source import Source

_HEAD = '''\
"""Requests that xgw recorded, to be sent again.

Keys come from the environment. Without arguments all are sent, else those of the ids given.
"""

import os
import sys
import urllib.error
import urllib.request

REQUESTS = {}
'''
_TAIL = """

def send(method, url, headers, body):
    request = urllib.request.Request(url, data=body, method=method)
    for name, value in headers:
        request.add_header(name, value)
    try:
        answer = urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        print(answer.status, answer.reason, file=sys.stderr)
        while piece := answer.read1():
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    sys.stdout.buffer.write(b"\\n")


def main(ids):
    for id in ids or REQUESTS:
        print(id, file=sys.stderr)
        send(**REQUESTS[id]())


if __name__ == "__main__":
    main(sys.argv[1:])
"""
_LINE = 88


def write_python(source: Source, out: BinaryIO) -> Iterator[str]:
    """Every request of a source in one program."""
    count = left = 0
    with shelved(source) as shelf:
        out.write(_HEAD.encode())
        for request in sendables(shelf):
            left += bool(request.why)
            out.write(_entry(request, count).encode())
            count += 1
        out.write(_TAIL.encode())
    if not count:
        yield "there is no request in it"
    elif left:
        yield f"{left} of {count} requests cannot be sent again: their bodies are not in the export"


def _entry(request: Sendable, number: int) -> str:
    told = f"\n\n# {ascii(one_line(request.told, 300))[1:-1]}\n"
    if request.why:
        return f"{told}# It cannot be sent again: {request.why}.\n"
    headers = "".join(
        f"            ({name!a}, {_text(value)}),\n" for name, value in request.headers
    )
    body = "None" if request.body is None else _bytes(request.body)
    return (
        f"{told}def request_{number + 1}():\n"
        "    return {\n"
        f'        "method": {request.method!a},\n'
        f'        "url": {_text(request.url)},\n'
        f'        "headers": [\n{headers}        ],\n'
        f'        "body": {body},\n'
        "    }\n\n\n"
        f"REQUESTS[{request.id!a}] = request_{number + 1}\n"
    )


def _text(text: Text) -> str:
    """Texts and variables, put together."""
    pieces = [
        ascii(piece) if number % 2 == 0 else f"os.environ[{piece!a}]"
        for number, piece in enumerate(text)
        if piece or number % 2
    ]
    return " + ".join(pieces) or '""'


def _bytes(body: bytes) -> str:
    """Bytes as literals, several lines if they are many; text of any script is readable in them."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        pieces = [repr(body[at : at + _LINE]) for at in range(0, len(body), _LINE)]
        return _lines(pieces or ["b''"], "")
    pieces = [_literal(text[at : at + _LINE]) for at in range(0, len(text), _LINE)]
    return _lines(pieces or ["''"], ".encode()")


def _literal(text: str) -> str:
    """A text in quotes; what could turn the direction of the program's text is escaped."""
    return repr(text)


def _lines(pieces: list[str], behind: str) -> str:
    inside = "\n".join(f"            {piece}" for piece in pieces)
    return f"(\n{inside}\n        ){behind}"
