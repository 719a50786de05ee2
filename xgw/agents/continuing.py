"""Runs that go on: after a person's decision, in the place of an interrupted one, or once more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from xgw import ids
from xgw.agents import lineage, repeating
from xgw.agents.definition import Definition, NoTools, find_agent
from xgw.agents.lineage import Row
from xgw.agents.parts import Parts
from xgw.agents.preparing import as_it_was, user_message, wanted_of
from xgw.agents.scheduler import Scheduler
from xgw.agents.settled import as_decided
from xgw.agents.taking_up import read_checkpoint
from xgw.agents.tools import Round
from xgw.agents.turns import Turn
from xgw.errors import conflict, unprocessable
from xgw.providers.transport import Call
from xgw.queries import messages, payloads, runs, turns
from xgw.recording.facts import RunFacts, Scope
from xgw.recording.lifecycle import ENDED
from xgw.recording.pending import Checkpoint, Decision, PendingCall, Place
from xgw.recording.runs import find_waiting
from xgw.store.database import Store
from xgw.values import ToolCall

Status = Literal["waiting_tool", "paused"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """How a turn is to run once more; None is as it was, `overrides` what its run keeps."""

    overrides: Mapping[str, Any]
    message: str | None = None
    from_step_id: str | None = None


class Continuing:
    """Has runs go on; every method returns once it is committed, the run is then under way."""

    def __init__(self, store: Store, parts: Parts, scheduler: Scheduler) -> None:
        self._store = store
        self._parts = parts
        self._scheduler = scheduler

    def decide(
        self, turn: Row, run: Row, call_id: str, asked_by: str | None, decision: Decision
    ) -> str | None:
        """A person decides about a call; the run goes on once all that wait are decided.

        `asked_by` is the step of the answer that asked for it, None where the id tells which it is;
        returns it. ApiError 404 `call_not_found`, 409 `run_not_waiting`, `already_decided` or
        `call_ambiguous`, 422.
        """
        if turn["endpoint"] is not None:
            message = f"run {run['id']} is of a turn of the gateway: its client sends results"
            raise conflict(message, code="run_not_waiting")
        _check_status(run, "waiting_tool")
        definition = self._definition(turn, lineage.ancestry_of(run, self._runs(turn)))
        one, place = find_waiting(read_checkpoint(self._store, run), call_id, asked_by)
        self._check(_led_to(definition, place), replace(one, decision=decision))
        scope = _scope_of(turn, run)
        record, again = self._parts.record, _turn_of(scope, turn, run)
        self._scheduler.launch(
            again,
            definition,
            lambda: self._check_now(run, "waiting_tool"),
            lambda then: record.decide(scope, call_id, place.step_id, decision, then),
        )
        return place.step_id

    def _check(self, definition: Definition, one: PendingCall) -> None:
        """ApiError 422 for what cannot be done with a call."""
        decision = one.decision
        assert decision is not None
        together = self._round(_complete(definition), as_decided(one))
        if decision.arguments is not None and (refusal := together.refusal(0)) is not None:
            raise unprocessable(refusal, param="arguments")
        tool = together.find_tool(0)
        size = len((decision.result or "").encode())
        if tool is not None and size > tool.max_output_bytes:
            message = f"result has {size} bytes, more than the {tool.max_output_bytes} allowed"
            raise unprocessable(message, param="result")

    def resume(self, turn: Row, run: Row) -> str:
        """A new run goes on from a paused one's checkpoint; its id.

        Where nobody knows what became of a call, it waits for a person, unless its tool is
        `retry_safe`. ApiError 409 `run_not_paused`.
        """
        _check_status(run, "paused")
        known = self._runs(turn)
        definition = self._definition(turn, lineage.ancestry_of(run, known))
        kept = read_checkpoint(self._store, run)

        def again(one: PendingCall, place: Place) -> PendingCall:
            if one.task is not None:  # it goes on in a step of the new run
                return replace(one, step_id=None)
            return self._again(_led_to(definition, place), one)

        checkpoint = replace(kept.changed(again), busy_ms=0)
        scope = _next_scope(turn, known, "resume", run["id"])
        upto = kept.messages_upto if kept.messages_upto is not None else -1
        facts = RunFacts(scope, upto, self._owner, overrides=run["overrides"])
        paused, record = _scope_of(turn, run), self._parts.record
        self._scheduler.launch(
            _turn_of(scope, turn, run),
            definition,
            lambda: self._check_now(run, "paused"),
            lambda then: record.resume(paused, facts, checkpoint, then),
        )
        return scope.run_id

    def _again(self, definition: Definition, one: PendingCall) -> PendingCall:
        """A call as a resumed run finds it."""
        if one.state != "outcome_unknown":
            return one
        whole = _complete(definition)
        tool = self._round(whole, as_decided(one)).find_tool(0)
        # A tool that its server has not told of now may be there in a moment.
        may_run = tool.retry_safe if tool is not None else not whole.sources
        return replace(one, state="open") if may_run else replace(one, decision=None)

    def rerun(self, turn: Row, session: Row, wanted: Repeat) -> str:
        """A new run of an ended turn beside the old ones; its id.

        ApiError 409 for a gateway's turn, and while a turn of the session is under way.
        """
        if turn["endpoint"] is not None:
            message = "a turn of the gateway cannot be run again here: its client owns it"
            raise conflict(message, code="gateway_turn")
        if session["status"] == "closed":
            raise conflict(f"session {session['id']} is closed", code="session_closed")
        self._check_over(turn["id"])
        known = self._runs(turn)
        begins = repeating.find_beginning(
            known, messages.of_turn(self._store, turn["id"]), wanted.from_step_id
        )
        before = _overridden(begins.run["overrides"] or {}, wanted.overrides)
        definition = _with(find_agent(self._scheduler.agents, turn["agent_name"]), before)
        self._parts.router.find(before.get("model") or definition.table.model, "chat.completions")
        pending = (self._anew(definition, one, before) for one in begins.calls)
        checkpoint = Checkpoint(begins.step_id, tuple(pending))
        scope = _next_scope(turn, known, "rerun", begins.run["id"])
        keeps_nothing = wanted.message is not None and wanted.from_step_id is None
        kept_upto = -1 if keeps_nothing else begins.kept_upto
        facts = RunFacts(scope, kept_upto, self._owner, wanted.from_step_id, before)
        means, record = self._parts.means, self._parts.record
        # A turn that was cancelled before it began has no message yet.
        text = wanted.message or (turn["user_input"] if not begins.said else None)
        said = None if text is None else user_message(means, text)
        self._scheduler.launch(
            _turn_of(scope, turn, {"overrides": before}),
            definition,
            lambda: self._check_over(turn["id"]),
            lambda then: record.rerun(facts, said, checkpoint, then),
        )
        return scope.run_id

    def _anew(
        self, definition: Definition, one: repeating.Call, overrides: Mapping[str, Any]
    ) -> PendingCall:
        """A call that a re-run begins with: it wants an approval as it did before."""
        if overrides.get("reuse") == "results" and one.succeeded:
            return PendingCall(one.call)
        tool = self._round(_complete(definition), one.call).find_tool(0)
        wants = tool is not None and tool.approval == "always"
        return PendingCall(one.call, "awaits_approval" if wants else "open")

    # -- small things --------------------------------------------------------------------------

    def _round(self, definition: Definition, call: ToolCall) -> Round:
        """One call, to be looked at."""
        return Round(definition, self._parts.pool, {0: call})

    def _check_now(self, run: Row, status: Status) -> None:
        _check_status(runs.find_open(self._store, run["id"]) or {**run, "status": "gone"}, status)

    def _check_over(self, turn_id: str) -> None:
        """ApiError 409 for a turn that is not over."""
        status = (turns.find_turn(self._store, turn_id) or {"status": "gone"})["status"]
        if status not in ENDED:
            message = f"turn {turn_id} is {status}: it can be run again once it is over"
            raise conflict(message, code="session_busy")

    @property
    def _owner(self) -> str:
        return self._parts.means.recorder.owner

    def _runs(self, turn: Row) -> list[Row]:
        return list(runs.of_turn(self._store, turn["id"]))

    def _definition(self, turn: Row, ancestry: list[Row]) -> Definition:
        """The agent as it was when the run began that goes on; its tools are those of now."""
        definition = find_agent(self._scheduler.agents, turn["agent_name"])
        begun, key = lineage.resumed_in(ancestry)[0], turn["config_snapshot"]
        if begun["kind"] == "first" and key is not None:
            kept = payloads.bodies(self._store, [key]).get(key)
            definition = as_it_was(definition, kept) if isinstance(kept, dict) else definition
        return _with(definition, begun["overrides"] or {})


def _check_status(run: Row, status: Status) -> None:
    """ApiError 409 for a run that is not as it has to be."""
    if run["status"] == status:
        return
    if status == "paused":
        what = "; decide about its calls instead" if run["status"] == "waiting_tool" else ""
        message = f"run {run['id']} is {run['status']}: only a paused one can be resumed{what}"
        raise conflict(message, code="run_not_paused")
    message = f"run {run['id']} does not wait for a decision: it is {run['status']}"
    raise conflict(message, code="run_not_waiting")


def _led_to(definition: Definition, place: Place) -> Definition:
    """The agent whose calls stand there; one that is not there any more has no tools."""
    for name in place.agents:
        definition = definition.others.get(name) or replace(definition, tools=(), sources=())
    return definition


def _complete(definition: Definition) -> Definition:
    """The agent with the tools of its servers, as far as these can be asked."""
    try:
        return definition.settled(Call())
    except NoTools:
        return definition.known()


def _with(definition: Definition, overrides: Mapping[str, Any]) -> Definition:
    instructions = overrides.get("instructions")
    return definition if instructions is None else replace(definition, instructions=instructions)


def _overridden(before: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What a re-run is asked for: as the run before it, but for what is wanted."""
    parameters = {**before.get("parameters", {}), **wanted.get("parameters", {})}
    return {**before, **wanted, **({"parameters": parameters} if parameters else {})}


def _turn_of(scope: Scope, turn: Row, run: Row) -> Turn:
    wanted = wanted_of(turn["user_input"], run["overrides"])
    return Turn(scope, turn["agent_name"], wanted, goes_on=True)


def _scope_of(turn: Row, run: Row) -> Scope:
    return Scope(
        turn["project_id"],
        turn["session_id"],
        turn["id"],
        run["id"],
        turn["trace_id"],
        turn["task_id"],
        run["run_index"],
        run["kind"],
        run["from_run_id"],
    )


def _next_scope(turn: Row, known: Iterable[Row], kind: str, from_run_id: str) -> Scope:
    index = max(run["run_index"] for run in known) + 1
    new = {"id": ids.mint("run"), "run_index": index, "kind": kind, "from_run_id": from_run_id}
    return _scope_of(turn, new)
