"""Server-sent events: what a watcher gets, from a real socket."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from werkzeug.test import create_environ, run_wsgi_app

from api_server import TEAM_KEY, TOKEN, ApiServer
from filled_store import tell
from xgw import clock, ids
from xgw.events import Envelope
from xgw.hub import MAILBOX
from xgw.recording.facts import Scope
from xgw.recording.live import LiveStep
from xgw.store.transaction import Transaction
from xgw.values import Delta
from xgw.web.api.feed import PAGE, Feed, View, Wanted, Watch, take

HEARTBEAT = 0.1


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path, heartbeat_seconds=HEARTBEAT, max_watchers=20)
    yield running
    running.stop()


@dataclass(frozen=True)
class Frame:
    """One event as an EventSource dispatches it."""

    id: int | None
    type: str
    envelope: dict[str, Any]


class Watcher:
    """Reads a stream of events; leaving the `with` block is leaving the server."""

    def __init__(
        self, server: ApiServer, path: str = "/events", key: str = TOKEN, **headers: str
    ) -> None:
        self.response = server.open(path, key, **headers)
        assert self.response.status == 200, self.response.read()
        self.last_id: int | None = None
        self.comments: list[str] = []
        self._read_block()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()

    def next(self) -> Frame:
        """The next event."""
        while True:
            fields = self._read_block()
            assert fields is not None, "the stream ended"
            if "data" in fields:
                id = int(fields["id"]) if "id" in fields else None
                return Frame(id, fields["event"], orjson.loads(fields["data"]))

    def seqs(self, count: int) -> list[int | None]:
        """The cursors of the next events."""
        return [self.next().id for _ in range(count)]

    def wait_comment(self) -> str:
        """The next comment line."""
        self.comments.clear()
        while not self.comments:
            assert self._read_block() is not None, "the stream ended"
        return self.comments[0]

    def ended(self) -> bool:
        """Whether the server ends the stream, after whatever it still sends."""
        while self._read_block() is not None:
            pass
        return True

    def _read_block(self) -> dict[str, str] | None:
        fields: dict[str, str] = {}
        while line := self.response.readline().decode():
            if line == "\n":
                if "id" in fields:
                    self.last_id = int(fields["id"])
                return fields
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            else:
                self.comments.append(value)
        return None


def emit(
    server: ApiServer,
    type: str,
    session: str | None = None,
    project: str = "default",
    **payload: Any,
) -> None:
    """Commit an event and tell everyone."""
    envelope = Envelope(None, type, clock.now(), project, session, None, None, None, payload)
    server.write(lambda tx: tell(tx, envelope))


# -- frames and cursors ----------------------------------------------------------------------------


def test_a_stored_event_is_its_envelope_under_its_seq(server: ApiServer) -> None:
    seq = server.filled.event("turn.started", "sess_x", user_input="line\nbreak", n=1)
    with Watcher(server, "/events?after=0") as watcher:
        frame = watcher.next()
        headers = watcher.response.headers
    assert (frame.id, frame.type) == (seq, "turn.started")
    assert frame.envelope == {
        "seq": seq,
        "type": "turn.started",
        "at": "2026-01-02T12:00:00.000000Z",
        "session_id": "sess_x",
        "turn_id": None,
        "run_id": None,
        "step_id": None,
        "payload": {"user_input": "line\nbreak", "n": 1},
    }
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Accel-Buffering"] == "no"


def test_without_a_cursor_it_begins_now_and_says_from_where(server: ApiServer) -> None:
    old = server.filled.event("turn.started")
    with Watcher(server) as watcher:
        assert watcher.last_id == old
        watcher.wait_comment()
        emit(server, "turn.completed")
        assert watcher.next().type == "turn.completed"
    with Watcher(server, Last_Event_ID=str(old)) as again:
        assert again.next().type == "turn.completed"


def test_what_happens_right_after_the_first_bytes_is_told(server: ApiServer) -> None:
    environ = create_environ("/events", headers={"Authorization": f"Bearer {TOKEN}"})
    frames, status, _ = run_wsgi_app(server.guarded, environ)
    parts = iter(frames)
    assert (status, next(parts)) == ("200 OK", b": connected\nid: 0\n\n")
    emit(server, "turn.started")
    assert b"event: turn.started" in next(parts)
    frames.close()  # type: ignore[attr-defined]


def test_the_header_of_a_reconnect_wins_over_the_address(server: ApiServer) -> None:
    seqs = [server.filled.event("turn.updated", n=n) for n in range(5)]
    with Watcher(server, "/events?after=0") as all_of_them:
        assert all_of_them.seqs(5) == seqs
    with Watcher(server, f"/events?after={seqs[1]}") as later:
        assert later.seqs(3) == seqs[2:]
    with Watcher(server, "/events?after=0", Last_Event_ID=str(seqs[3])) as last:
        assert last.seqs(1) == seqs[4:]


def test_a_cursor_that_has_not_been_yet_is_a_conflict(server: ApiServer) -> None:
    seq = server.filled.event("turn.started")
    for reply in (
        server.get(f"/events?after={seq + 1}"),
        server.get("/events", Last_Event_ID=str(seq + 1)),
    ):
        assert (reply.status, reply.json["error"]["code"]) == (409, "cursor_ahead")


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "99999999999999999999"])
def test_a_cursor_that_is_no_seq_is_refused(server: ApiServer, cursor: str) -> None:
    for reply, param in (
        (server.get(f"/events?after={cursor}"), "after"),
        (server.get("/events", Last_Event_ID=cursor), "Last-Event-ID"),
    ):
        assert (reply.status, reply.json["error"]["param"]) == (422, param)


def test_a_comment_keeps_a_silent_stream_alive(server: ApiServer) -> None:
    with Watcher(server) as watcher:
        assert watcher.wait_comment()
        assert watcher.wait_comment()


def test_head_tells_the_headers_and_takes_no_place(server: ApiServer) -> None:
    reply = server.get("/events", method="HEAD")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    assert server.watchers.count == 0


# -- what a watcher wants --------------------------------------------------------------------------


def test_types_are_chosen_by_name_and_pattern(server: ApiServer) -> None:
    emitted = ["turn.started", "step.started", "step.completed", "run.updated", "turn.completed"]
    for type in emitted:
        server.filled.event(type)
    with Watcher(server, "/events?after=0&types=turn.*,step.completed") as watcher:
        replayed = [watcher.next().type for _ in range(3)]
        for type in emitted:
            emit(server, type)
        live = [watcher.next().type for _ in range(3)]
    assert replayed == live == ["turn.started", "step.completed", "turn.completed"]
    reply = server.get("/events?types=turn.*,turn.finished")
    assert (reply.status, reply.json["error"]["param"]) == (422, "types")


def test_a_sessions_events_are_its_own(server: ApiServer) -> None:
    session = server.filled.session("mine")
    mine = server.filled.event("turn.started", session)
    server.filled.event("turn.started", "sess_other")
    with Watcher(server, "/sessions/mine/events?after=0") as watcher:
        assert watcher.next().id == mine
        emit(server, "turn.completed", "sess_other")
        emit(server, "turn.completed", session)
        frame = watcher.next()
    assert (frame.type, frame.envelope["session_id"]) == ("turn.completed", session)
    assert server.get("/sessions/nobody/events").status == 404


def test_a_client_key_watches_its_own_project_alone(server: ApiServer) -> None:
    server.filled.session("theirs")
    server.filled.event("turn.started")
    emit(server, "turn.started", project="team", n=1)
    with Watcher(server, "/events?after=0", TEAM_KEY) as watcher:
        assert watcher.next().envelope["payload"] == {"n": 1}
        emit(server, "turn.completed")
        emit(server, "turn.completed", project="team", n=2)
        assert watcher.next().envelope["payload"] == {"n": 2}
    assert server.get("/sessions/theirs/events", TEAM_KEY).status == 404


# -- places ----------------------------------------------------------------------------------------


def test_more_watchers_than_places_are_told_to_come_back(tmp_path: Path) -> None:
    server = ApiServer(tmp_path, heartbeat_seconds=HEARTBEAT, max_watchers=1)
    with Watcher(server) as first:
        first.wait_comment()
        reply = server.get("/events")
        assert (reply.status, reply.json["error"]["type"]) == (503, "overloaded")
        assert int(reply.headers["Retry-After"]) >= 1
        assert server.get("/turns").status == 200
    wait_until_served(server).close()
    server.stop()


def wait_until_served(server: ApiServer) -> http.client.HTTPResponse:
    """The place is given back with the next write that fails."""
    deadline = clock.monotonic() + 30
    while clock.monotonic() < deadline:
        response = server.open("/events")
        if response.status == 200:
            return response
        response.close()
    raise AssertionError("the place was not given back")


def test_a_refused_cursor_takes_no_place(server: ApiServer) -> None:
    for _ in range(30):
        assert server.get("/events?after=1").status == 409
    assert server.watchers.count == 0


def test_streams_end_with_the_server(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    with Watcher(server) as watcher:
        emit(server, "turn.started")
        watcher.next()
        server.stop()
        assert watcher.ended()


# -- joining late ----------------------------------------------------------------------------------


def test_nothing_is_missed_or_doubled_while_events_pour_in(server: ApiServer) -> None:
    total, batch = 4000, 20
    started = threading.Barrier(5)

    def pour_in() -> None:
        started.wait(30)
        for at in range(0, total, batch):
            envelopes = [server.filled.envelope("turn.updated", n=at + n) for n in range(batch)]
            server.writer.submit(partial(emit_all, envelopes))

    seen: dict[int, list[int]] = {}

    def watch(number: int) -> None:
        started.wait(30)
        with Watcher(server, "/events?after=0") as watcher:
            seen[number] = [watcher.next().envelope["payload"]["n"] for _ in range(total)]

    threads = [threading.Thread(target=pour_in)]
    threads += [threading.Thread(target=watch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == {number: list(range(total)) for number in range(4)}


def emit_all(envelopes: list[Envelope], tx: Transaction) -> None:
    for envelope in envelopes:
        tell(tx, envelope)


class Saying:
    """A step under way whose answer the test speaks."""

    def __init__(self, server: ApiServer, session: str | None = None) -> None:
        self.server = server
        turn = ids.mint("turn")
        self.scope = Scope("default", session, turn, ids.mint("run"), ids.trace_id_of(turn))
        self.id = ids.mint("step")
        self.step: LiveStep = server.recorder.live.start(self.scope, self.id)
        self._tell("step.started")

    def say(self, text: str) -> None:
        self.step.add([Delta("text", 0, text)])
        self.server.recorder.live.pulse(self.step.started)

    def end(self) -> None:
        self._tell("step.completed")

    def _tell(self, type: str) -> None:
        envelope = self.envelope(type)
        self.server.write(lambda tx: tell(tx, envelope))

    def envelope(self, type: str) -> Envelope:
        scope = self.scope
        return Envelope(
            None,
            type,
            clock.now(),
            scope.project_id,
            scope.session_id,
            scope.turn_id,
            scope.run_id,
            self.id,
            {},
        )


class Listener:
    """Pieces a step's text together, as a client does."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._changed = threading.Condition()
        self.text = ""

    def listen(self, envelopes: Iterator[dict[str, Any]]) -> str:
        """What it has heard when the step completes."""
        for envelope in envelopes:
            if envelope["step_id"] == self._step and envelope["type"] == "step.completed":
                return self.text
            if envelope["step_id"] == self._step and envelope["type"] == "step.delta":
                self._hear(envelope["payload"])
        raise AssertionError("the stream ended")

    def wait(self, text: str) -> bool:
        """Until it has heard this text."""
        with self._changed:
            return self._changed.wait_for(lambda: self.text == text, timeout=60)

    def _hear(self, payload: dict[str, Any]) -> None:
        with self._changed:
            begun = "" if payload.get("replace") else self.text
            self.text = begun + payload["text"]
            assert len(self.text) == payload["text_length"]
            self._changed.notify()


def envelopes_of(watcher: Watcher) -> Iterator[dict[str, Any]]:
    while True:
        yield watcher.next().envelope


def test_who_joins_late_gets_the_whole_text_so_far_and_then_what_comes(server: ApiServer) -> None:
    saying = Saying(server)
    saying.say("Hello, ")
    saying.say("wor")
    for path in ("/events", "/events?after=0"):
        with Watcher(server, path) as watcher:
            first = watcher.next()
            if path.endswith("0"):
                assert first.type == "step.started"
                first = watcher.next()
            assert (first.type, first.id) == ("step.delta", None)
            assert first.envelope["payload"] == {
                "kind": "text",
                "index": 0,
                "text": saying.step.text(),
                "text_length": len(saying.step.text()),
                "replace": True,
            }
            saying.say("ld")
            assert watcher.next().envelope["payload"]["text"] == "ld"


def test_a_step_that_is_over_sends_no_text_after_its_end(server: ApiServer) -> None:
    saying = Saying(server)
    saying.say("over")
    saying.end()
    with Watcher(server, "/events?after=0") as watcher:
        assert [watcher.next().type for _ in range(2)] == ["step.started", "step.completed"]
        emit(server, "turn.completed")
        assert watcher.next().type == "turn.completed"


def test_every_late_joiner_hears_every_word_once(server: ApiServer) -> None:
    saying = Saying(server)
    listeners = [Listener(saying.id) for _ in range(8)]
    texts: dict[int, str] = {}

    def listen(number: int) -> None:
        path = "/events?after=0" if number % 2 else "/events"
        with Watcher(server, path) as watcher:
            texts[number] = listeners[number].listen(envelopes_of(watcher))

    threads = [threading.Thread(target=listen, args=(number,)) for number in range(8)]
    spoken = 0
    for thread, listener in zip(threads, listeners, strict=True):
        thread.start()
        while not listener.text and spoken < 100_000:
            saying.say(f"{spoken} ")
            spoken += 1
    whole = "".join(f"{n} " for n in range(spoken))
    assert all(listener.wait(whole) for listener in listeners)
    saying.end()
    for thread in threads:
        thread.join(60)
    assert texts == dict.fromkeys(range(8), whole)


# -- the seam between what is read and what is told ----------------------------------------------


def fed(server: ApiServer, after: int | None = None) -> Iterator[list[Envelope]]:
    """What a watcher is given at once, again and again; [] when nothing came."""
    watch = Watch(Wanted(), after)
    feed = Feed(server.filled.store, server.hub, server.recorder.live, watch)
    return ([e for batch in batches for e in batch.envelopes] for batches in feed.batches(0.01))


def pour(server: ApiServer, count: int) -> None:
    envelopes = [server.filled.envelope("turn.updated") for _ in range(count)]
    server.write(partial(emit_all, envelopes))


def test_an_event_that_is_both_read_and_told_comes_once(server: ApiServer) -> None:
    pour(server, 1)
    batches = fed(server, after=0)
    assert [e.seq for e in next(batches)] == [1]
    pour(server, PAGE)
    # From here on there is a mailbox, and a full page means that there is more to read.
    assert [e.seq for e in next(batches)] == list(range(2, PAGE + 2))
    pour(server, 3)
    assert [e.seq for e in next(batches)] == [PAGE + 2, PAGE + 3, PAGE + 4]
    assert next(batches) == []
    pour(server, 1)
    assert [e.seq for e in next(batches)] == [PAGE + 5]


def test_a_step_that_begins_meanwhile_begins_before_its_text(server: ApiServer) -> None:
    pour(server, 1)
    batches = fed(server, after=0)
    next(batches)
    pour(server, 1)
    next(batches)
    saying = Saying(server)
    saying.say("first")
    saying.say("second")
    told = next(batches)
    assert [e.type for e in told] == ["step.started", "step.delta", "step.delta"]
    assert [e.payload["text"] for e in told[1:]] == ["first", "second"]


def test_a_step_whose_end_was_read_but_not_told_yet_is_over(server: ApiServer) -> None:
    saying = Saying(server)
    saying.say("text")
    server.filled.keep(saying.envelope("step.completed"))
    batches = fed(server, after=0)
    assert [e.type for e in next(batches)] == ["step.started", "step.completed"]
    for text in ("more", "and more"):
        saying.say(text)
        assert next(batches) == []


def test_a_step_that_ends_while_someone_joins_leaves_no_half_of_its_text(
    server: ApiServer,
) -> None:
    saying = Saying(server)
    saying.say("begun ")
    view = View(server.filled.store, server.recorder.live, Watch(Wanted(), server.hub.newest))
    with server.hub.subscribe(Wanted()) as mailbox:
        late = Saying(server)
        late.say("all")
        saying.step.add([Delta("text", 0, "and ended")])
        saying.end()
        late.end()
        told = view.first(view.whole(), *take(server.hub, mailbox, 0))
    found = [e for batch in told for e in batch.envelopes]
    assert [(e.step_id, e.type) for e in found] == [
        (late.id, "step.started"),
        (late.id, "step.delta"),
        (saying.id, "step.completed"),
        (late.id, "step.completed"),
    ]


# -- slow watchers ---------------------------------------------------------------------------------


def test_a_watcher_that_lags_is_told_where_to_resume(server: ApiServer) -> None:
    batches = fed(server)
    assert next(batches) == []
    total = MAILBOX + 100
    envelopes = [server.filled.envelope("turn.updated", n=n) for n in range(total)]
    server.write(partial(emit_all, envelopes))
    got = [envelope for batch in batches for envelope in batch]
    lagged = got.pop()
    assert [e.payload["n"] for e in got] == list(range(MAILBOX))
    assert (lagged.type, lagged.seq) == ("stream.lagged", None)
    assert lagged.payload == {"resume_after": got[-1].seq}
    with Watcher(server, f"/events?after={lagged.payload['resume_after']}") as again:
        rest = [again.next().envelope["payload"]["n"] for _ in range(100)]
    assert rest == list(range(MAILBOX, total))


def test_a_slow_watcher_that_lost_live_frames_gets_the_whole_text(server: ApiServer) -> None:
    batches = fed(server)
    assert next(batches) == []
    saying = Saying(server)
    for n in range(2000):
        saying.say(f"{n} ")
    envelopes = (envelope.to_json() for batch in batches for envelope in batch)
    started = next(envelopes)
    assert started["type"] == "step.started"
    listener = Listener(saying.id)

    def end() -> None:
        assert listener.wait(saying.step.text())
        saying.end()

    ending = threading.Thread(target=end)
    ending.start()
    assert listener.listen(envelopes) == "".join(f"{n} " for n in range(2000))
    ending.join()


@pytest.mark.parametrize("ends", [False, True])
def test_a_piece_that_follows_on_lost_ones_is_not_sent(server: ApiServer, ends: bool) -> None:
    batches = fed(server)
    assert next(batches) == []
    saying = Saying(server)
    for _ in range(100):
        saying.say("lost ")
    pour(server, MAILBOX - 100)
    saying.say("last")
    if ends:
        saying.end()
    told = [e for batch in (next(batches), next(batches)) for e in batch if e.step_id == saying.id]
    deltas = [e.payload for e in told if e.type == "step.delta"]
    deltas = [(delta["text"], delta.get("replace")) for delta in deltas]
    assert deltas == ([] if ends else [(saying.step.text(), True)])
