"""Where something is said to an agent on a page, and what of it waits there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw.agents.definition import MODES, Agents, Definition
from xgw.config import Config, Mode
from xgw.errors import ApiError, unprocessable
from xgw.web.api import fields

Row = Mapping[str, Any]

BUSY = (
    ("queue", "wait in line"),
    ("supersede", "cancel what runs"),
    ("reject", "do not send"),
)

MOST_CHARACTERS = 100_000
"""Of a message from a page; the API takes longer ones."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that was not taken: why, in a sentence, the message itself, and what was chosen."""

    words: str
    text: str
    model: str = ""
    if_busy: str = ""


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
    can_wait: bool = False
    """Whether a turn may be under way when it is sent."""

    @property
    def busy(self) -> Sequence[tuple[str, str]]:
        """What becomes of a message that comes while a turn is under way, by what the form says."""
        return BUSY

    @property
    def given(self) -> Mapping[str, str]:
        """What was chosen in a form that was not taken."""
        refused = self.refused
        if refused is None:
            return {"model": "", "ifBusy": "queue"}
        return {"model": refused.model, "ifBusy": refused.if_busy or "queue"}


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
    mode = session["mode"] or "chat"
    return Composer(action, csrf, agent, mode, MODES, shut, refused, can_wait=True)


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
    """`message`, `mode`, `model` and `ifBusy` of a form; ApiError 422 with a sentence for who wrote
    it."""
    text = form.get("message", "").replace("\r\n", "\n")
    if not text.strip():
        raise unprocessable("there is nothing to send: the message is empty", param="message")
    if len(text) > MOST_CHARACTERS:
        told = f"the message has {len(text):,} characters, more than {MOST_CHARACTERS:,}"
        raise unprocessable(told, param="message")
    given: dict[str, Any] = {"message": text}
    for name in ("mode", "model", "ifBusy"):
        given[name] = fields.CHATTING[name](name, form.get(name, "").strip() or None)
    return given


def refused_message(refusal: ApiError, form: Mapping[str, str]) -> Refused:
    """Why a form was not taken, with what stood in it."""
    chosen = (form.get(name, "") for name in ("message", "model", "ifBusy"))
    return Refused(refusal.message, *chosen)
