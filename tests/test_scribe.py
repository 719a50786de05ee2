"""The scribe: what it writes is what the server would write, and nothing is lost with it."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from locking import holder
from recorded import Recorded, attempt, ended, message, recorded, result, tool
from servers import DEADLINE, eventually
from xgw import clock, ids
from xgw.frozen import changed
from xgw.recording.facts import Scope, TurnEnd, TurnFacts
from xgw.recording.following import Following
from xgw.recording.notes import perform
from xgw.recording.requests import Ending, Opening
from xgw.recording.scribing import employment
from xgw.store import migrations
from xgw.store.database import Store
from xgw.store.payloads import Stored, load
from xgw.store.rows import digest
from xgw.store.scribe import MOST_BYTES, Desk, Employ, Link, Scribe
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket, Writer
from xgw.values import Delta

TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "payloads", "events")
Call = tuple[Opening, Ending]

CROWD = 20
FILES = 1024
ROUNDS = 5
"""So many crowds in a row are the rule."""


class Listening(Writer):
    """A writer that keeps what it was given."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heard: list[dict[str, Any]] = []

    def submit(self, *arguments: Any, **options: Any) -> Ticket:
        self.heard.append(options)
        return super().submit(*arguments, **options)


class Crowded:
    """A recorder whose writer has a scribe, and calls that all begin and end at once."""

    def __init__(self, scene: Recorded, scribes: list[Scribe] | None = None) -> None:
        """`scribes` are those that come, if any can."""
        self._scene = scene
        self._scribes = scribes if scribes is not None else []
        for _ in range(ROUNDS):
            self.expect_written(self.crowd())
        if scribes is not None:
            eventually(lambda: scribes and (scribes[0].is_there or scribes[0].has_gone))

    @property
    def pid(self) -> int:
        return self._scribes[0].pid

    def crowd(
        self, *more: Call, bodies: tuple[Stored, ...] = (), first: Ending | None = None
    ) -> list[Ticket]:
        """Calls that begin and end in one batch, and these; behind what ends `first`."""
        entered, go = threading.Event(), threading.Event()

        def wait(_: Transaction) -> None:
            entered.set()
            assert go.wait(DEADLINE)

        self._scene.writer.submit(wait)
        assert entered.wait(DEADLINE)
        if first is not None:
            self._scene.recorder.finish(first, ())
        tickets = self.calls(*more, bodies=bodies)
        go.set()
        return tickets

    def calls(self, *more: Call, bodies: tuple[Stored, ...] = ()) -> list[Ticket]:
        """Calls that begin and end as the writer comes to them."""
        recorder, tickets = self._scene.recorder, []
        for opening, ending in (*(call() for _ in range(CROWD)), *more):
            tickets += [recorder.begin(opening, bodies), recorder.finish(ending, ())]
        return tickets

    def expect_written(self, tickets: list[Ticket]) -> None:
        """All of them were committed, and told of."""
        for ticket in tickets:
            assert ticket.wait(DEADLINE)
            assert ticket.committed
        [(newest,)] = self.store.sql("SELECT max(seq) FROM events")
        eventually(lambda: self._scene.hub.newest == newest)

    def stop(self, seconds: float) -> None:
        """Write the rest, and end the writer."""
        self._scene.writer.stop(seconds)

    @property
    def store(self) -> Store:
        return self._scene.store

    @property
    def down_reason(self) -> str | None:
        return self._scene.writer.down_reason

    def stored(self, content: bytes) -> Stored:
        return self._scene.recorder.shelf.whole(content)

    def turns(self) -> int:
        """How many have ended well."""
        return len(self._scene.rows("turns", "status = 'success'"))


def call() -> Call:
    turn_id, at = ids.mint("turn"), clock.now()
    scope = Scope("default", None, turn_id, ids.mint("run"), ids.trace_id_of(turn_id))
    first, turn = attempt(at), TurnFacts(scope, at, "chat.completions", "Hello", None)
    opening = Opening(scope, at, turn=turn, messages=(message("user", "Hello"),), attempt=first)
    end = TurnEnd("finished", at, 5, finish_reason="stop", final_output="Hi")
    said = (message("assistant", "Hi"),)
    ending = Ending(scope, first, ended("success", answered=True), messages=said, turn=end)
    return opening, ending


def employing(store: Store) -> Employ:
    employ = employment(store, keep=())
    if employ is None:
        pytest.skip("there is but one core, or no way to start a scribe")
    return employ


def leaving(store: Store, *, comes: threading.Event | None = None, commits: bool = True) -> Scribe:
    """Perhaps commits the first batch after it `comes`, and is gone before it says so."""
    ours, theirs = socket.socketpair()

    def commit() -> None:
        link, desk = Link(theirs), Desk(store, perform)
        assert comes is None or comes.wait(DEADLINE)
        link.send(b"")
        message = link.receive()
        assert message is not None
        assert not commits or desk.write(message)
        desk.close()
        link.close()

    threading.Thread(target=commit).start()
    return Scribe(subprocess.Popen([sys.executable, "-c", ""]), ours)


@pytest.fixture
def many_files() -> Iterator[None]:
    """Every file that is opened gets a number above 1024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 4 * FILES), limits[1]))
    with contextlib.ExitStack() as files:
        for _ in range(FILES):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Crowded]:
    scribes: list[Scribe] = []
    employ = employing(Store(tmp_path / "xgw.db"))

    def employed() -> Scribe | None:
        scribe = employ()
        assert scribe is not None
        scribes.append(scribe)
        return scribe

    with recorded(tmp_path / "xgw.db", employ=employed) as scene:
        yield Crowded(scene, scribes)
    assert len(scribes) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(scribes[0].pid, 0)


def test_it_writes_what_the_server_would(tmp_path: Path) -> None:
    with recorded(tmp_path / "one.db", writer=Listening) as one:
        session = one.session()
        first = one.turn(session, first=True, said="Ünicode, and a long text: " + "long " * 1000)
        tools = tool(1), tool(2)
        first.ask_for_tools(*tools)
        again = one.again(first, resumed="tool_result", results=tuple(map(result, tools)))
        again.succeed("An answer that is long, too. " * 100)
        one.turn(session).fail()
        one.turn().succeed()
        heard = one.writer.heard  # type: ignore[attr-defined]
        other = Store(tmp_path / "other.db")
        migrations.migrate(other)
        scribe = employing(other)()
        assert scribe is not None
        eventually(lambda: scribe.is_there)
        told = []
        for options in heard:
            told += scribe.write(options["bodies"].rows, [options["note"]]) or []
        scribe.dismiss()
        assert told == one.events()
        for table in TABLES:
            query = f"SELECT * FROM {table} ORDER BY rowid"
            assert other.sql(query) == one.store.sql(query), table
        other.close()


def test_signals_are_for_the_server(tmp_path: Path) -> None:
    """Ctrl-C goes to both of them, also while the scribe is just starting."""
    store = Store(tmp_path / "xgw.db")
    migrations.migrate(store)
    scribe = employing(store)()
    assert scribe is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(scribe.pid, number)
    eventually(lambda: scribe.is_there or scribe.has_gone)
    assert scribe.is_there
    scribe.dismiss()
    store.close()


def test_it_is_killed(crowded: Crowded, caplog: pytest.LogCaptureFixture) -> None:
    os.kill(crowded.pid, signal.SIGKILL)
    crowded.expect_written(crowded.crowd())
    crowded.expect_written(crowded.crowd())
    assert crowded.turns() == (ROUNDS + 2) * CROWD
    [warning] = caplog.messages
    assert "the server writes by itself" in warning


def test_it_does_not_answer_at_the_end(crowded: Crowded, caplog: pytest.LogCaptureFixture) -> None:
    os.kill(crowded.pid, signal.SIGSTOP)
    tickets = crowded.crowd()
    crowded.stop(0.02)
    crowded.expect_written(tickets)
    assert crowded.turns() == (ROUNDS + 1) * CROWD
    [warning] = caplog.messages
    assert "the server writes by itself" in warning


def test_it_is_gone_right_after_a_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What it committed is told of as ever: behind the step's live frames, and then it is over."""
    scribes: list[Scribe] = []
    comes = threading.Event()

    def employed() -> Scribe:
        scribes.append(leaving(Store(tmp_path / "xgw.db"), comes=comes))
        return scribes[0]

    with recorded(tmp_path / "xgw.db", employ=employed) as scene:
        following = Following(scene.store, scene.hub, scene.recorder.published)
        following.start()
        crowded = Crowded(scene)
        comes.set()
        eventually(lambda: scribes[0].is_there)
        opening, ending = call()
        assert opening.attempt is not None
        live = scene.recorder.live.start(opening.scope, opening.attempt.step_id)
        live.add([Delta("text", 0, "Hi")])
        mailbox = scene.hub.subscribe(lambda envelope: envelope.step_id == live.step_id)
        crowded.expect_written(crowded.crowd((opening, ending)))
        assert scribes[0].has_gone
        following.stop()
        assert crowded.turns() == (ROUNDS + 1) * CROWD + 1
        told = [envelope.type for envelope in mailbox.get(0)]
        assert told == ["step.started", "step.delta", "step.completed", "message.added"]
        assert len(scene.recorder.live) == 0
    assert len(caplog.messages) == 1


def test_it_is_gone_right_before_a_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its batch begins with the end of a step that has ended otherwise."""
    caplog.set_level(logging.CRITICAL, "xgw.store")
    scribes: list[Scribe] = []
    comes = threading.Event()

    def employed() -> Scribe:
        scribes.append(leaving(Store(tmp_path / "xgw.db"), comes=comes, commits=False))
        return scribes[0]

    with recorded(tmp_path / "xgw.db", employ=employed) as scene:
        opening, ending = call()
        scene.recorder.begin(opening, ())
        scene.recorder.finish(ending, ())
        crowded = Crowded(scene)
        comes.set()
        eventually(lambda: scribes[0].is_there)
        assert ending.end is not None
        later = changed(ending.end, ended_at=clock.now())
        crowded.expect_written(crowded.crowd(first=changed(ending, end=later)))
        assert scribes[0].has_gone
        assert crowded.turns() == (ROUNDS + 1) * CROWD + 1


def test_the_server_has_many_files_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, many_files: None
) -> None:
    """More than `select` knows of."""
    scribes: list[Scribe] = []
    employ = employing(Store(tmp_path / "xgw.db"))

    def employed() -> Scribe | None:
        scribe = employ()
        scribes.extend([scribe] if scribe is not None else [])
        return scribe

    with recorded(tmp_path / "xgw.db", employ=employed) as scene:
        crowded = Crowded(scene, scribes)
        crowded.expect_written(crowded.crowd())
        assert crowded.turns() == (ROUNDS + 1) * CROWD
        assert scribes[0].is_there
    assert caplog.messages == []


def test_it_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    employ = employing(Store(tmp_path / "xgw.db"))
    with recorded(tmp_path / "xgw.db", employ=employ) as scene:
        crowded = Crowded(scene)
        crowded.expect_written(crowded.crowd())
        assert crowded.turns() == (ROUNDS + 1) * CROWD
    [warning] = caplog.messages
    assert "no process could be started" in warning


def test_a_unit_that_cannot_be_written_fails_alone(
    crowded: Crowded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "xgw.store")
    once = call()
    crowded.expect_written(crowded.crowd(once))
    *tickets, begin, end = crowded.crowd(once)
    crowded.expect_written(tickets)
    assert begin.wait(DEADLINE)
    assert end.wait(DEADLINE)
    assert begin.error is not None
    assert end.error is not None
    assert crowded.turns() == (ROUNDS + 2) * CROWD + 1


def test_the_store_is_locked(crowded: Crowded) -> None:
    with holder(crowded.store.path) as other:
        other.take()
        tickets = crowded.calls()
        eventually(lambda: crowded.down_reason == "database is locked")
        assert not any(ticket.committed for ticket in tickets)
        other.release()
        crowded.expect_written(tickets)
    crowded.expect_written(crowded.crowd())
    assert crowded.turns() == (ROUNDS + 2) * CROWD


def test_bodies_that_are_large(crowded: Crowded) -> None:
    content = os.urandom(MOST_BYTES + 1)
    crowded.expect_written(crowded.crowd(bodies=(crowded.stored(content),)))
    assert crowded.turns() == (ROUNDS + 1) * CROWD
    assert load(crowded.store, digest(content).hex()) == content
