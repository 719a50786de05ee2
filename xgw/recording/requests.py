"""What a request brings to the record: the facts of its begin and of its end, and their units.

Everything here runs inside the writer's transaction and may run again after a rollback.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

from xgw.frozen import field, frozen
from xgw.recording import (
    attempts,
    checkpoints,
    messages,
    runs,
    sessions,
    tools,
    turns,
    unanswered,
)
from xgw.recording.facts import (
    AttemptEnd,
    AttemptFacts,
    LimitFacts,
    MessageFacts,
    Retry,
    Scope,
    SessionFacts,
    ToolEnd,
    ToolStart,
    TurnEnd,
    TurnFacts,
)
from xgw.recording.pending import Progress
from xgw.store.transaction import Transaction


@frozen
class Closing:
    """A turn that ends because of something else: its open tools, then its end.

    Without an end the turn goes on: requests of it are under way.
    """

    scope: Scope
    tools: tuple[ToolEnd, ...]
    end: TurnEnd | None


@frozen
class Arrived:
    """A tool's result that came back with a request: the step's end, and the message."""

    end: ToolEnd
    message: MessageFacts


@frozen
class Said:
    """A message of a step: what a tool answered, or was made to answer."""

    step_id: str
    message: MessageFacts


@frozen
class Opening:
    """What begins with a request: perhaps a session, a turn or its continuation, the first try."""

    scope: Scope
    at: datetime.datetime
    session: SessionFacts | None = None
    session_changes: dict[str, str | None] = field(default_factory=dict)
    closings: tuple[Closing, ...] = ()
    turn: TurnFacts | None = None
    reopened: str | None = None
    resumed: str | None = None
    results: tuple[Arrived, ...] = ()
    dropped_tools: tuple[ToolEnd, ...] = ()
    messages: tuple[MessageFacts, ...] = ()
    attempt: AttemptFacts | None = None
    context_tokens: int | None = None
    context_window: int | None = None


@frozen
class Ending:
    """What ends with a request: its last try, what the model said, and what becomes of the turn.

    `turn` is how the turn ends, or, with `waits`, what it would end with while it awaits the
    client's tools; None while other requests of the turn are under way. `progress` is an agent's:
    with `waits` a person is awaited.
    """

    scope: Scope
    attempt: AttemptFacts | None
    end: AttemptEnd | None
    failure: Retry | None = None
    messages: tuple[MessageFacts, ...] = ()
    tools: tuple[ToolStart, ...] = ()
    waits: bool = False
    turn: TurnEnd | None = None
    dropped_tools: tuple[ToolEnd, ...] = ()
    dropped_handoffs: tuple[ToolEnd, ...] = ()
    """Those of them that had handed a task over."""
    results: tuple[Said, ...] = ()
    limit: LimitFacts | None = None
    progress: Progress | None = None


def open_request(tx: Transaction, opening: Opening, owner: str) -> None:
    """What begins with a request, its events in the order of events.md."""
    scope, at = opening.scope, opening.at
    if opening.session is not None:
        sessions.open_session(tx, opening.session, at)
    elif scope.session_id is not None:
        sessions.wake_session(tx, scope.project_id, scope.session_id, opening.session_changes, at)
    for closing in opening.closings:
        close_turn(tx, closing)
    if opening.turn is not None:
        turns.open_turn(tx, opening.turn)
    elif opening.reopened is not None:
        turns.reopen_turn(tx, scope, opening.reopened, owner, at)
    elif opening.resumed is not None:
        runs.continue_run(tx, scope, opening.resumed, owner, at)
    for arrived in opening.results:
        _arrive(tx, scope, arrived)
    for tool_end in opening.dropped_tools:
        tools.end_tool(tx, scope, tool_end)
    messages.add_messages(tx, scope, opening.messages, at)
    if opening.results:
        call_ids = [arrived.end.tool_call_id for arrived in opening.results]
        size = opening.context_tokens, opening.context_window
        tools.send_results(tx, scope, call_ids, size, at)
    if opening.attempt is not None:
        attempts.start_attempt(tx, scope, opening.attempt)


def close_turn(tx: Transaction, closing: Closing) -> None:
    """A turn ends because of something else."""
    for tool in closing.tools:
        tools.end_tool(tx, closing.scope, tool)
    if closing.end is not None:
        turns.end_turn(tx, closing.scope, closing.end)


def _arrive(tx: Transaction, scope: Scope, arrived: Arrived) -> None:
    end = arrived.end
    if end.late:
        start = ToolStart(end.step_id, end.tool_call_id, end.name, end.arguments)
        tools.start_tool(tx, scope, start, end.ended_at, late=True)
    tools.end_tool(tx, scope, end)
    messages.add_messages(tx, scope, [arrived.message], end.ended_at, end.step_id)


def end_request(tx: Transaction, ending: Ending) -> None:
    """What ends with a request."""
    scope, attempt, end = ending.scope, ending.attempt, ending.end
    if attempt is not None and end is not None:
        if ending.failure is not None:
            attempts.report_failure(tx, scope, attempt, end, ending.failure)
        attempts.end_attempt(tx, scope, attempt, end)
        if end.tool_calls and end.status == "success":
            tools.request_tools(tx, scope, attempt.step_id, end.tool_calls, end.ended_at)
        messages.add_messages(tx, scope, ending.messages, end.ended_at, attempt.step_id)
        for tool in ending.tools:
            tools.start_tool(tx, scope, tool, end.ended_at, parent_step_id=attempt.step_id)
    kept = None
    if ending.progress is not None and (ended := end or ending.turn) is not None:
        kept = checkpoints.update(tx, scope, ending.progress, ended.ended_at)
    if ending.dropped_handoffs:
        unanswered.drop_tasks(tx, scope, ending.dropped_handoffs)
    for tool_end in ending.dropped_tools:
        tools.end_tool(tx, scope, tool_end)
    if ending.turn is not None:
        add_said(tx, scope, ending.results, ending.turn.ended_at)
        if ending.limit is not None:
            turns.reach_limit(tx, scope, ending.limit, ending.turn.ended_at)
    if ending.turn is not None and ending.waits:
        if kept is not None:
            tools.request_approvals(tx, scope, kept, ending.turn.ended_at)
        turns.wait_for_tools(tx, scope, ending.turn, kept)
    elif ending.turn is not None:
        turns.end_turn(tx, scope, ending.turn)


def add_said(tx: Transaction, scope: Scope, said: Iterable[Said], at: datetime.datetime) -> None:
    """The messages of several steps, in order."""
    for one in said:
        messages.add_messages(tx, scope, [one.message], at, one.step_id)
