"""A step as its page shows it: its head, and what the tab that is open shows, read for it alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xgw.queries import requests, step_closeup, steps
from xgw.queries.cuts import cut_text
from xgw.queries.pages import Row
from xgw.queries.step_closeup import StepCloseup
from xgw.web.agents import servers_of
from xgw.web.imported import until
from xgw.web.requestview import RequestView, view_with
from xgw.web.steps import changes, kinds, received, sent, timing, usage
from xgw.web.steps.said import ToolCall, calls_of
from xgw.web.waterfall import Waterfall, waterfall_of

if TYPE_CHECKING:
    from xgw.web.app import Services
    from xgw.web.live.streams import Stream

SUMMARY = "summary"
TABS = {
    SUMMARY: "Summary",
    "sent": "Sent",
    "received": "Received",
    "changes": "Changes",
    "attempts": "Attempts",
    "timing": "Timing",
    "usage": "Usage and cost",
    "raw": "Raw",
}


@dataclass(frozen=True, slots=True)
class StepView:
    """A step, the tab that is open, and what that shows (None where it has nothing to show).

    `streams` grow while a model call is under way; `as_it_is` asks for texts without Markdown.
    """

    closeup: StepCloseup
    tab: str
    as_it_is: bool
    streams: tuple[Stream, ...]
    shown: Any

    @property
    def step(self) -> Row:
        """All columns of the step."""
        return self.closeup.step

    @property
    def is_call(self) -> bool:
        """Whether it is a call of a model."""
        return bool(self.step["step_type"] == "llm_call")

    @property
    def can_begin(self) -> bool:
        """Whether its turn may be run again from this step on."""
        step = self.step
        if not self._is_over or step["handoff_id"]:
            return False
        if self.is_call:
            return not step["parent_step_id"] and (step["attempt"] or 1) == 1
        return bool(step["parent_step_id"] and step["tool_call_id"])

    @property
    def begins_at(self) -> str | None:
        """The step at which a run can begin in its place: it is another agent's, who was handed a
        task over there."""
        handoff: str | None = self.step["handoff_id"] if self._is_over else None
        return handoff

    @property
    def _is_over(self) -> bool:
        """Whether it is of an agent's turn that has ended."""
        step = self.step
        ended = step["turn_status"] in ("success", "error", "cancelled")
        return bool(step["is_agents"]) and ended

    @property
    def tabs(self) -> Mapping[str, str]:
        """The names of all tabs by what the URL calls them."""
        return TABS

    @property
    def following(self) -> Row | None:
        """The attempt that came after this one."""
        ids = [row["id"] for row in self.closeup.attempts]
        after = ids.index(self.step["id"]) + 1 if self.step["id"] in ids else len(ids)
        return self.closeup.attempts[after] if after < len(ids) else None


@dataclass(frozen=True, slots=True)
class Summary:
    """The parts of its time; of a tool what it was given and brought, of a call what it said.

    `requests` are its exchanges, see `exchanges_of_step`; `told` is what a kind of step of an
    agent's did, `server` the MCP server that a tool is of.
    """

    segments: tuple[timing.Segment, ...]
    call: ToolCall | None
    output: str
    output_size: int | None
    answer: received.ReceivedView | None
    requests: list[Row]
    told: kinds.Told | None = None
    server: str = ""


@dataclass(frozen=True, slots=True)
class ToolBody:
    """What a tool was given or brought; `size` in bytes where it is not all here."""

    call: ToolCall | None
    text: str
    size: int | None


def view_of(
    services: Services,
    found: StepCloseup,
    streams: Iterable[Stream] = (),
    *,
    tab: str = SUMMARY,
    as_it_is: bool = False,
    number: int = 1,
) -> StepView:
    """The view of a step; a tab that there is not is the summary.

    Of what was sent the page that has the message of this number is shown.
    """
    tab = tab if tab in TABS else SUMMARY
    shown = _sent(services, found, number) if tab == "sent" else _SHOWN[tab](services, found)
    return StepView(found, tab, as_it_is, tuple(streams), shown)


def bodies_of_tab(tab: str) -> Collection[str]:
    """The columns of a step whose bodies a tab shows; a tab that there is not is the summary."""
    return _BODIES.get(tab if tab in TABS else SUMMARY, ())


_BODIES = {
    SUMMARY: ("tool_input", "output_payload"),
    "sent": ("input_payload",),
    "received": ("output_payload",),
}

# -- one for each tab ------------------------------------------------------------------------------


def _summary(services: Services, found: StepCloseup) -> Summary:
    step = found.step
    segments = timing.segments_of(step, until())
    asked = requests.exchanges_of_step(services.store, step["id"])
    if step["step_type"] != "llm_call":
        tool = _tool(found, "input_payload", "output_payload")
        given = tool.call.arguments if tool.call is not None else ""
        told = kinds.told_of(step, given, tool.text)
        agent = services.agents.get(step["agent_name"] or "")
        server = servers_of(agent).get(step["name"] or "", "")
        return Summary(segments, tool.call, tool.text, tool.size, None, asked, told, server)
    return Summary(segments, None, "", None, _answer(found), asked)


def _sent(services: Services, found: StepCloseup, number: int) -> sent.SentView | ToolBody | None:
    step = found.step
    if step["step_type"] != "llm_call":
        return _tool(found, "input_payload")
    bodies = step_closeup.bodies_of(
        step, found.brought, _counter(services, step), sent.page_with(number)
    )
    if bodies.sent is None:
        return None
    return sent.view_of(bodies.sent, _tools_tokens(services, step, bodies.sent))


def _received(_: Services, found: StepCloseup) -> received.ReceivedView | ToolBody | None:
    if found.step["step_type"] != "llm_call":
        return _tool(found, "output_payload")
    return _answer(found)


def _changes(services: Services, found: StepCloseup) -> changes.ChangesView | None:
    step = found.step
    if not step["input_payload"]:
        return None
    previous, brought = steps.find_before_whole(services.store, step)
    if previous is None:
        return None
    keys = step["input_payload"], previous["input_payload"]
    bodies = step_closeup.sent_by(brought, _counter(services, step))
    if any(key not in bodies for key in keys):
        return None
    (now, listed), (before, listed_before) = (bodies[key] for key in keys)
    if not listed or not listed_before:
        return None
    compared = steps.compare(previous["id"], listed_before, listed)
    return changes.view_of(compared, step, previous, now, before)


def _attempts(_: Services, found: StepCloseup) -> Waterfall | None:
    return waterfall_of(found.attempts, until())


def _timing(services: Services, found: StepCloseup) -> timing.TimingView:
    log = requests.last_of_step(services.store, found.step["id"])
    return timing.view_of(found.step, log, until())


def _usage(services: Services, found: StepCloseup) -> usage.UsageView:
    step = found.step
    configured = services.config.config.providers
    provider = next((p for p in configured if p.name == step["provider_name"]), None)
    lines = services.prices.price_lines(step["model"], usage.usage_of(step), provider)
    return usage.view_of(step, lines)


def _raw(services: Services, found: StepCloseup) -> RequestView | None:
    last = requests.find_last_whole(services.store, found.step["id"])
    if last is None:
        return None
    log, brought = last
    return view_with(services.store, log, {key: body for key, (body, _) in brought.items()})


_SHOWN: Mapping[str, Callable[[Services, StepCloseup], Any]] = {
    SUMMARY: _summary,
    "received": _received,
    "changes": _changes,
    "attempts": _attempts,
    "timing": _timing,
    "usage": _usage,
    "raw": _raw,
}


# -- what several need -----------------------------------------------------------------------------


def _answer(found: StepCloseup) -> received.ReceivedView | None:
    step = found.step
    if step["status"] == "running":
        return None
    bodies = step_closeup.bodies_of({**step, "input_payload": None}, found.brought)
    return received.view_of(step, bodies.received)


def _counter(services: Services, step: Row) -> step_closeup.CountTokens:
    return lambda message: services.counter.count_message(message, step["model"])


def _tools_tokens(services: Services, step: Row, found: step_closeup.Sent) -> int | None:
    if found.tools is None or not isinstance(found.tools.value, list):
        return None
    return services.counter.count_tools(found.tools.value, step["model"])


def _tool(found: StepCloseup, *columns: str) -> ToolBody:
    """What a tool was given and what it brought, as far as these columns are asked for."""
    step = found.step
    bodies = {name: found.brought[step[name]][0] for name in columns if step[name] in found.brought}
    given, brought = bodies.get("input_payload"), bodies.get("output_payload", b"")
    text, size = cut_text(brought.decode(errors="replace"))
    call = _call(step, given) if "input_payload" in columns else None
    return ToolBody(call, text, size)


def _call(step: Row, given: bytes | None) -> ToolCall | None:
    told = (step["metadata"] or {}).get("arguments")
    if told is None and given is not None:
        told = cut_text(given.decode(errors="replace"))[0]
    if told is None:
        return None
    asked = {"id": step["tool_call_id"], "name": step["name"], "arguments": told}
    return calls_of({"tool_calls": [asked]})[0]
