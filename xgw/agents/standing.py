"""How the context of a session with an agent stands between its turns, and compacting it then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xgw.agents.compaction import Compactor, Room
from xgw.agents.context import Context, Part
from xgw.agents.definition import Definition
from xgw.agents.desk import Desk
from xgw.agents.memory import Memory
from xgw.agents.parts import Parts
from xgw.agents.plain import ANY_MODEL
from xgw.agents.planner import Plan
from xgw.agents.preparing import read_context
from xgw.agents.scheduler import Scheduler
from xgw.agents.turns import Turn, Wanted
from xgw.errors import ApiError, conflict, internal, overloaded
from xgw.providers.transport import Cancelled
from xgw.queries import sessions
from xgw.queries.agents import find_newest
from xgw.queries.runs import newest_of_turn
from xgw.recording.facts import Scope
from xgw.store.database import Store
from xgw.store.writer import Patience

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sized:
    """One part of what is sent, with its tokens; None until tokens can be counted."""

    part: Part
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the next call of a session would send, but for what is said to it then.

    `used` are the tokens of all of it, those included that belong to no part.
    """

    model: str
    room: Room
    parts: tuple[Sized, ...]
    tools: tuple[dict[str, Any], ...]
    tools_tokens: int | None
    used: int | None


def stand_of(store: Store, parts: Parts, session: Row, definition: Definition) -> Standing:
    """How the context of a session stands."""
    definition = definition.in_mode(session["mode"] or "chat")
    model = _model_of(store, session, definition)
    counter, offers = parts.means.counter, tuple(tool.offer() for tool in definition.tools)
    context = _context(store, parts, session, definition)
    sized = tuple(Sized(part, _tokens(parts, part, model)) for part in context.parts())
    return Standing(
        model,
        _room(parts, definition, model),
        sized,
        offers,
        counter.count_tools(offers, model),
        counter.estimate_request(context.elements(), offers or None, model),
    )


def compact_now(
    store: Store, scheduler: Scheduler, session: Row, definition: Definition, client: dict[str, Any]
) -> None:
    """Compact the context of a session between its turns; returns once that is committed.

    It is recorded with the session's newest turn. ApiError 409 `session_busy`,
    `nothing_to_compact`, or `compaction_cancelled` if it was cancelled.
    """
    parts, newest = scheduler.parts, find_newest(store, session["id"])
    run = newest_of_turn(store, newest["id"]) if newest else None
    if newest is None or run is None:
        raise _nothing()
    names = ("project_id", "session_id", "id", "trace_id", "task_id")
    project_id, session_id, turn_id, trace_id, task_id = (newest[name] for name in names)
    which = run["run_index"], run["kind"], run["from_run_id"]
    scope = Scope(project_id, session_id, turn_id, run["id"], trace_id, task_id, *which)
    turn = Turn(scope, definition.name, Wanted("", session["mode"] or "chat", client=client))
    with scheduler.occupied(turn):
        definition = definition.in_mode(turn.wanted.mode)
        current = sessions.find_session(store, session_id) or session
        model = _model_of(store, current, definition)
        context = _context(store, parts, current, definition)
        offers = [tool.offer() for tool in definition.tools]
        room = _room(parts, definition, model)
        compactor = Compactor(parts, scope, turn.call, model, client, context, offers, room)
        choice = compactor.choose("request")
        if choice is None:
            raise _nothing()
        try:
            compactor.run("request", choice)
        except Cancelled:
            message = "the compaction was cancelled: nothing has changed"
            raise conflict(message, code="compaction_cancelled") from None
        ticket = compactor.ticket
        assert ticket is not None
        parts.means.recorder.writer.wait(ticket, Patience())
        if not ticket.done:
            raise overloaded("the store cannot be written at the moment", retry_after=1)
        if ticket.error is not None:
            raise ticket.error if isinstance(ticket.error, ApiError) else internal()


def _context(store: Store, parts: Parts, session: Row, definition: Definition) -> Context:
    desk = Desk(Memory(session["working_memory"], parts.means.masker.text), Plan())
    return read_context(store, session, definition, desk, without="")


def _room(parts: Parts, definition: Definition, model: str) -> Room:
    table = definition.table.context
    window = table.window
    if window is None:
        window = _window_of(parts, model)
    return Room.of(window, table.compact_at, table.keep_last_turns)


def _window_of(parts: Parts, model: str) -> int | None:
    try:
        return parts.window_of(model)
    except ApiError:  # nobody serves it at the moment: its calls will say so
        return None


def _model_of(store: Store, session: Row, definition: Definition) -> str:
    """The agent's; of a model alone that which was asked last."""
    if definition.table.model != ANY_MODEL:
        return definition.table.model
    newest = find_newest(store, session["id"])
    run = newest_of_turn(store, newest["id"]) if newest else None
    overrides = (run["overrides"] if run else None) or {}
    return str(overrides.get("model") or session["model"] or ANY_MODEL)


def _tokens(parts: Parts, part: Part, model: str) -> int | None:
    counts = [parts.means.counter.count_message(one, model) for one in part.elements]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _nothing() -> ApiError:
    message = "there is nothing to compact: the context holds no more turns than are to be kept"
    return conflict(message, code="nothing_to_compact")
