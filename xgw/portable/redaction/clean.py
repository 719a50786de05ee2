"""Texts without anything to mask: names, words, and what is resent again and again."""

from __future__ import annotations

from hashlib import blake2b

_MOST = 20_000
_SHORT = 80


class Clean:
    """Remembers texts, the longer ones by their hash; the newest of them."""

    def __init__(self) -> None:
        self._met: set[str | bytes] = set()
        self._before: set[str | bytes] = set()

    def key_of(self, text: str) -> str | bytes:
        """What a text is remembered by."""
        if len(text) <= _SHORT:
            return text
        return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def add(self, key: str | bytes) -> None:
        """Remember the text of this key."""
        if len(self._met) >= _MOST:
            self._before, self._met = self._met, set()
        self._met.add(key)

    def __contains__(self, key: str | bytes) -> bool:
        return key in self._met or key in self._before
