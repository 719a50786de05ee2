"""What becomes of the calls that a model asked for: each gets an outcome, whatever goes wrong.

An outcome's text is for the model. Nothing that a tool does breaks the turn, and arguments that
cannot be understood are never replaced by others.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from xgw import clock
from xgw.agents.definition import Definition, Tool
from xgw.agents.functions import BadArguments, ToolFailed
from xgw.agents.pool import Pool, Work
from xgw.providers.transport import Call, Cancelled
from xgw.values import ToolCall

MAX_ERROR = 4000
"""Characters of what an exception says."""
MAX_PARTNERS = 8
"""How many of the tasks that one answer hands over are worked on at once; the others wait."""
PARTNER_SECONDS = 5.0
"""How long an agent that is stopped may take to end its steps, before the turn itself ends."""


class Suspended(Exception):
    """An agent that a task was handed over to waits for a person: the call goes on later."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended: `text` goes to the model; `error` is None for a success.

    `position` is the call's among those that were asked for together.
    """

    position: int
    text: str
    error: str | None
    latency_ms: int


@dataclass(frozen=True, slots=True)
class _Job:
    position: int
    tool: Tool
    arguments: dict[str, Any]
    stop: Call = field(default_factory=Call)
    ended: threading.Event = field(default_factory=threading.Event)


HandOver = Callable[[int, str, str, Call], str]
"""Has another agent work on a task: for the call at this position, the agent, the message, and what
is cancelled when nobody waits for its answer any more. Raises ToolFailed and Suspended."""


def _refuse(position: int, partner: str, message: str, stop: Call) -> str:
    raise ToolFailed(f"nothing can be handed over to {partner} here")


class Round:
    """Calls of one answer, by their position in it, run together."""

    def __init__(
        self,
        definition: Definition,
        pool: Pool,
        calls: Mapping[int, ToolCall],
        hand_over: HandOver = _refuse,
        changing: threading.Lock | None = None,
    ) -> None:
        self._definition = definition
        self._hand_over = hand_over
        self._changing = changing or threading.Lock()
        self._pool = pool
        self._calls = calls
        self._ended: queue.SimpleQueue[tuple[int, Outcome | None] | None] = queue.SimpleQueue()

    def find_tool(self, position: int) -> Tool | None:
        """The tool that a call would run; None for a call that fails without that."""
        found = self._prepare(position, self._calls[position])
        return None if isinstance(found, Outcome) else found.tool

    def refusal(self, position: int) -> str | None:
        """Why a call would fail without its tool being run; None if it would not."""
        found = self._prepare(position, self._calls[position])
        return found.error if isinstance(found, Outcome) else None

    def outcomes(self, call: Call) -> Iterator[Outcome]:
        """Each call's outcome as it comes. Raises Cancelled at once when `call` is cancelled.

        What still runs then, or runs too long, is abandoned: what it returns is dropped. A call
        that is suspended has none.
        """
        began = clock.monotonic()
        due: dict[int, tuple[float, _Job]] = {}
        call.attach(lambda: self._ended.put(None))
        works: list[tuple[Pool, Work, _Job]] = []
        partners = Pool(MAX_PARTNERS)  # their own tools want threads of the other one
        try:
            for position, asked in self._calls.items():
                found = self._prepare(position, asked)
                if isinstance(found, Outcome):
                    yield found
                    continue
                if found.tool.own is not None:
                    # The next one begins once this one's change is recorded.
                    with self._changing:
                        yield from filter(None, [self._called(found)])
                    continue
                due[position] = (began + found.tool.timeout_seconds, found)
                pool = self._pool if found.tool.partner is None else partners
                works.append((pool, self._work(found), found))
                pool.run(works[-1][1])
            while due:
                yield from self._next(call, due, began)
        finally:
            call.detach()
            for pool, work, job in works:
                if pool.withdraw(work):
                    job.ended.set()
            for _, job in due.values():
                job.stop.cancel()
            for _, job in due.values():
                if job.tool.partner is not None:
                    job.ended.wait(PARTNER_SECONDS)

    def _next(
        self, call: Call, due: dict[int, tuple[float, _Job]], began: float
    ) -> Iterator[Outcome]:
        """What has ended, or has run for too long."""
        first = min(deadline for deadline, _ in due.values())
        try:
            ended = self._ended.get(timeout=max(0.0, first - clock.monotonic()))
        except queue.Empty:
            ended = None
        if call.cancelled:
            raise Cancelled
        if ended is not None:
            position, outcome = ended
            if due.pop(position, None) is not None and outcome is not None:
                yield outcome
            return
        now = clock.monotonic()
        for position in [p for p, (deadline, _) in due.items() if deadline <= now]:
            _, job = due.pop(position)
            job.stop.cancel()
            error = f"it took longer than {job.tool.timeout_seconds:g} s"
            yield _failed(position, error, began)

    def _prepare(self, position: int, asked: ToolCall) -> Outcome | _Job:
        """The call as it can be run, or why it cannot."""
        tool = self._definition.find_tool(asked.name)
        if tool is None:
            known = ", ".join(one.name for one in self._definition.tools) or "none"
            return _failed(position, f"there is no tool {asked.name!r}; the tools are: {known}")
        if asked.incomplete:
            return _failed(position, "the call was cut off before it was complete: it was not run")
        if not asked.arguments_json_valid:
            error = "the arguments are not a JSON object: it was not run"
            return _failed(position, error)
        given = orjson.loads(asked.arguments) if asked.arguments.strip() else {}
        try:
            return _Job(position, tool, tool.function.check(given))
        except BadArguments as refusal:
            return _failed(position, f"the arguments do not fit: {refusal}")

    def _work(self, job: _Job) -> Work:
        def work() -> None:
            try:
                outcome = self._called(job)
            finally:
                job.ended.set()
            self._ended.put((job.position, outcome))

        return work

    def _called(self, job: _Job) -> Outcome | None:
        began = clock.monotonic()
        try:
            text = self._call(job)
        except Suspended:
            return None
        except BaseException as error:  # noqa: BLE001 - the edge to other people's code
            return _failed(job.position, _told(error), began)
        return _returned(job, text, began)

    def _call(self, job: _Job) -> str:
        if job.tool.partner is not None:
            message = job.arguments["message"]
            return self._hand_over(job.position, job.tool.partner, message, job.stop)
        return job.tool.function.call(job.arguments, job.stop)


def _returned(job: _Job, text: str, began: float) -> Outcome:
    text = text.encode("utf-8", "replace").decode()
    size, most = len(text.encode()), job.tool.max_output_bytes
    if size > most:
        error = f"the result has {size} bytes, more than the {most} that are allowed"
        return _failed(job.position, error, began)
    return Outcome(job.position, text, None, _since(began))


def _failed(position: int, error: str, began: float | None = None) -> Outcome:
    error = error.encode("utf-8", "replace").decode()
    if len(error) > MAX_ERROR:
        error = f"{error[:MAX_ERROR]}… (cut: it has {len(error)} characters)"
    return Outcome(position, f"Error: {error}", error, 0 if began is None else _since(began))


def _told(error: BaseException) -> str:
    """An exception in one line, without where it happened."""
    if isinstance(error, ToolFailed):
        return str(error)
    name = type(error).__name__
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - other people's code too
        return name
    return f"{name}: {text}" if text else name


def _since(began: float) -> int:
    return max(0, round((clock.monotonic() - began) * 1000))
