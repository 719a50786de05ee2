"""What was read so far: whether a secret stood there before it was known to be one."""

from __future__ import annotations

import os
from typing import BinaryIO

_BLOCK = 1 << 20


class Heard:
    """The texts that were read, in `file`, and where each secret was learnt."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begin = 0
        self._learnt: dict[bytes, int] = {}

    def begin(self) -> None:
        """A text is read from here on; what is learnt in it is looked for in all of it."""
        self._begin = self._file.tell()

    def add(self, text: str) -> None:
        """This was read: a text without its escapes, or a part of one."""
        self._file.write(text.encode("utf-8", "surrogatepass") + b"\n")

    def learn(self, secret: str) -> None:
        """From this text on, it is known."""
        self._learnt.setdefault(secret.encode("utf-8", "surrogatepass"), self._begin)

    def had_any(self) -> bool:
        """Whether one of the secrets stood in a text before the one that it was learnt from."""
        longest = max(map(len, self._learnt), default=0)
        last = max(self._learnt.values(), default=0)
        self._file.seek(0)
        kept, at = b"", 0
        while at < last and (block := self._file.read(min(_BLOCK, last - at))):
            text, begin = kept + block, at - len(kept)
            for secret, learnt in self._learnt.items():
                if 0 <= text.find(secret) < learnt - begin:
                    return True
            at += len(block)
            kept = text[len(text) - longest :] if longest < len(text) else text
        self._file.seek(0, os.SEEK_END)
        return False
