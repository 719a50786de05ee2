"""Finds: the places in a text that must not leave, and what is put there instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from xgw.frozen import frozen

Kind = Literal[
    "key", "secret", "cookie", "email", "phone", "card", "user", "pattern", "private-key"
]


@frozen
class Find:
    """`text[start:stop]` is a secret of this kind, `value` the secret without its spelling.

    `quote` stands around the placeholder where a JSON number gives way to it. `rest` marks what
    continues a secret that began in an earlier place: it is emptied.
    """

    start: int
    stop: int
    kind: Kind
    value: str
    quote: str = ""
    rest: bool = False

    def at(self, start: int, stop: int, quote: str | None = None) -> Find:
        """The same secret at another place."""
        marks = self.quote if quote is None else quote
        return Find(start, stop, self.kind, self.value, marks, self.rest)

    def moved(self, by: int) -> Find:
        """The same secret further on."""
        return self.at(self.start + by, self.stop + by) if by else self


def merged(finds: Iterable[Find], text: str) -> list[Find]:
    """Finds in the order of the text, none over another: what overlaps becomes one."""
    kept: list[Find] = []
    for find in sorted(finds, key=lambda find: (find.start, -find.stop)):
        if not kept or find.start >= kept[-1].stop:
            kept.append(find)
        elif find.stop > kept[-1].stop:
            first = kept.pop()
            whole = text[first.start : find.stop]
            kept.append(Find(first.start, find.stop, first.kind, whole))
    return kept
