"""A page about one thing: a head, fields, sections, and texts that are cut where they are long."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from xgw import clock
from xgw.cli import texts
from xgw.cli.terminal import Role, Screen
from xgw.queries.wording import served_words

LABEL = 12
SCRIPTED = "scripted, no model"
SHORT_TEXT = 12
"""Lines that are shown of a long text."""


@dataclass
class Page:
    """Lines on their way to stdout; `full` shows every text whole.

    `demos` are the providers behind which there is no model. `exported_at` is of what is imported:
    work under way is shown as it was then.
    """

    screen: Screen
    full: bool = False
    demos: frozenset[str] = frozenset()
    lines: list[str] = field(default_factory=list)
    exported_at: datetime.datetime | None = None

    @property
    def until(self) -> datetime.datetime:
        """The moment up to which work under way is shown."""
        return self.exported_at or clock.now()

    @property
    def width(self) -> int:
        """How wide text is set."""
        return self.screen.page_width

    def head(self, title: str, state: str = "", role: Role = "plain") -> None:
        """The first line: what it is, and its state at the right."""
        room = self.width - texts.cells(state) - (2 if state else 0)
        named = texts.one_line(title, room)
        gap = " " * (self.width - texts.cells(named) - texts.cells(state))
        paint = self.screen.paint
        self.lines.append((paint(named, "name") + gap + paint(state, role)).rstrip())

    def served(self, provider: str | None, model: str | None) -> str:
        """Provider and model, and that it is the demo where it is."""
        name = served_words(provider, model)
        return f"{name} ({SCRIPTED})" if provider in self.demos else name

    def field(self, label: str, value: str | None, role: Role = "plain") -> None:
        """A label and its value, which is wrapped; nothing where there is no value."""
        if not value:
            return
        wrapped = texts.wrap(texts.one_line(value, 4000), self.width - LABEL)
        for number, line in enumerate(wrapped):
            name = self.screen.paint(f"{label if number == 0 else '':<{LABEL}}", "faint")
            self.lines.append(name + self.screen.paint(line, role))

    def section(self, title: str, note: str = "") -> None:
        """The title of what follows."""
        if self.lines and self.lines[-1]:
            self.lines.append("")
        noted = texts.one_line(note, max(0, self.width - texts.cells(title) - 2))
        tail = f"  {self.screen.paint(noted, 'faint')}" if note else ""
        self.lines.append(self.screen.paint(title, "name") + tail)

    def line(self, text: str, indent: int = 2, role: Role = "plain") -> None:
        """One line, cut to the width."""
        cut = texts.one_line(text, self.width - indent)
        self.lines.append(" " * indent + self.screen.paint(cut, role))

    def add(self, lines: Iterable[str]) -> None:
        """Lines that are ready."""
        self.lines.extend(lines)

    def text(
        self,
        text: str,
        indent: int = 2,
        role: Role = "plain",
        most: int = SHORT_TEXT,
        mark: str = "",
    ) -> None:
        """A recorded text, wrapped, after `mark`; cut to `most` lines with a hint."""
        margin = " " * (indent + len(mark))
        cut = texts.excerpt(text, self.width - len(margin), None if self.full else most)
        for number, line in enumerate(cut.lines):
            before = " " * indent + mark if number == 0 else margin
            self.lines.append((before + self.screen.paint(line, role)).rstrip())
        if cut.hidden:
            hint = f"… {cut.hidden:,} characters more (--full shows all)"
            self.lines.append(margin + self.screen.paint(hint, "faint"))

    def json(self, value: Any, indent: int = 2, most: int = SHORT_TEXT) -> None:
        """A JSON value, set out; a text as it is."""
        if isinstance(value, str):
            self.text(value, indent, most=most)
        else:
            self.text(spelled_json(value), indent, most=most)

    def pairs(self, pairs: Sequence[Sequence[str]], indent: int = 2) -> None:
        """Names and values, such as headers."""
        for name, value in pairs:
            self.text(f"{name}: {value}", indent, most=2)


def spelled_json(value: Any) -> str:
    """A JSON value as text: on one line while that is short."""
    line = orjson.dumps(value).decode()
    return line if len(line) <= 60 else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
