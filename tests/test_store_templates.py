"""Where long texts stand in a body."""

from __future__ import annotations

import random

import pytest

from xgw.store.templates import LONG, long_strings


def spans(content: bytes) -> list[tuple[int, int]]:
    """Every string literal, byte by byte; one that is not closed goes on to the end."""
    found: list[tuple[int, int]] = []
    at = 0
    while (start := content.find(b'"', at)) >= 0:
        at = start + 1
        while at < len(content) and content[at : at + 1] != b'"':
            if content[at:] == b"\\":
                break  # escapes nothing
            at += 2 if content[at : at + 1] == b"\\" else 1
        at += content[at : at + 1] == b'"'
        found.append((start, at))
    return found


@pytest.mark.parametrize("seed", range(8))
def test_marks_are_found_as_if_each_byte_was_looked_at(seed: int) -> None:
    """Whether they are far apart or not, escaped, or missing."""
    pick = random.Random(seed)
    runs = [b"x" * size for size in (3, LONG - 3, LONG - 2, LONG - 1, LONG, 900)]
    pieces = [b'"', b'"', b'"', b"\\n", b"\\\\", b'\\"', b"\\", b":", b"{", *runs]
    for _ in range(400):
        content = b"".join(pick.choices(pieces, k=pick.randrange(14)))
        long = [(start, end) for start, end in spans(content) if end - start >= LONG]
        assert long_strings(content) == long
