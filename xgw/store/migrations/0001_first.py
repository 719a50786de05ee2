"""The first schema: sessions, turns, runs, steps, messages, requests, events, payloads, keys."""

from __future__ import annotations

from typing import Any

STATEMENTS = (
    """CREATE TABLE sessions (
        id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, project_id TEXT NOT NULL,
        org_id TEXT, api_key_id TEXT, end_user_id TEXT, task_id TEXT, kind TEXT NOT NULL,
        agent_name TEXT, mode TEXT, model TEXT, provider_name TEXT, title TEXT,
        status TEXT NOT NULL, source TEXT NOT NULL, metadata TEXT, session_summary TEXT,
        working_memory TEXT, artifacts TEXT, budget TEXT, forked_from_turn_id TEXT,
        turn_count INTEGER NOT NULL DEFAULT 0, message_count INTEGER NOT NULL DEFAULT 0,
        request_count INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER, output_tokens INTEGER,
        cached_tokens INTEGER, reasoning_tokens INTEGER, total_tokens INTEGER, cost_usd REAL,
        usage_source TEXT, context_tokens INTEGER, active_turn_id TEXT,
        created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL, last_turn_at DATETIME
    )""",
    "CREATE UNIQUE INDEX sessions_session_key_project_id ON sessions (session_key, project_id)",
    "CREATE INDEX sessions_activity ON sessions (COALESCE(last_turn_at, created_at), id)",
    "CREATE INDEX sessions_status_activity"
    " ON sessions (status, COALESCE(last_turn_at, created_at), id)",
    "CREATE INDEX sessions_task_id ON sessions (task_id) WHERE task_id IS NOT NULL",
    "CREATE INDEX sessions_end_user_id ON sessions (end_user_id) WHERE end_user_id IS NOT NULL",
    """CREATE TABLE turns (
        id TEXT NOT NULL PRIMARY KEY, project_id TEXT NOT NULL, session_id TEXT, task_id TEXT,
        turn_key TEXT, parent_turn_id TEXT, agent_name TEXT, endpoint TEXT,
        turn_index INTEGER NOT NULL, user_input TEXT, input_payload TEXT, final_output TEXT,
        final_provider_id TEXT, final_provider_name TEXT, final_model TEXT,
        status TEXT NOT NULL, ended_by TEXT, error_type TEXT, error_message TEXT,
        finish_reason TEXT, trace_id TEXT NOT NULL, queued_at DATETIME, started_at DATETIME,
        ended_at DATETIME, latency_ms INTEGER, busy_ms INTEGER, input_tokens INTEGER,
        output_tokens INTEGER, cached_tokens INTEGER, reasoning_tokens INTEGER,
        total_tokens INTEGER, cost_usd REAL, usage_source TEXT,
        llm_calls INTEGER NOT NULL DEFAULT 0, tool_calls INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0, config_snapshot TEXT, metadata TEXT,
        exclusive_key TEXT, created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL,
        FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX turns_exclusive_key ON turns (exclusive_key)"
    " WHERE exclusive_key IS NOT NULL",
    "CREATE UNIQUE INDEX turns_session_id_turn_index ON turns (session_id, turn_index)"
    " WHERE session_id IS NOT NULL",
    "CREATE INDEX turns_session_id_started_at ON turns (session_id, started_at)"
    " WHERE session_id IS NOT NULL",
    "CREATE INDEX turns_task_id ON turns (task_id) WHERE task_id IS NOT NULL",
    "CREATE INDEX turns_start ON turns (COALESCE(started_at, created_at), id)",
    "CREATE INDEX turns_status_start ON turns (status, COALESCE(started_at, created_at), id)",
    "CREATE INDEX turns_ended_at_started_at_created_at ON turns (ended_at, started_at, created_at)",
    "CREATE INDEX turns_failed ON turns (session_id) WHERE status = 'error'",
    "CREATE INDEX turns_trace_id ON turns (trace_id)",
    "CREATE UNIQUE INDEX turns_turn_key_session_id ON turns (turn_key, session_id)"
    " WHERE turn_key IS NOT NULL",
    """CREATE TABLE runs (
        id TEXT NOT NULL PRIMARY KEY, turn_id TEXT NOT NULL, run_index INTEGER NOT NULL,
        status TEXT NOT NULL, kind TEXT NOT NULL, from_run_id TEXT, from_step_id TEXT,
        ended_by TEXT, planner_state TEXT, checkpoint TEXT, overrides TEXT, owner TEXT,
        heartbeat_at DATETIME, error_type TEXT, error_message TEXT, started_at DATETIME,
        ended_at DATETIME, latency_ms INTEGER, busy_ms INTEGER, metadata TEXT,
        FOREIGN KEY (turn_id) REFERENCES turns (id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX runs_turn_id_run_index ON runs (turn_id, run_index)",
    "CREATE INDEX runs_running ON runs (owner) WHERE status = 'running'",
    "CREATE INDEX runs_waiting ON runs (heartbeat_at) WHERE status = 'waiting_tool'",
    """CREATE TABLE steps (
        id TEXT NOT NULL PRIMARY KEY, run_id TEXT NOT NULL, turn_id TEXT NOT NULL,
        session_id TEXT, parent_step_id TEXT, step_index INTEGER NOT NULL,
        step_type TEXT NOT NULL, name TEXT, attempt INTEGER, attempt_reason TEXT,
        waited_ms INTEGER, provider_id TEXT, provider_name TEXT, model TEXT,
        model_requested TEXT, input_payload TEXT, output_payload TEXT, partial_output TEXT,
        tool_calls TEXT, tool_call_id TEXT, history TEXT, status TEXT NOT NULL,
        error_type TEXT, error_message TEXT, http_status INTEGER, finish_reason TEXT,
        finish_reason_raw TEXT, input_tokens INTEGER, output_tokens INTEGER,
        cached_tokens INTEGER, cache_write_tokens INTEGER, reasoning_tokens INTEGER,
        total_tokens INTEGER, usage_source TEXT, usage_raw TEXT, cost_usd REAL,
        context_tokens INTEGER, ttft_ms INTEGER, latency_ms INTEGER, trace_id TEXT NOT NULL,
        observation_id TEXT NOT NULL, started_at DATETIME NOT NULL, ended_at DATETIME,
        metadata TEXT, FOREIGN KEY (run_id) REFERENCES runs (id) ON DELETE CASCADE,
        FOREIGN KEY (turn_id) REFERENCES turns (id) ON DELETE CASCADE,
        FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE
    )""",
    "CREATE UNIQUE INDEX steps_run_id_step_index ON steps (run_id, step_index)",
    "CREATE INDEX steps_turn_id_started_at ON steps (turn_id, started_at)",
    "CREATE INDEX steps_session_id_started_at ON steps (session_id, started_at)"
    " WHERE session_id IS NOT NULL",
    "CREATE INDEX steps_started_at ON steps (started_at)",
    "CREATE INDEX steps_session_id_tool_call_id ON steps (session_id, tool_call_id)"
    " WHERE tool_call_id IS NOT NULL",
    "CREATE INDEX steps_running ON steps (run_id) WHERE status = 'running'",
    """CREATE TABLE messages (
        id TEXT NOT NULL PRIMARY KEY, session_id TEXT, turn_id TEXT, run_id TEXT, step_id TEXT,
        message_index INTEGER NOT NULL, kind TEXT NOT NULL, role TEXT, content TEXT,
        parts TEXT, tool_calls TEXT, tool_call_id TEXT, name TEXT, token_count INTEGER,
        token_source TEXT, compacted_by_step_id TEXT, metadata TEXT,
        created_at DATETIME NOT NULL,
        FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
        FOREIGN KEY (turn_id) REFERENCES turns (id) ON DELETE CASCADE
    )""",
    "CREATE INDEX messages_turn_id ON messages (turn_id)",
    "CREATE UNIQUE INDEX messages_session_id_message_index ON messages (session_id, message_index)"
    " WHERE session_id IS NOT NULL",
    """CREATE TABLE request_logs (
        id TEXT NOT NULL PRIMARY KEY, project_id TEXT NOT NULL, session_id TEXT, turn_id TEXT,
        run_id TEXT, step_id TEXT, trace_id TEXT, provider_id TEXT, provider_name TEXT,
        endpoint TEXT, method TEXT, url TEXT, model TEXT, stream INTEGER, status_code INTEGER,
        request_headers TEXT, response_headers TEXT, request_payload TEXT, response_body TEXT,
        frames TEXT, error_body TEXT, client TEXT, error_type TEXT, error_message TEXT,
        input_tokens INTEGER, output_tokens INTEGER, bytes_sent INTEGER,
        bytes_received INTEGER, chunks INTEGER, truncated INTEGER, started_at DATETIME,
        first_byte_at DATETIME, ended_at DATETIME, latency_ms INTEGER, ttft_ms INTEGER,
        metadata TEXT, FOREIGN KEY (session_id) REFERENCES sessions (id) ON DELETE CASCADE,
        FOREIGN KEY (turn_id) REFERENCES turns (id) ON DELETE CASCADE
    )""",
    "CREATE INDEX request_logs_started_at ON request_logs (started_at)",
    "CREATE INDEX request_logs_ended_at_started_at ON request_logs (ended_at, started_at)",
    "CREATE INDEX request_logs_failed"
    " ON request_logs (started_at) WHERE error_type IS NOT NULL OR status_code >= 400",
    "CREATE INDEX request_logs_turn_id ON request_logs (turn_id)",
    "CREATE INDEX request_logs_session_id_started_at ON request_logs (session_id, started_at)"
    " WHERE session_id IS NOT NULL",
    "CREATE INDEX request_logs_step_id ON request_logs (step_id)",
    """CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, type TEXT NOT NULL, at DATETIME NOT NULL,
        project_id TEXT NOT NULL, session_id TEXT, turn_id TEXT, run_id TEXT, step_id TEXT,
        payload TEXT NOT NULL
    )""",
    "CREATE INDEX events_session_id_seq ON events (session_id, seq) WHERE session_id IS NOT NULL",
    "CREATE INDEX events_turn_id_seq ON events (turn_id, seq)",
    """CREATE TABLE payloads (
        hash TEXT NOT NULL PRIMARY KEY, size INTEGER NOT NULL, codec TEXT NOT NULL,
        data BLOB NOT NULL
    )""",
    """CREATE TABLE api_keys (
        id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, prefix TEXT NOT NULL,
        hash TEXT NOT NULL, project_id TEXT NOT NULL, org_id TEXT,
        created_at DATETIME NOT NULL, revoked_at DATETIME
    )""",
    "CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash)",
)


def up(migrator: Any, db: Any) -> None:
    for statement in STATEMENTS:
        db.execute_sql(statement)


def down(migrator: Any, db: Any) -> None:
    tables = "api_keys payloads events request_logs messages steps runs turns sessions"
    for table in tables.split():
        db.execute_sql(f"DROP TABLE {table}")
