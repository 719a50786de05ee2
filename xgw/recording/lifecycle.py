"""The state machines of turns, runs and steps, as tables: whatever decides a status is here."""

from __future__ import annotations

from functools import cache
from typing import Literal

from xgw.errors import ILLEGAL_MOVE, ApiError

Noun = Literal["turn", "run", "step"]

ENDED = frozenset({"success", "error", "cancelled"})

MOVES: dict[str, dict[str, frozenset[str]]] = {
    "turn": {
        "queued": frozenset({"running", "cancelled"}),
        "running": ENDED,
    },
    "run": {
        "queued": frozenset({"running", "cancelled"}),
        "running": frozenset({"waiting_tool", "paused"}) | ENDED,
        "waiting_tool": frozenset({"running"}) | ENDED,
        "paused": ENDED,
    },
    "step": {"running": ENDED},
}

REOPEN_CAUSES = frozenset({"turn_key", "tool_result", "rerun"})

STATUS_OF_CAUSE = {
    "finished": "success",
    "provider": "error",
    "limit": "error",
    "gateway": "error",
    "shutdown": "error",
    "crash": "error",
    "client_disconnect": "cancelled",
    "user_cancel": "cancelled",
    "superseded": "cancelled",
}


class IllegalMove(ApiError):
    """A transition that the tables lack: 409 at the API; with `row_is_gone` for want of a row."""

    row_is_gone = False

    def __init__(self, noun: Noun, row_id: str, old: str | None, new: str) -> None:
        self.row_is_gone = old is None
        was = "is not there" if old is None else f"is {old}"
        self._say(f"{noun} {row_id} {was} and cannot become {new}")

    def _say(self, message: str) -> None:
        ApiError.__init__(self, 409, "invalid_request_error", message, code=ILLEGAL_MOVE)


class AlreadyOver(IllegalMove):
    """A turn that is to be cancelled has ended: by which cause is told where it is known."""

    def __init__(self, turn_id: str, status: str, ended_by: str | None) -> None:
        was = "cancelled" if status == "cancelled" else "over"
        why = [] if status == "cancelled" else [status]
        if ended_by is not None and ended_by != "finished":
            why.append(ended_by)
        told = f" ({', '.join(why)})" if why else ""
        self._say(f"turn {turn_id} is already {was}{told}: there is nothing left to cancel")


def allows(noun: Noun, old: str, new: str) -> bool:
    """Whether the ordinary table has this move."""
    return new in MOVES[noun].get(old, frozenset())


def allows_reopen(noun: Noun, old: str, cause: str) -> bool:
    """Whether an ended turn or run may run again for this cause."""
    return noun != "step" and old in ENDED and cause in REOPEN_CAUSES


@cache
def legal_before(noun: Noun, new: str, reopen: str | None = None) -> tuple[str, ...]:
    """The statuses from which a row may become `new`, by the table or by reopening."""
    if reopen is not None and new != "running":
        return ()
    if reopen is not None:
        return tuple(old for old in sorted(ENDED) if allows_reopen(noun, old, reopen))
    return tuple(old for old in MOVES[noun] if allows(noun, old, new))
