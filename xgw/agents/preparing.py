"""What a turn begins with: the history of its session, what that used, the agent as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xgw import clock, ids
from xgw.agents.context import build_history, user
from xgw.agents.definition import Definition
from xgw.agents.limits import Used, bounds_of
from xgw.agents.lineage import shown_of
from xgw.agents.parts import Start
from xgw.agents.snapshots import snapshot_of
from xgw.agents.taking_up import SoFar, take_up
from xgw.agents.turns import Turn, Wanted
from xgw.exchange.means import Means
from xgw.queries import messages, runs, sessions, steps
from xgw.recording.facts import MessageFacts, Scope, TurnFacts
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.payloads import Stored


def prepare(store: Store, turn: Turn, definition: Definition) -> Start:
    """Where a turn or a later run of it begins, read from the store."""
    session_id = turn.scope.session_id or ""
    session = sessions.find_session(store, session_id, turn.scope.project_id) or {}
    said = messages.of_agent_turns(store, session_id, turn.scope.turn_id)
    shown = shown_of(said, runs.of_turns_with_several(store, session_id))
    so_far = _so_far(store, turn)
    used = Used(
        (session.get("total_tokens") or 0) - so_far.tokens,
        (session.get("cost_usd") or 0.0) - so_far.cost,
        so_far.iterations,
        so_far.tokens,
        so_far.cost,
    )
    return Start(
        definition=definition,
        history=build_history(definition, shown),
        said=so_far.said,
        sent_before=_sent_before(store, session_id),
        used=used,
        bounds=bounds_of(definition, turn.wanted.mode, session.get("budget") or {}),
        checkpoint=so_far.checkpoint,
        text=so_far.text,
        earlier=so_far.earlier,
    )


def _so_far(store: Store, turn: Turn) -> SoFar:
    """A turn that begins may not be in the store yet; a run that goes on is."""
    if turn.goes_on:
        return take_up(store, turn.scope.turn_id, turn.scope.run_id)
    return SoFar([user(turn.wanted.message)])


def _sent_before(store: Store, session_id: str) -> tuple[bytes, ...] | None:
    """The hashes of the elements that the session's previous call sent."""
    call = steps.last_call(store, session_id)
    key = call["input_payload"] if call else None
    if key is None:
        return None
    try:
        return tuple(bytes.fromhex(element) for element in payloads.parts(store, [key])[key])
    except LookupError:
        return None


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
    """An agent with the model, parameters, instructions and limits that a turn began with."""
    kept = {"model": snapshot["model"], "parameters": snapshot["parameters"]}
    limits = definition.table.limits.model_copy(update=snapshot["limits"])
    table = definition.table.model_copy(update={**kept, "limits": limits})
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
