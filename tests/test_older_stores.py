"""Older stores are taken over: every row is accounted for, in whatever way it comes about."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from older_readings import READERS, OldTurn, counts, dump, old_turns, rows
from older_stores import WRITERS
from xgw.cli import main
from xgw.queries import messages, steps, turns
from xgw.queries.filters import Filters
from xgw.queries.pages import Page
from xgw.queries.payloads import find_bodies
from xgw.store.database import Store

SHAPES = ("gateway", "tasks")
Xgw = Callable[..., Result]


def xgw(*arguments: object) -> Result:
    """A command in this process; its exit code is looked at by whoever calls."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def done(*arguments: object) -> str:
    """What a command that goes well says on stdout."""
    result = xgw(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module", params=[(s, n) for s in SHAPES for n in (1, 2)], ids=str)
def older(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Older:
    """An untidy store, taken over from its file."""
    shape, seed = request.param
    return Older(tmp_path_factory.mktemp(shape), shape, 200, seed)


class Older:
    """An older store and the store that took it over."""

    def __init__(self, folder: Path, shape: str, count: int, seed: int) -> None:
        self.folder, self.shape = folder, shape
        self.old, self.new = folder / "old.db", folder / "new.db"
        WRITERS[shape](self.old, count, seed=seed)
        self.before = self.old.read_bytes()
        said = done("migrate", "--db", self.new, "--from-legacy", self.old, "--json")
        self.report: dict[str, Any] = json.loads(said)


def test_every_row_is_accounted_for(older: Older) -> None:
    found = counts(older.old)
    report = older.report
    assert {table["table"]: table["found"] for table in report["tables"]} == found
    assert report["balances"]
    for table in report["tables"]:
        assert table["found"] == table["copied"] + table["refused"]
        assert table["stored"] == table["copied"]
    refused = [one["table"] for one in report["refusals"]]
    assert refused == (["messages"] if older.shape == "gateway" else [])
    assert all("no text" in one["reason"] for one in report["refusals"])
    new = counts(older.new)
    sessions, said, *_ = (table["copied"] for table in report["tables"])
    assert (new["sessions"], new["messages"]) == (sessions + 1, said)
    assert new.get("request_logs", 0) == found.get("request_logs", 0)
    assert older.old.read_bytes() == older.before
    assert rows(older.new, "PRAGMA foreign_key_check") == []
    assert rows(older.new, "PRAGMA integrity_check") == [("ok",)]


def test_conversations_keep_what_was_said_in_order(older: Older) -> None:
    known = {
        json.loads(told)["legacy"].get("id"): id
        for id, told in rows(older.new, "SELECT id, metadata FROM sessions")
    }
    store = Store(older.new)
    with contextlib.closing(store), store.reading():
        for name, (_, said) in READERS[older.shape](older.old).items():
            found = messages.list_messages(store, known[name], Page(500, None, "asc")).rows
            told = [(row["role"], row["kind"], row["content"]) for row in found]
            assert told == [(one.role, one.kind, one.content) for one in said], name
            assert [row["message_index"] for row in found] == list(range(len(said)))


def test_old_ids_are_keys_where_they_can_be(older: Older) -> None:
    for key, told in rows(older.new, "SELECT session_key, metadata FROM sessions"):
        old_id = json.loads(told)["legacy"].get("id")
        if old_id and old_id.isprintable() and len(old_id) <= 256:
            assert key == old_id
        else:
            assert key.startswith("sess_") or key == "orphans"


def test_what_does_not_fit_stays_in_metadata(older: Older) -> None:
    told = [json.loads(m) for (m,) in rows(older.new, "SELECT metadata FROM messages")]
    told += [json.loads(m) for (m,) in rows(older.new, "SELECT metadata FROM sessions")]
    unparsed = [one["unparsed"] for one in told if "unparsed" in one]
    assert len(unparsed) > 2
    if older.shape == "tasks":
        assert {"{broken", "{not json"} <= set(unparsed)
        kinds = {one["legacy"]["kind"] for one in told if "kind" in one["legacy"]}
        assert kinds == {"thinking"}
        statuses = rows(
            older.new,
            "SELECT DISTINCT status, json_extract(metadata, '$.legacy.status') FROM sessions "
            "WHERE session_key <> 'orphans'",
        )
        assert set(statuses) == {
            ("active", "RUNNING"),
            *(("closed", old) for old in ("COMPLETED", "CANCELLED", "FAILED")),
        }
        assert {one["legacy"]["columns"]["priority"] for one in told if "columns" in one["legacy"]}
    else:
        assert {one["legacy"].get("role") for one in told} >= {"developer", "narrator"}
        assert any(one["legacy"].get("bytes") == ["636166c3"] for one in told)
        orphans = {one["legacy"]["conversation"] for one in told if "conversation" in one["legacy"]}
        assert orphans == {"gone", "away", None}


def test_twice_gives_the_same(older: Older) -> None:
    before = dump(older.new)
    said = done("migrate", "--db", older.new, "--from-legacy", older.old)
    assert "taken over before: nothing was done" in said
    assert dump(older.new) == before
    # A copy of the file elsewhere has the same rows: they are there already.
    copy = older.folder / "copy.db"
    shutil.copy(older.old, copy)
    report = json.loads(done("migrate", "--db", older.new, "--from-legacy", copy, "--json"))
    assert report["balances"]
    assert all(table["copied"] == 0 for table in report["tables"])
    after = dump(older.new)
    assert {t: r for t, r in after.items() if t not in ("takeovers", "refusals", "events")} == {
        t: r for t, r in before.items() if t not in ("takeovers", "refusals", "events")
    }


def test_a_dry_run_changes_nothing(older: Older, tmp_path: Path) -> None:
    new = tmp_path / "new" / "xgw.db"
    report = json.loads(
        done("migrate", "--db", new, "--from-legacy", older.old, "--dry-run", "--json")
    )
    assert report["dry_run"]
    assert [t["copied"] for t in report["tables"]] == [t["copied"] for t in older.report["tables"]]
    assert report["refusals"] == older.report["refusals"]
    assert not new.parent.exists()
    assert older.old.read_bytes() == older.before
    filled = tmp_path / "filled.db"
    shutil.copy(older.new, filled)
    before = filled.read_bytes()
    dry = json.loads(done("backfill-turns", "--db", filled, "--dry-run", "--json"))
    assert dry["turns"] > 100
    assert filled.read_bytes() == before
    unnamed = "name neither a turn nor a tool call"
    told = json.loads(done("backfill-turns", "--db", filled, "--json"))
    assert dry["unlinked"].get(unnamed) == told["unlinked"].get(unnamed)
    assert dry["named"] + sum(dry["unlinked"].values()) == (
        told["requests"] + sum(told["unlinked"].values())
    )


@pytest.mark.parametrize("strategy", ["user-message", "session"])
def test_turns_are_what_the_old_rows_tell(older: Older, tmp_path: Path, strategy: str) -> None:
    path = tmp_path / "filled.db"
    shutil.copy(older.new, path)
    report = json.loads(done("backfill-turns", "--db", path, "--strategy", strategy, "--json"))
    expected = {
        name: found
        for name, (status, said) in READERS[older.shape](older.old).items()
        if (found := old_turns(status, said, strategy))
    }
    made = {name: found for name, found in new_turns(path).items() if name != "orphans"}
    assert made == expected
    assert report["turns"] == sum(map(len, new_turns(path).values()))
    linked = rows(path, "SELECT count(*) FROM messages WHERE turn_id IS NOT NULL")[0][0]
    assert report["messages"] == linked
    left = rows(path, "SELECT count(*) FROM messages WHERE turn_id IS NULL")[0][0]
    assert sum(report["skipped"].values()) == left
    assert rows(path, "PRAGMA foreign_key_check") == []

    before = dump(path)
    again = json.loads(done("backfill-turns", "--db", path, "--json"))
    if strategy == "session":
        assert (again["turns"], again["sessions"]) == (0, 0)
    assert (again["turns"], again["messages"]) == (0, 0)
    assert dump(path) == before


def new_turns(path: Path) -> dict[str, list[OldTurn]]:
    """The turns of each old session as the store has them."""
    store = Store(path)
    with contextlib.closing(store), store.reading():
        found = {
            json.loads(told)["legacy"].get("id", "orphans"): _turns_of(store, id)
            for id, told in rows(path, "SELECT id, metadata FROM sessions")
        }
    return {old_id: made for old_id, made in found.items() if made}


def _turns_of(store: Store, id: str) -> list[OldTurn]:
    listed = turns.list_turns(store, Filters().and_also("session_id", id), Page(500, None)).rows
    ordered = sorted(listed, key=lambda turn: int(turn["turn_index"]))
    assert [turn["turn_index"] for turn in ordered] == list(range(len(ordered)))
    if not ordered:
        return []
    said = messages.list_messages(store, id, Page(500, None, "asc")).rows
    called = steps.list_steps(store, id, Page(500, None, "asc")).rows
    outputs = find_bodies(store, {s["output_payload"] for s in called if s["output_payload"]})
    return [_as_told(turn, said, called, outputs) for turn in ordered]


def _as_told(turn: Any, said: list[Any], called: list[Any], outputs: Any) -> OldTurn:
    said = [one for one in said if one["turn_id"] == turn["id"]]
    called = [one for one in called if one["turn_id"] == turn["id"]]
    assert turn["started_at"] == min(one["created_at"] for one in said)
    assert turn["ended_at"] == max(one["created_at"] for one in said)
    assert turn["metadata"]["backfilled"] in ("user-message", "session")
    assert turn["tool_calls"] == len(called)
    assert {one["run_id"] for one in called} <= {one["run_id"] for one in said}
    tools = tuple(
        (
            step["name"],
            step["metadata"]["arguments"],
            outputs[step["output_payload"]].decode() if step["output_payload"] else None,
        )
        for step in sorted(called, key=lambda step: int(step["step_index"]))
    )
    contents = tuple(one["content"] for one in said)
    return OldTurn(turn["user_input"], turn["final_output"], turn["status"], contents, tools)


@pytest.mark.slow
def test_a_larger_store(tmp_path: Path) -> None:
    larger = Older(tmp_path, "tasks", 550, 7)  # more than one batch of the backfill
    assert larger.report["balances"]
    done("backfill-turns", "--db", larger.new)
    expected = {
        name: found
        for name, (status, said) in READERS["tasks"](larger.old).items()
        if (found := old_turns(status, said, "user-message"))
    }
    made = new_turns(larger.new)
    assert {name: found for name, found in made.items() if name != "orphans"} == expected
