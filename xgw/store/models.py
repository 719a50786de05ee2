"""The tables of the store as peewee models: columns, indexes and foreign keys, nothing else.

Null means unknown, never 0. Times are naive UTC; `*_ms` are milliseconds.
"""

from __future__ import annotations

from typing import Any

from peewee import (
    SQL,
    AutoField,
    BigIntegerField,
    BlobField,
    CharField,
    DoubleField,
    ForeignKeyField,
    IntegerField,
    Model,
    TextField,
)

from xgw.store.fields import HashField, IdField, JsonField, MomentField, TimeField, ToldField

ID = 64
CASCADE: dict[str, Any] = {"on_delete": "CASCADE", "index": False, "lazy_load": False}


def _where_known(table: str, *columns: str, by: str | None = None, unique: bool = False) -> SQL:
    """An index over the rows that have a value in the column `by`, the first one if not given."""
    kind, name = "UNIQUE INDEX" if unique else "INDEX", "_".join((table, *columns))
    named = f"CREATE {kind} {name} ON {table} ({', '.join(columns)})"
    return SQL(f"{named} WHERE {by or columns[0]} IS NOT NULL")


class Table(Model):
    """Base of all tables; bound to a database by the store that reads them."""

    class Meta:
        legacy_table_names = False


class Session(Table):
    """One continuous conversation, named by an explicit identifier."""

    id = CharField(ID, primary_key=True)
    session_key = TextField()
    project_id = TextField()
    org_id = TextField(null=True)
    api_key_id = TextField(null=True)
    end_user_id = TextField(null=True)
    task_id = TextField(null=True)
    kind = TextField()
    agent_name = TextField(null=True)
    mode = TextField(null=True)
    model = TextField(null=True)
    provider_name = TextField(null=True)
    title = TextField(null=True)
    status = TextField()
    source = TextField()
    metadata = JsonField(null=True)
    session_summary = TextField(null=True)
    working_memory = JsonField(null=True)
    artifacts = JsonField(null=True)
    budget = JsonField(null=True)
    forked_from_turn_id = CharField(ID, null=True)
    turn_count = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    message_count = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    request_count = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    input_tokens = BigIntegerField(null=True)
    output_tokens = BigIntegerField(null=True)
    cached_tokens = BigIntegerField(null=True)
    reasoning_tokens = BigIntegerField(null=True)
    total_tokens = BigIntegerField(null=True)
    cost_usd = DoubleField(null=True)
    usage_source = TextField(null=True)
    context_tokens = BigIntegerField(null=True)
    active_turn_id = CharField(ID, null=True)
    created_at = TimeField()
    updated_at = TimeField()
    last_turn_at = TimeField(null=True)

    class Meta:
        table_name = "sessions"
        indexes = (
            (("session_key", "project_id"), True),
            SQL(
                "CREATE INDEX sessions_activity"
                " ON sessions (COALESCE(last_turn_at, created_at), id)"
            ),
            SQL(
                "CREATE INDEX sessions_status_activity"
                " ON sessions (status, COALESCE(last_turn_at, created_at), id)"
            ),
            _where_known("sessions", "task_id"),
            _where_known("sessions", "end_user_id"),
        )


class Turn(Table):
    """One user input and all the work that answers it."""

    id = CharField(ID, primary_key=True)
    project_id = TextField()
    session_id = ForeignKeyField(Session, null=True, column_name="session_id", **CASCADE)
    task_id = TextField(null=True)
    turn_key = TextField(null=True)
    parent_turn_id = CharField(ID, null=True)
    agent_name = TextField(null=True)
    endpoint = TextField(null=True)
    turn_index = IntegerField()
    user_input = TextField(null=True)
    input_payload = TextField(null=True)
    final_output = TextField(null=True)
    final_provider_id = TextField(null=True)
    final_provider_name = TextField(null=True)
    final_model = TextField(null=True)
    status = TextField()
    ended_by = TextField(null=True)
    error_type = TextField(null=True)
    error_message = TextField(null=True)
    finish_reason = TextField(null=True)
    trace_id = TextField()
    queued_at = TimeField(null=True)
    started_at = TimeField(null=True)
    ended_at = TimeField(null=True)
    latency_ms = IntegerField(null=True)
    busy_ms = IntegerField(null=True)
    input_tokens = BigIntegerField(null=True)
    output_tokens = BigIntegerField(null=True)
    cached_tokens = BigIntegerField(null=True)
    reasoning_tokens = BigIntegerField(null=True)
    total_tokens = BigIntegerField(null=True)
    cost_usd = DoubleField(null=True)
    usage_source = TextField(null=True)
    llm_calls = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    tool_calls = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    attempts = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    config_snapshot = TextField(null=True)
    metadata = JsonField(null=True)
    exclusive_key = TextField(null=True)
    created_at = TimeField()
    updated_at = TimeField()

    class Meta:
        table_name = "turns"
        indexes = (
            _where_known("turns", "exclusive_key", unique=True),
            _where_known("turns", "session_id", "turn_index", unique=True),
            _where_known("turns", "session_id", "started_at"),
            _where_known("turns", "task_id"),
            SQL("CREATE INDEX turns_start ON turns (COALESCE(started_at, created_at), id)"),
            SQL(
                "CREATE INDEX turns_alone ON turns (COALESCE(started_at, created_at), id)"
                " WHERE session_id IS NULL"
            ),
            SQL(
                "CREATE INDEX turns_status_start"
                " ON turns (status, COALESCE(started_at, created_at), id)"
            ),
            (("ended_at", "started_at", "created_at"), False),
            SQL("CREATE INDEX turns_failed ON turns (session_id) WHERE status = 'error'"),
            SQL(
                "CREATE INDEX turns_failed_end ON turns (status, ended_at, project_id)"
                " WHERE status = 'error'"
            ),
            SQL(
                "CREATE INDEX turns_tried_again ON turns (session_id, attempts, llm_calls)"
                " WHERE attempts > llm_calls"
            ),
            (("trace_id",), False),
            _where_known("turns", "turn_key", "session_id", by="turn_key", unique=True),
        )


class Run(Table):
    """One execution of a turn: the first try, a resumed run, a re-run."""

    id = CharField(ID, primary_key=True)
    turn_id = ForeignKeyField(Turn, column_name="turn_id", **CASCADE)
    run_index = IntegerField()
    status = TextField()
    kind = TextField()
    from_run_id = CharField(ID, null=True)
    from_step_id = CharField(ID, null=True)
    ended_by = TextField(null=True)
    planner_state = JsonField(null=True)
    checkpoint = JsonField(null=True)
    overrides = JsonField(null=True)
    owner = TextField(null=True)
    heartbeat_at = TimeField(null=True)
    error_type = TextField(null=True)
    error_message = TextField(null=True)
    started_at = TimeField(null=True)
    ended_at = TimeField(null=True)
    latency_ms = IntegerField(null=True)
    busy_ms = IntegerField(null=True)
    metadata = JsonField(null=True)

    class Meta:
        table_name = "runs"
        indexes = (
            (("turn_id", "run_index"), True),
            SQL("CREATE INDEX runs_running ON runs (owner) WHERE status = 'running'"),
            SQL("CREATE INDEX runs_waiting ON runs (heartbeat_at) WHERE status = 'waiting_tool'"),
        )


class Step(Table):
    """One internal action of a run; every attempt at a model answer is its own step."""

    id = CharField(ID, primary_key=True)
    run_id = ForeignKeyField(Run, column_name="run_id", **CASCADE)
    turn_id = ForeignKeyField(Turn, column_name="turn_id", **CASCADE)
    session_id = ForeignKeyField(Session, null=True, column_name="session_id", **CASCADE)
    parent_step_id = CharField(ID, null=True)
    step_index = IntegerField()
    step_type = TextField()
    name = TextField(null=True)
    attempt = IntegerField(null=True)
    attempt_reason = TextField(null=True)
    waited_ms = IntegerField(null=True)
    provider_id = TextField(null=True)
    provider_name = TextField(null=True)
    model = TextField(null=True)
    model_requested = TextField(null=True)
    input_payload = TextField(null=True)
    output_payload = TextField(null=True)
    partial_output = TextField(null=True)
    tool_calls = JsonField(null=True)
    tool_call_id = TextField(null=True)
    history = TextField(null=True)
    status = TextField()
    error_type = TextField(null=True)
    error_message = TextField(null=True)
    http_status = IntegerField(null=True)
    finish_reason = TextField(null=True)
    finish_reason_raw = TextField(null=True)
    input_tokens = BigIntegerField(null=True)
    output_tokens = BigIntegerField(null=True)
    cached_tokens = BigIntegerField(null=True)
    cache_write_tokens = BigIntegerField(null=True)
    reasoning_tokens = BigIntegerField(null=True)
    total_tokens = BigIntegerField(null=True)
    usage_source = TextField(null=True)
    usage_raw = JsonField(null=True)
    cost_usd = DoubleField(null=True)
    context_tokens = BigIntegerField(null=True)
    ttft_ms = IntegerField(null=True)
    latency_ms = IntegerField(null=True)
    trace_id = TextField()
    observation_id = TextField()
    started_at = TimeField()
    ended_at = TimeField(null=True)
    metadata = JsonField(null=True)

    class Meta:
        table_name = "steps"
        indexes = (
            (("run_id", "step_index"), True),
            (("turn_id", "started_at"), False),
            _where_known("steps", "session_id", "started_at"),
            (("started_at",), False),
            _where_known("steps", "session_id", "tool_call_id", by="tool_call_id"),
            SQL("CREATE INDEX steps_running ON steps (run_id) WHERE status = 'running'"),
        )


class Message(Table):
    """One item of a session's history as people see it."""

    id = CharField(ID, primary_key=True)
    session_id = ForeignKeyField(Session, null=True, column_name="session_id", **CASCADE)
    turn_id = ForeignKeyField(Turn, null=True, column_name="turn_id", **CASCADE)
    run_id = CharField(ID, null=True)
    step_id = CharField(ID, null=True)
    message_index = IntegerField()
    kind = TextField()
    role = TextField(null=True)
    content = TextField(null=True)
    parts = JsonField(null=True)
    tool_calls = JsonField(null=True)
    tool_call_id = TextField(null=True)
    name = TextField(null=True)
    token_count = BigIntegerField(null=True)
    token_source = TextField(null=True)
    compacted_by_step_id = CharField(ID, null=True)
    metadata = JsonField(null=True)
    created_at = TimeField()

    class Meta:
        table_name = "messages"
        indexes = (
            (("turn_id",), False),
            _where_known("messages", "session_id", "message_index", unique=True),
            SQL(
                "CREATE INDEX messages_without_turn ON messages (session_id, message_index)"
                " WHERE turn_id IS NULL"
            ),
        )


class RequestLog(Table):
    """One HTTP exchange with an upstream, as it was on the wire; secrets masked."""

    id = CharField(ID, primary_key=True)
    project_id = TextField()
    session_id = ForeignKeyField(Session, null=True, column_name="session_id", **CASCADE)
    turn_id = ForeignKeyField(Turn, null=True, column_name="turn_id", **CASCADE)
    run_id = CharField(ID, null=True)
    step_id = CharField(ID, null=True)
    trace_id = TextField(null=True)
    provider_id = TextField(null=True)
    provider_name = TextField(null=True)
    endpoint = TextField(null=True)
    method = TextField(null=True)
    url = TextField(null=True)
    model = TextField(null=True)
    stream = IntegerField(null=True)
    status_code = IntegerField(null=True)
    request_headers = JsonField(null=True)
    response_headers = JsonField(null=True)
    request_payload = TextField(null=True)
    response_body = TextField(null=True)
    frames = JsonField(null=True)
    error_body = TextField(null=True)
    client = JsonField(null=True)
    error_type = TextField(null=True)
    error_message = TextField(null=True)
    input_tokens = BigIntegerField(null=True)
    output_tokens = BigIntegerField(null=True)
    bytes_sent = BigIntegerField(null=True)
    bytes_received = BigIntegerField(null=True)
    chunks = IntegerField(null=True)
    truncated = IntegerField(null=True)
    started_at = TimeField(null=True)
    first_byte_at = TimeField(null=True)
    ended_at = TimeField(null=True)
    latency_ms = IntegerField(null=True)
    ttft_ms = IntegerField(null=True)
    metadata = JsonField(null=True)

    class Meta:
        table_name = "request_logs"
        indexes = (
            (("started_at",), False),
            (("ended_at", "started_at"), False),
            SQL(
                "CREATE INDEX request_logs_failed ON request_logs (started_at)"
                " WHERE error_type IS NOT NULL OR status_code >= 400"
            ),
            (("turn_id",), False),
            _where_known("request_logs", "session_id", "started_at"),
            (("step_id",), False),
        )


class Event(Table):
    """An immutable fact, written in the same transaction as the change that it tells of."""

    seq = AutoField()
    type = TextField()
    at = MomentField()
    project_id = TextField()
    session_id = IdField("sess", null=True)
    turn_id = IdField("turn", null=True)
    run_id = IdField("run", null=True)
    step_id = IdField("step", null=True)
    payload = ToldField()

    class Meta:
        table_name = "events"
        # Each has `seq` behind it: that is the row's own number.
        indexes = (_where_known("events", "session_id"), (("turn_id",), False))


class Payload(Table):
    """A large body, kept once under the hash of its content."""

    hash = HashField(primary_key=True)
    size = BigIntegerField()
    codec = TextField()
    data = BlobField()

    class Meta:
        table_name = "payloads"


class ApiKey(Table):
    """A client key that xgw issued; the key itself is never kept."""

    id = CharField(ID, primary_key=True)
    name = TextField()
    prefix = TextField()
    hash = TextField(unique=True)
    project_id = TextField()
    org_id = TextField(null=True)
    created_at = TimeField()
    revoked_at = TimeField(null=True)

    class Meta:
        table_name = "api_keys"


class Takeover(Table):
    """An older store that is taken over; `state` has its counts and how far that is."""

    id = AutoField()
    source = TextField(unique=True)
    state = JsonField()
    started_at = TimeField()
    finished_at = TimeField(null=True)

    class Meta:
        table_name = "takeovers"


class Refusal(Table):
    """A row of an older store that could not be taken over, and why."""

    id = AutoField()
    takeover_id = ForeignKeyField(Takeover, column_name="takeover_id", **CASCADE)
    old_table = TextField()
    row_id = TextField()
    reason = TextField()

    class Meta:
        table_name = "refusals"
        indexes = ((("takeover_id", "old_table", "row_id"), True),)


TABLES: tuple[type[Table], ...] = (
    Session,
    Turn,
    Run,
    Step,
    Message,
    RequestLog,
    Event,
    Payload,
    ApiKey,
    Takeover,
    Refusal,
)
