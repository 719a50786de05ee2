"""Stores as programs before xgw wrote them: both shapes, as untidy as real ones unless `tidy`."""

from __future__ import annotations

import contextlib
import datetime
import email.utils
import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GATEWAY = """
CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT, user_id TEXT, model TEXT,
    created_at TEXT, updated_at TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, conversation_id TEXT, role TEXT,
    content TEXT, tool_calls TEXT, tool_call_id TEXT, created_at TEXT);
CREATE INDEX messages_turn_id ON messages (conversation_id);
CREATE TABLE request_logs (id INTEGER PRIMARY KEY AUTOINCREMENT, provider TEXT, model TEXT,
    endpoint TEXT, status_code INTEGER, request_body TEXT, response_body TEXT,
    prompt_tokens INTEGER, completion_tokens INTEGER, latency_ms INTEGER, error TEXT,
    created_at TEXT);
"""
TASKS = """
CREATE TABLE task_sessions (id TEXT PRIMARY KEY, task_id TEXT NOT NULL, agent TEXT, status TEXT,
    metadata TEXT DEFAULT '{}', created_at DATETIME, updated_at DATETIME);
CREATE TABLE task_session_messages (id TEXT PRIMARY KEY, task_session_id TEXT NOT NULL,
    task_id TEXT, author_type TEXT NOT NULL, type TEXT NOT NULL, content TEXT NOT NULL DEFAULT '',
    metadata TEXT DEFAULT '{}', created_at DATETIME, priority INTEGER);
"""
WORDS = (
    *("order", "refund", "café", "請求書", "timeout", "😀", "null", "index", "budget"),
    *("'quoted'", '"twice"', "--", ";"),
)
START = datetime.datetime(2024, 2, 28, 22, tzinfo=datetime.UTC)


class Writer:
    """Writes one older store."""

    def __init__(self, path: Path, seed: int, *, tidy: bool) -> None:
        self.db = sqlite3.connect(path)
        self.chance = random.Random(seed)
        self.tidy = tidy
        self.moment = START

    def messy(self, share: float) -> bool:
        """Whether something is untidy here."""
        return not self.tidy and self.chance.random() < share

    def text(self, most: int = 30) -> str:
        """Something that was said; now and then a long one."""
        count = 200 if self.chance.random() < 0.05 else self.chance.randint(1, most)
        return " ".join(self.chance.choice(WORDS) for _ in range(count))

    def pass_time(self) -> None:
        """The next moment, or the same one."""
        step = self.chance.choice((0, 0, 3, 400, 30_000))
        self.moment += datetime.timedelta(milliseconds=step)

    def spelled(self) -> Any:
        """The moment in one of many spellings, some of them of whole seconds."""
        at = self.moment
        if self.messy(0.03):
            return self.chance.choice((None, "", "yesterday", "2024-13-45 99:00:00"))
        forms: list[Any] = [at.strftime("%Y-%m-%d %H:%M:%S.%f")]
        if not self.tidy:
            zone = datetime.timezone(datetime.timedelta(hours=self.chance.choice((-7, 2))))
            forms += [
                at.strftime("%Y-%m-%dT%H:%M:%SZ"),
                at.astimezone(zone).isoformat(),
                at.strftime("%Y-%m-%d %H:%M:%S"),
                at.strftime("%Y-%m-%d %H:%M:%S.%f000 +0000 UTC m=+0.01"),
                int(at.timestamp() * 1000),
                str(int(at.timestamp())),
                email.utils.format_datetime(at),
            ]
        return self.chance.choice(forms)

    def exchange(self) -> Iterator[tuple[str, str | None, str | None, str | None]]:
        """What a user says and what answers it: role, content, tool calls, tool call id."""
        yield "user", self.text(), None, None
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            call = f"call_{self.chance.getrandbits(48):012x}"
            function = {"name": "search", "arguments": json.dumps({"q": self.text(2)})}
            calls = json.dumps([{"id": call, "type": "function", "function": function}])
            yield "assistant", None, calls, None
            if not self.messy(0.05):
                yield "tool", self.text(), None, call
        if not self.messy(0.05):
            yield "assistant", self.text(60), None, None

    def conversation(self) -> list[tuple[str, str | None, str | None, str | None]]:
        """Several exchanges, with what may stand before the first."""
        said = [("system", "Be brief.", None, None)] if self.chance.random() < 0.5 else []
        for _ in range(self.chance.randint(1 if self.tidy else 0, 5)):
            said += self.exchange()
        if self.messy(0.1):
            said.insert(0, ("assistant", self.text(), None, None))
        return said

    def insert(self, table: str, *values: Any) -> None:
        """One row."""
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO {table} VALUES ({marks})", values)


def write_gateway(path: Path, count: int, *, seed: int = 1, tidy: bool = False) -> None:
    """Conversations, their messages, and request logs beside them."""
    older = Writer(path, seed, tidy=tidy)
    with contextlib.closing(older.db), older.db:
        older.db.executescript(GATEWAY)
        for number in range(count):
            name = f"conv-{seed}-{number}"
            if older.messy(0.02):
                name = older.chance.choice((f"{name}\n", "long " * 80 + name))
            if number == 50 and not tidy:
                name = ""
            older.moment += datetime.timedelta(minutes=7)
            at = older.spelled()
            title, model = older.text(4), older.chance.choice(("gpt-4o", None))
            older.insert(
                "conversations", name, title, older.chance.choice(("u1", None)), model, at, at
            )
            for role, content, calls, call in older.conversation():
                older.pass_time()
                if older.messy(0.02):
                    role = older.chance.choice(("developer", "narrator"))
                if calls and older.messy(0.05):
                    calls = older.chance.choice((calls[:-4], "", '{"a": 1}', "null"))
                at = older.spelled()
                older.insert("messages", None, name, role, content, calls, call, at)
                if role == "assistant":
                    _log(older, content, calls, at)
        if not tidy:
            for owner in ("gone", "gone", None, "away"):
                older.insert(
                    "messages", None, owner, "user", older.text(), None, None, older.spelled()
                )
            raw = (None, "conv-none", "user", b"\xff\xfe\x00", None, None, None)
            older.insert("messages", *raw)
            older.db.execute(
                "INSERT INTO messages (conversation_id, role, content) "
                "VALUES ('gone', 'assistant', CAST(X'636166C3' AS TEXT))"
            )


def _log(older: Writer, content: str | None, calls: str | None, at: Any) -> None:
    failed = older.messy(0.1)
    asked = {"model": "gpt-4o", "messages": [{"role": "user", "content": older.text()}]}
    said: dict[str, Any] = {"role": "assistant", "content": content}
    if calls and older.chance.random() < 0.5:
        with contextlib.suppress(ValueError):
            said["tool_calls"] = json.loads(calls)
    answer = json.dumps({"choices": [{"message": said}]})
    older.insert(
        "request_logs",
        None,
        "openai",
        "gpt-4o",
        "/v1/chat/completions",
        500 if failed else 200,
        json.dumps(asked) if not older.messy(0.02) else "{broken",
        None if failed else answer,
        None if failed else older.chance.randint(5, 4000),
        None if failed else older.chance.randint(1, 900),
        older.chance.randint(80, 30_000),
        "upstream failed" if failed else None,
        at,
    )


def write_tasks(path: Path, count: int, *, seed: int = 1, tidy: bool = False) -> None:
    """Task sessions and their messages."""
    older = Writer(path, seed, tidy=tidy)
    with contextlib.closing(older.db), older.db:
        older.db.executescript(TASKS)
        for number in range(count):
            name, task = f"task-session-{seed}-{number}", f"task-{number // 3}"
            older.moment += datetime.timedelta(minutes=7)
            status = older.chance.choice(("RUNNING", "COMPLETED", "CANCELLED", "FAILED"))
            metadata = "{}"
            if older.messy(0.2):
                choices = ('{"active_turn_id": "t-old"}', "{broken", "", "null", "[1]", "[" * 900)
                metadata = older.chance.choice(choices)
            at = older.spelled()
            agent = older.chance.choice(("codex", None))
            older.insert("task_sessions", name, task, agent, status, metadata, at, at)
            for role, content, calls, call in older.conversation():
                if role != "system":
                    _task_message(older, name, task, (role, content, calls, call))
        if not tidy:
            _task_message(older, "gone", None, ("user", older.text(), None, None))


def _task_message(
    older: Writer,
    session: str,
    task: str | None,
    said: tuple[str, str | None, str | None, str | None],
) -> None:
    role, content, calls, call = said
    older.pass_time()
    kind = "tool_result" if role == "tool" else "tool_call" if calls else "message"
    extra: dict[str, Any] = {"tool_call_id": call} if call else {}
    if calls:
        [asked] = json.loads(calls)
        extra = {"tool_call_id": asked["id"], "args": asked["function"]}
    metadata = json.dumps(extra)
    if older.messy(0.03):
        kind, metadata = older.chance.choice(("status", "error", "thinking")), "{}"
    elif older.messy(0.02):
        metadata = "{not json"
    older.insert(
        "task_session_messages",
        f"{older.chance.getrandbits(64):016x}",
        session,
        task,
        "user" if role == "user" else "agent",
        kind,
        content or "",
        metadata,
        older.spelled(),
        older.chance.choice((None, None, 3)),
    )


WRITERS = {"gateway": write_gateway, "tasks": write_tasks}


def without_rowids(path: Path) -> Path:
    """A file beside this one whose tables have the same rows and are made `WITHOUT ROWID`."""
    keyed = path.with_name(f"keyed-{path.name}")
    with contextlib.closing(sqlite3.connect(keyed)) as db, db:
        db.execute("ATTACH ? AS old", (str(path),))
        kept = "SELECT type, name, sql FROM old.sqlite_master WHERE sql NOT NULL AND name <> ?"
        for kind, name, script in db.execute(kept, ("sqlite_sequence",)).fetchall():
            if kind == "table":
                db.execute(f"{script.replace(' AUTOINCREMENT', '')} WITHOUT ROWID")
                db.execute(f"INSERT INTO main.{name} SELECT * FROM old.{name}")
            else:
                db.execute(script)
    return keyed
