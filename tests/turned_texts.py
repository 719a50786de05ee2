"""A store in which everything that others name turns the writing direction round."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from agents_fixtures import AgentGate, agent, agents
from filled_store import FilledStore
from xgw.web.steps.view import TABS

OVERRIDE = "\u202e"


def name(of: str) -> str:
    """A text of someone else's, which never goes back to the usual direction."""
    return f"⟦{of} {OVERRIDE}turned⟧"


@contextlib.contextmanager
def turned(folder: Path) -> Iterator[tuple[AgentGate, FilledStore]]:
    """A server with such an agent, and its store for `fill`."""
    told = agent(description=name("description"), instructions=name("instructions"))
    with agents(folder, agents={"a": told}) as gate:
        filled = FilledStore(folder)
        try:
            yield gate, filled
        finally:
            filled.close()


def fill(filled: FilledStore, kind: str) -> dict[str, str]:
    """A session in which everything that others name is a `name`; the paths of its pages."""
    session = filled.session(
        title=name("title") if kind == "titled" else None,
        model=name("model"),
        provider_name=name("provider"),
        agent_name=name("agent"),
        task_id=name("task"),
        end_user_id=name("user"),
        session_summary=name("summary"),
    )
    turn = filled.turn(
        session,
        user_input=name("input"),
        final_output=name("output"),
        final_model=name("model"),
        final_provider_name=name("provider"),
        agent_name=name("agent"),
        turn_key=name("key"),
        finish_reason=name("reason"),
        status="error",
        error_type=name("type"),
        error_message=name("message"),
        metadata={name("field"): name("value")},
    )
    filled.turn(None, user_input=name("input"), final_model=name("model"))
    run = filled.run(turn)
    called = {
        "session_id": session,
        "model": name("model"),
        "model_requested": name("asked"),
        "provider_name": name("provider"),
        "name": name("name"),
        "status": "error",
        "error_type": name("type"),
        "error_message": name("message"),
        "finish_reason": name("reason"),
        "finish_reason_raw": name("raw"),
    }
    asked = {
        "role": name("role"),
        "name": name("name"),
        "tool_call_id": name("call"),
        "content": name("content"),
        "tool_calls": [{"id": name("id"), "function": {"name": name("tool"), "arguments": "{}"}}],
    }
    tool = {"type": "function", "function": {"name": name("tool"), "description": name("told")}}
    fields = {name("parameter"): name("value"), "tools": [tool]}
    first, second = (filled.body({**fields, "messages": [asked] * n}) for n in (1, 2))
    filled.step(run, turn, 0, input_payload=first, **called)
    brought = filled.body({"choices": [{"message": asked, "finish_reason": name("reason")}]})
    called |= {"input_payload": second, "output_payload": brought}
    step = filled.step(run, turn, 1, step_index=1, attempt=2, **called)
    used = {**called, "step_type": "tool_call", "attempt": None, "tool_call_id": name("call")}
    filled.step(run, turn, 2, step_index=2, **used)
    said = {"content": name("content"), "name": name("name"), "role": name("role")}
    filled.message(session, turn, 0, **said)
    answer = {"role": "assistant", "step_id": step, "tool_calls": asked["tool_calls"]}
    filled.message(session, turn, 1, content=name("content"), **answer)
    request = filled.request(
        turn,
        session_id=session,
        step_id=step,
        provider_name=name("provider"),
        model=name("model"),
        endpoint=name("endpoint"),
        url=name("url"),
        method=name("method"),
        error_type=name("type"),
        error_message=name("message"),
        client={"user_agent": name("agent"), "address": name("address")},
    )
    return {
        "sessions": "/ui/",
        "turns": "/ui/turns",
        "requests": "/ui/requests",
        "session": f"/ui/sessions/{session}",
        "tools": f"/ui/sessions/{session}/tools",
        "turn": f"/ui/turns/{turn}",
        "request": f"/ui/requests/{request}",
        "agents": "/ui/agents",
        "agent": "/ui/agents/a",
        **{tab: f"/ui/steps/{step}?tab={tab}" for tab in TABS},
    }
