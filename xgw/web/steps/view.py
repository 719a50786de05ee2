"""A step as its page shows it: its head, and what the tab that is open shows, read for it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xgw import clock
from xgw.queries import payloads, requests, step_closeup, steps
from xgw.queries.cuts import cut_text
from xgw.queries.pages import Row
from xgw.queries.step_closeup import StepCloseup
from xgw.web.requestview import RequestView, load_view
from xgw.web.steps import changes, received, sent, timing, usage
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
    """The parts of its time; of a tool what it was given and brought, of a call what it said."""

    segments: tuple[timing.Segment, ...]
    call: ToolCall | None
    output: str
    output_size: int | None
    answer: received.ReceivedView | None


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
) -> StepView:
    """The view of a step; a tab that there is not is the summary."""
    tab = tab if tab in TABS else SUMMARY
    return StepView(found, tab, as_it_is, tuple(streams), _SHOWN[tab](services, found))


# -- one for each tab ------------------------------------------------------------------------------


def _summary(services: Services, found: StepCloseup) -> Summary:
    step = found.step
    segments = timing.segments_of(step, clock.now())
    if step["step_type"] != "llm_call":
        call, output = _arguments(services, step), _tool_output(services, step)
        return Summary(segments, call, output.text, output.size, None)
    return Summary(segments, None, "", None, _answer(services, step))


def _sent(services: Services, found: StepCloseup) -> sent.SentView | ToolBody | None:
    step = found.step
    if step["step_type"] != "llm_call":
        return ToolBody(_arguments(services, step), "", None)
    bodies = step_closeup.read_bodies(
        services.store, {**step, "output_payload": None}, _counter(services, step)
    )
    if bodies.sent is None:
        return None
    return sent.view_of(bodies.sent, _tools_tokens(services, step, bodies.sent))


def _received(services: Services, found: StepCloseup) -> received.ReceivedView | ToolBody | None:
    if found.step["step_type"] != "llm_call":
        return _tool_output(services, found.step)
    return _answer(services, found.step)


def _changes(services: Services, found: StepCloseup) -> changes.ChangesView | None:
    step, store = found.step, services.store
    compared = steps.find_changes(store, step)
    previous = steps.find_step(store, compared.previous_step_id) if compared else None
    if compared is None or previous is None:
        return None
    now, before = step["input_payload"], previous["input_payload"]
    bodies = step_closeup.read_sent(store, {now, before}, _counter(services, step))
    if now not in bodies or before not in bodies:
        return None
    return changes.view_of(compared, step, previous, bodies[now], bodies[before])


def _attempts(_: Services, found: StepCloseup) -> Waterfall | None:
    return waterfall_of(found.attempts, clock.now())


def _timing(services: Services, found: StepCloseup) -> timing.TimingView:
    return timing.view_of(found.step, _exchange(services, found), clock.now())


def _usage(services: Services, found: StepCloseup) -> usage.UsageView:
    step = found.step
    configured = services.config.config.providers
    provider = next((p for p in configured if p.name == step["provider_name"]), None)
    lines = services.prices.price_lines(step["model"], usage.usage_of(step), provider)
    return usage.view_of(step, lines)


def _raw(services: Services, found: StepCloseup) -> RequestView | None:
    log = _exchange(services, found)
    return load_view(services.store, log) if log is not None else None


_SHOWN: Mapping[str, Callable[[Services, StepCloseup], Any]] = {
    SUMMARY: _summary,
    "sent": _sent,
    "received": _received,
    "changes": _changes,
    "attempts": _attempts,
    "timing": _timing,
    "usage": _usage,
    "raw": _raw,
}


# -- what several need -----------------------------------------------------------------------------


def _exchange(services: Services, found: StepCloseup) -> Row | None:
    """The exchange of this attempt, whole."""
    if not found.requests:
        return None
    return requests.find_request(services.store, found.requests[-1]["id"])


def _answer(services: Services, step: Row) -> received.ReceivedView | None:
    if step["status"] == "running":
        return None
    bodies = step_closeup.read_bodies(services.store, {**step, "input_payload": None})
    return received.view_of(step, bodies.received)


def _counter(services: Services, step: Row) -> step_closeup.CountTokens:
    return lambda message: services.counter.count_message(message, step["model"])


def _tools_tokens(services: Services, step: Row, found: step_closeup.Sent) -> int | None:
    if found.tools is None or not isinstance(found.tools.value, list):
        return None
    return services.counter.count_tools(found.tools.value, step["model"])


def _arguments(services: Services, step: Row) -> ToolCall | None:
    """What a tool was given, where that was kept."""
    told = (step["metadata"] or {}).get("arguments")
    if told is None and step["input_payload"]:
        body = payloads.find_body(services.store, step["input_payload"])
        told = None if body is None else cut_text(body.decode(errors="replace"))[0]
    if told is None:
        return None
    asked = {"id": step["tool_call_id"], "name": step["name"], "arguments": told}
    return calls_of({"tool_calls": [asked]})[0]


def _tool_output(services: Services, step: Row) -> ToolBody:
    key = step["output_payload"]
    body = payloads.find_body(services.store, key) if key else None
    text, size = cut_text((body or b"").decode(errors="replace"))
    return ToolBody(None, text, size)
