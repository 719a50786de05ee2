"""Older stores whose ids, tables and columns are declared in unusual ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from older_readings import counts, dump, rows
from older_stores import WRITERS, without_rowids
from test_older_cases import done, made, refused, xgw

LOOSE = """CREATE TABLE conversations (id {0}, title TEXT, created_at TEXT);
CREATE TABLE messages (id INTEGER, conversation_id {1}, role TEXT, content TEXT);
"""


@pytest.mark.parametrize(
    ("session", "message", "id", "owners"),
    [
        ("INTEGER PRIMARY KEY", "REAL", 1, (1, 1.0)),
        ("INTEGER PRIMARY KEY", "TEXT", 1, ("1", "01", "1.0")),
        ("TEXT COLLATE NOCASE PRIMARY KEY", "TEXT COLLATE NOCASE", "ABC", ("abc", "ABC")),
        ("TEXT", "TEXT", "a", ("a", "a")),
    ],
)
def test_a_message_is_in_the_session_that_sqlite_takes_for_its_own(
    tmp_path: Path, session: str, message: str, id: Any, owners: tuple[Any, ...]
) -> None:
    said = [("messages", (n, owner, "user", "hi")) for n, owner in enumerate(owners)]
    script = LOOSE.format(session, message)
    old = made(tmp_path / "old.db", script, ("conversations", (id, "t", None)), *said)
    new = tmp_path / "new.db"
    assert "the counts balance" in done("migrate", "--db", new, "--from-legacy", old)
    assert rows(new, "SELECT session_key, message_count FROM sessions") == [(str(id), len(owners))]


def test_sessions_with_one_id_are_all_kept_and_the_first_has_the_messages(tmp_path: Path) -> None:
    old = made(
        tmp_path / "old.db",
        LOOSE.format("TEXT", "TEXT"),
        *[("conversations", ("a", title, "2025-01-01")) for title in ("one", "two", "two")],
        ("messages", (1, "a", "user", "hi")),
    )
    new = tmp_path / "new.db"
    told = json.loads(done("migrate", "--db", new, "--from-legacy", old, "--json"))
    assert told["balances"]
    assert [(one["copied"], one["there"]) for one in told["tables"]] == [(2, 1), (1, 0)]
    assert rows(new, "SELECT title, message_count FROM sessions ORDER BY title") == [
        ("one", 1),
        ("two", 0),
    ]
    assert "nothing was done" in done("migrate", "--db", new, "--from-legacy", old)


def test_columns_may_have_the_names_of_the_rowid(tmp_path: Path) -> None:
    script = """CREATE TABLE conversations (id TEXT PRIMARY KEY, rowid TEXT);
    CREATE TABLE messages (id TEXT, conversation_id TEXT, content TEXT, rowid TEXT, _rowid_ TEXT);
    """
    sessions = [("conversations", (f"c{n}", "same")) for n in range(150)]
    said = [("messages", (f"m{n}", f"c{n}", "hi", "same", "x")) for n in range(150)]
    old, new = made(tmp_path / "old.db", script, *sessions, *said), tmp_path / "new.db"
    done("migrate", "--db", new, "--from-legacy", old)
    assert rows(new, "SELECT count(*), sum(message_count) FROM sessions") == [(150, 150)]


@pytest.mark.parametrize(
    "conversations",
    [
        "CREATE TABLE conversations (id TEXT, n INT, PRIMARY KEY (id, n)) WITHOUT ROWID",
        "CREATE TABLE c (id TEXT); CREATE VIEW conversations AS SELECT id FROM c",
    ],
)
def test_what_has_neither_rowids_nor_keys_is_refused_before_anything_changes(
    tmp_path: Path, conversations: str
) -> None:
    old, new = made(tmp_path / "old.db", conversations), tmp_path / "new.db"
    before = old.read_bytes()
    assert "ordinary table" in refused("migrate", "--db", new, "--from-legacy", old)
    assert "ordinary table" in refused("migrate", "--db", old)
    assert old.read_bytes() == before
    assert not new.exists()
    assert not list(tmp_path.glob("*.backup-*"))


@pytest.mark.parametrize("shape", WRITERS)
def test_tables_without_rowids_are_read_by_their_keys(tmp_path: Path, shape: str) -> None:
    old = tmp_path / "old.db"
    WRITERS[shape](old, 130, seed=4, tidy=True)
    keyed = without_rowids(old)
    assert taken_over(keyed) == taken_over(old)

    before = counts(keyed)
    assert "the counts balance" in done("migrate", "--db", keyed)
    assert {name: count for name, count in counts(keyed).items() if name.startswith("legacy")} == {
        f"legacy_{name}": count for name, count in before.items()
    }
    done("prune", "--db", keyed, "--legacy")
    assert not [name for name in counts(keyed) if name.startswith("legacy")]


@pytest.mark.parametrize("key", ["X'FF'", "CAST(X'636166C3' AS TEXT)"])
def test_keys_that_are_no_text_are_told(tmp_path: Path, key: str) -> None:
    script = "CREATE TABLE conversations (id PRIMARY KEY) WITHOUT ROWID;"
    old = made(tmp_path / "old.db", f"{script} INSERT INTO conversations VALUES ({key})")
    result = xgw("migrate", "--db", tmp_path / "new.db", "--from-legacy", old)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "keys of conversations that are no text" in result.stderr


def taken_over(old: Path) -> dict[str, list[dict[str, Any]]]:
    """What comes into a new store of this one.

    Not the place of a message among others: at one moment that is by rowid there, by key here.
    """
    new = old.with_suffix(".new")
    assert "the counts balance" in done("migrate", "--db", new, "--from-legacy", old)
    found = dump(new)
    for message in found["messages"]:
        del message["message_index"]
    assert len(found["sessions"]) == 130
    return {table: found[table] for table in ("sessions", "messages", "request_logs", "payloads")}


def test_columns_that_are_missing_and_names_in_capitals_leave_no_table_out(tmp_path: Path) -> None:
    old = made(
        tmp_path / "old.db",
        """CREATE TABLE Conversations (ID TEXT PRIMARY KEY, Title TEXT);
        CREATE TABLE Messages (Conversation_Id TEXT, Content TEXT, Mood TEXT);
        CREATE TABLE request_logs (id INTEGER PRIMARY KEY, model TEXT);
        """,
        ("conversations", ("a", "t")),
        ("messages", ("a", "hi", "good")),
        ("messages", ("a", "hi", "good")),
        ("request_logs", (1, "m")),
    )
    new = tmp_path / "new.db"
    done("migrate", "--db", new, "--from-legacy", old)
    assert rows(new, "SELECT session_key, title, message_count FROM sessions") == [("a", "t", 2)]
    mood = "json_extract(metadata, '$.legacy.columns.Mood')"
    assert rows(new, f"SELECT content, {mood} FROM messages") == [("hi", "good")] * 2
    assert rows(new, "SELECT model FROM request_logs") == [("m",)]


def test_a_session_whose_times_cannot_be_made_out_keeps_what_stood_there(tmp_path: Path) -> None:
    script = "CREATE TABLE conversations (id TEXT, created_at TEXT, updated_at TEXT);"
    nothing = "0001-01-01 00:00:00 +0000 UTC"
    old = made(tmp_path / "old.db", script, ("conversations", ("a", nothing, "then")))
    new, report = tmp_path / "new.db", tmp_path / "report.json"
    done("migrate", "--db", new, "--from-legacy", old)
    [(told,)] = rows(new, "SELECT metadata FROM sessions")
    legacy = json.loads(told)["legacy"]
    assert (legacy["created_at"], legacy["updated_at"]) == (nothing, "then")
    done("export", "a", "--db", new, "-o", report)
    done("import", report, "--db", new)
