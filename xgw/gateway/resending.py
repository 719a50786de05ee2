"""What sessions sent last: a body that begins in the same way is known so far.

Only what needs no leniency and no masking is kept, so that a known message may be passed over.
Memory is bounded; what falls out of it is worked out anew.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator

from xgw.frozen import frozen
from xgw.gateway.conversation import Conversation, Roles
from xgw.masking import Masker
from xgw.resent import HASH_BYTES, LATEST, Body, Run
from xgw.store.payloads import RUNS_FROM, Stored

KEPT_BYTES = 32 << 20
KEPT_BODIES = 256
PLACE_BYTES = LATEST * (HASH_BYTES + 8)
ENDING = 32
"""So many bytes at the end of a run are compared first: hardly any two runs agree in them."""

_LIST = re.compile(rb'"messages"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*(?=\{)')
_HEAD_BYTES = 1 << 18
"""The list is looked for in the beginning of a body: tools may stand before it."""


@frozen
class Known:
    """The first messages of a body, and who speaks in them."""

    run: Run
    roles: Roles
    ending: bytes


@frozen
class _Sent:
    """A body as it was sent: whose, masked with what; `known` has the longest run first."""

    project_id: str
    secrets: frozenset[str]
    known: tuple[Known, ...]

    @property
    def size(self) -> int:
        """About what it takes in memory."""
        run = self.known[0].run
        around = {before for before, _ in run.states}
        return run.text.size + len(run) * PLACE_BYTES + sum(map(len, around))


@frozen
class Taken:
    """A body, and what is folded in it."""

    body: Body
    known: Known | None


class Taking:
    """A body as it comes in, block by block: what an earlier one had is compared, not kept again.

    A block is a buffer whose first `size` bytes are the body's; it may be used again afterwards.
    """

    def __init__(self, resending: Resending, project_id: str, masker: Masker) -> None:
        self._resending = resending
        self._project_id = project_id
        self._masker = masker
        self._candidates: tuple[Known, ...] = ()
        self._equal = 0
        self._before = b""
        self._after: list[bytes] = []
        self._known: Known | None = None
        self._compares = False

    def begin(self, block: bytearray, size: int) -> bool:
        """The first block; whether to go on like this: else there is nothing to compare it with."""
        place = _LIST.search(block, 0, min(size, _HEAD_BYTES))
        if place is None or size < RUNS_FROM:
            return False
        start = place.end()
        for candidates in self._resending.sent_by(self._project_id, self._masker):
            content = candidates[0].run.content()[: size - start]
            if block.startswith(content, start):
                self._before = bytes(block[:start])
                self._candidates, self._known = candidates, candidates[0]
                self._compares = True
                self._compared(block, start, size, len(content))
                return True
        return False

    def feed(self, block: bytearray, size: int) -> None:
        """The next block."""
        if self._known is None or not self._compares:
            self._after.append(bytes(block[:size]))
            return
        content = self._known.run.content()[self._equal : self._equal + size]
        if block.startswith(content):
            self._compared(block, 0, size, len(content))
        else:
            self._part(block, size)

    def end(self) -> Taken:
        """The whole body is there."""
        if self._compares:
            self._part(bytearray(), 0)
        after = b"".join(self._after)
        if self._known is None:
            return self._resending.find(self._project_id, after, self._masker)
        return Taken(Body(self._before, self._known.run, after), self._known)

    def _compared(self, block: bytearray, start: int, size: int, count: int) -> None:
        """So many bytes of the block from `start` on are what an earlier body had."""
        self._equal += count
        if start + count < size:
            self._compares = False
            self._after.append(bytes(block[start + count : size]))

    def _part(self, block: bytearray, size: int) -> None:
        """It goes on in another way: as far as a shorter run goes, it is known all the same."""
        content = self._candidates[0].run.content()
        self._compares = False
        for known in self._candidates[1:]:
            end, more = known.run.size, known.run.size - self._equal
            if more >= size or not block.startswith(content[self._equal : end]):
                continue
            self._known = known
            self._after = [bytes(content[end : self._equal]), bytes(block[max(0, more) : size])]
            return
        self._known = None
        self._after = [self._before, bytes(content[: self._equal]), bytes(block[:size])]


class Resending:
    """The bodies that were sent last, newest last; for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[_Sent] = []

    def sent_by(self, project_id: str, masker: Masker) -> Iterator[tuple[Known, ...]]:
        """What is known of each body that may be compared with one of this project's."""
        for sent in reversed(self._sent):
            if sent.project_id == project_id and sent.secrets == masker.secrets:
                yield sent.known

    def find(self, project_id: str, body: bytes, masker: Masker) -> Taken:
        """The body, folded as far as it is known.

        Whether its list stands where it seems to stand is for the reader to find out: only then is
        the mark its first message.
        """
        place = _LIST.search(body, 0, _HEAD_BYTES) if len(body) >= RUNS_FROM else None
        if place is not None:
            start = place.end()
            for candidates in self.sent_by(project_id, masker):
                for known in candidates:
                    if _begins(body, start, known):
                        return Taken(_folded(body, start, known.run), known)
        return Taken(Body.plain(body), None)

    def remember(
        self,
        project_id: str,
        masker: Masker,
        conversation: Conversation,
        known: Known | None,
        stored: Iterable[Stored],
    ) -> None:
        """This conversation was sent, `known` of it known, in these bodies."""
        run = _run_of(conversation, stored)
        if run is None or not masker.splits_at_braces or run.size > KEPT_BYTES:
            return
        sent = _Sent(project_id, masker.secrets, tuple(_known_of(run, conversation)))
        with self._lock:
            # A new list: `find` reads without the lock.
            kept = [s for s in self._sent if all(known is not other for other in s.known)]
            self._sent = _bounded([*kept, sent])


def _begins(body: bytes, start: int, known: Known) -> bool:
    end = start + known.run.size
    if len(body) <= end or body[end - ENDING : end] != known.ending:
        return False
    return body.startswith(known.run.content(), start)


def _folded(body: bytes, start: int, run: Run) -> Body:
    return Body(body[:start], run, body[start + run.size :], body)


def _run_of(conversation: Conversation, stored: Iterable[Stored]) -> Run | None:
    """The run of the conversation's elements, fit for each of these bodies that has it."""
    run = None
    for body in stored:
        if body.run is not None and body.elements.joined == conversation.hashes.joined:
            run = body.run.with_states_of(run)
    return run


def _known_of(run: Run, conversation: Conversation) -> Iterable[Known]:
    """The whole run and the last few shorter ones, the longest first."""
    for count in sorted(conversation.roles, reverse=True):
        if count:
            first = run.first(count)
            yield Known(first, conversation.roles[count], bytes(first.content()[-ENDING:]))


def _bounded(sent: list[_Sent]) -> list[_Sent]:
    """The newest of them, as many as memory is for."""
    left, first = KEPT_BYTES, len(sent)
    while first and left >= sent[first - 1].size and len(sent) - first < KEPT_BODIES:
        first -= 1
        left -= sent[first].size
    return sent[first:]
