"""What `xgw show` tells about a session, a message and an event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xgw import clock, spelling
from xgw.cli import list_tables
from xgw.cli.pages import Page, spelled_json
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import role_of
from xgw.events import Envelope
from xgw.queries import history, overview, runs, sessions, turns
from xgw.queries import pages as listed
from xgw.queries.filters import Filters
from xgw.queries.pages import Row
from xgw.queries.wording import counted, joined, usage_with_total
from xgw.store.database import Store

NEWEST_TURNS = 20

_COLUMNS = (
    Column("turn", right=True),
    Column("state"),
    Column("tokens", right=True, spare=2),
    Column("cost", right=True, spare=4),
    Column("took", right=True, spare=1),
    Column("started", right=True, spare=3),
    Column("id"),
)

_SAID = (
    Column("place", right=True),
    Column("role"),
    Column("kind", spare=1),
    Column("id"),
)


def render_session(
    page: Page, store: Store, session: Row, window_of: Callable[[Row], int | None]
) -> None:
    """A session: its head, then its turns."""
    seen = overview.of_sessions(store, [session])[session["id"]]
    page.head(f"session {session['session_key']}", seen.state, role_of(seen.state))
    _fields(page, store, session, window_of(session))
    if session["session_summary"]:
        page.section("Summary")
        page.text(session["session_summary"])
    for name in ("working_memory", "artifacts", "metadata"):
        if session[name]:
            page.section(name.replace("_", " ").capitalize())
            page.json(session[name])
    _turns(page, store, session, seen.state)


def _fields(page: Page, store: Store, session: Row, window: int | None) -> None:
    now = clock.now()
    last = session["last_turn_at"]
    named = joined(session["agent_name"], session["mode"])
    page.field("id", session["id"])
    page.field("title", session["title"])
    page.field("status", session["status"])
    page.field("named by", f"{session['source']}, project {session['project_id']}")
    page.field("agent", named)
    page.field("task", session["task_id"])
    page.field("end user", session["end_user_id"])
    page.field("model", page.served(session["provider_name"], session["model"]))
    page.field(
        "created",
        f"{spelling.moment(session['created_at'])}, {spelling.ago(session['created_at'], now)}",
    )
    if last is not None:
        page.field("last turn", f"{spelling.moment(last)}, {spelling.ago(last, now)}")
    page.field("holds", _holds(session))
    page.field("tokens", usage_with_total(session))
    page.field("cost", spelling.usd(session["cost_usd"]))
    page.field("context", _context(session, window))
    page.field("budget", spelled_json(session["budget"]) if session["budget"] else None)
    page.field("tools", ", ".join(_tool_names(store, session)))
    page.field("forked from", session["forked_from_turn_id"])


def _holds(session: Row) -> str:
    counts = (("turn_count", "turn"), ("message_count", "message"), ("request_count", "request"))
    return ", ".join(counted(session[name], noun) for name, noun in counts)


def _context(session: Row, window: int | None) -> str:
    used = session["context_tokens"]
    told = spelling.count(used, session["usage_source"])
    if window is None:
        return f"{told} tokens, window unknown" if used is not None else spelling.UNKNOWN
    share = f" ({100 * used / window:.1f} %)" if used is not None else ""
    return f"{told} of {window:,} tokens{share}"


def _tool_names(store: Store, session: Row) -> list[str]:
    offered = (tool for tool in sessions.find_tools(store, session["id"]) if isinstance(tool, dict))
    functions = (
        tool["function"] if isinstance(tool.get("function"), dict) else tool for tool in offered
    )
    return [str(f.get("name") or f.get("type") or spelling.UNKNOWN) for f in functions]


def _turns(page: Page, store: Store, session: Row, state: str) -> None:
    most = listed.MAX_LIMIT if page.full else NEWEST_TURNS
    inside = Filters().and_also("session_id", session["id"])
    rows: list[Row] = []
    cursor = None
    while True:
        found = turns.list_turns(store, inside, listed.Page(most, cursor))
        rows += found.rows
        cursor = found.next_cursor
        if not (page.full and found.has_more):
            break
    if not rows:
        page.section("Turns", "none yet")
        _before_turns(page, store, session)
        return
    active = {session["active_turn_id"]: state}
    newest = {run["turn_id"]: run for run in runs.of_turns_with_several(store, session["id"])}
    took = [newest.get(row["id"], row)["latency_ms"] for row in rows]
    cells = [
        _turn(page, row, active.get(row["id"]), ms)
        for row, ms in zip(rows[::-1], took[::-1], strict=True)
    ]
    left = session["turn_count"] - len(rows)
    page.section("Turns", f"the newest {len(rows)}; {left:,} more with --full" if left > 0 else "")
    page.add(render(page.screen, _COLUMNS, cells, tail="input"))
    _before_turns(page, store, session)


def _before_turns(page: Page, store: Store, session: Row) -> None:
    """What an older store had of it, until a backfill gives that its turns."""
    if session["source"] != "import":
        return
    rows, is_cut = history.said_before_turns(store, session["id"])
    if not rows:
        return
    shown = rows if page.full else rows[:NEWEST_TURNS]
    left = len(rows) - len(shown)
    more = f"; {left:,}{' and more' if is_cut else ''} more with --full" if left else ""
    page.section("Messages without a turn", f"`xgw backfill-turns` gives them theirs{more}")
    page.add(render(page.screen, _SAID, [_said(page, row) for row in shown], tail="content"))


def _said(page: Page, message: Row) -> list[Cell]:
    return [
        Cell(str(message["message_index"] + 1)),
        Cell(message["role"] or ""),
        Cell(message["kind"]),
        Cell(list_tables.id_ref(page.screen, message["id"]), "name"),
        Cell(message["content"] or ""),
    ]


def _turn(page: Page, turn: Row, known_state: str | None, took_ms: int | None) -> list[Cell]:
    """`took_ms` is the time of its newest run."""
    state = known_state or overview.state_of_turn(turn["status"], None)
    failed = turn["error_type"] or turn["ended_by"]
    return [
        Cell(str(turn["turn_index"] + 1)),
        Cell(state, role_of(state)),
        Cell(spelling.count(turn["total_tokens"], turn["usage_source"])),
        Cell(spelling.usd(turn["cost_usd"])),
        Cell(spelling.duration(took_ms)),
        Cell(spelling.ago(turn["started_at"], clock.now()), "faint"),
        Cell(list_tables.id_ref(page.screen, turn["id"]), "name"),
        Cell(joined(turn["user_input"], failed if state in ("error", "cancelled") else None)),
    ]


# -- messages and events ---------------------------------------------------------------------------


def render_message(page: Page, message: Row) -> None:
    """A message."""
    page.head(f"message {message['id']}", joined(message["role"], message["kind"]))
    page.field("session", message["session_id"])
    page.field("turn", message["turn_id"])
    page.field("step", message["step_id"])
    page.field("place", f"{message['message_index'] + 1}")
    page.field("added", spelling.moment(message["created_at"]))
    page.field("tokens", spelling.count(message["token_count"], message["token_source"]))
    page.field("name", message["name"])
    page.field("answers", message["tool_call_id"])
    page.field("compacted", message["compacted_by_step_id"])
    page.field("metadata", spelled_json(message["metadata"]) if message["metadata"] else None)
    if message["content"]:
        page.section("Content")
        page.text(message["content"])
    for name in ("parts", "tool_calls"):
        if message[name]:
            page.section(name.replace("_", " ").capitalize())
            page.json(message[name])


def render_event(page: Page, event: Envelope) -> None:
    """A stored event."""
    ids: dict[str, Any] = event.to_json()
    page.head(f"event {event.seq}", event.type)
    page.field("at", spelling.moment(event.at))
    for name in ("session", "turn", "run", "step"):
        page.field(name, ids[f"{name}_id"])
    page.section("Payload")
    page.json(event.payload, most=60)
