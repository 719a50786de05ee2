"""Where results go: how wide it is, whether it takes colour, and JSON that is safe to look at."""

from __future__ import annotations

import os
import re
import select
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TextIO

import click
import orjson

Role = Literal["plain", "name", "faint", "good", "bad", "busy", "waiting", "paused", "accent"]

PAGE_WIDTH = 80
WIDEST_PAGE = 110

_STYLES: dict[Role, dict[str, Any]] = {
    "name": {"bold": True},
    "faint": {"dim": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "busy": {"fg": "blue"},
    "waiting": {"fg": "yellow"},
    "paused": {"fg": "magenta"},
    "accent": {"fg": "cyan"},
}

STATE_ROLES: dict[str, Role] = {
    "running": "busy",
    "waiting_tool": "waiting",
    "waiting": "waiting",
    "paused": "paused",
    "success": "good",
    "done": "good",
    "error": "bad",
}
"""The colour of a state; others are faint."""

# orjson writes these as they are; inside JSON they can only be parts of strings.
_INVISIBLE = re.compile("[\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


@dataclass(frozen=True, slots=True)
class Screen:
    """Stdout: `width` in cells, None where it is no terminal and lines may be of any length."""

    width: int | None
    colour: bool

    @property
    def page_width(self) -> int:
        """How wide text is set."""
        return min(self.width or PAGE_WIDTH, WIDEST_PAGE)

    def paint(self, text: str, role: Role) -> str:
        """The text in the colour of its role, where there are colours."""
        style = _STYLES.get(role)
        return click.style(text, **style) if self.colour and style and text else text


def stdout() -> Screen:
    """Stdout as it is: colour and a limited width on a terminal alone."""
    return _screen(sys.stdout)


def stderr() -> Screen:
    """Stderr, likewise."""
    return _screen(sys.stderr)


def _screen(out: TextIO) -> Screen:
    if not out.isatty():
        return Screen(None, False)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Screen(max(40, shutil.get_terminal_size().columns), not plain)


def role_of(state: str | None) -> Role:
    """The colour of a state."""
    return STATE_ROLES.get(state or "", "faint")


def write(lines: Iterable[str]) -> None:
    """Lines to stdout, at once."""
    text = "".join(f"{line}\n" for line in lines)
    if text:
        click.echo(text, nl=False, color=True)


def when_stdout_closes(call: Callable[[], object]) -> None:
    """Have it called, in a thread, once whoever reads the pipe of stdout has gone.

    A write would tell too, but only once there is something to be said. Systems without poll()
    are left with that.
    """
    try:
        number = sys.stdout.fileno()
        mode = os.fstat(number).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)) or not hasattr(select, "poll"):
        return
    poll = select.poll()
    poll.register(number, 0)  # what cannot be asked for comes all the same: POLLERR, POLLHUP

    def watch() -> None:
        if poll.poll():
            call()

    threading.Thread(target=watch, name="stdout", daemon=True).start()


def note(line: str) -> None:
    """Something that is no result: to stderr."""
    click.echo(line, err=True)


def write_json(value: object) -> None:
    """One JSON document on stdout, in which nothing is invisible."""
    click.echo(_visible(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))


def write_json_lines(values: Iterable[object]) -> None:
    """One JSON value a line on stdout."""
    write(_visible(orjson.dumps(value).decode()) for value in values)


def _visible(text: str) -> str:
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
