"""The tools of a turn in its record: their steps, and their results in the order of the calls."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field

from xgw import clock, ids
from xgw.agents import context
from xgw.agents.definition import Definition
from xgw.agents.pool import Pool
from xgw.agents.tools import Outcome, Round
from xgw.agents.turns import Turn
from xgw.exchange.means import Means
from xgw.recording.agents import AgentRecord
from xgw.recording.facts import MessageFacts, ToolEnd, ToolStart
from xgw.recording.recorder import Said
from xgw.store.payloads import Stored
from xgw.values import ToolCall


@dataclass(slots=True)
class _Asked:
    """The calls of one answer: which have ended, and how many results have been told."""

    asked_by: str
    calls: tuple[ToolCall, ...]
    step_ids: list[str]
    began: float
    started: bool = False
    results: dict[int, str] = field(default_factory=dict)
    told: int = 0


class ToolSteps:
    """Runs the calls of a turn, round by round; `seconds` is what they took together."""

    def __init__(
        self, means: Means, record: AgentRecord, pool: Pool, turn: Turn, definition: Definition
    ) -> None:
        self._means = means
        self._record = record
        self._pool = pool
        self._turn = turn
        self._definition = definition
        self._asked: _Asked | None = None
        self.seconds = 0.0

    def ask(self, asked_by: str, calls: tuple[ToolCall, ...]) -> None:
        """The step `asked_by` asked for these; from here on each of them gets a result."""
        step_ids = [ids.mint("step") for _ in calls]
        self._asked = _Asked(asked_by, calls, step_ids, clock.monotonic())

    def run(self) -> list[context.Element]:
        """The results for the model, in the order of the calls. Raises Cancelled."""
        asked = self._asked
        assert asked is not None
        self._start(asked)
        together = Round(self._definition, self._pool, asked.calls)
        try:
            for outcome in together.outcomes(self._turn.call):
                self._end(asked, outcome)
        finally:
            self.seconds += clock.monotonic() - asked.began
        self._asked = None
        pairs = enumerate(asked.calls)
        return [context.result(call.tool_call_id or "", asked.results[n]) for n, call in pairs]

    def start_rest(self) -> None:
        """Calls that will not be run are begun in the record, so that they can end there."""
        if self._asked is not None and not self._asked.started:
            self._start(self._asked)

    def close(
        self, reason: str, at: datetime.datetime
    ) -> tuple[tuple[ToolEnd, ...], tuple[Said, ...]]:
        """What is still open ends without a result of its own; every call is answered."""
        asked, self._asked = self._asked, None
        if asked is None:
            return (), ()
        text = f"Error: no result: {reason}"
        opened = [n for n in range(len(asked.calls)) if n not in asked.results]
        ends = [self._dropped(asked, n, reason, at) for n in opened]
        asked.results.update(dict.fromkeys(opened, text))
        return tuple(ends), tuple(self._tell(asked))

    def _start(self, asked: _Asked) -> None:
        starts = [
            ToolStart(step_id, call.tool_call_id or "", call.name, call.arguments, "server")
            for step_id, call in zip(asked.step_ids, asked.calls, strict=True)
        ]
        masked = [self._masked(start) for start in starts]
        asked.began = clock.monotonic()
        asked.started = True
        self._record.start_tools(self._turn.scope, asked.asked_by, masked, clock.now())

    def _masked(self, start: ToolStart) -> ToolStart:
        arguments = self._means.masker.text(start.arguments)
        return ToolStart(start.step_id, start.tool_call_id, start.name, arguments, start.side)

    def _end(self, asked: _Asked, outcome: Outcome) -> None:
        number, call = outcome.position, asked.calls[outcome.position]
        text = self._means.masker.text(outcome.text)
        error = None if outcome.error is None else self._means.masker.text(outcome.error)
        stored = self._means.recorder.shelf.text(text)
        asked.results[number] = text
        end = ToolEnd(
            step_id=asked.step_ids[number],
            tool_call_id=call.tool_call_id or "",
            status="success" if error is None else "error",
            output=text,
            output_payload=stored.hash,
            latency_ms=outcome.latency_ms,
            ended_at=clock.now(),
            error_type=None if error is None else "tool_error",
            error_message=error,
        )
        bodies: Sequence[Stored] = [stored]
        self._record.end_tool(self._turn.scope, end, self._tell(asked), bodies)

    def _dropped(self, asked: _Asked, number: int, reason: str, at: datetime.datetime) -> ToolEnd:
        return ToolEnd(
            step_id=asked.step_ids[number],
            tool_call_id=asked.calls[number].tool_call_id or "",
            status="cancelled",
            output=None,
            output_payload=None,
            latency_ms=max(0, round((clock.monotonic() - asked.began) * 1000)),
            ended_at=at,
            error_type="no_result",
            error_message=reason,
        )

    def _tell(self, asked: _Asked) -> list[Said]:
        """The results that have not been told and whose turn it is."""
        said = []
        while asked.told in asked.results:
            call, text = asked.calls[asked.told], asked.results[asked.told]
            said.append(Said(asked.step_ids[asked.told], self._message(call, text)))
            asked.told += 1
        return said

    def _message(self, call: ToolCall, text: str) -> MessageFacts:
        call_id = call.tool_call_id or ""
        tokens = self._means.counter.count_message(context.result(call_id, text))
        return MessageFacts(
            id=ids.mint("msg"),
            kind="tool_result",
            role="tool",
            content=text,
            tool_call_id=call_id,
            name=call.name,
            token_count=tokens,
            token_source=None if tokens is None else "estimated",
        )
