"""One step on a page: its head, and the tab that is open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xgw import errors, spelling
from xgw.events import Envelope
from xgw.queries import step_closeup
from xgw.web.api.feed import Wanted
from xgw.web.live.screen import Swap
from xgw.web.live.streams import streams_of
from xgw.web.steps.view import SUMMARY, StepView, bodies_of_tab, view_of
from xgw.web.templating import render

if TYPE_CHECKING:
    from xgw.web.app import Services

PAUSE = 0.08

_AROUND = frozenset({"step.started", "step.completed", "llm.error"})
"""Of other steps of the turn: what changes the neighbours, and the attempts."""

_GROWING = frozenset({"summary", "received"})
"""Tabs in which the texts of a call under way grow."""


def load(
    services: Services,
    step_id: str,
    tab: str = SUMMARY,
    *,
    as_it_is: bool = False,
    number: int = 1,
) -> StepView | None:
    """The view of a step; None if there is no such step."""
    found = step_closeup.find(services.store, step_id, bodies=bodies_of_tab(tab))
    if found is None:
        return None
    streams = streams_of(services.recorder.live, found.step)
    return view_of(services, found, streams, tab=tab, as_it_is=as_it_is, number=number)


class StepScreen:
    """A page that shows one step: it watches the turn, for what comes after the step shows too."""

    pause = PAUSE

    def __init__(self, services: Services, query: Mapping[str, str]) -> None:
        self._services = services
        self._id, turn_id = query.get("id", ""), query.get("turn", "")
        if not self._id or not turn_id:
            raise errors.unprocessable("id and turn must name the step and its turn", param="id")
        self._tab = query.get("tab", SUMMARY)
        self._as_it_is = query.get("raw") == "1"
        self.wanted = Wanted(turn_id=turn_id)
        self._places: set[tuple[str, int]] = set()
        self._progress: dict[str, Any] | None = None
        self._head = self._body = False

    def note(self, envelope: Envelope) -> None:
        """Of this step, or of one beside it."""
        if envelope.step_id != self._id:
            self._head |= envelope.type in _AROUND
            self._body |= envelope.type in _AROUND and self._tab == "attempts"
        elif envelope.type == "step.progress":
            is_call = "output_tokens" in envelope.payload  # a tool has a clock, and nothing else
            self._progress = envelope.payload if is_call else None
        elif envelope.type == "step.delta":
            self._note_place((envelope.payload["kind"], envelope.payload["index"]))
        else:
            self._head = True
            # What was sent is there from the beginning: the pages that were loaded of it stay.
            self._body |= self._tab != "sent"

    def _note_place(self, place: tuple[str, int]) -> None:
        """The first piece of a text: it gets a place."""
        if place not in self._places and self._tab in _GROWING:
            self._places.add(place)
            self._body = True

    def draw(self) -> list[Swap]:
        """The head and the tab, read once, and how far the call is."""
        swaps = self._draw_view() if self._head or self._body else []
        told, self._progress = self._progress, None
        return swaps if told is None else swaps + self._draw_progress(told)

    def _draw_progress(self, told: Mapping[str, Any]) -> list[Swap]:
        texts = {
            "now": render("turns/_progress.html", progress=told),
            "sofar": spelling.count(told["output_tokens"], "estimated"),
            "first": spelling.duration(told["ttft_ms"]),
        }
        return [Swap(f"{name}-{self._id}", text, "innerHTML") for name, text in texts.items()]

    def _draw_view(self) -> list[Swap]:
        head, body = self._head, self._body
        self._head = self._body = False
        view = load(self._services, self._id, self._tab, as_it_is=self._as_it_is)
        if view is None:
            return []
        swaps = []
        if head:
            swaps.append(Swap(f"head-{self._id}", render("steps/_head.html", view=view)))
        if body:
            html = render(f"steps/_{view.tab}.html", view=view)
            swaps.append(Swap(f"step-{self._id}", html))
        return swaps
