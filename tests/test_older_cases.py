"""Single cases of older stores: in place, odd times, keys that are taken, what names a turn."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from filled_store import FilledStore
from older_readings import counts, rows
from older_stores import GATEWAY, TASKS, write_gateway, write_tasks
from xgw.cli import main
from xgw.errors import UsageError
from xgw.upkeep.times import in_order, read_time


def xgw(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def done(*arguments: object) -> str:
    result = xgw(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    """The one line with which a command is refused."""
    with pytest.raises(UsageError) as caught:
        main.main([str(argument) for argument in arguments], standalone_mode=False)
    [line] = caught.value.lines
    return line


def made(path: Path, script: str, *rows_of: tuple[str, tuple[Any, ...]]) -> Path:
    """A store with these tables and rows."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(script)
        for table, values in rows_of:
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO {table} VALUES ({marks})", values)
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    write_gateway(path, 20, seed=9)
    return path


# -- in place --------------------------------------------------------------------------------------


def test_in_place(old: Path, tmp_path: Path) -> None:
    before = counts(old)
    content = old.read_bytes()
    assert "`xgw migrate` takes them over" in refused("serve", "--db", old)
    assert "`xgw migrate` takes them over" in refused("migrate", "--status", "--db", old)
    for command in ("sessions", "show last", "tail", "keys list", "backup b.db", "export"):
        assert "`xgw migrate` takes them over" in refused(*command.split(), "--db", old)
    dry = json.loads(done("migrate", "--db", old, "--dry-run", "--json"))
    assert {table["table"]: table["found"] for table in dry["tables"]} == before
    assert old.read_bytes() == content

    report = json.loads(done("migrate", "--db", old, "--json"))
    assert report["balances"]
    assert counts(Path(report["backup"])) == before
    kept = {name[7:]: count for name, count in counts(old).items() if name[:7] == "legacy_"}
    assert kept == before
    assert "is up to date" in done("migrate", "--db", old)
    *_, line = done("migrate", "--status", "--db", old).splitlines()
    [told] = json.loads(done("migrate", "--status", "--db", old, "--json"))["taken_over"]
    assert (told["source"], told["rows"]) == ("the store itself", sum(before.values()))
    assert (
        line
        == f"taken over: the store itself, {told['rows']:,} rows, finished {told['finished_at']}"
    )

    fresh = tmp_path / "fresh.db"
    done("migrate", "--db", fresh)
    indexes = "SELECT name FROM sqlite_master WHERE type = 'index' AND name NOT LIKE '%legacy%'"
    assert set(rows(fresh, indexes)) == set(rows(old, indexes))


def test_a_dry_run_leaves_nothing(old: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for store in (tmp_path / "new.db", old):
        source = () if store == old else ("--from-legacy", old)
        assert "the counts balance" in done("migrate", "--db", store, *source, "--dry-run")
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_takeover_that_is_not_finished_is_told_by_whoever_would_serve(old: Path) -> None:
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.execute("DROP INDEX messages_turn_id")
        for table in ("conversations", "messages", "request_logs"):
            connection.execute(f"ALTER TABLE {table} RENAME TO legacy_{table}")
    assert "`xgw migrate` goes on where it was" in refused("serve", "--db", old)
    assert "the counts balance" in done("migrate", "--db", old)


def test_both_shapes_in_one_file(old: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.db"
    write_tasks(tasks, 10)
    with contextlib.closing(sqlite3.connect(old)) as connection, connection:
        connection.executescript(TASKS)
        connection.execute("ATTACH ? AS other", (str(tasks),))
        for table in ("task_sessions", "task_session_messages"):
            connection.execute(f"INSERT INTO {table} SELECT * FROM other.{table}")
    report = json.loads(done("migrate", "--db", tmp_path / "n.db", "--from-legacy", old, "--json"))
    assert [table["table"] for table in report["tables"]] == [
        "conversations",
        "messages",
        "task_sessions",
        "task_session_messages",
        "request_logs",
    ]
    assert report["balances"]


# -- what is refused -------------------------------------------------------------------------------


def test_what_cannot_be_taken_over_is_said_in_one_line(old: Path, tmp_path: Path) -> None:
    new, other = tmp_path / "new.db", tmp_path / "other.db"
    done("migrate", "--db", new)
    made(other, "CREATE TABLE customers (id INTEGER)")
    before = new.read_bytes()
    cases = {
        new: "is the store itself",
        tmp_path / "none.db": "there is no file",
        other: "has none of the tables",
        tmp_path: "there is no file",
    }
    for path, words in cases.items():
        assert words in refused("migrate", "--db", new, "--from-legacy", path)
    text = tmp_path / "text.db"
    text.write_text("no database" * 99)
    assert "cannot be read as an older store" in refused(
        "migrate", "--db", new, "--from-legacy", text
    )
    assert "exclude each other" in refused("migrate", "--db", new, "--status", "--dry-run")
    assert "exclude each other" in refused("migrate", "--db", new, "--to", 1, "--from-legacy", old)
    assert "there is no store" in refused("backfill-turns", "--db", tmp_path / "none.db")
    nameless = xgw("backfill-turns", "--db", new, "--session", "x")
    assert (nameless.exit_code, "there is no session 'x'" in nameless.stderr) == (1, True)
    assert new.read_bytes() == before


def test_a_schema_goes_up_to_a_number(tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    assert "0002_overview" in done("migrate", "--db", new, "--to", 2)
    assert "pending" in done("migrate", "--db", new, "--status")
    assert "only go forward" in refused("migrate", "--db", new, "--to", 1)
    assert "there is no migration 99" in refused("migrate", "--db", new, "--to", 99)
    assert "would apply 0003" in done("migrate", "--db", new, "--to", 3, "--dry-run")
    done("migrate", "--db", new)
    assert "is up to date" in done("migrate", "--db", new)


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelled", "moment"),
    [
        ("2025-01-01 00:00:00.000001", "2025-01-01 00:00:00.000001"),
        ("2025-01-01T00:00:00Z", "2025-01-01 00:00:00.000000"),
        ("2025-01-01T02:00:00.5+02:00", "2025-01-01 00:00:00.500000"),
        ("2024-12-31 17:00:00-0700", "2025-01-01 00:00:00.000000"),
        ("2025-01-01 02:00:00.123456789 +0200 CEST m=+0.1", "2025-01-01 00:00:00.123456"),
        ("Wed, 01 Jan 2025 00:00:00 GMT", "2025-01-01 00:00:00.000000"),
        (" 2025/1/1 0:00:00 ", "2025-01-01 00:00:00.000000"),
        ("2025-01-01", "2025-01-01 00:00:00.000000"),
        (1735689600, "2025-01-01 00:00:00.000000"),
        (1735689600.25, "2025-01-01 00:00:00.250000"),
        ("1735689600123", "2025-01-01 00:00:00.123000"),
        ("2025-13-01 00:00:00", None),
        ("9999-12-31T23:59:59-05:00", None),
        ("0001-01-01 00:00:00 +0000 UTC", None),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00+01:00", None),
        (-5, None),
        ("soon", None),
        ("", None),
        (b"2025", None),
        (float("inf"), None),
        (10**30, None),
        (None, None),
    ],
)
def test_a_time_in_whatever_spelling_is_one_in_utc(spelled: Any, moment: str | None) -> None:
    assert read_time(spelled) == moment


def test_order_is_that_of_times_as_far_as_they_are_known() -> None:
    def at(seconds: str) -> str:
        return f"2025-01-01 00:00:{seconds}"

    moments = [at("02.900000"), at("02.000000"), None, at("01.000000"), at("02.950000")]
    order, filled = in_order(moments, "unused")
    assert order == [3, 0, 1, 2, 4]
    assert filled == [at("02.900000"), at("02.000000"), at("02.900000"), *moments[3:]]
    assert in_order([None, None], at("07.000000")) == ([0, 1], [at("07.000000")] * 2)
    assert in_order([None, at("03.000000")], "unused")[1] == [at("03.000000")] * 2


# -- keys, rows that are new, what names a turn ----------------------------------------------------

AT = "2025-01-01T00:00:00Z"


def said(id: int, role: str, content: str | None, *, calls: Any = None, answers: Any = None) -> Any:
    told = json.dumps(calls) if calls else None
    return "messages", (id, "c1", role, content, told, answers, AT)


def log(id: int, sent: Any, answer: Any = None, tokens: Any = (None, None)) -> Any:
    told = json.dumps(answer) if answer else None
    values = ("openai", "m", "/v1", 200, json.dumps(sent), told, *tokens, 5, None, AT)
    return "request_logs", (id, *values)


CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CONVERSATION = ("conversations", ("c1", "title", "u1", "m", AT, AT))


def test_a_key_that_is_taken_stays_with_its_session(tmp_path: Path) -> None:
    filled = FilledStore(tmp_path)
    taken = filled.session("c1")
    filled.close()
    old = made(tmp_path / "old.db", GATEWAY, CONVERSATION, said(1, "user", "hi"))
    assert "with a new key: 1 session whose own is another session's" in done(
        "migrate", "--db", filled.store.path, "--from-legacy", old
    )
    [(id, key)] = rows(
        filled.store.path, "SELECT id, session_key FROM sessions WHERE id <> ?", taken
    )
    assert key == id
    assert rows(filled.store.path, "SELECT session_id FROM messages") == [(id,)]


def test_what_has_come_since_is_added(tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    old = made(tmp_path / "old.db", GATEWAY, CONVERSATION, said(1, "user", "a"))
    done("migrate", "--db", new, "--from-legacy", old)
    done("backfill-turns", "--db", new)
    made(old, "", said(2, "assistant", "b"), said(3, "user", "c"), said(4, "assistant", "d"))
    report = json.loads(done("migrate", "--db", new, "--from-legacy", old, "--json"))
    assert [(t["copied"], t["there"]) for t in report["tables"]] == [(0, 1), (3, 1), (0, 0)]
    made_now = json.loads(done("backfill-turns", "--db", new, "--json"))
    assert (made_now["turns"], made_now["messages"]) == (1, 2)
    assert made_now["skipped"] == {"with no message of a user before them": 1}
    in_order = "SELECT user_input, final_output, status FROM turns ORDER BY turn_index"
    assert rows(new, in_order) == [("a", None, "error"), ("c", "d", "success")]
    assert rows(new, "SELECT message_count, turn_count FROM sessions") == [(4, 2)]


def test_request_logs_get_the_turn_that_they_name_and_no_other(tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    asked = {"role": "user", "content": "first"}
    brought = {"role": "tool", "tool_call_id": "call_1", "content": "found"}
    old = made(
        tmp_path / "old.db",
        GATEWAY,
        CONVERSATION,
        said(1, "user", "first"),
        said(2, "assistant", None, calls=[CALL]),
        said(3, "tool", "found", answers="call_1"),
        said(4, "assistant", "done"),
        said(5, "user", "second"),
        said(6, "assistant", "again"),
        log(1, {"messages": [asked]}, {"choices": [{"message": {"tool_calls": [CALL]}}]}, (7, 2)),
        log(2, {"messages": [asked, brought]}, {"choices": []}, (9, 3)),
        log(3, {"messages": [asked, brought, {"role": "user", "content": "second"}]}),
        log(4, {"messages": [asked], "metadata": {"session_id": "c1"}}),
        log(5, {"messages": [asked], "metadata": {"session_id": "c1", "turn_id": "no"}}),
        log(6, {"messages": [{**brought, "tool_call_id": "call_other"}]}),
    )
    done("migrate", "--db", new, "--from-legacy", old)
    report = json.loads(done("backfill-turns", "--db", new, "--json"))
    assert report["requests"] == 2
    assert sorted(report["unlinked"].values()) == [1, 1, 2]
    linked = rows(
        new,
        "SELECT json_extract(r.metadata, '$.legacy.id'), t.user_input FROM request_logs r "
        "JOIN turns t ON t.id = r.turn_id ORDER BY 1",
    )
    assert linked == [(1, "first"), (2, "first")]
    usage = "input_tokens, output_tokens, total_tokens, usage_source"
    assert rows(new, f"SELECT {usage} FROM turns ORDER BY turn_index") == [
        (16, 5, 21, "provider"),
        (None, None, None, None),
    ]
    assert rows(new, f"SELECT request_count, {usage} FROM sessions") == [(2, 16, 5, 21, "partial")]
    assert json.loads(done("backfill-turns", "--db", new, "--json"))["requests"] == 0


def test_a_key_in_an_old_body_never_comes_into_the_store(tmp_path: Path) -> None:
    secret = "sk-" + "very-secret-0123456789"
    config = tmp_path / "xgw.toml"
    config.write_text(
        '[[providers]]\nname = "p"\nkind = "openai"\nbase_url = "http://x/v1"\n'
        f'api_key = "{secret}"\n'
    )
    old = made(tmp_path / "old.db", GATEWAY, log(1, {"api_key": "else", "messages": [secret]}))
    new = tmp_path / "new.db"
    done("migrate", "--config", config, "--db", new, "--from-legacy", old)
    assert secret.encode() not in new.read_bytes()
    assert b"else" not in new.read_bytes()


def test_a_store_that_is_still_written_may_be_in_wal_mode(old: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("INSERT INTO conversations (id) VALUES ('late')")
        connection.commit()
        new = tmp_path / "new.db"
        done("migrate", "--db", new, "--from-legacy", old)
    assert rows(new, "SELECT count(*) FROM sessions WHERE session_key = 'late'") == [(1,)]
