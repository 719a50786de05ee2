"""The store: its tables as the data model has them, reading scopes, and connections that write."""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peewee
import pytest

from filled_store import FilledStore, at
from xgw import ids
from xgw.store import migrations, models
from xgw.store.database import READERS, Store
from xgw.store.models import TABLES, Session, Step, Turn
from xgw.store.transaction import Transaction

TOKENS = "input_tokens output_tokens cached_tokens reasoning_tokens total_tokens cost_usd"

COLUMNS = {
    "sessions": f"""id session_key project_id org_id api_key_id end_user_id task_id kind agent_name
        mode model provider_name title status source metadata session_summary working_memory
        artifacts budget forked_from_turn_id turn_count message_count request_count {TOKENS}
        usage_source context_tokens active_turn_id created_at updated_at last_turn_at""",
    "turns": f"""id project_id session_id task_id turn_key parent_turn_id agent_name endpoint
        turn_index user_input input_payload final_output final_provider_id final_provider_name
        final_model status ended_by error_type error_message finish_reason trace_id queued_at
        started_at ended_at latency_ms busy_ms {TOKENS} usage_source llm_calls tool_calls attempts
        config_snapshot metadata exclusive_key created_at updated_at""",
    "runs": """id turn_id run_index status kind from_run_id from_step_id ended_by planner_state
        checkpoint overrides owner heartbeat_at error_type error_message started_at ended_at
        latency_ms busy_ms metadata""",
    "steps": f"""id run_id turn_id session_id parent_step_id step_index step_type name attempt
        attempt_reason waited_ms provider_id provider_name model model_requested input_payload
        output_payload partial_output tool_calls tool_call_id history status error_type
        error_message http_status finish_reason finish_reason_raw {TOKENS} cache_write_tokens
        usage_source usage_raw context_tokens ttft_ms latency_ms trace_id observation_id started_at
        ended_at metadata""",
    "messages": """id session_id turn_id run_id step_id message_index kind role content parts
        tool_calls tool_call_id name token_count token_source compacted_by_step_id metadata
        created_at""",
    "request_logs": """id project_id session_id turn_id run_id step_id trace_id provider_id
        provider_name endpoint method url model stream status_code request_headers response_headers
        request_payload response_body frames error_body client error_type error_message
        input_tokens output_tokens bytes_sent bytes_received chunks truncated started_at
        first_byte_at ended_at latency_ms ttft_ms metadata""",
    "events": "seq type at project_id session_id turn_id run_id step_id payload",
    "payloads": "hash size codec data",
    "api_keys": "id name prefix hash project_id org_id created_at revoked_at",
    "takeovers": "id source state started_at finished_at",
    "refusals": "id takeover_id old_table row_id reason",
}
"""The tables of the data model; orders and types are compared between models and migrations."""

UNIQUE = {
    ("sessions", "project_id session_key"),
    ("turns", "session_id turn_index"),
    ("turns", "session_id turn_key"),
    ("turns", "exclusive_key"),
    ("runs", "run_index turn_id"),
    ("steps", "run_id step_index"),
    ("messages", "message_index session_id"),
    ("api_keys", "hash"),
    ("takeovers", "source"),
    ("refusals", "old_table row_id takeover_id"),
}
CASCADES = {
    ("turns", "session_id", "sessions"),
    ("runs", "turn_id", "turns"),
    ("steps", "run_id", "runs"),
    ("steps", "turn_id", "turns"),
    ("steps", "session_id", "sessions"),
    ("messages", "session_id", "sessions"),
    ("messages", "turn_id", "turns"),
    ("request_logs", "session_id", "sessions"),
    ("request_logs", "turn_id", "turns"),
    ("refusals", "takeover_id", "takeovers"),
}
NEVER_NULL = {("sessions", "project_id"), ("turns", "project_id"), ("events", "project_id")}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    filled = FilledStore(tmp_path)
    yield filled
    filled.close()


@pytest.fixture
def migrated(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    store = Store(tmp_path / "xgw.db")
    migrations.migrate(store)
    connection = store.open_writer()
    yield connection
    connection.close()


@pytest.fixture
def created() -> Iterator[sqlite3.Connection]:
    """A database that peewee made from the models alone."""
    database = peewee.SqliteDatabase(":memory:")
    with database.connection_context():
        with database.bind_ctx(TABLES):
            database.create_tables(TABLES)
        yield database.connection()  # type: ignore[no-untyped-call]


# -- the schema ------------------------------------------------------------------------------------


def test_the_tables_are_those_of_the_data_model(migrated: sqlite3.Connection) -> None:
    found = {
        name
        for (name,) in migrated.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if not name.startswith("sqlite_")
    }
    assert found == {*COLUMNS, migrations.HISTORY}
    for table, names in COLUMNS.items():
        columns = [row[1] for row in migrated.execute(f"PRAGMA table_info({table})")]
        assert sorted(columns) == sorted(names.split())


def test_models_and_migrations_agree_on_every_column(
    migrated: sqlite3.Connection, created: sqlite3.Connection
) -> None:
    assert {model._meta.table_name for model in TABLES} == set(COLUMNS)
    for table in COLUMNS:
        assert _columns(migrated, table) == _columns(created, table), table


def test_models_and_migrations_agree_on_every_index(
    migrated: sqlite3.Connection, created: sqlite3.Connection
) -> None:
    for table in COLUMNS:
        assert _indexes(migrated, table) == _indexes(created, table), table


def test_models_and_migrations_agree_on_every_foreign_key(
    migrated: sqlite3.Connection, created: sqlite3.Connection
) -> None:
    for table in COLUMNS:
        assert _foreign_keys(migrated, table) == _foreign_keys(created, table), table


def test_a_column_has_the_name_that_its_model_gives_it() -> None:
    for model in TABLES:
        assert [field.column_name for field in model._meta.sorted_fields] == [
            field.name for field in model._meta.sorted_fields
        ]


def test_what_is_unique(migrated: sqlite3.Connection) -> None:
    found = {
        (table, " ".join(sorted(_indexed(migrated, index[1]))))
        for table in COLUMNS
        for index in migrated.execute(f"PRAGMA index_list({table})")
        if index[2] and index[3] != "pk"
    }
    assert found == UNIQUE


def test_foreign_keys_cascade_from_the_session(migrated: sqlite3.Connection) -> None:
    found = {
        (table, row[3], row[2])
        for table in COLUMNS
        for row in migrated.execute(f"PRAGMA foreign_key_list({table})")
        if row[6] == "CASCADE"
    }
    assert found == CASCADES


def test_what_is_never_null(migrated: sqlite3.Connection) -> None:
    required = {
        (table, row[1])
        for table in COLUMNS
        for row in migrated.execute(f"PRAGMA table_info({table})")
        if row[3]
    }
    assert required >= NEVER_NULL
    tokens = {(table, name) for table in COLUMNS for name in TOKENS.split()}
    assert not required & tokens


def test_deleting_a_session_takes_everything_under_it(filled: FilledStore) -> None:
    session, other = filled.session(), filled.session()
    for owner in (session, other):
        turn = filled.turn(owner)
        run = filled.run(turn)
        filled.step(run, turn, session_id=owner)
        filled.message(owner, turn, 0)
        filled.request(turn, session_id=owner)
    connection = filled.store.open_writer()
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
    connection.close()
    for table in ("sessions", "turns", "runs", "steps", "messages", "request_logs"):
        assert filled.store.sql(f"SELECT count(*) FROM {table}") == [(1,)], table
    assert filled.store.sql("PRAGMA foreign_key_check") == []


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("turns", {"id": "turn_x", "session_id": "sess_gone", "turn_index": 0}),
        ("runs", {"id": "run_x", "turn_id": "turn_gone", "run_index": 0, "kind": "first"}),
    ],
)
def test_a_row_needs_what_it_belongs_to(
    filled: FilledStore, table: str, row: dict[str, Any]
) -> None:
    common = {"project_id": "default", "trace_id": "t", "created_at": at(0), "updated_at": at(0)}
    row = {**row, "status": "running", **(common if table == "turns" else {})}
    connection = filled.store.open_writer()
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        Transaction(connection).insert(table, row)
    connection.close()


def test_one_session_has_one_active_agent_turn(filled: FilledStore) -> None:
    session = filled.session()
    filled.turn(session, exclusive_key=session)
    with pytest.raises(sqlite3.IntegrityError, match="exclusive_key"):
        filled.turn(session, turn_index=1, exclusive_key=session)
    for index in (2, 3):
        filled.turn(session, turn_index=index, exclusive_key=None)


def test_a_session_key_is_unique_in_its_project_alone(filled: FilledStore) -> None:
    filled.session("mine", project_id="a")
    filled.session("mine", project_id="b")
    with pytest.raises(sqlite3.IntegrityError, match="session_key"):
        filled.session("mine", project_id="a")


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT id FROM sessions WHERE project_id = 'p' AND session_key = 'k'", "session_key"),
        ("SELECT id FROM sessions WHERE task_id = 't'", "task_id"),
        ("SELECT id FROM sessions WHERE end_user_id = 'u'", "end_user_id"),
        ("SELECT id FROM turns WHERE session_id = 's' ORDER BY turn_index", "turn_index"),
        ("SELECT id FROM turns WHERE session_id = 's' ORDER BY started_at", "started_at"),
        ("SELECT id FROM turns WHERE session_id = 's' AND turn_key = 'k'", "turn_key"),
        ("SELECT id FROM turns WHERE task_id = 't'", "task_id"),
        ("SELECT id FROM turns WHERE trace_id = 't'", "trace_id"),
        ("SELECT id FROM runs WHERE status = 'running'", "runs_running"),
        ("SELECT id FROM runs WHERE status = 'waiting_tool' AND heartbeat_at < 'x'", "waiting"),
        ("SELECT id FROM steps WHERE run_id = 'r' AND status = 'running'", "steps_running"),
        ("SELECT id FROM messages WHERE turn_id = 't'", "turn_id"),
        ("SELECT id FROM messages WHERE session_id = 's' ORDER BY message_index", "message_index"),
        ("SELECT seq FROM events WHERE session_id = 's' AND seq > 7 ORDER BY seq", "session_id"),
        ("SELECT seq FROM events WHERE turn_id = 't' AND seq > 7 ORDER BY seq", "turn_id"),
    ],
)
def test_an_index_serves_what_is_asked_often(filled: FilledStore, query: str, index: str) -> None:
    plan = filled.explain((query, []))
    assert index in plan, plan
    assert "SCAN" not in plan.replace("SCAN runs USING INDEX", "")
    assert "TEMP B-TREE" not in plan


def test_a_seq_is_never_used_again(filled: FilledStore) -> None:
    first = filled.event("turn.started")
    connection = filled.store.open_writer()
    connection.execute("DELETE FROM events")
    connection.close()
    assert filled.event("turn.started") == first + 1


# -- values ----------------------------------------------------------------------------------------


def test_what_is_written_is_read_back(filled: FilledStore) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    value = {"a": [1, None, {"ü": "\x00 \u2028"}], "b": 1.5}
    session = filled.session("schlüssel", metadata=value, created_at=moment, input_tokens=2**62)
    row = filled.store.fetch_one(Session.select().where(Session.id == session))
    assert row is not None
    assert row["session_key"] == "schlüssel"
    assert row["metadata"] == value
    assert row["created_at"] == moment
    assert row["input_tokens"] == 2**62
    assert row["output_tokens"] is None
    assert row["turn_count"] == 0
    written = filled.store.sql("SELECT created_at, metadata FROM sessions")[0]
    assert written[0] == "2026-01-02 03:04:05.000000"


def test_times_sort_as_text(filled: FilledStore) -> None:
    moments = [at(0), at(0) + datetime.timedelta(microseconds=1), at(0.001), at(9), at(10), at(100)]
    for moment in reversed(moments):
        filled.turn(started_at=moment)
    query = Turn.select(Turn.started_at).order_by(Turn.started_at)
    assert [row["started_at"] for row in filled.store.fetch(query)] == moments
    later = Turn.select().where(Turn.started_at > moments[2])
    assert len(filled.store.fetch(later)) == 3


def test_the_first_row_or_none(filled: FilledStore) -> None:
    assert filled.store.fetch_one(Step.select()) is None
    assert filled.store.sql("SELECT 1, 'x', NULL, x'00'") == [(1, "x", None, b"\x00")]


# -- reading ---------------------------------------------------------------------------------------


def test_reading_scopes_nest_and_see_each_commit(filled: FilledStore) -> None:
    store = filled.store
    with store.reading() as outer:
        with store.reading() as inner:
            assert inner is outer
            assert store.sql("SELECT count(*) FROM sessions") == [(0,)]
        filled.session()
        assert store.sql("SELECT count(*) FROM sessions") == [(1,)]


def test_a_reader_cannot_write(filled: FilledStore) -> None:
    with pytest.raises(peewee.OperationalError, match="readonly"):
        filled.store.sql("DELETE FROM sessions")


def test_readers_are_not_held_up_by_a_writer(filled: FilledStore) -> None:
    filled.session()
    with filled.locked():
        assert filled.store.sql("SELECT count(*) FROM sessions") == [(1,)]


def test_more_threads_than_connections_can_read(filled: FilledStore) -> None:
    count = READERS + 16
    session = filled.session()
    found: list[str] = []
    go = threading.Barrier(count)

    def read() -> None:
        go.wait(30)
        for _ in range(3):
            found.extend(row["id"] for row in filled.store.fetch(Session.select()))

    threads = [threading.Thread(target=read) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [session] * (3 * count)


def test_a_connection_goes_back_after_a_failed_statement(filled: FilledStore) -> None:
    for _ in range(READERS + 1):
        with pytest.raises(peewee.OperationalError):
            filled.store.sql("SELECT nonsense")
    assert filled.store.sql("SELECT 1") == [(1,)]


# -- writing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("durability", "level"), [("normal", 1), ("full", 2)])
def test_a_writing_connection(tmp_path: Path, durability: str, level: int) -> None:
    store = Store(tmp_path / "wört %41?#.db", durability)
    migrations.migrate(store)
    connection = store.open_writer(busy_ms=7)
    asked = ("journal_mode", "foreign_keys", "synchronous", "busy_timeout")
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked]
    assert found == ["wal", 1, level, 7]
    connection.close()
    assert [path.name for path in tmp_path.glob("*.db")] == ["wört %41?#.db"]


def test_a_writing_connection_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        Store(tmp_path / "gone.db").open_writer()
    assert list(tmp_path.iterdir()) == []


def test_the_size_counts_the_log(filled: FilledStore) -> None:
    before = filled.store.size_bytes()
    filled.session(title="x" * 100_000)
    assert filled.store.size_bytes() >= before + 100_000


def test_rows_written_many_at_once(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session)
    connection = filled.store.open_writer()
    transaction = Transaction(connection)
    rows = [
        {
            "id": ids.mint("msg"),
            "session_id": session,
            "turn_id": turn,
            "message_index": index,
            "kind": "message",
            "created_at": at(index),
            "parts": [index],
        }
        for index in range(300)
    ]
    for row in rows:
        transaction.hold("messages", row)
    transaction.insert_payloads([])
    transaction.write()
    connection.close()
    query = models.Message.select().order_by(models.Message.message_index)
    assert [row["parts"] for row in filled.store.fetch(query)] == [[n] for n in range(300)]


# -- what the tests above compare ------------------------------------------------------------------


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [
        (name, _affinity(kind), bool(required or key), default, key)
        for _, name, kind, required, default, key in rows
    ]


def _affinity(kind: str) -> str:
    """How SQLite keeps values of a declared type (its documentation, "Datatypes", 3.1)."""
    kind = kind.upper()
    for parts, affinity in (
        (("INT",), "integer"),
        (("CHAR", "CLOB", "TEXT"), "text"),
        (("BLOB",), "blob"),
        (("REAL", "FLOA", "DOUB"), "real"),
    ):
        if any(part in kind for part in parts):
            return affinity
    return "numeric"


def _indexes(connection: sqlite3.Connection, table: str) -> dict[str, tuple[Any, ...]]:
    found = {}
    for _, name, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})"):
        if origin == "pk":
            continue
        columns = _indexed(connection, name)
        sql = "SELECT sql FROM sqlite_master WHERE name = ?"
        text = connection.execute(sql, (name,)).fetchone()[0].replace('"', "")
        expression = text.partition(table)[2] if None in columns or partial else None
        found[name] = (unique, tuple(columns), expression)
    return found


def _indexed(connection: sqlite3.Connection, index: str) -> list[Any]:
    """The columns of an index, None for an expression."""
    return [row[2] for row in connection.execute(f"PRAGMA index_info({index})")]


def _foreign_keys(connection: sqlite3.Connection, table: str) -> set[tuple[Any, ...]]:
    rows = connection.execute(f"PRAGMA foreign_key_list({table})")
    return {(row[2], row[3], row[4], row[5], row[6]) for row in rows}
