"""One turn on a page: its panel, and what was said and done in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from xgw import errors
from xgw.events import Envelope
from xgw.queries import events, panels
from xgw.web.agents import servers_of
from xgw.web.api.feed import Wanted
from xgw.web.decisions import Refused
from xgw.web.live.screen import Swap
from xgw.web.live.talk import Talk
from xgw.web.stops import NO_LIMITS
from xgw.web.templating import render
from xgw.web.turnview import TurnView, view_of
from xgw.web.windows import window_of_call, window_of_model

if TYPE_CHECKING:
    from xgw.web.app import Services

Row = Mapping[str, Any]

PAUSE = 0.08


def load(
    services: Services, turn_id: str, *, run_id: str | None = None, csrf: str = ""
) -> TurnView | None:
    """The view of a turn, in two statements, an agent's in four; None if there is none."""
    found = panels.find(services.store, turn_id)
    if found is None:
        return None
    return view_with(services, found.turn, found.config, run_id=run_id, csrf=csrf)


def view_with(
    services: Services,
    turn: Row,
    config: Any,
    *,
    run_id: str | None = None,
    csrf: str = "",
    refused: Refused | None = None,
    from_step: str = "",
) -> TurnView:
    """The view of a turn with its `runs`; `config` is the agent as the turn began with it."""
    kept: Row = config if isinstance(config, dict) else {}
    own_window = (kept.get("context") or {}).get("window")

    def window_of(call: Row) -> int | None:
        if turn["endpoint"] is None:
            return own_window or window_of_call(services, call)
        return window_of_model(services, turn["final_provider_name"], turn["final_model"])

    return view_of(
        turn,
        tool_wait_seconds=services.config.config.gateway.tool_wait_seconds,
        window_of=window_of,
        run_id=run_id,
        csrf=csrf,
        limits=kept.get("limits") or NO_LIMITS,
        progress_of=services.recorder.live.progress_of,
        failure_of=partial(events.newest_failure, services.store, turn["id"]),
        config=kept,
        refused=refused,
        from_step=from_step,
        servers=servers_of(services.agents.get(turn["agent_name"] or "")),
    )


def panel(view: TurnView) -> Swap:
    """The panel as it is now."""
    html = render("turns/_panel.html", view=view)
    return Swap(f"turn-{view.turn['id']}", html)


class TurnScreen:
    """A page that shows one turn."""

    pause = PAUSE

    def __init__(self, services: Services, query: Mapping[str, str]) -> None:
        self._services = services
        self._id = query.get("id", "")
        self._run_id = query.get("run") or None
        self._csrf = query.get("csrf", "")
        if not self._id:
            raise errors.unprocessable("id must name the turn", param="id")
        self.wanted = Wanted(turn_id=self._id)
        self._talk = Talk(services)

    def note(self, envelope: Envelope) -> None:
        """Of this turn."""
        self._talk.note(envelope)

    def draw(self) -> list[Swap]:
        """The panel and the entries, read once."""
        swaps: list[Swap] = []
        if self._id in self._talk.stored or self._id in self._talk.turns:
            is_stored = self._id in self._talk.stored
            view = load(self._services, self._id, run_id=self._run_id, csrf=self._csrf)
            if view is not None:
                swaps += self._talk.draw_entries(view)
                swaps += [panel(view)] if is_stored else []
        self._talk.forget()
        return swaps + self._talk.draw_progress()
