"""Rows that a transaction holds: how units are grouped into transactions changes nothing."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filled_store import FilledStore, at
from recorded import KNOWN, Recorded, recorded, result, tool
from xgw import clock
from xgw.frozen import changed
from xgw.recording.edits import Edits
from xgw.store.database import Store
from xgw.store.migrations import migrate
from xgw.store.transaction import Transaction
from xgw.store.writer import Work

TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "payloads", "events")
LONG = "a long text, which is a payload of its own " * 20


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    filled = FilledStore(tmp_path)
    yield filled
    filled.close()


@pytest.fixture
def tx(filled: FilledStore) -> Iterator[Transaction]:
    connection = filled.store.open_writer()
    yield Transaction(connection)
    connection.close()


# -- one transaction or many -----------------------------------------------------------------------


def plain(scene: Recorded) -> None:
    scene.turn().succeed()
    request = scene.turn(said=LONG)
    request.retry("fallback")
    request.succeed(LONG)
    scene.turn().fail()
    scene.turn().succeed(usage=changed(KNOWN, source="estimated"))


def in_sessions(scene: Recorded) -> None:
    sessions = [scene.session() for _ in range(3)]
    for session in sessions:
        scene.turn(session, first=True).succeed(LONG)
    beside = [scene.turn(session) for session in sessions for _ in range(2)]
    for request in reversed(beside):
        request.succeed(usage=changed(KNOWN, cached_tokens=None))
    edits = Edits(scene.writer)
    edits.change_session("default", sessions[0].id, {"status": "closed", "metadata": {"a": 1}})
    edits.change_session("default", sessions[0].id, {"metadata": {"a": 1}, "title": "new"})
    scene.turn(sessions[0], session_changes={"task_id": "task", "end_user_id": None}).fail()
    scene.turn(sessions[2])
    edits.delete_session("default", sessions[1].id, lambda: None).wait(30)


def with_tools(scene: Recorded) -> None:
    session = scene.session()
    request = scene.turn(session, first=True)
    tools = [tool(1), tool(2)]
    request.ask_for_tools(*tools)
    again = scene.again(request, resumed="tool_result", results=(result(tools[0], LONG),))
    beside = scene.again(request)
    again.ask_for_tools(tool(3))
    beside.succeed(turn=None)
    last = scene.again(request, resumed="tool_result", results=(result(tools[1]),))
    last.succeed()
    scene.again(request, reopened="turn_key").succeed("more")


@pytest.mark.parametrize("story", [plain, in_sessions, with_tools])
def test_grouping_units_changes_nothing(tmp_path: Path, story: Any) -> None:
    """Each unit in a transaction of its own, as it was recorded; then grouped in other ways."""
    units: list[Work] = []
    with recorded(tmp_path / "singly.db") as scene:
        submit = scene.writer.submit

        def submit_and_keep(work: Work, **options: Any) -> Any:
            units.append(work)
            return submit(work, **options)

        vars(scene.writer)["submit"] = submit_and_keep
        story(scene)
        expected = contents(scene.store)
    assert len(units) > 5
    assert contents_of_groups(tmp_path / "together.db", [units]) == expected
    for seed in range(5):
        groups = grouped(units, random.Random(seed))
        assert contents_of_groups(tmp_path / f"{seed}.db", groups) == expected, seed


def grouped(units: list[Work], chance: random.Random) -> list[list[Work]]:
    groups, left = [], units
    while left:
        size = chance.randrange(1, 6)
        groups.append(left[:size])
        left = left[size:]
    return groups


def contents_of_groups(path: Path, groups: list[list[Work]]) -> Any:
    store = Store(path)
    migrate(store)
    connection = store.open_writer()
    for units in groups:
        connection.execute("BEGIN IMMEDIATE")
        transaction = Transaction(connection)
        for unit in units:
            unit(transaction)
        transaction.write()
        connection.execute("COMMIT")
    connection.close()
    found = contents(store)
    store.close()
    return found


def contents(store: Store) -> dict[str, Any]:
    return {table: store.sql(f"SELECT * FROM {table} ORDER BY 1") for table in TABLES}


# -- rows one by one -------------------------------------------------------------------------------


def turn_row(id: str, session: str | None = None, **columns: Any) -> dict[str, Any]:
    row = {"id": id, "project_id": "default", "session_id": session, "turn_index": 0}
    row |= {"status": "running", "trace_id": "t", "attempts": 0, "created_at": at(0)}
    return row | {"updated_at": at(0)} | columns


def turns(filled: FilledStore) -> list[tuple[Any, ...]]:
    return filled.store.sql("SELECT id, status, attempts, input_tokens FROM turns ORDER BY id")


def test_a_new_row_is_written_in_its_last_state(filled: FilledStore, tx: Transaction) -> None:
    tx.hold("turns", turn_row("turn_1", metadata={"a": [1]}))
    tx.hold("turns", turn_row("turn_2"))
    assert not tx.move("turns", "turn_1", ("queued", "success"), {"status": "error"})
    assert tx.move("turns", "turn_1", ("queued", "running"), {"status": "success"})
    assert not tx.change("turns", "turn_1", {"status": "error"}, {"status": "running"})
    row = tx.row("turns", "turn_2")
    assert row is not None
    row.add({"attempts": 1, "input_tokens": 5, "cached_tokens": None})
    row.add({"attempts": 1, "input_tokens": 6})
    assert turns(filled) == []
    assert tx.write() == []
    assert turns(filled) == [("turn_1", "success", 0, None), ("turn_2", "running", 2, 11)]
    assert filled.store.sql("SELECT metadata FROM turns WHERE id = 'turn_1'") == [('{"a":[1]}',)]


def test_a_row_that_is_there_is_changed_likewise(filled: FilledStore, tx: Transaction) -> None:
    one, two = (filled.turn(status="running", attempts=1) for _ in range(2))
    assert not tx.move("turns", one, ("queued",), {"status": "error"})
    assert tx.move("turns", one, ("queued", "running"), {"status": "success"})
    assert not tx.change("turns", one, {"status": "error"}, {"status": "running"})
    assert not tx.change("turns", "turn_gone", {"status": "error"})
    assert tx.row("turns", "turn_gone") is None
    row = tx.row("turns", two)
    assert row is not None
    assert (row.get("created_at"), row.get("no_column")) == (clock.to_db(at(0)), None)
    row.add({"attempts": 1, "input_tokens": 5})
    assert tx.change("turns", two, {"status": "error"}, {"status": "running"})
    tx.write()
    assert turns(filled) == sorted([(one, "success", 1, None), (two, "error", 2, 5)])


def test_a_statement_sees_what_is_held(filled: FilledStore, tx: Transaction) -> None:
    session = filled.session()
    row = tx.row("sessions", session)
    assert row is not None
    row.set({"title": "changed"})
    tx.hold("turns", turn_row("turn_1", session))
    assert tx.is_new("turns", "turn_1")
    assert tx.stored("SELECT title FROM sessions", ()) == [(None,)]
    assert tx.one("SELECT title, (SELECT count(*) FROM turns) FROM sessions") == ("changed", 1)
    assert not tx.is_new("turns", "turn_1")
    tx.execute("UPDATE turns SET attempts = 7")
    again = tx.row("turns", "turn_1")
    assert again is not None
    assert again.get("attempts") == 7


def test_what_the_file_has_against_a_row_is_known_when_it_is_written(
    filled: FilledStore, tx: Transaction
) -> None:
    tx.hold("turns", turn_row("turn_1", "sess_gone"))
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        tx.write()
    assert turns(filled) == []
