"""Request bodies that begin as an earlier one did: the messages that are known are not read again.

A conversation resends its history with each request. `Run` is what is known of its first messages,
`Body` a body in which they may be folded: a mark stands for all of them, so that parsing, masking
and rewriting have to do with what is new alone.
"""

from __future__ import annotations

import mmap
import secrets
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, overload

HASH_BYTES = 16

MARK = b'{"known":"%b"}' % secrets.token_hex(16).encode()
"""Stands for the messages that are known: an object as they are, which nobody can guess."""

LATEST = 4
"""At the ends of so many last messages a later body may part from this one: clients change these,
or add something behind them that is gone the next time."""


Piece = bytes | memoryview

# Shared memory, as it would be otherwise, takes longer to fill.
_PRIVATE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


NOTHING: Mapping[int, Any] = {}


class Hashes(Sequence[bytes]):
    """Hashes of 16 bytes in a row: of thousands of messages they take no more than that."""

    def __init__(self, joined: bytes = b"", states: Mapping[int, Any] = NOTHING) -> None:
        """`states` are hash states over the first ones, by how many these are."""
        self.joined = joined
        self._states = dict(states)

    def then(self, more: bytes) -> Hashes:
        """These and more behind them; what is known of their fold is not worked out again."""
        latest = sorted(self._states.copy().items())[-LATEST:]
        return Hashes(self.joined + more, dict(latest))

    @cached_property
    def fold(self) -> bytes:
        """One hash over all of them."""
        count = max(self._states.copy(), default=0)
        state = self._states[count].copy() if count else blake2b(digest_size=HASH_BYTES)
        state.update(memoryview(self.joined)[count * HASH_BYTES :])
        self._states[len(self)] = state
        digest: bytes = state.digest()
        return digest

    def _states_upto(self, count: int) -> dict[int, Any]:
        """Those of all behind them are of another list than one that begins alike."""
        # A copy, because another thread may be adding one.
        return {n: state for n, state in self._states.copy().items() if n <= count}

    def __len__(self) -> int:
        return len(self.joined) // HASH_BYTES

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> Hashes: ...

    def __getitem__(self, at: int | slice) -> bytes | Hashes:
        if isinstance(at, slice):
            first, last, _ = slice(at.start, at.stop).indices(len(self))
            joined = self.joined[first * HASH_BYTES : last * HASH_BYTES]
            return Hashes(joined, NOTHING if first else self._states_upto(last))
        place = range(0, len(self.joined), HASH_BYTES)[at]
        return self.joined[place : place + HASH_BYTES]

    def __iter__(self) -> Iterator[bytes]:
        places = range(0, len(self.joined), HASH_BYTES)
        return (self.joined[place : place + HASH_BYTES] for place in places)


class Text:
    """Bytes that only grow at their end: what stands there never changes, so many may share it.

    Each turn of a conversation adds what is new; the system brings pages for that alone.
    """

    def __init__(self, *pieces: Piece) -> None:
        self._lock = threading.Lock()
        self.size = sum(map(len, pieces))
        """Bytes that are filled."""
        # As much again is kept free, of which nothing is taken before it is filled.
        self._memory = memoryview(mmap.mmap(-1, max(mmap.PAGESIZE, 2 * self.size), **_PRIVATE))
        at = 0
        for piece in pieces:
            self._memory[at : at + len(piece)] = piece
            at += len(piece)

    def __getitem__(self, span: slice) -> memoryview:
        return self._memory[span]

    def extended(self, size: int, more: Piece) -> Text:
        """The first `size` bytes and `more` behind them: this text, if these are all of it."""
        with self._lock:
            end = size + len(more)
            if size == self.size and end <= len(self._memory):
                self._memory[size:end] = more
                self.size = end
                return self
        return Text(self._memory[:size], more)


@dataclass(frozen=True, slots=True)
class Run:
    """The first elements of a list as they stand in `text`, and their hashes.

    `ends` are where each one ends; `gap` is what is between each two. `states` are
    hash states of texts that begin with these elements: by what stands before them and by how many
    there are.
    """

    text: Text = field(repr=False)
    ends: array[int]
    hashes: Hashes
    gap: bytes
    states: dict[tuple[bytes, int], Any]

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def size(self) -> int:
        """Bytes of the elements and what is between them."""
        return self.ends[-1]

    def content(self) -> memoryview:
        """The elements and what is between them."""
        return self.text[: self.size]

    def element(self, position: int) -> bytes:
        """One element's bytes."""
        begin = self.ends[position - 1] + len(self.gap) if position else 0
        return bytes(self.text[begin : self.ends[position]])

    def first(self, count: int) -> Run:
        """The first ones alone."""
        return Run(self.text, self.ends[:count], self.hashes[:count], self.gap, self.states)

    def state(self, before: bytes) -> Any:
        """A hash state, the caller's own, of this run after `before`."""
        known = self.states.get((before, len(self)))
        if known is not None:
            return known.copy()
        state = blake2b(before, digest_size=HASH_BYTES)
        state.update(self.content())
        return state

    def with_states_of(self, other: Run | None) -> Run:
        """This run, fit for what stood before an equal one too."""
        if other is None or other.hashes.joined != self.hashes.joined or other.gap != self.gap:
            return self
        states = self.states | other.states
        return Run(self.text, self.ends, self.hashes, self.gap, states)


class Body:
    """A JSON body: what stands `before` its known messages, these, what comes `after` them.

    Without a `run` all of it is `after`. `has_nothing_for` is the masker that has looked through
    all of it and found nothing.
    """

    has_nothing_for: object = None

    def __init__(
        self, before: bytes, run: Run | None, after: bytes, whole: bytes | None = None
    ) -> None:
        self.before = before
        self.run = run
        self.after = after
        if whole is not None:
            self.whole = whole

    @classmethod
    def plain(cls, whole: bytes) -> Body:
        """A body of which nothing is known."""
        body = cls(b"", None, whole, whole)
        body.folded = whole
        return body

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """All of its bytes, one after the other; they are not joined for it."""
        if self.run is None:
            return (self.whole,)
        return (self.before, self.run.content(), self.after)

    @property
    def size(self) -> int:
        """How many bytes it has."""
        if self.run is None:
            return len(self.whole)
        return len(self.before) + self.run.size + len(self.after)

    @cached_property
    def whole(self) -> bytes:
        """All of its bytes in one: of a long conversation that takes as long as receiving it."""
        return b"".join((self.before, self.run.content() if self.run else b"", self.after))

    @cached_property
    def folded(self) -> bytes:
        """Its bytes with the mark for what is known."""
        return self.whole if self.run is None else b"".join((self.before, MARK, self.after))

    def edited(self, folded: bytes) -> Body:
        """This body after a change around its known messages; the same one if there is none."""
        if folded is self.folded:
            return self
        if self.run is None:
            return Body.plain(folded)
        before, _, after = folded.partition(MARK)
        return Body(before, self.run, after)


def grown(
    body: Body, before: bytes, new: Sequence[bytes], gap: bytes, hashes: Hashes, after: bytes
) -> tuple[Run, bytes]:
    """The run of all messages of a body, and the body's own hash.

    `new` are those behind what is known of it, `hashes` those of all, `before` and `after` what is
    around the list.
    """
    known = body.run
    ends, hashed = (known.ends[:], known.size) if known else (array("Q"), 0)
    first = position = hashed
    for element in new:
        position += len(element) + (len(gap) if ends else 0)
        ends.append(position)
    state = known.state(before) if known else blake2b(before, digest_size=HASH_BYTES)
    states = known.states if known else {}
    latest = range(max(1, len(ends) - LATEST + 1), len(ends) + 1)
    kept = {(before, n): states[before, n] for n in latest if (before, n) in states}
    begin = 0 if known else len(before)
    added = memoryview(body.after)[begin : begin + position - first]
    for count in latest:
        if ends[count - 1] >= hashed:
            state.update(added[hashed - first : ends[count - 1] - first])
            hashed = ends[count - 1]
            kept[before, count] = state.copy()
    state.update(after)
    text = known.text.extended(first, added) if known else Text(added)
    return Run(text, ends, hashes, gap, kept), state.digest()
