"""One session on a page: its head, its turns, the conversation, the panel of one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xgw import errors
from xgw.events import Envelope
from xgw.queries import history, overview
from xgw.queries.agents import list_open
from xgw.queries.overview import Head
from xgw.queries.pages import Page, Row
from xgw.queries.snapshot import snapshot
from xgw.web.api.feed import Wanted
from xgw.web.composer import Line, line_of
from xgw.web.conversation import Entry, entries_of
from xgw.web.live.screen import Swap
from xgw.web.live.streams import growth_of
from xgw.web.live.talk import Talk, load_entries
from xgw.web.live.turns import PAUSE, load, panel, view_with
from xgw.web.runview import seen_in
from xgw.web.sessionview import Block, SessionView
from xgw.web.templating import render
from xgw.web.turnview import TurnView
from xgw.web.windows import window_of_session

if TYPE_CHECKING:
    from xgw.web.app import Services

TURNS = 20
ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class Whole:
    """Everything that the page of a session shows; `panel` is None before its first turn.

    `before` are the messages of an older store that belong to no turn, where the oldest turns are
    shown, `is_cut` if there are more of them. `line` is what goes on in an agent's session;
    `newest` the `seq` of the newest event then.
    """

    view: SessionView
    window: history.Window
    blocks: list[Block]
    panel: TurnView | None
    line: Line
    newest: int
    before: Sequence[Entry] = ()
    is_cut: bool = False


def load_whole(
    services: Services, ref: str, *, turn: str, cursor: str | None, csrf: str
) -> Whole | None:
    """The page of the session that `ref` names; None if there is none.

    `turn` is the id of the one in the panel, or `active`; `cursor` that of a page of older turns.
    """
    with snapshot(services.store):
        head = overview.find_session(services.store, ref)
        if head is None:
            return None
        window = _window(services, head.session["id"], turn, cursor)
        before, is_cut = _before(services, head.session, window)
    said, steps = seen_in(window.runs, window.messages, window.steps)
    found = entries_of(
        said,
        steps,
        lambda step: growth_of(services.recorder.live, step),
    )
    blocks = [Block(line, found.get(line["id"], [])) for line in reversed(window.turns)]
    chosen = window.chosen
    for line in window.turns:
        line["is_chosen"] = chosen is not None and line["id"] == chosen["id"]
    view = view_with(services, chosen, window.config, csrf=csrf) if chosen else None
    return Whole(
        _head_view(services, head, csrf),
        window,
        blocks,
        view,
        line_of(head.session["id"], window.waiting, csrf),
        head.newest,
        before,
        is_cut,
    )


def _before(
    services: Services, session: Row, window: history.Window
) -> tuple[Sequence[Entry], bool]:
    """What was said before turns existed; only imported sessions can have any."""
    if session["source"] != "import" or window.older:
        return (), False
    rows, is_cut = history.said_before_turns(services.store, session["id"])
    found = entries_of(rows, [], lambda step: growth_of(services.recorder.live, step))
    return [entry for entries in found.values() for entry in entries], is_cut


def load_head(services: Services, session_id: str, csrf: str) -> SessionView | None:
    """The head of a session, in one statement; None if there is none."""
    head = overview.find_session(services.store, session_id)
    return None if head is None else _head_view(services, head, csrf)


def _head_view(services: Services, head: Head, csrf: str) -> SessionView:
    row = head.session
    window = window_of_session(services, row)
    title = row["title"] or head.overview.title
    return SessionView(row, head.overview, title, window, csrf, head.plan)


def load_line(services: Services, session_id: str, csrf: str) -> Line:
    """What runs and what waits in an agent's session, in one statement."""
    return line_of(session_id, list_open(services.store, session_id), csrf)


def _window(services: Services, session_id: str, turn: str, cursor: str | None) -> history.Window:
    if cursor is None and turn not in ("", ACTIVE):
        return history.read_around(services.store, session_id, turn, TURNS)
    return history.read(services.store, session_id, Page(TURNS, cursor), turn)


class SessionScreen:
    """A page that shows one session, from its newest turn on."""

    pause = PAUSE

    def __init__(self, services: Services, query: Mapping[str, str]) -> None:
        self._services = services
        self._id = query.get("id", "")
        if not self._id:
            raise errors.unprocessable("id must name the session", param="id")
        self._follows = query.get("turn", "") in ("", ACTIVE)
        self._shown = query.get("shown") or None
        self._csrf = query.get("csrf", "")
        self._talk = Talk(services)
        self._begun: dict[str, bool] = {}
        """Turns that are new: True where the page has them already, as ones that wait."""
        self._left: set[str] = set()
        self._is_newest = query.get("newer", "") == ""
        self.wanted = Wanted(session_id=self._id)

    def note(self, envelope: Envelope) -> None:
        """Of this session."""
        self._talk.note(envelope)
        if envelope.type in ("turn.started", "turn.queued") and envelope.turn_id:
            is_start = envelope.type == "turn.started"
            self._begun.setdefault(envelope.turn_id, is_start)

    def draw(self) -> list[Swap]:
        """The turns that changed, and the head with them."""
        stored = set(self._talk.stored)
        swaps = self._draw_begun() if self._begun else []
        for turn_id in [*self._talk.turns]:
            swaps += self._draw_turn(turn_id, turn_id in stored)
        if stored:
            swaps += self._draw_lines(stored) + self._draw_head()
        self._talk.forget()
        return swaps + self._talk.draw_progress()

    def _draw_begun(self) -> list[Swap]:
        """Turns that are new on the page come whole: what is inside of them has no place before."""
        begun, self._begun = self._begun, {}
        if not self._is_newest:
            return []
        swaps = [Swap("conversation-empty", style="delete")]
        for line in history.find_lines(self._services.store, begun):
            view = load(self._services, line["id"], csrf=self._csrf)
            if view is None:
                continue
            is_there = begun[line["id"]] and line["queued_at"] is not None
            swaps += self._draw_whole(view, line, is_there=is_there)
        return swaps

    def _draw_whole(self, view: TurnView, line: Row, *, is_there: bool) -> list[Swap]:
        """A turn with its line at the left; the panel goes on to one that has begun."""
        id, swaps = line["id"], []
        follows = self._follows and (line["state"] != "queued" or self._shown is None)
        block = Block(line, load_entries(self._services, view))
        self._talk.drop(id, block.entries)
        html = render("sessions/_turn_block.html", block=block)
        swaps.append(Swap(f"block-{id}", html) if is_there else _added("conversation", html))
        line["is_chosen"] = follows
        html = render("sessions/_turn_line.html", line=line)
        swaps.append(Swap(f"line-{id}", html) if is_there else _added("turn-list", html))
        if follows:
            self._choose(id)
            swaps.append(Swap("side", panel(view).html, "innerHTML"))
        return swaps

    def _choose(self, turn_id: str) -> None:
        """The panel goes on to this turn; the line of the one before is drawn anew."""
        if self._shown is not None:
            self._left.add(self._shown)
        self._shown = turn_id

    def _draw_turn(self, turn_id: str, is_stored: bool) -> list[Swap]:
        view = load(self._services, turn_id, csrf=self._csrf)
        if view is None:
            return []
        swaps = self._talk.draw_entries(view)
        # The panel that is shown; before anything has begun here, of whichever turn goes on.
        if is_stored and self._shown in (None, turn_id):
            swaps.append(panel(view))
        return swaps

    def _draw_lines(self, turn_ids: set[str]) -> list[Swap]:
        swaps = []
        left, self._left = self._left, set()
        for line in history.find_lines(self._services.store, turn_ids | left):
            line["is_chosen"] = line["id"] == self._shown
            swaps.append(Swap(f"line-{line['id']}", render("sessions/_turn_line.html", line=line)))
            swaps.append(Swap(f"foot-{line['id']}", render("sessions/_turn_foot.html", line=line)))
        return swaps

    def _draw_head(self) -> list[Swap]:
        view = load_head(self._services, self._id, self._csrf)
        if view is None:
            return []
        row = view.session
        swaps = [Swap(f"session-{row['id']}", render("sessions/_head.html", view=view))]
        if row["kind"] == "agent":
            line = load_line(self._services, row["id"], self._csrf)
            swaps.append(Swap(f"waiting-{row['id']}", render("sessions/_waiting.html", line=line)))
        return swaps


def _added(target: str, html: str) -> Swap:
    return Swap(target, html, "beforeend")
