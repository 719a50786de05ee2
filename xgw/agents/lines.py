"""The turns of each session in this process: the one that runs, and those that wait behind it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from xgw.agents.turns import Turn


@dataclass(slots=True, eq=False)
class Line:
    """One session's turns; what is decided about them is decided under its lock."""

    session_id: str
    lock: threading.RLock = field(default_factory=threading.RLock)
    active: Turn | None = None
    waiting: deque[Turn] = field(default_factory=deque)
    in_use: int = 0

    def find_waiting(self, turn_id: str) -> Turn | None:
        """The turn of this id, if it waits."""
        return next((turn for turn in self.waiting if turn.scope.turn_id == turn_id), None)

    def has(self, turn_id: str) -> bool:
        """Whether the turn of this id runs or waits here."""
        is_active = self.active is not None and self.active.scope.turn_id == turn_id
        return is_active or self.find_waiting(turn_id) is not None


class Lines:
    """The lines that are in use, by session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}

    def take(self, session_id: str) -> Line:
        """The line of a session; give it back with `release`."""
        with self._lock:
            line = self._lines.setdefault(session_id, Line(session_id))
            line.in_use += 1
            return line

    def release(self, line: Line) -> None:
        """Whoever took it needs it no more; with nothing in it, it is forgotten."""
        with self._lock:
            line.in_use -= 1
            if not line.in_use and not line.waiting:
                self._lines.pop(line.session_id, None)

    def hold(self, line: Line) -> None:
        """Someone else needs it too, and will release it."""
        with self._lock:
            line.in_use += 1

    def find(self, session_id: str) -> Line | None:
        """The line of a session, if there is one."""
        return self._lines.get(session_id)

    def all(self) -> list[Line]:
        """Every line in use."""
        with self._lock:
            return list(self._lines.values())
