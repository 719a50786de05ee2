"""A request's list of messages on its way into the store: its elements, and the tree over them."""

from __future__ import annotations

from functools import lru_cache

from xgw.frozen import frozen
from xgw.resent import HASH_BYTES, MARK, Body, Hashes, Run
from xgw.store.rows import digest, node_digest
from xgw.store.templates import Apart

FAN_OUT = 16
REMEMBERED = 8
REMEMBERED_BYTES = 4096 * HASH_BYTES

Levels = list[list[tuple[bytes, bytes]]]


def levels_over(hashes: bytes) -> Levels:
    """The nodes of a tree over hashes, with their own hashes; the root is the last level's."""
    # Most turns of a conversation add nothing to the tree.
    return _remembered(hashes) if len(hashes) <= REMEMBERED_BYTES else _levels_over(hashes)


def _levels_over(hashes: bytes) -> Levels:
    levels: Levels = []
    step = FAN_OUT * HASH_BYTES
    while not levels or len(levels[-1]) > 1:
        head = bytes([len(levels)])
        contents = [head + hashes[at : at + step] for at in range(0, len(hashes), step)]
        levels.append([(node_digest(content), content) for content in contents])
        hashes = b"".join([key for key, _ in levels[-1]])
    return levels


_remembered = lru_cache(maxsize=REMEMBERED)(_levels_over)


@frozen
class Listed:
    """A list's elements: those of a run, which are only known, and the new ones behind them."""

    run: Run | None
    new: list[bytes]
    hashes: Hashes

    @classmethod
    def of(cls, run: Run | None, apart: Apart) -> Listed:
        """The list of a body; in a folded one a mark stands for the run."""
        new = apart.elements if run is None else apart.elements[1:]
        joined = b"".join(map(digest, new))
        return cls(run, new, Hashes(joined) if run is None else run.hashes.then(joined))

    def element(self, position: int) -> bytes:
        """One element's bytes."""
        if self.run is None:
            return self.new[position]
        known = len(self.run)
        return self.run.element(position) if position < known else self.new[position - known]


def goes_on(body: Body, apart: Apart | None) -> bool:
    """Whether a folded body's list begins with its run, and goes on spaced alike."""
    if apart is None or body.run is None or apart.elements[0] != MARK:
        return False
    evenly = not apart.gaps or len(body.run) == 1 or apart.gap == body.run.gap
    return evenly and apart.gap is not None and apart.before == body.before
