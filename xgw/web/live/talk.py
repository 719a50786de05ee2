"""What events change in the turns that a page shows: which panels, which entries, what progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xgw import spelling
from xgw.events import Envelope
from xgw.queries import messages
from xgw.web.conversation import Entry, entries_of
from xgw.web.live.screen import Swap
from xgw.web.live.streams import growth_of
from xgw.web.templating import render
from xgw.web.words import adds

if TYPE_CHECKING:
    from xgw.web.app import Services
    from xgw.web.turnview import TurnView

Row = Mapping[str, Any]

_OF_RUNS = frozenset({"run.started", "run.completed"})
_OF_STEPS = frozenset({"step.completed", "llm.error", "tool.requested", "tool.approval_decided"})


@dataclass(slots=True)
class Changes:
    """What changed in one turn: steps and messages by id, True for those not on the page yet."""

    steps: dict[str, bool] = field(default_factory=dict)
    messages: dict[str, bool] = field(default_factory=dict)

    def note(self, found: dict[str, bool], id: str, *, is_new: bool) -> None:
        found[id] = found.get(id, False) or is_new


class Talk:
    """The changes of all turns that a page shows, and how they are drawn."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._places: set[tuple[str, str, int]] = set()
        self._progress: dict[str, dict[str, Any]] = {}
        self._ahead: set[str] = set()
        """Entries that were drawn with their turn: events may still be to tell of them."""
        self.turns: dict[str, Changes] = defaultdict(Changes)
        self.stored: set[str] = set()
        """Turns of which a stored event told."""
        self.restated: set[str] = set()
        """Turns in which a run began or ended: what they show may be another run's."""

    def note(self, envelope: Envelope) -> None:
        """Remember what an event of a turn changes."""
        turn_id, step_id = envelope.turn_id, envelope.step_id
        if turn_id is None:
            return
        if envelope.seq is not None:
            self.stored.add(turn_id)
        elif step_id is not None:
            self._note_growth(turn_id, step_id, envelope)
            return
        changes = self.turns[turn_id]
        if envelope.type in _OF_RUNS:
            self.restated.add(turn_id)
        if envelope.type == "message.added" and step_id is None:
            changes.note(changes.messages, envelope.payload["message_id"], is_new=True)
        elif step_id is None:
            return
        elif envelope.type == "step.started":
            changes.note(changes.steps, step_id, is_new=True)
        elif envelope.type == "message.added" or envelope.type in _OF_STEPS:
            changes.note(changes.steps, step_id, is_new=False)

    def _note_growth(self, turn_id: str, step_id: str, envelope: Envelope) -> None:
        """What is not stored. The first piece of a text makes its entry get a place for it; no
        later one has anything drawn, so that none costs a reading."""
        payload = envelope.payload
        if envelope.type == "step.progress":
            if "output_tokens" in payload:  # a tool has a clock, and nothing else to tell
                self._progress[step_id] = payload
        elif envelope.type == "step.delta":
            place = (step_id, payload["kind"], payload["index"])
            if place not in self._places:
                self._places.add(place)
                changes = self.turns[turn_id]
                changes.note(changes.steps, step_id, is_new=False)

    def draw_entries(self, view: TurnView) -> list[Swap]:
        """The entries of a turn that changed, new ones at the end of the others; all of them where
        they may be another run's."""
        turn_id = view.turn["id"]
        changes = self.turns.pop(turn_id, None)
        self.stored.discard(turn_id)
        if turn_id in self.restated and len(view.runs) > 1:
            entries = load_entries(self._services, view)
            self._ahead.update(map(_id_of, entries))
            html = render("turns/_entries.html", turn_id=turn_id, entries=entries)
            return [Swap(f"entries-{turn_id}", html)]
        if changes is None or not (changes.steps or changes.messages):
            return []
        found = load_entries(self._services, view, changes)
        return [self._swap(view, changes, entry) for entry in found]

    def _swap(self, view: TurnView, changes: Changes, entry: Entry) -> Swap:
        html = render("turns/_entry.html", entry=entry)
        known = changes.steps if entry.step is not None else changes.messages
        if known.get(_id_of(entry)) and _id_of(entry) not in self._ahead:
            return Swap(f"entries-{view.turn['id']}", html, "beforeend")
        return Swap(entry.id, html)

    def draw_progress(self) -> list[Swap]:
        """How far the steps under way are: in their entries, and in the line of truth."""
        told, self._progress = self._progress, {}
        swaps = []
        for step_id, payload in told.items():
            words = render("turns/_progress.html", progress=payload)
            sofar = spelling.count(payload["output_tokens"], "estimated")
            swaps.append(Swap(f"progress-{step_id}", words, "innerHTML"))
            swaps.append(Swap(f"now-{step_id}", words, "innerHTML"))
            swaps.append(Swap(f"sofar-{step_id}", sofar, "innerHTML"))
            swaps.append(Swap(f"more-{step_id}", adds(payload, "output_tokens"), "innerHTML"))
            in_all = adds(payload, "input_tokens", "output_tokens")
            swaps.append(Swap(f"adds-{step_id}", in_all, "innerHTML"))
        return swaps

    def drop(self, turn_id: str, entries: Sequence[Entry]) -> None:
        """A turn has just been drawn whole, as the store has it: it may be ahead of the events."""
        self.turns.pop(turn_id, None)
        self.restated.discard(turn_id)
        self._ahead.update(map(_id_of, entries))

    def forget(self) -> None:
        """Drop what nobody is to see: a page shows some turns, its session may have others."""
        self.turns.clear()
        self.stored.clear()
        self.restated.clear()
        for remembered in (self._places, self._ahead):
            if len(remembered) > 10_000:
                remembered.clear()


def _id_of(entry: Entry) -> str:
    id: str = entry.step["id"] if entry.step is not None else entry.messages[0]["id"]
    return id


def load_entries(services: Services, view: TurnView, changes: Changes | None = None) -> list[Entry]:
    """The entries that a turn shows, all of them or those that changed, in order."""
    _, steps = view.seen(())
    if changes is not None:
        steps = [step for step in steps if step["id"] in changes.steps]
    found = messages.shown_of_turn(
        services.store,
        view.turn["id"],
        ids=None if changes is None else list(changes.messages),
        step_ids=[step["id"] for step in steps],
    )
    said, _ = view.seen(found)
    return _entries(services, view, said, steps)


def entries_with(services: Services, view: TurnView, messages: Sequence[Row]) -> list[Entry]:
    """The entries that a turn shows, of all of its messages."""
    said, steps = view.seen(messages)
    return _entries(services, view, said, steps)


def _entries(
    services: Services, view: TurnView, said: Sequence[Row], steps: Sequence[Row]
) -> list[Entry]:
    _, among = view.seen(())
    placed = entries_of(said, steps, lambda step: growth_of(services.recorder.live, step), among)
    return placed.get(view.turn["id"], [])
