"""The writer: units in order, each whole or not at all, kept while the file is in trouble."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from filled_store import at
from locking import holder
from servers import DEADLINE, ROOT, eventually
from writing import Scene, is_down, new_store, noting, wait_for
from xgw import clock
from xgw.events import Envelope
from xgw.recording.lifecycle import IllegalMove
from xgw.store.backlog import PENDING_LIMIT
from xgw.store.database import Store
from xgw.store.transaction import Transaction
from xgw.store.writer import BATCH, Bodies, Part, Patience, Ticket, Work, Writer

MIB = 1 << 20


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(new_store(tmp_path))
    yield scene
    scene.close()


# -- in order --------------------------------------------------------------------------------------


def test_units_are_written_in_the_order_in_which_they_came(scene: Scene) -> None:
    go = scene.blocked()
    count = 3 * BATCH + 7
    names = [f"unit {n}" for n in range(count)]
    tickets = [scene.submit(name) for name in names]
    assert scene.writer.depth == count + 1
    assert scene.names() == []
    assert not any(ticket.done for ticket in tickets)
    go.set()
    wait_for(*tickets)
    assert scene.names() == scene.events() == scene.told() == names
    assert [envelope.seq for envelope in scene.published] == list(range(1, count + 1))
    assert all(ticket.error is None for ticket in tickets)
    assert (scene.writer.depth, scene.writer.pending_bytes, scene.writer.lag_ms) == (0, 0, 0)


def test_units_of_many_threads_keep_each_thread_s_order(scene: Scene) -> None:
    per_thread, threads = 150, 8
    go = threading.Barrier(threads)

    def submit(number: int) -> None:
        patience = Patience(DEADLINE)
        go.wait(DEADLINE)
        for n in range(per_thread):
            ticket = scene.submit(f"{number} {n:03}", urgent=bool(n % 3))
            if n % 7 == 0:
                assert scene.writer.wait(ticket, patience)
        assert scene.writer.wait(ticket, patience)

    running = [threading.Thread(target=submit, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(DEADLINE)
    names = scene.names()
    assert len(names) == per_thread * threads
    for number in range(threads):
        own = [name for name in names if name.startswith(f"{number} ")]
        assert own == sorted(own)
    assert scene.events() == scene.told() == names


def test_what_waits_is_written_when_someone_waits_for_it(scene: Scene) -> None:
    first = scene.submit("first", urgent=False)
    assert scene.writer.wait(first, Patience(DEADLINE))
    second = scene.submit("second", urgent=False)
    third = scene.submit("third", urgent=False)
    scene.writer.nudge()
    wait_for(second, third)
    fourth = scene.submit("fourth", urgent=False)
    wait_for(scene.submit("fifth"), fourth)
    assert scene.names() == ["first", "second", "third", "fourth", "fifth"]


def test_what_can_wait_does_until_it_is_due(scene: Scene) -> None:
    one, other = Part(apart="one"), Part(apart="other")
    begun = scene.submit("one begins", part=one, urgent=False)
    waits = scene.submit("other begins", part=other, urgent=False)
    ended = scene.submit("one ends", part=one)
    wait_for(begun, ended)
    assert scene.names() == ["one begins", "one ends"]
    assert not waits.done
    assert scene.writer.wait(waits, Patience(DEADLINE))
    wait_for(scene.submit("other ends", part=other))
    assert scene.names() == scene.events() == scene.told()
    assert scene.names()[2:] == ["other begins", "other ends"]


def test_nothing_is_left_behind_by_what_concerns_everything(scene: Scene) -> None:
    names = ["one begins", "other begins", "everything"]
    first = scene.submit(names[0], part=Part(apart="one"), urgent=False)
    second = scene.submit(names[1], part=Part(apart="other"), urgent=False)
    wait_for(scene.submit(names[2]), first, second)
    assert scene.names() == scene.events() == names


def test_what_waited_is_written_in_order_at_the_end(scene: Scene) -> None:
    parts = {name: Part(apart=name[0]) for name in ("a1", "b1", "a2", "c1", "b2")}
    tickets = [scene.submit(name, part=part, urgent=False) for name, part in parts.items()]
    scene.writer.stop()
    wait_for(*tickets)
    assert scene.names() == list(parts)


def test_what_can_wait_is_kept_in_order_where_a_unit_fails(scene: Scene) -> None:
    one, other = Part(apart="one"), Part(apart="other")
    go = scene.blocked()
    waits = scene.submit("other begins", part=other, urgent=False)
    begun = scene.submit("one begins", part=one, urgent=False)
    broken = scene.writer.submit(_raises, part=one)
    ended = scene.submit("one ends", part=one)
    go.set()
    wait_for(begun, broken, ended, scene.submit("other ends", part=other), waits)
    assert broken.error is not None
    names = scene.names()
    assert sorted(names) == sorted(["other begins", "one begins", "one ends", "other ends"])
    assert names.index("one begins") < names.index("one ends")
    assert names.index("other begins") < names.index("other ends")


def test_how_long_the_oldest_has_waited(scene: Scene) -> None:
    go = scene.blocked()
    scene.submit("later")
    eventually(lambda: scene.writer.lag_ms > 20)
    assert scene.writer.depth == 2
    assert scene.writer.pending_bytes > 0
    go.set()
    wait_for(scene.submit("last"))
    assert scene.writer.lag_ms == 0


def test_hooks_run_after_the_commit(scene: Scene) -> None:
    seen: list[list[str]] = []

    def work(tx: Transaction) -> None:
        noting("hooked")(tx)
        tx.after_commit.append(lambda: seen.append(scene.names()))

    wait_for(scene.writer.submit(work))
    assert seen == [["hooked"]]


def test_bodies_are_there_before_the_unit_that_refers_to_them(scene: Scene) -> None:
    found: list[object] = []

    def work(tx: Transaction) -> None:
        found.append(tx.one("SELECT data FROM payloads WHERE hash = ?", ("aa",)))

    wait_for(scene.writer.submit(work, bodies=Bodies([("aa", 1, "raw", b"x")])))
    wait_for(scene.writer.submit(work, bodies=Bodies([("aa", 1, "raw", b"x")])))
    assert found == [(b"x",), (b"x",)]


# -- faulty units ----------------------------------------------------------------------------------


def _raises(tx: Transaction) -> None:
    noting("never")(tx)
    tx.after_commit.append(lambda: pytest.fail("nothing was committed"))
    raise RuntimeError("a fault")


def _moves_illegally(tx: Transaction) -> None:
    noting("never")(tx)
    raise IllegalMove("turn", "turn_x", "success", "queued")


def _incomplete(tx: Transaction) -> None:
    noting("never")(tx)
    tx.insert("api_keys", {"id": "incomplete"})


def _nonsense(tx: Transaction) -> None:
    noting("never")(tx)
    tx.execute("SELECT nonsense")


def _unwritable(tx: Transaction) -> None:
    tx.emit("session.updated", at(0), "default", {"name": object()})


@pytest.mark.parametrize("fault", [_raises, _moves_illegally, _incomplete, _nonsense, _unwritable])
def test_a_faulty_unit_fails_alone(
    scene: Scene, fault: Work, caplog: pytest.LogCaptureFixture
) -> None:
    go = scene.blocked()
    before = [scene.submit(f"before {n}") for n in range(3)]
    lost: list[str] = []
    broken = scene.writer.submit(fault, part=Part(lost=lambda: lost.append("lost")))
    after = [scene.submit(f"after {n}") for n in range(3)]
    go.set()
    wait_for(*before, broken, *after)
    expected = ["before 0", "before 1", "before 2", "after 0", "after 1", "after 2"]
    assert scene.names() == scene.events() == scene.told() == expected
    assert [envelope.seq for envelope in scene.published] == [1, 2, 3, 4, 5, 6]
    assert broken.error is not None
    assert not broken.committed
    assert lost == ["lost"]
    assert all(ticket.error is None for ticket in (*before, *after))
    assert "could not be recorded" in caplog.text
    assert not is_down(scene)
    assert scene.writer.pending_bytes == 0


def test_a_reader_of_events_that_fails_takes_nothing_along(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store(tmp_path)
    told: list[object] = []

    def publish(envelopes: Sequence[Envelope]) -> None:
        told.extend(envelope.payload["name"] for envelope in envelopes)
        if "first" in told and len(told) == 1:
            raise RuntimeError("a reader's fault")

    writer = Writer(store, publish)
    writer.start()
    for name in ("first", "second"):
        ticket = writer.submit(noting(name))
        wait_for(ticket)
        assert ticket.error is None
    writer.stop()
    assert store.sql("SELECT name FROM api_keys ORDER BY rowid") == [("first",), ("second",)]
    assert told == ["first", "second"]
    assert "a reader's fault" in caplog.text
    store.close()


def test_a_hook_that_fails_takes_nothing_along(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def work(tx: Transaction) -> None:
        noting("hooked")(tx)
        tx.after_commit.append(fail)
        tx.after_commit.append(lambda: seen.append("second"))

    def fail() -> None:
        raise RuntimeError("a fault of who was told")

    wait_for(scene.writer.submit(work), scene.writer.submit(_raises, part=Part(lost=fail)))
    wait_for(scene.submit("later"))
    assert scene.told() == ["hooked", "later"]
    assert seen == ["second"]
    assert caplog.text.count("a fault of who was told") >= 2


# -- a store that is locked ------------------------------------------------------------------------


def test_a_lock_is_waited_for_once_and_nothing_is_lost(scene: Scene) -> None:
    wait_for(scene.submit("before"))
    with holder(scene.store.path) as other:
        other.take()
        first = scene.submit("first")
        patience, patient = Patience(), Patience(60)
        answers: list[bool] = []
        also = threading.Thread(
            target=lambda: answers.append(scene.writer.wait(first, patient)), daemon=True
        )
        also.start()
        assert not scene.writer.wait(first, patience)
        assert patience.left == 0
        assert is_down(scene)
        assert "locked" in str(scene.writer.down_reason)
        also.join(DEADLINE)
        assert answers == [False]
        assert patient.left > 30

        later = [scene.submit(f"later {n:03}") for n in range(BATCH + 10)]
        fresh = Patience()
        assert not any(scene.writer.wait(ticket, fresh) for ticket in later)
        assert fresh.left == Patience().left
        assert scene.writer.depth == len(later) + 1
        assert scene.writer.lag_ms > 0
        other.release()
    wait_for(first, *later)
    assert not is_down(scene)
    assert scene.writer.down_reason is None
    expected = ["before", "first", *(f"later {n:03}" for n in range(len(later)))]
    assert scene.names() == scene.events() == scene.told() == expected
    assert scene.writer.wait(scene.submit("last"), Patience(DEADLINE))
    assert scene.writer.dropped == {"bodies": 0, "turns": 0}


def test_a_short_lock_is_not_noticed(scene: Scene) -> None:
    with holder(scene.store.path) as other:
        other.take()
        ticket = scene.submit("patient")
        eventually(lambda: scene.writer.down_reason is not None)
        assert not is_down(scene)
        other.release()
        assert scene.writer.wait(ticket, Patience(DEADLINE))
    assert not is_down(scene)
    assert scene.names() == ["patient"]


def test_patience_that_is_used_up_says_nothing_of_the_store(scene: Scene) -> None:
    go = scene.blocked()
    ticket = scene.submit("slow")
    assert not scene.writer.wait(ticket, Patience(0))
    assert not scene.writer.wait(ticket, Patience(0.001))
    assert not is_down(scene)
    go.set()
    assert scene.writer.wait(ticket, Patience(DEADLINE))
    assert scene.writer.wait(ticket, Patience(0))


def test_a_commit_that_takes_too_long_counts_as_down_until_it_is_there(scene: Scene) -> None:
    go = scene.blocked()
    ticket = scene.submit("slow")
    assert not scene.writer.wait(ticket, Patience())
    assert is_down(scene)
    go.set()
    wait_for(ticket)
    assert not is_down(scene)


# -- a file that cannot be written -----------------------------------------------------------------


class Troubled(Store):
    """A store whose writing connections begin with `trouble`, while there is one."""

    trouble = ""

    def open_writer(self, busy_ms: int = 250) -> sqlite3.Connection:
        connection = super().open_writer(busy_ms)
        if self.trouble:
            connection.execute(self.trouble)
        return connection


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("PRAGMA max_page_count = 1", "full"), ("PRAGMA query_only = 1", "readonly")],
)
def test_a_file_that_cannot_be_written_for_a_while(
    tmp_path: Path, trouble: str, words: str
) -> None:
    store = new_store(tmp_path, Troubled)
    assert isinstance(store, Troubled)
    store.trouble = trouble
    scene = Scene(store)
    names = [f"{n:04}" + "x" * 500 for n in range(100)]
    tickets = [scene.submit(name) for name in names]
    eventually(lambda: scene.writer.down_reason is not None)
    assert words in str(scene.writer.down_reason)
    assert not tickets[-1].done
    store.trouble = ""
    wait_for(*tickets)
    assert scene.names() == scene.events() == scene.told() == names
    assert scene.writer.down_reason is None
    scene.close()


def test_a_file_that_is_moved_away_and_comes_back(scene: Scene) -> None:
    wait_for(scene.submit("first"))
    path, away = scene.store.path, scene.store.path.with_name("away.db")
    with holder(path) as other:
        other.take()
        ticket = scene.submit("second")
        eventually(lambda: scene.writer.down_reason is not None)
        os.rename(path, away)
        other.release()
        eventually(lambda: "unable to open" in str(scene.writer.down_reason))
        assert not path.exists()
        os.rename(away, path)
    wait_for(ticket)
    assert scene.names() == ["first", "second"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from servers import eventually
from test_writer import Scene, wait_for
from xgw.store.database import Store

store = Store(Path(sys.argv[1]))
scene = Scene(store)
wait_for(scene.submit("first"))
free = resource.getrlimit(resource.RLIMIT_FSIZE)
log = Path(sys.argv[1] + "-wal")
resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8192, free[1]))
names = [f"{n:04}" + "x" * 1000 for n in range(200)]
tickets = [scene.submit(name) for name in names]
eventually(lambda: scene.writer.down_reason is not None)
print(scene.writer.down_reason, flush=True)
assert not tickets[-1].done
resource.setrlimit(resource.RLIMIT_FSIZE, free)
wait_for(*tickets)
assert scene.names() == scene.events() == scene.told() == ["first", *names]
assert store.sql("PRAGMA integrity_check") == [("ok",)]
scene.close()
print("whole", flush=True)
"""


def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(store.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    reason, last = done.stdout.splitlines()
    assert "full" in reason or "I/O" in reason
    assert last == "whole"


# -- when memory is short --------------------------------------------------------------------------


def _body(number: int, size: int = MIB) -> Bodies:
    return Bodies([(f"{number:032x}", size, "raw", b"\x00" * size)])


def test_bodies_go_first_and_the_oldest_of_them(scene: Scene) -> None:
    with holder(scene.store.path) as other:
        other.take()
        tickets = []
        for number in range(150):
            tickets.append(scene.submit(f"{number:03}", bodies=_body(number)))
            assert scene.writer.pending_bytes <= PENDING_LIMIT
        dropped = scene.writer.dropped["bodies"]
        assert 150 - 64 <= dropped < 150 - 32
        assert scene.writer.dropped["turns"] == 0
        other.release()
    wait_for(*tickets)
    assert scene.names() == [f"{number:03}" for number in range(150)]
    found = scene.store.sql("SELECT hash FROM payloads ORDER BY hash")
    kept = [int.from_bytes(key, "big") for (key,) in found]
    assert kept == list(range(dropped, 150))
    assert scene.writer.pending_bytes == 0


def _turn(scene: Scene, name: str, **options: bool | Work | Callable[[], None]) -> Ticket:
    turn = name.split()[0]
    return scene.submit(name, size=MIB, part=Part(turn, **options))  # type: ignore[arg-type]


def test_whole_ended_turns_go_next_and_the_oldest_of_them(scene: Scene) -> None:
    lost: list[int] = []
    begun = _turn(scene, "begun start", opens=True)
    wait_for(begun)
    with holder(scene.store.path) as other:
        other.take()
        _turn(scene, "begun end", closes=True)
        _turn(scene, "open start", opens=True)
        _turn(scene, "again start", opens=True)
        _turn(scene, "again end", closes=True)
        _turn(scene, "again reopened")
        for number in range(60):
            _turn(scene, f"turn{number:02} start", opens=True)
            _turn(scene, f"turn{number:02} end", closes=True, lost=partial(lost.append, number))
            assert scene.writer.pending_bytes <= PENDING_LIMIT
        gone = scene.writer.dropped["turns"]
        assert scene.writer.dropped["bodies"] == 0
        assert 60 - 32 <= gone < 60 - 16
        assert lost == list(range(gone))
        other.release()
    wait_for(scene.submit("last"))
    kept = [f"turn{n:02} {what}" for n in range(gone, 60) for what in ("start", "end")]
    assert scene.names() == [
        "begun start",
        "begun end",
        "open start",
        "again start",
        "again end",
        "again reopened",
        *kept,
        "last",
    ]
    assert scene.writer.pending_bytes == 0


def test_what_others_build_on_remains_of_a_dropped_turn(scene: Scene) -> None:
    with holder(scene.store.path) as other:
        other.take()
        _turn(scene, "first start", opens=True, remains=noting("first's session"))
        end = _turn(scene, "first end", closes=True)
        for number in range(70):
            _turn(scene, f"open{number}", opens=True)
        assert scene.writer.dropped["turns"] == 1
        assert isinstance(end.error, RuntimeError)
        other.release()
    wait_for(scene.submit("last"))
    assert scene.names() == ["first's session", *(f"open{n}" for n in range(70)), "last"]


def test_making_room_stays_cheap_where_nothing_can_go(scene: Scene) -> None:
    """Thousands of units beyond the cap that must all stay: no look at each for each."""
    with holder(scene.store.path) as other:
        other.take()
        started = clock.monotonic()
        count = 20_000
        nothing = Part("turn")
        tickets = [
            scene.writer.submit(lambda _: None, size=2 * PENDING_LIMIT // count, part=nothing)
            for _ in range(count)
        ]
        assert clock.monotonic() - started < DEADLINE
        other.release()
    wait_for(*tickets)
    assert scene.writer.dropped == {"bodies": 0, "turns": 0}


# -- the end ---------------------------------------------------------------------------------------


def test_stopping_writes_what_has_queued_up(scene: Scene) -> None:
    go = scene.blocked()
    names = [f"{n:04}" for n in range(2 * BATCH)]
    tickets = [scene.submit(name, urgent=False) for name in names]
    stopping = threading.Thread(target=scene.writer.stop)
    stopping.start()
    go.set()
    stopping.join(DEADLINE)
    assert all(ticket.committed for ticket in tickets)
    assert scene.names() == names
    scene.writer.stop()


def test_stopping_waits_for_a_lock(scene: Scene) -> None:
    with holder(scene.store.path) as other:
        other.take()
        ticket = scene.submit("late")
        stopping = threading.Thread(target=scene.writer.stop, args=(DEADLINE,))
        stopping.start()
        eventually(lambda: scene.writer.down_reason is not None)
        other.release()
        stopping.join(DEADLINE)
    assert ticket.committed
    assert scene.names() == ["late"]


def test_stopping_gives_up_and_says_what_is_lost(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[str] = []
    with holder(scene.store.path) as other, caplog.at_level(logging.ERROR):
        other.take()
        part = Part(lost=lambda: lost.append("lost"))
        tickets = [scene.submit(f"{n}", part=part) for n in range(3)]
        scene.writer.stop(0.1)
        wait_for(*tickets)
        other.release()
    assert "3 units of work are lost" in caplog.text
    assert all(isinstance(ticket.error, RuntimeError) for ticket in tickets)
    assert lost == ["lost"] * 3
    assert scene.writer.pending_bytes == 0
    assert scene.names() == []
