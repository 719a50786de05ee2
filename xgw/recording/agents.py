"""What an agent's turn records beside what every turn does: its queue, its calls, its tools.

Each method hands over one unit of work and returns at once.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from xgw.recording import attempts, messages, tools, turns
from xgw.recording.facts import (
    AttemptFacts,
    MessageFacts,
    Scope,
    ToolEnd,
    ToolStart,
    TurnFacts,
)
from xgw.recording.recorder import Recorder, Said, add_said
from xgw.store.payloads import Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket


class AgentRecord:
    """The record of agents' turns."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def begin(
        self,
        turn: TurnFacts,
        message: MessageFacts,
        bodies: Iterable[Stored],
    ) -> Ticket:
        """A turn begins at once. Its ticket fails if another one of the session runs."""

        def work(tx: Transaction) -> None:
            turns.open_turn(tx, turn)
            messages.add_messages(tx, turn.scope, [message], turn.started_at)

        return self._recorder.submit_part(work, bodies, turn.scope.turn_id, opens=True)

    def queue(self, turn: TurnFacts, bodies: Iterable[Stored]) -> Ticket:
        """A turn waits until its session is free."""

        def work(tx: Transaction) -> None:
            turns.queue_turn(tx, turn)

        return self._recorder.submit_part(work, bodies, turn.scope.turn_id, opens=True)

    def start(
        self,
        scope: Scope,
        message: MessageFacts,
        snapshot: Stored,
        at: datetime.datetime,
    ) -> Ticket:
        """A queued turn begins; its ticket fails if another one runs, or it was cancelled."""
        owner = self._recorder.owner

        def work(tx: Transaction) -> None:
            turns.start_queued(tx, scope, owner, snapshot.hash, at)
            messages.add_messages(tx, scope, [message], at)

        return self._recorder.submit_part(work, [snapshot], scope.turn_id)

    def call(
        self,
        scope: Scope,
        attempt: AttemptFacts,
        answered: Sequence[str],
        bodies: Iterable[Stored],
    ) -> Ticket:
        """The model is asked; `answered` are the calls whose results it gets with that."""

        def work(tx: Transaction) -> None:
            if answered:
                size = attempt.input_tokens, attempt.context_window
                tools.send_results(tx, scope, list(answered), size, attempt.started_at)
            attempts.start_attempt(tx, scope, attempt)

        return self._recorder.submit_part(work, bodies, scope.turn_id, attempt=attempt)

    def start_tools(
        self, scope: Scope, asked_by: str, starts: Sequence[ToolStart], at: datetime.datetime
    ) -> Ticket:
        """Tools begin together; `asked_by` is the step of the answer that asked for them."""

        def work(tx: Transaction) -> None:
            for start in starts:
                tools.start_tool(tx, scope, start, at, parent_step_id=asked_by)

        return self._recorder.submit_part(work, (), scope.turn_id)

    def end_tool(
        self, scope: Scope, end: ToolEnd, said: Sequence[Said], bodies: Iterable[Stored]
    ) -> Ticket:
        """A tool ended; `said` are the results that can be told by now, in order of the calls."""

        def work(tx: Transaction) -> None:
            tools.end_tool(tx, scope, end)
            add_said(tx, scope, said, end.ended_at)

        return self._recorder.submit_part(work, bodies, scope.turn_id)
