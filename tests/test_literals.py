"""Where long string literals begin and end in a body, whatever is escaped in it."""

from __future__ import annotations

import random

import pytest

from xgw.store.templates import LONG, take_out_texts

LITERALS = [
    b'"' + inside * LONG + b'"'
    for inside in (b"a", b"\\n", b'\\"', b'a\\"b', b"\\\\", b'\\\\\\"', b"\\u00e4", "ä".encode())
]
AROUND = [b"", b'"short"', b'""', b'"\\\\"', b'"\\""', b'"a\\nb"', b'"ends in \\\\"', b"1, null"]


@pytest.mark.parametrize("literal", LITERALS)
@pytest.mark.parametrize("around", AROUND)
def test_a_long_literal_is_taken_out_whole(literal: bytes, around: bytes) -> None:
    before, after = b"[" + around + b", ", b", " + around + b"]"
    taken = take_out_texts(before + literal + after)
    assert taken == [before.decode(), literal, after.decode()]


def test_random_quotes_and_backslashes_are_read_as_json_reads_them() -> None:
    chance = random.Random(7)
    pieces = [b'"', b"\\", b'\\"', b"\\\\", b"{}", b"a" * (LONG - 2), b"\n", b'"b"']
    for _ in range(3000):
        content = b"[" + b"".join(chance.choices(pieces, k=chance.randrange(12))) + b" " * LONG
        taken = take_out_texts(content) or []
        literals = [piece for piece in taken if isinstance(piece, bytes)]
        assert literals == [one for one in _literals(content) if len(one) >= LONG]


def _literals(content: bytes) -> list[bytes]:
    """Read byte by byte; one that never ends goes on to the last."""
    found, start, at = [], -1, 0
    while at < len(content):
        byte = content[at : at + 1]
        if start >= 0 and byte == b"\\":
            at += 1
        elif byte == b'"' and start >= 0:
            found.append(content[start : at + 1])
            start = -1
        elif byte == b'"':
            start = at
        at += 1
    return [*found, content[start:]] if start >= 0 else found
