"""Sessions with an agent: opened for it, found again, never mixed up with another's."""

from __future__ import annotations

from typing import Any

from xgw import ids
from xgw.agents.definition import Definition, find_agent
from xgw.config import Mode
from xgw.errors import conflict
from xgw.queries import sessions
from xgw.recording.facts import SessionFacts
from xgw.web.api import edge
from xgw.web.serialize import Row


def named(name: str) -> Definition:
    """The agent of this name; ApiError 404."""
    return find_agent(edge.services().everyone, name)


def looked_at(name: str) -> Definition:
    """The agent of this name, with what its servers tell of their tools; ApiError 404."""
    found = named(name)
    found.look()
    return found


def open_one(wanted: dict[str, Any]) -> tuple[Row, bool]:
    """The session with the key that is wanted, and whether it is new."""
    asking, given = edge.caller(), dict(wanted)
    facts = SessionFacts(
        id="",
        session_key=given.pop("session_key", None) or "",
        project_id=asking.project_id,
        source="api",
        org_id=asking.org_id,
        api_key_id=asking.api_key_id,
        **given,
    )
    session_id, is_new = edge.services().control.open_session(facts)
    row = sessions.find_session(edge.services().store, session_id, edge.project())
    return edge.found(row, "session", session_id), is_new


def open_for(definition: Definition, mode: Mode | None, wanted: dict[str, Any]) -> tuple[Row, bool]:
    """A session of this agent; ApiError 409 `agent_mismatch` if the one with the key is not."""
    table = definition.table
    budget = {
        "tokens": table.limits.max_session_tokens,
        "cost_usd": table.limits.max_session_cost_usd,
    }
    given = {key: value for key, value in wanted.items() if key != "model"}
    given["budget"] = given.get("budget") or (budget if any(budget.values()) else None)
    own = {
        "kind": "agent",
        "agent_name": definition.name,
        "mode": mode or "chat",
        "model": table.model,
        "tools": [tool.name for tool in definition.known().in_mode(mode or "chat").tools],
        "context_window": table.context.window,
    }
    row, is_new = open_one({**given, **own})
    check_agent(row, definition)
    return row, is_new


def find_for(definition: Definition, ref: str | None, mode: Mode | None) -> Row:
    """The session that a message names, else a new one.

    A name that nobody has yet becomes the key of the new one; an id that is none is ApiError 404.
    """
    if ref in (None, "new"):
        return open_for(definition, mode, {})[0]
    row = sessions.find_session(edge.services().store, str(ref), edge.project())
    if row is None and not ids.is_id(str(ref), "sess"):
        return open_for(definition, mode, {"session_key": ref})[0]
    found = edge.found(row, "session", str(ref))
    check_agent(found, definition)
    if found["status"] == "closed":
        raise conflict(f"session {found['id']} is closed", code="session_closed")
    return found


def check_agent(session: Row, definition: Definition) -> None:
    """ApiError 409 if the session is another agent's, or none's."""
    owner = session["agent_name"]
    if owner == definition.name:
        return
    if owner:
        message = (
            f"session {session['id']} belongs to agent {owner!r}, so {definition.name!r} cannot "
            f"answer in it: ask {owner!r}, or begin another session"
        )
    else:
        message = (
            f"session {session['id']} is one of clients of /v1, so no agent can answer in it: "
            "leave it to them, and begin another session"
        )
    raise conflict(message, code="agent_mismatch")
