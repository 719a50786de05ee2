"""What the measurements send: texts that pack as prose does, and requests of an exact size.

Every request holds a serial number of its own, twelve digits, so that nothing that is recorded is a
copy of what was there before.
"""

from __future__ import annotations

import itertools
import json
import random
import re

MARK = re.compile(rb"T(\d{9,}) ")
"""A streamed token: the monotonic nanosecond at which the upstream wrote it."""

_PROSE = (
    "the of and to in a is that for it as was with be by on not he this are or his from at "
    "which but have an they one all her there been their when who will more if no out so what "
    "up said about than into them can only other time new some could these two may first then "
    "do any like my now over such our man even most made after also well where before must "
    "through years much way down should because long each just state those people too good "
    "small still world between life being under never day same another know while last might "
    "great old year off come since against go came right used take three write ahead log reader "
    "page commit index record answer model token stream request session turn memory table "
    "column query latency median client server worker thread process "
)
_WORDS = _PROSE.split()
_WEIGHTS = [1 / (rank + 3) for rank in range(len(_WORDS))]
_SERIALS = itertools.count(1)


def serial() -> str:
    """A number that this process gives out once."""
    return f"{next(_SERIALS):012d}"


def text(size: int, seed: int) -> str:
    """Exactly `size` characters of words, the same for the same seed."""
    words = random.Random(seed).choices(_WORDS, _WEIGHTS, k=size // 2 + 1)
    return " ".join(words)[:size]


def message(role: str, content: str) -> bytes:
    """One message of a conversation as JSON, without spaces."""
    return json.dumps({"role": role, "content": content}, separators=(",", ":")).encode()


SYSTEM = message("system", text(600, seed=1))


class Requests:
    """Bodies of chat requests of exactly `size` bytes: a system prompt, and a question each."""

    def __init__(self, model: str, size: int, *, stream: bool) -> None:
        options = b'"stream":true,' if stream else b""
        opening = b'{"model":"%b",%b"temperature":0.2,"messages":[' % (model.encode(), options)
        self._before = opening + SYSTEM + b',{"role":"user","content":"'
        left = size - len(self._before) - len(serial()) - len(b' "}]}')
        if left < 1:
            raise ValueError(f"a request cannot be as small as {size} bytes")
        self._after = f' {text(left, seed=2)}"}}]}}'.encode()

    def next(self) -> bytes:
        """The next body."""
        return self._before + serial().encode() + self._after
