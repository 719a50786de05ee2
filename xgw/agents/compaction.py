"""Compaction: what is oldest in a context is summarised by the model, and sent no more.

Whole turns go first, but for the last ones; then, where that is not enough, the rounds of the turn
under way, but for the last; then the turns that were to be kept. The turn's own message stays. If
the model gives no summary the same is dropped without one. All of it is recorded at once at the
end: a crash before leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from xgw import clock, ids
from xgw.agents.context import Choice, Context
from xgw.agents.handoff import Inside
from xgw.agents.heard import read_answer
from xgw.agents.parts import Parts
from xgw.agents.summary import ask_for_summary
from xgw.errors import ApiError
from xgw.exchange.exchange import Exchange, GaveUp
from xgw.frozen import changed
from xgw.providers.transport import Call, Cancelled
from xgw.queries import wording
from xgw.recording.facts import AttemptEnd, CompactionEnd, CompactionStart, Retry, Scope
from xgw.recording.requests import Ending
from xgw.store.payloads import Stored
from xgw.store.writer import Ticket
from xgw.values import Answer, UpstreamFailure

Trigger = Literal["threshold", "request", "overflow"]

PURPOSE = "compaction"
SUMMARY_ROOM = 1000
"""Tokens that are left free for a summary that is not written yet, in a window of any size."""

LEAST_SHARE = 0.1
"""A compaction that would free less of the context is not worth its call, unless it has to be."""


class NoSummary(Exception):
    """The model gave none; the text says why."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much a session's calls may send: tokens, None where nobody knows.

    Above `threshold` the context is compacted, nothing above `window` is sent.
    """

    window: int | None
    threshold: int | None
    keep: int

    @classmethod
    def of(cls, window: int | None, compact_at: float, keep: int) -> Room:
        """The room in a window that is compacted at this share of it."""
        return cls(window, None if window is None else int(window * compact_at), keep)


@dataclass(slots=True)
class Compactor:
    """Compacts the context of one session, for whoever asks its model at the moment.

    `tools` are the offers that are sent along, `ticket` is that of what it recorded last.
    """

    parts: Parts
    scope: Scope
    call: Call
    model: str
    client: dict[str, Any]
    context: Context
    tools: Sequence[dict[str, Any]]
    room: Room
    inside: Inside | None = None
    """Where the task is worked on whose context this is; None is the session's."""
    ticket: Ticket | None = None
    _ends: list[AttemptEnd] = field(default_factory=list)

    def size(self, context: Context | None = None) -> int | None:
        """Tokens of the next call, by an estimate; None until tokens can be counted."""
        elements = (context or self.context).elements()
        counter = self.parts.means.counter
        return counter.estimate_request(elements, self.tools or None, self.model)

    def choose(self, trigger: Trigger) -> Choice | None:
        """What is to be taken out; None where there is nothing, or nothing that is worth it."""
        before, room = self.size(), self.room
        if trigger == "request":
            return _choose(self.context, room.keep, lambda _: False, lambda _: False)
        if trigger == "overflow":
            # What the provider counts is not known: half of what it refused should do.
            half = None if before is None else before // 2
            goal = min((n for n in (half, room.threshold) if n is not None), default=None)
            exceeds = self._exceeds(goal, is_sure=True)
            return _choose(self.context, room.keep, exceeds, exceeds)
        if before is None or room.threshold is None or before <= room.threshold:
            return None
        soft, hard = self._exceeds(room.threshold), self._exceeds(room.window)
        choice = _choose(self.context, room.keep, soft, hard)
        return choice if choice and self._is_worth_it(choice, before) else None

    def run(self, trigger: Trigger, choice: Choice) -> None:
        """Compact; raises Cancelled, with everything as it was."""
        began, before = clock.monotonic(), self.size()
        step_id = ids.mint("step")
        message_ids = tuple(i for b in self.context.chosen(choice) for i in b.message_ids)
        self._start(step_id, trigger, before, message_ids)
        try:
            strategy, reason = "summary", None
            try:
                summary: str | None = self._summarise(step_id, trigger, choice, before)
            except NoSummary as failure:
                strategy, reason, summary = "drop", str(failure), self.context.summary
        except BaseException as error:
            fault = None if isinstance(error, Cancelled) else ("internal", "xgw itself failed")
            self.ticket = self.parts.record.break_off_compaction(
                self.scope, step_id, fault, _since(began)
            )
            raise
        self.context.compact(choice, summary)
        end = CompactionEnd(
            step_id=step_id,
            trigger=trigger,
            strategy=strategy,
            before_tokens=before,
            after_tokens=self.size(),
            message_ids=message_ids,
            summary=summary,
            reason=reason,
            output="",
            output_payload=None,
            latency_ms=_since(began),
            ended_at=clock.now(),
            is_apart=self.context.is_apart,
        )
        self._end(end)

    def take_ends(self) -> list[AttemptEnd]:
        """The ends of the model calls that it made since this was asked for last."""
        ends, self._ends = self._ends, []
        return ends

    # -- what goes -----------------------------------------------------------------------------

    def _exceeds(self, limit: int | None, *, is_sure: bool = False) -> Callable[[Choice], bool]:
        """Whether more has to go than a choice; `is_sure`: something has to, whatever is known."""

        def exceeds(choice: Choice) -> bool:
            size = self.size(self.context.without(choice))
            if size is None or limit is None:
                return is_sure and not (choice.turns or choice.rounds)
            return size + min(SUMMARY_ROOM, limit // 8) > limit

        return exceeds

    def _is_worth_it(self, choice: Choice, before: int) -> bool:
        after = self.size(self.context.without(choice)) or 0
        has_to = self.room.window is not None and before > self.room.window
        return has_to or before - after >= before * LEAST_SHARE

    # -- the summary ---------------------------------------------------------------------------

    def _summarise(self, step_id: str, trigger: Trigger, choice: Choice, before: int | None) -> str:
        """Raises NoSummary and Cancelled."""
        blocks, counter = self.context.chosen(choice), self.parts.means.counter
        known = [n for n in (self.room.window, before) if n is not None]
        most = (
            None if not known else min(known) // 2 if trigger == "overflow" else known[0] * 3 // 4
        )

        def fits(asked: list[dict[str, Any]]) -> bool:
            size = counter.estimate_request(asked, None, self.model)
            return size is None or most is None or size <= most

        asked = ask_for_summary(self.context.summary, blocks, fits)
        try:
            exchange = self.parts.exchange(
                self.model,
                asked,
                self.client,
                purpose=PURPOSE,
                parent_step_id=step_id,
                window=self.room.window,
            )
        except ApiError as error:
            raise NoSummary(error.message) from None
        exchange.describe(None, counter.estimate_request(asked, None, self.model), clock.now())
        answer = self._ask(exchange)
        return self._checked(answer, choice, trigger)

    def _ask(self, exchange: Exchange) -> Answer:
        bodies = exchange.trial.take_bodies()
        self.ticket = self.parts.record.call(self.scope, exchange.facts, (), bodies)
        try:
            answer = read_answer(exchange.open(lambda: self.scope, self.call, self._keep))
            answer = exchange.trial.storable(answer)
        except GaveUp as end:
            raise NoSummary(self._failed(exchange, end.failure)) from None
        except BaseException:
            self._cut(exchange)
            raise
        finally:
            exchange.trial.close_response()
        ended, stored = exchange.trial.succeeded(answer)
        # No tool was offered: nobody is going to run what the model made up.
        self._record(exchange, changed(ended, tool_calls=None), stored)
        return answer

    def _failed(self, exchange: Exchange, failure: UpstreamFailure) -> str:
        ended, stored = exchange.trial.failed(failure)
        self._record(exchange, ended, stored, Retry("give_up"))
        return f"{ended.error_type}: {ended.error_message}"

    def _cut(self, exchange: Exchange) -> None:
        if not exchange.trial.is_recorded:
            self._record(exchange, *exchange.trial.cut("cancelled", None, None))

    def _record(
        self,
        exchange: Exchange,
        end: AttemptEnd,
        bodies: list[Stored],
        failure: Retry | None = None,
    ) -> None:
        self._ends.append(end)
        ending = Ending(self.scope, exchange.facts, end, failure=failure)
        self.ticket = self.parts.means.recorder.finish(ending, bodies)

    def _checked(self, answer: Answer, choice: Choice, trigger: Trigger) -> str:
        """The summary, where it is one and takes less room than what it stands for."""
        text = (answer.text() or "").strip()
        if not text:
            raise NoSummary("the model's summary is empty")
        after = self.context.without(choice)
        after.summary = text
        size, window = self.size(after), self.room.window
        if trigger != "request" and size is not None and window is not None and size > window:
            raise NoSummary("the model's summary is too long to fit")
        return text

    # -- the record ----------------------------------------------------------------------------

    def _start(
        self, step_id: str, trigger: Trigger, before: int | None, message_ids: tuple[str, ...]
    ) -> None:
        told = {
            "trigger": trigger,
            "before_tokens": before,
            "context_window": self.room.window,
            "compacted_message_ids": message_ids,
            "earlier_summary": self.context.summary,
        }
        stored = self._stored(told)
        under = None if self.inside is None else (self.inside.step_id, self.inside.agent_name)
        start = CompactionStart(step_id, trigger, clock.now(), stored.hash, under)
        self.ticket = self.parts.record.start_compaction(self.scope, start, [stored])

    def _end(self, end: CompactionEnd) -> None:
        told = {
            "strategy": end.strategy,
            "reason": end.reason,
            "before_tokens": end.before_tokens,
            "after_tokens": end.after_tokens,
            "compacted_message_ids": end.message_ids,
            "summary": end.summary,
        }
        stored = self._stored(told)
        output = wording.compaction_words(told)
        end = changed(end, output=output, output_payload=stored.hash)
        self.ticket = self.parts.record.end_compaction(self.scope, end, [stored])

    def _stored(self, told: dict[str, Any]) -> Stored:
        means = self.parts.means
        return means.recorder.shelf.whole(means.masker.body(orjson.dumps(told)))

    def _keep(self, ticket: Ticket) -> None:
        self.ticket = ticket


def _choose(
    context: Context,
    keep: int,
    soft: Callable[[Choice], bool],
    hard: Callable[[Choice], bool],
) -> Choice | None:
    choice = Choice(max(0, len(context.turns) - keep))
    if len(context.rounds) > 1 and soft(choice):
        choice = Choice(choice.turns, len(context.rounds) - 1)
    while choice.turns < len(context.turns) and hard(choice):
        choice = Choice(choice.turns + 1, choice.rounds)
    return choice if choice.turns or choice.rounds else None


def _since(began: float) -> int:
    return max(0, round((clock.monotonic() - began) * 1000))
