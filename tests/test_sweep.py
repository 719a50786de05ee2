"""The sweep: what nothing refers to any more goes, and nothing else, whatever happens meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway_fixtures import Gate, Reading, Reply, a_test_of, gate_and_model
from scripted_model import Row, chat, named, result, said, says, user
from scripted_model import call as tool_call
from servers import DEADLINE, eventually
from xgw import ids
from xgw.recording.edits import Edits, count_deletion
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.models import Message, Payload, RequestLog, Step, Turn
from xgw.store.payloads import Shelf, Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import Bodies, Writer
from xgw.upkeep.marks import Marks
from xgw.upkeep.sweep import DELETE, Stopped, Sweep, Swept


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as gate, a_test_of(gate):
        yield gate


def delete(gate: Gate, session: str) -> Reply:
    return Reading(gate.send(None, f"/sessions/{session}", "DELETE")).rest()


def kept(store: Store) -> set[str]:
    """The hashes that the store has."""
    return {row["hash"] for row in store.fetch(Payload.select(Payload.hash))}


def named_in(store: Store) -> list[str]:
    """Every hash that a row names."""
    columns = (
        Turn.input_payload,
        Turn.config_snapshot,
        Step.input_payload,
        Step.output_payload,
        RequestLog.request_payload,
        RequestLog.response_body,
    )
    found = []
    for column in columns:
        for row in store.fetch(column.model.select(column)):
            found += [key for key in row.values() if key is not None]
    return found


def check_all_there(store: Store) -> None:
    """Whatever a row refers to can be put together again; LookupError if not."""
    for key in named_in(store):
        assert payloads.load(store, key)


# -- after a deletion ------------------------------------------------------------------------------


def test_the_payloads_of_a_deleted_session_go_by_themselves(gate: Gate) -> None:
    gate.model.will(says("an answer"))
    gate.post(chat("a question", **named("gone")))
    assert kept(gate.store)
    assert delete(gate, "gone").status == 204
    eventually(lambda: not kept(gate.store))


def long_talk(count: int) -> list[Row]:
    """A history that needs a tree of nodes."""
    return [user(f"question {n}") if n % 2 == 0 else said(f"answer {n}") for n in range(count)]


def test_what_others_share_stays(gate: Gate) -> None:
    gate.model.always(says())
    history, tools = long_talk(601), [{"type": "function", "function": {"name": "f" * 300}}]
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}}
    shared = [*history, said(None, tool_call("c")), result("c", "r" * 300), user([picture])]
    for session in ("gone", "stays"):
        gate.post(chat(*shared, tools=tools, **named(session)))
        gate.post(chat(*shared, said("ok"), user("more"), tools=tools, **named(session)))
    gate.post(chat("only here", "x" * 500, **named("gone")))
    turns = gate.turns("stays")
    bodies = [gate.payload(turn["input_payload"]) for turn in turns]
    delete(gate, "gone")
    before = len(kept(gate.store))
    eventually(lambda: gate.store.sql("PRAGMA user_version") == [(0,)])
    assert 0 < len(kept(gate.store)) < before
    assert [gate.payload(turn["input_payload"]) for turn in turns] == bodies
    check_all_there(gate.store)
    (large,) = [m for m in gate.all(Message) if m["parts"] and "payload" in str(m["parts"])]
    key = large["parts"][0]["image_url"]["url"]["payload"]
    assert len(gate.payload(key)) > 90_000
    # Nothing is left that nothing refers to.
    assert gate.services.sweep.sweep() == Swept()


def test_the_record_stays_whole_under_traffic_deletions_and_sweeps(gate: Gate) -> None:
    gate.model.always(says("the same answer"))
    done = threading.Event()

    def talk(number: int) -> None:
        history: list[Row] = []
        while not done.is_set():
            history.append(user(f"question {len(history)}"))
            gate.post(chat(*history, **named(f"talk-{number}")))
            history.append(said("the same answer"))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number in range(12):
        eventually(lambda number=number: delete(gate, f"talk-{number % 3}").status == 204)
        gate.services.sweep.sweep()
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert gate.all(Turn)
    check_all_there(gate.store)


# -- the race, in parts ----------------------------------------------------------------------------


class Shelved:
    """A store with a writer and a shelf, and rows that refer to bodies."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "xgw.db")
        migrations.migrate(self.store)
        self.writer = Writer(self.store, lambda events: None)
        self.shelf = Shelf(packs=False)  # as in the server
        self.sweep = Sweep(self.store, self.writer, self.shelf)
        self.writer.start()

    def close(self) -> None:
        self.sweep.stop()
        self.writer.stop()
        self.store.close()

    def keep(self, stored: Stored, name: str | None = None) -> str:
        """A request that refers to the body, queued; its id."""
        row = {
            "id": name or ids.mint("req"),
            "project_id": "default",
            "request_payload": stored.hash,
        }
        rows = list(stored.rows)

        def work(tx: Transaction) -> None:
            tx.insert("request_logs", row)
            tx.after_commit.append(lambda: self.shelf.committed(rows))

        self.writer.submit(work, bodies=Bodies(rows))
        return row["id"]

    def drop(self, name: str) -> None:
        """Delete such a request."""

        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM request_logs WHERE id = ?", (name,))
            count_deletion(tx)

        assert self.writer.submit(work).wait(DEADLINE)

    def settle(self) -> None:
        assert self.writer.submit(lambda tx: None).wait(DEADLINE)


@pytest.fixture
def shelved(tmp_path: Path) -> Iterator[Shelved]:
    shelved = Shelved(tmp_path)
    yield shelved
    shelved.close()


def body(*texts: str, **more: Any) -> bytes:
    return orjson.dumps(chat(*texts, **more))


LONG = body(*(f"message {n}" for n in range(40)))


def test_a_body_that_was_handed_out_before_and_is_queued_after(shelved: Shelved) -> None:
    shelved.drop(shelved.keep(shelved.shelf.request(LONG)))
    in_hand = shelved.shelf.request(LONG)
    assert in_hand.rows == ()  # the store has it, so nothing is to be written
    assert shelved.sweep.sweep() == Swept()
    shelved.keep(in_hand)
    shelved.settle()
    assert payloads.load(shelved.store, in_hand.hash) == LONG
    del in_hand
    assert shelved.sweep.sweep() == Swept()


def test_a_new_body_built_on_known_parts(shelved: Shelved) -> None:
    """Its own row is not there yet, what it refers to is, and nothing else names that any more."""
    shelved.drop(shelved.keep(shelved.shelf.request(LONG)))
    longer = body(*(f"message {n}" for n in range(40)), "one more")
    in_hand = shelved.shelf.request(longer)
    assert 0 < len(in_hand.rows) < 10
    shelved.sweep.sweep()
    shelved.keep(in_hand)
    shelved.settle()
    assert payloads.load(shelved.store, in_hand.hash) == longer


def test_a_body_that_is_queued_when_the_sweep_begins(shelved: Shelved) -> None:
    going_on, go = threading.Event(), threading.Event()

    def stand_in_the_way(tx: Transaction) -> None:
        going_on.set()
        assert go.wait(DEADLINE)

    shelved.drop(shelved.keep(shelved.shelf.request(LONG)))
    shelved.writer.submit(stand_in_the_way)
    assert going_on.wait(DEADLINE)
    shelved.keep(shelved.shelf.request(LONG))
    swept = threading.Thread(target=shelved.sweep.sweep)
    swept.start()
    eventually(lambda: shelved.shelf.pins.sweeping)
    go.set()
    swept.join(DEADLINE)
    (row,) = shelved.store.fetch(RequestLog.select())
    assert payloads.load(shelved.store, row["request_payload"]) == LONG


def test_a_body_that_is_handed_out_while_it_is_about_to_go(shelved: Shelved) -> None:
    """It was found to be needed by nobody, and then it is asked for before its turn to go."""
    shelved.drop(shelved.keep(shelved.shelf.request(LONG)))
    shelved.settle()
    assert kept(shelved.store)
    needed = shelved.shelf.begin_sweep()
    assert needed == set()
    doomed = sorted(kept(shelved.store))
    again = shelved.shelf.request(LONG)
    assert {row[0] for row in again.rows} == set(doomed)  # all of it is handed out anew
    with Marks(shelved.store, lambda: None) as marks:
        assert shelved.sweep._take(marks, DELETE, [(key, 1) for key in doomed]).count == 0
    shelved.shelf.end_sweep()
    shelved.keep(again)
    shelved.settle()
    assert payloads.load(shelved.store, again.hash) == LONG


def test_a_body_that_is_handed_out_after_it_went(shelved: Shelved) -> None:
    name = shelved.keep(shelved.shelf.request(LONG))
    shelved.settle()
    shelved.drop(name)
    count = len(kept(shelved.store))
    assert shelved.sweep.sweep().deleted.count == count > 0
    assert kept(shelved.store) == set()
    shelved.keep(shelved.shelf.request(LONG))
    shelved.settle()
    (row,) = shelved.store.fetch(RequestLog.select())
    assert payloads.load(shelved.store, row["request_payload"]) == LONG


def test_a_body_that_was_being_prepared_when_the_sweep_began(shelved: Shelved) -> None:
    """It may rely on what will go, so it has to be prepared anew."""
    epoch, stored = shelved.shelf.pins.epoch, shelved.shelf.request(LONG)
    shelved.shelf.begin_sweep()
    assert not shelved.shelf.pins.hand_out(stored, epoch)
    assert shelved.shelf.request(LONG).rows
    shelved.shelf.end_sweep()


def test_many_at_once(shelved: Shelved) -> None:
    """Bodies with the same parts come and go while one sweep follows the other."""
    done, missing = threading.Event(), list[str]()

    def come_and_go(seed: int) -> None:
        dice, mine = random.Random(seed), list[str]()
        while not done.is_set():
            count = dice.choice((3, 20, 300))
            texts = [f"message {n}" for n in range(count)]
            mine.append(shelved.keep(shelved.shelf.request(body(*texts, f"of {seed}"))))
            if len(mine) > 5:
                shelved.drop(mine.pop(dice.randrange(len(mine))))

    threads = [threading.Thread(target=come_and_go, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        shelved.sweep.sweep()
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    shelved.settle()
    rows = shelved.store.fetch(RequestLog.select())
    for row in rows:
        try:
            payloads.load(shelved.store, row["request_payload"])
        except LookupError as error:
            missing.append(str(error))
    assert (missing, len(rows) > 0) == ([], True)


# -- its life --------------------------------------------------------------------------------------


def test_what_was_not_swept_before_the_end_is_swept_after_the_start(tmp_path: Path) -> None:
    first = Shelved(tmp_path)
    first.drop(first.keep(first.shelf.request(LONG)))
    first.close()
    second = Shelved(tmp_path)
    assert kept(second.store)
    second.sweep.start()
    eventually(lambda: not kept(second.store))
    eventually(lambda: second.store.sql("PRAGMA user_version") == [(0,)])
    second.close()


def test_a_deletion_during_a_sweep_is_not_forgotten(shelved: Shelved) -> None:
    """What went after the marking began is for the next one, and the file says so."""
    shelved.drop(shelved.keep(shelved.shelf.request(LONG)))
    in_the_way, deleted = threading.Event(), threading.Event()

    def stand_in_the_way(tx: Transaction) -> None:
        in_the_way.set()
        assert deleted.wait(DEADLINE)

    shelved.writer.submit(stand_in_the_way)
    assert in_the_way.wait(DEADLINE)
    swept = threading.Thread(target=shelved.sweep.sweep)
    swept.start()
    eventually(lambda: shelved.writer.depth == 2)
    shelved.writer.submit(count_deletion)
    deleted.set()
    swept.join(DEADLINE)
    assert shelved.store.sql("PRAGMA user_version") == [(2,)]
    shelved.sweep.sweep()
    assert shelved.store.sql("PRAGMA user_version") == [(0,)]


def test_it_stops_in_the_middle(shelved: Shelved) -> None:
    release = threading.Event()

    def stand_in_the_way(tx: Transaction) -> None:
        release.wait(DEADLINE)

    shelved.writer.submit(stand_in_the_way)
    failures = list[BaseException]()

    def sweep() -> None:
        try:
            shelved.sweep.sweep()
        except Stopped as stopped:
            failures.append(stopped)

    thread = threading.Thread(target=sweep)
    thread.start()
    eventually(lambda: shelved.shelf.pins.sweeping)
    shelved.sweep.stop()
    thread.join(DEADLINE)
    release.set()
    assert len(failures) == 1
    assert not shelved.shelf.pins.sweeping


def test_deleting_a_session_counts_for_the_sweep(shelved: Shelved) -> None:
    gone = threading.Event()
    ticket = Edits(shelved.writer).delete_session("default", "sess_x", gone.set)
    assert ticket.wait(DEADLINE)
    assert gone.is_set()
    assert shelved.store.sql("PRAGMA user_version") == [(1,)]
