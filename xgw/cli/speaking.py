"""What a turn says while it runs: its text to stdout, what happens in it to stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from xgw.cli import texts
from xgw.cli.terminal import note

Event = Mapping[str, Any]

UNTOLD = frozenset(
    {"step.delta", "step.progress", "session.updated", "run.updated", "message.added"}
)
"""Events that `--details` leaves out: they say what others say too."""


class Speaker:
    """Says one turn. `spell` makes a line of an event for `--details`; None tells nothing.

    `quiet` leaves the text out.
    """

    def __init__(self, spell: Callable[[Event], str] | None, *, quiet: bool) -> None:
        self._spell = spell
        self._quiet = quiet
        self._is_terminal = sys.stdout.isatty()
        self._step: str | None = None
        self._call: str | None = None
        self._others: set[str | None] = set()
        """Calls of other agents, whose answers are not the turn's."""
        self._said = ""
        self._midline = False

    def hear(self, event: Event) -> None:
        """Say what matters of an event."""
        type, payload = event["type"], event["payload"]
        if type == "step.started" and payload.get("parent_step_id"):
            self._others.add(event["step_id"])
        elif type == "step.started" and payload.get("step_type") == "llm_call":
            self._call = event["step_id"]
        if type == "step.delta" and payload["kind"] == "text" and not payload["index"]:
            self._hear_text(event["step_id"], payload)
        if self._spell is not None and type not in UNTOLD:
            self._tell(self._spell(event))

    def finish(self, content: str | None) -> None:
        """The turn is over with this answer: say what of it has not been said, end the line."""
        if self._call != self._step:
            self._begin(self._call)
        if content and content.startswith(self._said):
            self._say(content[len(self._said) :])
        self._end_line()

    def _hear_text(self, step_id: str, payload: Mapping[str, Any]) -> None:
        if step_id in self._others:
            return
        if step_id != self._step:
            self._begin(step_id)
        text: str = payload["text"]
        # A whole text so far comes where pieces were lost; what of it was said is not said again.
        self._say(text[max(0, len(self._said) - (payload["text_length"] - len(text))) :])

    def _begin(self, step_id: str | None) -> None:
        self._step, self._said = step_id, ""
        self._end_line()

    def _say(self, text: str) -> None:
        if not text or self._quiet:
            return
        self._said += text
        self._midline = not text.endswith("\n")
        sys.stdout.write(texts.harmless(text) if self._is_terminal else text)
        sys.stdout.flush()

    def _end_line(self) -> None:
        if self._midline:
            self._midline = False
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _tell(self, line: str) -> None:
        # On a terminal both are seen in one place, and the text may stand in mid-line.
        if self._midline and self._is_terminal and sys.stderr.isatty():
            sys.stderr.write("\n")
            self._midline = False
        note(line)
