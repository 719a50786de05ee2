"""Short texts without anything to mask: names and words that come again and again."""

from __future__ import annotations

_MOST = 20_000


class Clean:
    """Remembers texts, not more than so many."""

    def __init__(self) -> None:
        self._texts: set[str] = set()

    def add(self, text: str) -> None:
        """Remember this one."""
        if len(self._texts) >= _MOST:
            self._texts.clear()
        self._texts.add(text)

    def __contains__(self, text: str) -> bool:
        return text in self._texts
