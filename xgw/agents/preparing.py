"""What a turn begins with: the history of its session, what that used, the agent as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xgw import clock, ids
from xgw.agents import context
from xgw.agents.context import Block, Context, user
from xgw.agents.definition import Definition
from xgw.agents.desk import Desk
from xgw.agents.handed import sent_in
from xgw.agents.limits import Used, bounds_of
from xgw.agents.lineage import shown_of
from xgw.agents.memory import Memory
from xgw.agents.parts import Start
from xgw.agents.planner import Plan
from xgw.agents.snapshots import snapshot_of
from xgw.agents.taking_up import SoFar, take_up
from xgw.agents.turns import Turn, Wanted
from xgw.exchange.means import Means
from xgw.queries import messages, runs, sessions, steps
from xgw.recording.facts import MessageFacts, Scope, TurnFacts
from xgw.store.database import Store
from xgw.store.payloads import Stored


def prepare(store: Store, means: Means, turn: Turn, definition: Definition) -> Start:
    """Where a turn or a later run of it begins, read from the store."""
    since = clock.monotonic()
    session_id, wanted = turn.scope.session_id or "", turn.wanted
    session = sessions.find_session(store, session_id, turn.scope.project_id) or {}
    so_far = _so_far(store, turn)
    mask = means.masker.text
    desk = Desk(Memory(session.get("working_memory"), mask), Plan(so_far.plan, mask))
    equipped = desk.equip(definition.in_mode(wanted.mode))
    used = Used(
        (session.get("total_tokens") or 0) - so_far.usage.tokens,
        (session.get("cost_usd") or 0.0) - so_far.usage.cost,
        so_far.usage.iterations,
        so_far.usage.tokens,
        so_far.usage.cost,
    )
    return Start(
        definition=equipped,
        context=_context(store, session, turn, equipped, desk, so_far),
        sent_before=_sent_before(store, session_id),
        used=used,
        bounds=bounds_of(definition, wanted.mode, session.get("budget") or {}),
        checkpoint=so_far.checkpoint,
        text=so_far.text,
        earlier=so_far.earlier,
        handed=so_far.handed,
        since=since,
    )


def read_context(
    store: Store,
    session: Mapping[str, Any],
    definition: Definition,
    desk: Desk,
    *,
    without: str,
    is_apart: bool = False,
) -> Context:
    """What was said in a session before the turn `without`, as its next call sends it."""
    session_id = session.get("id") or ""
    said = messages.of_agent_turns(store, session_id, without)
    shown = shown_of(said, runs.of_turns_with_several(store, session_id))
    summary = session.get("session_summary")
    return context.build_context(definition, desk, summary, shown, is_apart=is_apart)


def _context(
    store: Store,
    session: Mapping[str, Any],
    turn: Turn,
    definition: Definition,
    desk: Desk,
    so_far: SoFar,
) -> Context:
    turn_id, is_apart = turn.scope.turn_id, so_far.is_apart
    found = read_context(store, session, definition, desk, without=turn_id, is_apart=is_apart)
    if so_far.said:
        context.take_up(found, so_far.said, {one.id for one in so_far.checkpoint.pending})
    else:
        found.own = Block(turn_id, (user(turn.wanted.message),))
    return found


def _so_far(store: Store, turn: Turn) -> SoFar:
    """A turn that begins may not be in the store yet; a run that goes on is."""
    if turn.goes_on:
        return take_up(store, turn.scope.turn_id, turn.scope.run_id)
    return SoFar()


def _sent_before(store: Store, session_id: str) -> tuple[bytes, ...] | None:
    """The hashes of the elements that the session's previous call sent."""
    call = steps.last_call(store, session_id)
    return sent_in(store, call["input_payload"] if call else None)


def user_message(means: Means, text: str) -> MessageFacts:
    """What a person said, as an item of the history."""
    tokens = means.counter.count_message(user(text))
    source = None if tokens is None else "estimated"
    return MessageFacts(
        ids.mint("msg"), "message", "user", text, token_count=tokens, token_source=source
    )


def new_scope(session: Mapping[str, Any]) -> Scope:
    """The identifiers of a turn that begins in a session."""
    turn_id = ids.mint("turn")
    return Scope(
        project_id=session["project_id"],
        session_id=session["id"],
        turn_id=turn_id,
        run_id=ids.mint("run"),
        trace_id=ids.trace_id_of(turn_id),
        task_id=session["task_id"],
    )


def wanted_of(message: str | None, overrides: Mapping[str, Any] | None) -> Wanted:
    """What was asked for, of what a turn and its run keep of it."""
    kept = overrides or {}
    mode, parameters = kept.get("mode", "chat"), kept.get("parameters") or {}
    return Wanted(message or "", mode, kept.get("model"), parameters)


def queued_turn(row: Mapping[str, Any]) -> Turn:
    """A turn that waits in the store, of its row with `run_id` and `overrides`."""
    columns = ("project_id", "session_id", "id", "run_id", "trace_id", "task_id")
    scope = Scope(*(row[name] for name in columns))
    return Turn(scope, row["agent_name"], wanted_of(row["user_input"], row["overrides"]))


def as_it_was(definition: Definition, snapshot: Mapping[str, Any]) -> Definition:
    """An agent with all but the tools that a turn began with, and so those that it may ask."""
    kept, others = snapshot.get("agents", {}), dict(definition.others)
    others |= {name: _as_it_was(others[name], kept[name]) for name in kept if name in others}
    for name in kept.keys() & others.keys():
        others[name] = replace(others[name], others=others)
    return replace(_as_it_was(definition, snapshot), others=others)


def _as_it_was(definition: Definition, snapshot: Mapping[str, Any]) -> Definition:
    kept = {"model": snapshot["model"], "parameters": snapshot["parameters"]}
    now = definition.table
    limits = now.limits.model_copy(update=snapshot["limits"])
    room = now.context.model_copy(update=snapshot["context"])
    # The limits are those of the turn's mode: what a mode has of its own now is another's.
    own = {"max_iterations": None}
    chat = now.modes.chat.model_copy(update=own)
    task = now.modes.task.model_copy(update={**own, "planner": snapshot.get("planner", False)})
    modes = now.modes.model_copy(update={"chat": chat, "task": task})
    parts = {"limits": limits, "context": room, "modes": modes}
    table = now.model_copy(update={**kept, **parts})
    return replace(definition, table=table, instructions=snapshot["instructions"])


def turn_facts(
    means: Means, turn: Turn, definition: Definition | None
) -> tuple[TurnFacts, list[Stored]]:
    """The turn's row, and the bodies that it names; without a definition it is one that waits."""
    wanted = turn.wanted
    asked = means.recorder.shelf.text(wanted.message)
    snapshot = None if definition is None else snapshot_of(means, definition, wanted)
    facts = TurnFacts(
        scope=turn.scope,
        started_at=clock.now(),
        endpoint=None,
        user_input=wanted.message,
        input_payload=asked.hash,
        agent_name=turn.agent_name,
        config_snapshot=snapshot.hash if snapshot else None,
        metadata={"client": wanted.metadata} if wanted.metadata else None,
        owner=means.recorder.owner,
        is_exclusive=True,
        overrides=wanted.overrides(),
    )
    return facts, [asked, *([snapshot] if snapshot else [])]
