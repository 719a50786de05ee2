"""Stores of the two older shapes, for measuring how fast they are taken over."""

from __future__ import annotations

import contextlib
import datetime
import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

GATEWAY = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT, user_id TEXT, model TEXT,
    created_at TEXT, updated_at TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, conversation_id TEXT, role TEXT,
    content TEXT, tool_calls TEXT, tool_call_id TEXT, created_at TEXT);
CREATE INDEX messages_conversation ON messages (conversation_id);
CREATE TABLE request_logs (id INTEGER PRIMARY KEY AUTOINCREMENT, provider TEXT, model TEXT,
    endpoint TEXT, status_code INTEGER, request_body TEXT, response_body TEXT,
    prompt_tokens INTEGER, completion_tokens INTEGER, latency_ms INTEGER, error TEXT,
    created_at TEXT);
"""
TASKS = """
CREATE TABLE task_sessions (id TEXT PRIMARY KEY, task_id TEXT, agent TEXT, status TEXT,
    metadata TEXT, created_at DATETIME, updated_at DATETIME);
CREATE TABLE task_session_messages (id TEXT PRIMARY KEY, task_session_id TEXT, task_id TEXT,
    author_type TEXT, type TEXT, content TEXT, metadata TEXT, created_at DATETIME);
CREATE INDEX by_session ON task_session_messages (task_session_id, created_at);
"""
WORDS = ["order", "refund", "printer", "café", "password", "timeout", "deploy", "schema", "index"]
START = datetime.datetime(2025, 1, 1)
SHAPES = {"conversations": GATEWAY, "task sessions": TASKS}

Said = tuple[str, str | None, str | None, str | None]
"""Role, content, tool calls, tool call id."""


def write(path: Path, shape: str, count: int) -> int:
    """A store with so many conversations, or task sessions; how many messages it has."""
    chance, moment, messages = random.Random(count), START, 0
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.executescript(SHAPES[shape])
        for number in range(count):
            name = f"{chance.getrandbits(128):032x}"
            moment += datetime.timedelta(minutes=11)
            said = [one for _ in range(chance.randint(1, 6)) for one in _exchange(chance)]
            messages += len(said)
            if shape == "conversations":
                _write_conversation(db, chance, name, moment, said)
            else:
                _write_task_session(db, chance, (name, f"task-{number // 3}"), moment, said)
    return messages


def _exchange(chance: random.Random) -> Iterator[Said]:
    yield "user", _text(chance, 40), None, None
    for _ in range(chance.choice((0, 0, 1, 2))):
        call = f"call_{chance.getrandbits(48):012x}"
        function = {"name": "search", "arguments": json.dumps({"q": _text(chance, 3)})}
        yield "assistant", None, json.dumps([{"id": call, "function": function}]), None
        yield "tool", _text(chance, 40), None, call
    yield "assistant", _text(chance, 120), None, None


def _text(chance: random.Random, most: int) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, most)))


def _at(moment: datetime.datetime, number: int) -> str:
    at = moment + datetime.timedelta(milliseconds=700 * number)
    return at.isoformat(" ", "microseconds") if number % 2 else f"{at:%Y-%m-%dT%H:%M:%S}+00:00"


def _write_conversation(
    db: sqlite3.Connection,
    chance: random.Random,
    name: str,
    moment: datetime.datetime,
    said: list[Said],
) -> None:
    at = _at(moment, 0)
    db.execute(
        "INSERT INTO conversations VALUES (?, ?, 'u1', 'gpt-4o', ?, ?)",
        (name, _text(chance, 5), at, at),
    )
    for number, (role, content, calls, call) in enumerate(said):
        at = _at(moment, number)
        db.execute(
            "INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, ?)",
            (name, role, content, calls, call, at),
        )
        if role == "assistant":
            asked = {"model": "m", "messages": [{"role": "user", "content": _text(chance, 40)}]}
            answer = {"choices": [{"message": {"role": role, "content": content}}]}
            db.execute(
                "INSERT INTO request_logs VALUES (NULL, 'openai', 'gpt-4o', "
                "'/v1/chat/completions', 200, ?, ?, 90, 40, 800, NULL, ?)",
                (json.dumps(asked), json.dumps(answer), at),
            )


def _write_task_session(
    db: sqlite3.Connection,
    chance: random.Random,
    names: tuple[str, str],
    moment: datetime.datetime,
    said: list[Said],
) -> None:
    at = _at(moment, 0)
    db.execute(
        "INSERT INTO task_sessions VALUES (?, ?, 'codex', 'COMPLETED', '{}', ?, ?)",
        (*names, at, at),
    )
    for number, (role, content, calls, call) in enumerate(said):
        kind = "tool_result" if call else "tool_call" if calls else "message"
        extra = {"tool_call_id": call} if call else {}
        if calls:
            [asked] = json.loads(calls)
            extra = {"tool_call_id": asked["id"], "args": asked["function"]}
        author = "user" if role == "user" else "agent"
        values = (f"{chance.getrandbits(128):032x}", *names, author, kind, content or "")
        db.execute(
            "INSERT INTO task_session_messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (*values, json.dumps(extra), _at(moment, number)),
        )
