"""What one watcher receives: stored events after its cursor, the text so far, then what happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xgw import clock
from xgw.events import Envelope
from xgw.hub import Hub, Subscription
from xgw.queries import events
from xgw.recording.live import LiveSteps
from xgw.store.database import Store

PAGE = 500

Stream = tuple[str | None, object, object]


@dataclass(frozen=True, slots=True)
class Watch:
    """What a watcher wants; None is everything, for `after` it is from now on."""

    project: str | None
    session_id: str | None = None
    types: frozenset[str] | None = None
    after: int | None = None
    turn_id: str | None = None

    def wants(self, envelope: Envelope) -> bool:
        """Whether this event is for the watcher."""
        return (
            (self.types is None or envelope.type in self.types)
            and (self.project is None or envelope.project_id == self.project)
            and (self.session_id is None or envelope.session_id == self.session_id)
            and (self.turn_id is None or envelope.turn_id == self.turn_id)
        )


class Feed:
    """One watcher's events in order, none missed and none twice; for one thread."""

    def __init__(self, store: Store, hub: Hub, live: LiveSteps, watch: Watch) -> None:
        self.watch = watch
        self._store = store
        self._hub = hub
        self._live = live
        self._read_upto = watch.after or 0
        self._ended: set[str | None] = set()
        self._lengths: dict[Stream, int] = {}

    def batches(self, idle_seconds: float) -> Iterator[list[Envelope]]:
        """Events as they come; an empty batch after `idle_seconds` without any.

        Ends when the server shuts down, and after `stream.lagged` if this watcher is too slow.
        """
        # Most of a long history is read before a mailbox fills up, the rest after it is there.
        yield from self._stored()
        with self._hub.subscribe(self.watch.wants) as mailbox:
            yield from self._stored()
            yield from self._joined(mailbox)
            while True:
                arrived = mailbox.get(idle_seconds)
                batch = self._fresh(arrived) + self._whole_again(mailbox)
                if not arrived and mailbox.closed:
                    return
                if not arrived and mailbox.lagged is not None:
                    yield [_lagged(mailbox.lagged)]
                    return
                if batch or not arrived:
                    yield batch

    def _stored(self) -> Iterator[list[Envelope]]:
        """What the store has after the cursor, page by page."""
        if self.watch.after is None:
            return
        while True:
            page = events.list_events(
                self._store,
                self._read_upto,
                PAGE,
                project=self.watch.project,
                session_id=self.watch.session_id,
                turn_id=self.watch.turn_id,
                types=self.watch.types,
            )
            if not page:
                return
            self._read_upto = page[-1].seq or self._read_upto
            ended = {e.step_id for e in page if e.type == "step.completed"}
            self._ended = ended if len(page) == PAGE else self._ended | ended
            yield page
            if len(page) < PAGE:
                return

    def _joined(self, mailbox: Subscription) -> Iterator[list[Envelope]]:
        """The whole text so far of steps under way, then what came in since the subscription.

        A step whose start is still in the mailbox is left out: all of its frames are there too.
        """
        whole = self._live.snapshot(self.watch.wants)
        arrived = mailbox.get(0)
        begun = {e.step_id for e in arrived if e.type == "step.started"}
        batch = self._replaced(whole, lambda e: e.step_id not in begun) + self._fresh(arrived)
        if batch:
            yield batch

    def _whole_again(self, mailbox: Subscription) -> list[Envelope]:
        """The whole text of streams that lost frames because this watcher was slow."""
        starved = mailbox.take_starved()
        if not starved:
            return []
        whole = self._live.snapshot(self.watch.wants)
        return self._replaced(whole, lambda e: _stream_of(e) in starved)

    def _replaced(
        self, whole: list[Envelope], wanted: Callable[[Envelope], bool]
    ) -> list[Envelope]:
        frames = [e for e in whole if wanted(e) and e.step_id not in self._ended]
        for frame in frames:
            self._lengths[_stream_of(frame)] = frame.payload["text_length"]
        return frames

    def _fresh(self, arrived: list[Envelope]) -> list[Envelope]:
        """What of a mailbox's content the watcher has not got yet."""
        fresh = [e for e in arrived if self._is_new(e)]
        # Whatever comes in from now on was made after the whole texts were taken.
        self._lengths.clear()
        return fresh

    def _is_new(self, envelope: Envelope) -> bool:
        if envelope.seq is not None:
            return envelope.seq > self._read_upto
        if envelope.step_id in self._ended:
            return False
        if envelope.type != "step.delta":
            return True
        known = self._lengths.get(_stream_of(envelope), 0)
        return bool(envelope.payload["text_length"] > known)


def _stream_of(envelope: Envelope) -> Stream:
    return envelope.step_id, envelope.payload.get("kind"), envelope.payload.get("index")


def _lagged(resume_after: int) -> Envelope:
    payload = {"resume_after": resume_after}
    return Envelope(None, "stream.lagged", clock.now(), "", None, None, None, None, payload)
