"""What older stores hold and what turns that makes, read with sqlite3 alone; and stores compared.

Whoever wrote those stores wrote what was said in order: so order is that of the rows.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

VOLATILE = {
    "turns": {"updated_at"},
    "events": {"at"},
    "takeovers": {"started_at", "finished_at", "source"},
    "schema_migrations": {"applied"},
}


class OldTurn(NamedTuple):
    """A turn as the old rows tell of it; `tools` are name, arguments and result."""

    asked: str | None
    answer: str | None
    status: str
    said: tuple[str | None, ...]
    tools: tuple[tuple[str | None, str | None, str | None], ...]


class OldSaid(NamedTuple):
    """An old message: its role and kind as xgw has them, and its calls as (id, name, arguments)."""

    role: str | None
    kind: str
    content: str | None
    calls: tuple[tuple[str | None, str | None, str | None], ...]
    has_calls: bool
    answers: str | None


def rows(path: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What a statement brings."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        return connection.execute(statement, values).fetchall()


def counts(path: Path) -> dict[str, int]:
    """Rows by table."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    return {t: rows(path, f"SELECT count(*) FROM {t}")[0][0] for (t,) in rows(path, names)}


def old_gateway(path: Path) -> dict[str, tuple[str, list[OldSaid]]]:
    """What was said in each conversation, by its id; its status, too, which is none."""
    found: dict[str, tuple[str, list[OldSaid]]] = {
        name: ("", []) for (name,) in rows(path, "SELECT id FROM conversations")
    }
    for name, role, content, calls, answers in rows(
        path,
        "SELECT conversation_id, role, content, tool_calls, tool_call_id FROM messages ORDER BY id",
    ):
        if name in found and not isinstance(content, bytes):
            role = {"developer": "system", "narrator": None}.get(role, role)
            asked = _json(calls)
            listed = asked if isinstance(asked, list) else []
            named = tuple(
                (c["id"], c["function"]["name"], c["function"]["arguments"]) for c in listed
            )
            kind = "tool_result" if role == "tool" else "message"
            has_calls = isinstance(asked, list)
            found[name][1].append(OldSaid(role, kind, content, named, has_calls, answers))
    return found


def old_tasks(path: Path) -> dict[str, tuple[str, list[OldSaid]]]:
    """What was said in each task session, by its id, and that session's status."""
    statement = "SELECT id, status FROM task_sessions"
    found: dict[str, tuple[str, list[OldSaid]]] = {
        name: (status, []) for name, status in rows(path, statement)
    }
    for name, author, kind, content, metadata in rows(
        path,
        "SELECT task_session_id, author_type, type, content, metadata "
        "FROM task_session_messages ORDER BY rowid",
    ):
        if name not in found:
            continue
        told = _json(metadata) or {}
        call_id, args = told.get("tool_call_id"), told.get("args")
        role = "tool" if kind == "tool_result" else "user" if author == "user" else "assistant"
        named = ((call_id, args["name"], args["arguments"]),) if args else ()
        if kind == "tool_call" and not args:
            named = ((None, None, None),)
        kind = "status" if kind == "thinking" else kind
        found[name][1].append(OldSaid(role, kind, content, named, bool(args), call_id))
    return found


def _json(told: str | None) -> Any:
    try:
        return None if told is None else json.loads(told)
    except ValueError:
        return None


def old_turns(status: str, said: list[OldSaid], strategy: str) -> list[OldTurn]:
    """The turns of one conversation."""
    groups: list[list[OldSaid]] = []
    leading: list[OldSaid] = []
    for one in said:
        if strategy == "session":
            groups = [[*(groups[0] if groups else []), one]]
        elif one.role == "user":
            groups.append([*leading, one])
            leading = []
        elif groups:
            groups[-1].append(one)
        elif one.role == "system":
            leading.append(one)
    return [_turn(status, group, group is groups[-1]) for group in groups]


def _is_answer(one: OldSaid) -> bool:
    return one.role == "assistant" and one.kind == "message" and not one.has_calls


def _turn(status: str, said: list[OldSaid], is_last: bool) -> OldTurn:
    end = next((one for one in reversed(said) if one.kind != "status"), said[-1])
    ended = "success" if _is_answer(end) else "error"
    if is_last and status == "CANCELLED" and ended == "error" and end.kind != "error":
        ended = "cancelled"
    results = {o.answers: o.content for o in reversed(said) if o.kind == "tool_result"}
    tools = tuple(
        (name, arguments, results.get(id) if id is not None else None)
        for one in said
        for id, name, arguments in one.calls
    )
    answers = [one.content for one in said if _is_answer(one)]
    asked = [one.content for one in said if one.role == "user"]
    contents = tuple(one.content for one in said)
    return OldTurn(
        asked[0] if asked else None, answers[-1] if answers else None, ended, contents, tools
    )


READERS = {"gateway": old_gateway, "tasks": old_tasks}


def dump(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Everything in a store that may not differ from one way to get there to another."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' "
            "AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'legacy%'"
        ).fetchall()
        return {
            name: [
                {k: row[k] for k in row.keys() if k not in VOLATILE.get(name, ())}  # noqa: SIM118
                for row in connection.execute(f"SELECT * FROM {name} ORDER BY 1")
            ]
            for (name,) in names
        }
