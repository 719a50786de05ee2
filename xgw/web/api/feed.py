"""What one watcher receives: stored events after its cursor, the text so far, then what happens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from xgw import clock
from xgw.events import Envelope
from xgw.hub import Batch, Hub, Stream, Subscription, stream_of
from xgw.queries import events
from xgw.recording.live import LiveSteps
from xgw.store.database import Store

PAGE = 500


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events; None is all of them. Watchers with equal ones are served together."""

    project: str | None = None
    session_id: str | None = None
    types: frozenset[str] | None = None
    turn_id: str | None = None

    def __call__(self, envelope: Envelope) -> bool:
        """Whether this event is one of them."""
        return (
            (self.types is None or envelope.type in self.types)
            and (self.project is None or envelope.project_id == self.project)
            and (self.session_id is None or envelope.session_id == self.session_id)
            and (self.turn_id is None or envelope.turn_id == self.turn_id)
        )


@dataclass(frozen=True, slots=True)
class Watch:
    """What a watcher wants, and the `seq` after which; None is from now on."""

    wanted: Wanted
    after: int | None = None


class View:
    """What one watcher has been sent, so that it misses nothing and gets nothing twice.

    In this order: all `pages`; the subscription; the `pages` since; `first`, with what the mailbox
    holds by then; from then on `fresh` and `again`. For one thread.
    """

    def __init__(self, store: Store, live: LiveSteps, watch: Watch) -> None:
        self.watch = watch
        self._store = store
        self._live = live
        self._read_upto = watch.after or 0
        self._ended: set[str | None] = set()
        self._lengths: dict[Stream, int] = {}
        self._torn: set[Stream] = set()

    def pages(self) -> Iterator[list[Batch]]:
        """What the store has after the cursor and was not read yet, page by page."""
        if self.watch.after is None:
            return
        wanted = self.watch.wanted
        while True:
            page = events.list_events(
                self._store,
                self._read_upto,
                PAGE,
                project=wanted.project,
                session_id=wanted.session_id,
                turn_id=wanted.turn_id,
                types=wanted.types,
            )
            if not page:
                return
            self._read_upto = page[-1].seq or self._read_upto
            ended = {e.step_id for e in page if e.type == "step.completed"}
            self._ended = ended if len(page) == PAGE else self._ended | ended
            yield [Batch(page)]
            if len(page) < PAGE:
                return

    def whole(self) -> list[Envelope]:
        """The whole text so far of steps under way."""
        return self._live.snapshot(self.watch.wanted)

    def first(self, whole: list[Envelope], arrived: list[Batch], told_upto: int) -> list[Batch]:
        """The `whole` texts, then what `arrived` since the subscription.

        A step whose start is in there is left out: all of its frames are there too.
        """
        begun = {e.step_id for b in arrived for e in b.envelopes if e.type == "step.started"}
        replaced = self._replaced(whole, lambda e: e.step_id not in begun)
        return replaced + self.fresh([Batch(self._joined(arrived))], told_upto)

    def again(self, starved: set[Stream]) -> list[Batch]:
        """The whole text of streams that lost frames because this watcher was slow."""
        if not starved:
            return []
        replaced = self._replaced(self.whole(), lambda e: stream_of(e) in starved)
        # The others are over: what is still to come of them follows on what was lost.
        self._torn = starved - {stream_of(e) for batch in replaced for e in batch.envelopes}
        return replaced

    def fresh(
        self, arrived: list[Batch], told_upto: int, starved: Collection[Stream] = ()
    ) -> list[Batch]:
        """What of a mailbox's content the watcher has not got yet.

        `arrived` is all that was in it for this watcher; everything up to `told_upto` had gone out
        before it was taken. Nothing of the `starved` streams, which are sent `again`.
        """
        if self._is_level and not starved:
            return arrived
        self._torn.update(starved)
        fresh = [e for batch in arrived for e in batch.envelopes if self._is_new(e)]
        # Whatever comes in from now on was made after the whole texts were taken.
        self._lengths.clear()
        self._torn.clear()
        if told_upto >= self._read_upto:
            self._read_upto, self._ended = 0, set()
        return [Batch(fresh)] if fresh else []

    def _joined(self, arrived: list[Batch]) -> Iterator[Envelope]:
        """Without pieces whose beginning went out before: their step was over when the whole texts
        were taken.
        """
        lengths = dict(self._lengths)
        for envelope in (e for batch in arrived for e in batch.envelopes):
            if envelope.type == "step.delta":
                stream, length = stream_of(envelope), envelope.payload["text_length"]
                if length - len(envelope.payload["text"]) > lengths.get(stream, 0):
                    continue
                lengths[stream] = max(length, lengths.get(stream, 0))
            yield envelope

    def _replaced(self, whole: list[Envelope], shown: Callable[[Envelope], bool]) -> list[Batch]:
        frames = [e for e in whole if shown(e) and e.step_id not in self._ended]
        for frame in frames:
            self._lengths[stream_of(frame)] = frame.payload["text_length"]
        return [Batch(frames)] if frames else []

    @property
    def _is_level(self) -> bool:
        """Whether everything that was read has gone through the mailbox since: all in it is new."""
        return not (self._read_upto or self._ended or self._lengths or self._torn)

    def _is_new(self, envelope: Envelope) -> bool:
        if envelope.seq is not None:
            return envelope.seq > self._read_upto
        if envelope.step_id in self._ended:
            return False
        if envelope.type != "step.delta":
            return True
        stream = stream_of(envelope)
        known = self._lengths.get(stream, 0)
        return stream not in self._torn and bool(envelope.payload["text_length"] > known)


class Feed:
    """One watcher's events in order, none missed and none twice; for one thread."""

    def __init__(self, store: Store, hub: Hub, live: LiveSteps, watch: Watch) -> None:
        self.watch = watch
        self._hub = hub
        self._view = View(store, live, watch)

    def batches(self, idle_seconds: float) -> Iterator[list[Batch]]:
        """Events as they come; nothing in the list after `idle_seconds` without any.

        Ends when the server shuts down, and after `stream.lagged` if this watcher is too slow.
        """
        wanted, view = self.watch.wanted, self._view
        # Most of a long history is read before a mailbox fills up, the rest after it is there.
        yield from view.pages()
        with self._hub.subscribe(wanted, session_id=wanted.session_id) as mailbox:
            yield from view.pages()
            if first := view.first(view.whole(), *take(self._hub, mailbox, 0)):
                yield first
            while True:
                arrived, told_upto = take(self._hub, mailbox, idle_seconds)
                starved = mailbox.take_starved()
                batches = view.fresh(arrived, told_upto, starved) + view.again(starved)
                if not arrived and mailbox.closed:
                    return
                if not arrived and mailbox.lagged is not None:
                    yield [Batch([lagged(mailbox.lagged)])]
                    return
                if batches or not arrived:
                    yield batches


def take(hub: Hub, mailbox: Subscription, timeout: float) -> tuple[list[Batch], int]:
    """What is in the mailbox, and the `seq` up to which everything had gone out before."""
    newest = hub.newest
    return mailbox.take(timeout), newest


def lagged(resume_after: int, session_id: str | None = None) -> Envelope:
    """What a watcher is told that was too slow."""
    payload = {"resume_after": resume_after}
    return Envelope(None, "stream.lagged", clock.now(), "", session_id, None, None, None, payload)
