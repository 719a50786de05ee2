"""Where something is said to an agent on a page, and what of it waits there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw.agents.definition import MODES, Agents, Definition
from xgw.config import Config, Mode
from xgw.errors import unprocessable
from xgw.web.api import fields

Row = Mapping[str, Any]

MOST_CHARACTERS = 100_000
"""Of a message from a page; the API takes longer ones."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that was not taken: why, in a sentence, and the message itself."""

    words: str
    text: str


@dataclass(frozen=True, slots=True)
class Composer:
    """The form that sends a message; `shut` says why there is none, "" where there is one."""

    action: str
    csrf: str
    agent: str
    mode: str
    modes: Sequence[Mode]
    shut: str = ""
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """What goes on in an agent's session: the turn under way, and those that wait, in order."""

    session_id: str
    running: Row | None
    waiting: Sequence[Row]
    csrf: str


def composer_of_agent(definition: Definition, csrf: str, refused: Refused | None) -> Composer:
    """The form that starts a session with this agent."""
    action = f"/ui/agents/{definition.name}/chat"
    return Composer(action, csrf, definition.name, "chat", MODES, refused=refused)


def composer_of_session(
    session: Row, agents: Agents, csrf: str, refused: Refused | None
) -> Composer | None:
    """The form of a session; None where nobody but its client says anything."""
    if session["kind"] != "agent":
        return None
    agent, shut = session["agent_name"] or "", ""
    if session["status"] == "closed":
        shut = "This session is closed: nothing more can be said in it."
    elif agent not in agents:
        shut = f"The agent {agent} is not defined any more: nothing can be said to it."
    action = f"/ui/sessions/{session['id']}/messages"
    return Composer(action, csrf, agent, session["mode"] or "chat", MODES, shut, refused)


def models_of(config: Config) -> list[str]:
    """The models that are offered where one is chosen: any other name that is served does too."""
    named = [route.model for route in config.routes] + [a.model for a in config.agents.values()]
    return sorted({name for name in named if name and "*" not in name})


def line_of(session_id: str, turns: Sequence[Row], csrf: str) -> Line:
    """The line of these turns, which are not over."""
    running = next((turn for turn in turns if turn["status"] != "queued"), None)
    waiting = [turn for turn in turns if turn["status"] == "queued"]
    return Line(session_id, running, waiting, csrf)


def read_message(form: Mapping[str, str]) -> dict[str, Any]:
    """`message` and `mode` of a form; ApiError 422 with a sentence for who wrote it."""
    text = form.get("message", "").replace("\r\n", "\n")
    if not text.strip():
        raise unprocessable("there is nothing to send: the message is empty", param="message")
    if len(text) > MOST_CHARACTERS:
        told = f"the message has {len(text):,} characters, more than {MOST_CHARACTERS:,}"
        raise unprocessable(told, param="message")
    return {"message": text, "mode": fields.MODE("mode", form.get("mode") or None)}
