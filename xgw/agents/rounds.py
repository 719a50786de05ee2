"""The tools of a turn in its record: their steps, and their results in the order of the calls."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace

from xgw import clock, ids
from xgw.agents import context
from xgw.agents.asked import Asked, Closed, Handoff, HandOver
from xgw.agents.definition import Definition
from xgw.agents.desk import Desk
from xgw.agents.handoff import Inside
from xgw.agents.pool import Pool
from xgw.agents.settled import Recorded, Results, as_decided, notes_of, outcome_of
from xgw.agents.spent import Spent
from xgw.agents.tools import Outcome, Round
from xgw.agents.turns import Turn
from xgw.exchange.means import Means
from xgw.frozen import changed
from xgw.providers.transport import Call
from xgw.recording.agents import AgentRecord
from xgw.recording.facts import MessageFacts, ToolEnd, ToolStart
from xgw.recording.pending import Checkpoint, PendingCall, Progress
from xgw.recording.requests import Said
from xgw.store.writer import Patience
from xgw.values import ToolCall


class ToolSteps:
    """Runs the calls of a turn, round by round; `spent` is told of the time that takes."""

    def __init__(
        self,
        means: Means,
        record: AgentRecord,
        pool: Pool,
        turn: Turn,
        definition: Definition,
        spent: Spent,
        earlier: Results,
        desk: Desk,
        hand_over: HandOver,
        inside: Inside | None,
    ) -> None:
        self._means = means
        self._record = record
        self._pool = pool
        self._turn = turn
        self._definition = definition
        self._spent = spent
        self._earlier = earlier
        self._desk = desk
        self._hand_over = hand_over
        self._inside = inside
        self._asked: Asked | None = None

    def ask(self, asked_by: str, calls: tuple[ToolCall, ...]) -> None:
        """The step `asked_by` asked for these; from here on each of them gets a result."""
        self._take(asked_by, asked_by, [PendingCall(call) for call in calls])
        asked = self._asked
        assert asked is not None
        together = self._round(range(len(calls)))
        for number, one in enumerate(asked.pending):
            tool = None if number in asked.reused else together.find_tool(number)
            if tool is not None and tool.approval == "always":
                asked.pending[number] = replace(one, state="awaits_approval")

    def take_up(self, checkpoint: Checkpoint) -> bool:
        """Go on with the calls of a checkpoint; False if it has none."""
        if checkpoint.step_id is None or not checkpoint.pending:
            return False
        above = checkpoint.step_id if self._inside is None else self._inside.above
        self._take(checkpoint.step_id, above or checkpoint.step_id, list(checkpoint.pending))
        return True

    def _take(self, asked_by: str, above: str, pending: list[PendingCall]) -> None:
        reused = {n: found for n, one in enumerate(pending) if (found := self._find_earlier(one))}
        self._asked = Asked(
            asked_by,
            above,
            pending,
            [one.step_id or ids.mint("step") for one in pending],
            clock.monotonic(),
            reused,
            results={n: one.result or "" for n, one in enumerate(pending) if one.state == "ended"},
        )

    def _find_earlier(self, one: PendingCall) -> Recorded | None:
        if one.state != "open" or one.decision is not None:
            return None
        return self._earlier.take(one.call, self._means.masker.text(one.call.arguments))

    @property
    def undecided(self) -> bool:
        """Whether a person has to decide before the calls are run."""
        return self._asked is not None and any(
            one.state == "awaits_approval" for one in self._asked.pending
        )

    def progress(self, *, is_answered: bool = False) -> Progress:
        """Where the agent stands, for the run's checkpoint."""
        under = None if self._inside is None else self._inside.step_id
        at, above_ms = self._checkpoint(), self._spent.above_ms
        return Progress(at, under, above_ms, is_answered=is_answered)

    def _checkpoint(self) -> Checkpoint:
        """Which calls have no result yet, or one that was not told yet."""
        asked, spent = self._asked, self._spent
        if asked is None:
            return Checkpoint(elapsed_ms=spent.elapsed_ms, busy_ms=spent.busy_ms)
        left = tuple(self._shown(asked, n) for n in range(asked.told, len(asked.pending)))
        return Checkpoint(asked.asked_by, left, spent.elapsed_ms, spent.busy_ms)

    def _shown(self, asked: Asked, number: int) -> PendingCall:
        one = asked.pending[number]
        call = changed(one.call, arguments=self._means.masker.text(one.call.arguments))
        if number not in asked.results:
            return replace(one, call=call)
        text, step_id = asked.results[number], asked.step_ids[number]
        return replace(one, call=call, state="ended", step_id=step_id, result=text)

    def run(self) -> context.Block | None:
        """The results for the model, in the order of the calls; None while another agent that has
        a task waits for a person. Raises Cancelled."""
        asked = self._asked
        assert asked is not None
        self._start(asked)
        with self._spent.in_tools():
            for outcome in self._settled(asked):
                self._end(asked, outcome)
            open_ones = [n for n in range(len(asked.pending)) if n not in asked.results]
            for outcome in self._round(open_ones).outcomes(self._turn.call):
                self._end(asked, outcome)
        waiting = [n for n in open_ones if n not in asked.results]
        if waiting:
            for number in waiting:
                self._means.recorder.live.drop(asked.step_ids[number])
            return None
        self._asked = None
        pairs = enumerate(asked.pending)
        told = (context.result(one.id, asked.results[number]) for number, one in pairs)
        return context.Block(self._turn.scope.turn_id, tuple(told), tuple(asked.message_ids))

    def _round(self, numbers: Sequence[int]) -> Round:
        asked = self._asked
        assert asked is not None

        def hand_over(position: int, partner: str, message: str, stop: Call) -> str:
            known, step_id = asked.pending[position].task, asked.step_ids[position]
            return self._hand_over(Handoff(step_id, partner, message, known), stop)

        calls = {number: as_decided(asked.pending[number]) for number in numbers}
        changing = self._desk.memory.changing
        return Round(self._definition, self._pool, calls, hand_over, changing)

    def _settled(self, asked: Asked) -> list[Outcome]:
        """The outcomes of calls that are not run."""
        found = {n: Outcome(n, one.text, None, 0) for n, one in asked.reused.items()}
        for number, one in enumerate(asked.pending):
            if (outcome := outcome_of(number, one.decision)) is not None:
                found[number] = outcome
        return [found[number] for number in sorted(found) if number not in asked.results]

    def start_rest(self) -> None:
        """Calls that will not be run are begun in the record, so that they can end there."""
        if self._asked is not None and not self._asked.started:
            self._start(self._asked)

    def close(self, reason: str, at: datetime.datetime) -> Closed:
        """What is still open ends without a result of its own; every call is answered."""
        asked, self._asked = self._asked, None
        if asked is None:
            return Closed()
        text = f"Error: no result: {reason}"
        opened = [n for n in range(len(asked.pending)) if n not in asked.results]
        for number in opened:
            self._means.recorder.live.drop(asked.step_ids[number])
        ends = [self._dropped(asked, n, reason, at) for n in opened]
        asked.results.update(dict.fromkeys(opened, text))
        tools = (self._definition.find_tool(asked.pending[n].call.name) for n in opened)
        handed = [e for e, tool in zip(ends, tools, strict=True) if tool and tool.partner]
        return Closed(tuple(ends), tuple(handed), tuple(self._tell(asked)))

    def _start(self, asked: Asked) -> None:
        """Nothing runs before it is recorded that it does: after a crash that has to be known."""
        numbers = [n for n, one in enumerate(asked.pending) if n not in asked.results]
        numbers = [n for n in numbers if asked.pending[n].step_id is None]  # those go on
        starts = [self._begun(asked, number) for number in numbers]
        asked.began, asked.started = clock.monotonic(), True
        scope, recorder = self._turn.scope, self._means.recorder
        for number, one in enumerate(asked.pending):
            if one.step_id is not None and number not in asked.results:
                step = recorder.live.start(scope, one.step_id, is_tool=True)
                step.started -= (one.open_ms(clock.now()) or 0) / 1000
        for start in starts:
            recorder.live.expect(start.step_id)
            recorder.live.start(scope, start.step_id, is_tool=True)
        under = None if self._inside is None else self._inside.step_id
        ticket = self._record.start_tools(scope, asked.above, starts, clock.now(), under)
        recorder.writer.wait(ticket, Patience())

    def _begun(self, asked: Asked, number: int) -> ToolStart:
        one = asked.pending[number]
        tool = self._definition.find_tool(one.call.name)
        return ToolStart(
            asked.step_ids[number],
            one.id,
            one.call.name,
            self._means.masker.text(as_decided(one).arguments),
            "server",
            notes_of(one.decision, asked.reused.get(number)),
            "tool_call" if tool is None else tool.step_type,
            None if tool is None else tool.partner,
        )

    def _end(self, asked: Asked, outcome: Outcome) -> None:
        number, one = outcome.position, asked.pending[outcome.position]
        self._means.recorder.live.drop(asked.step_ids[number])
        text = self._means.masker.text(outcome.text)
        error = None if outcome.error is None else self._means.masker.text(outcome.error)
        stored = self._means.recorder.shelf.text(text)
        asked.results[number] = text
        at = clock.now()
        open_ms = one.open_ms(at)
        end = ToolEnd(
            step_id=asked.step_ids[number],
            tool_call_id=one.id,
            status="success" if error is None else "error",
            output=text,
            output_payload=stored.hash,
            latency_ms=outcome.latency_ms if open_ms is None else open_ms,
            ended_at=at,
            error_type=None if error is None else "tool_error",
            error_message=error,
        )
        said, bodies = self._tell(asked), [stored]
        tool = self._definition.find_tool(one.call.name)
        kept = self._desk.kept(tool) if error is None else None
        self._record.end_tool(self._turn.scope, end, said, self.progress(), bodies, kept)

    def _dropped(self, asked: Asked, number: int, reason: str, at: datetime.datetime) -> ToolEnd:
        return ToolEnd(
            step_id=asked.step_ids[number],
            tool_call_id=asked.pending[number].id,
            status="cancelled",
            output=None,
            output_payload=None,
            latency_ms=max(0, round((clock.monotonic() - asked.began) * 1000)),
            ended_at=at,
            error_type="no_result",
            error_message=reason,
        )

    def _tell(self, asked: Asked) -> list[Said]:
        """The results that have not been told and whose turn it is."""
        said = []
        while asked.told in asked.results:
            one, text = asked.pending[asked.told], asked.results[asked.told]
            message = self._message(one.call, text)
            said.append(Said(asked.step_ids[asked.told], message))
            asked.message_ids.append(message.id)
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
            metadata=None if self._inside is None else {"handoff": self._inside.step_id},
        )
