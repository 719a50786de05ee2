"""The recordings in order: which of them an incoming request asks for, and what is left."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from xgw.errors import ApiError
from xgw.portable.replay.differences import Difference, first_difference
from xgw.portable.replay.recordings import Played, Recorded, Recording

REMEMBERED = 20

Json = dict[str, Any]
Load = Callable[[Recording], Recorded]


class Reel:
    """Hands out each recording once. For many threads."""

    def __init__(self, played: Played, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._left = list(played.recordings)
        self._total = len(played.recordings)
        self._left_out = played.left_out
        self.models = list(dict.fromkeys(one.model for one in played.recordings if one.model))
        self._differences: list[Json] = []
        self._counted = 0

    def take(self, path: str, sent: Any) -> tuple[Recording, Recorded]:
        """The recording that a request to this path asks for.

        ApiError 409: `replay_used_up` where none is left, `replay_differs` with the first
        difference from the one that it comes nearest.
        """
        with self._lock:
            due = _due(self._left)
            if not due:
                raise self._refused("replay_used_up", f"all {self._total} requests were played")
            nearest: tuple[Recording, Difference] | None = None
            for recording in due:
                recorded = self._load(recording)
                found = _compare(recording, recorded, path, sent)
                if found is None:
                    self._left.remove(recording)
                    return recording, recorded
                if nearest is None or found.alike > nearest[1].alike:
                    nearest = recording, found
            assert nearest is not None
            raise self._differs(*nearest)

    def asked(self) -> Iterator[tuple[str, Any]]:
        """Path and body of each recorded request that is left, in order."""
        for recording in self._left:
            yield recording.path, self._load(recording).asked

    def status(self) -> Json:
        """How far it is."""
        with self._lock:
            return {
                "object": "replay",
                "total": self._total,
                "played": self._total - len(self._left),
                "left": len(self._left),
                "left_out": self._left_out,
                "next": [_named(recording) for recording in _due(self._left)],
                "refused": self._counted,
                "differences": self._differences,
            }

    def _differs(self, recording: Recording, found: Difference) -> ApiError:
        message = f"the request is not the recorded one: {found.words()}"
        more = {**found.to_json(), "request_id": recording.id}
        return self._refused("replay_differs", message, more)

    def _refused(self, code: str, message: str, more: Json | None = None) -> ApiError:
        self._counted += 1
        told = {"code": code, "message": message, **(more or {})}
        self._differences = [*self._differences, told][-REMEMBERED:]
        # A client library would send it twice more.
        headers = (("x-should-retry", "false"),)
        param = (more or {}).get("pointer")
        return ApiError(
            409,
            "invalid_request_error",
            message,
            code=code,
            param=param,
            headers=headers,
            more=more,
        )


def _due(left: list[Recording]) -> list[Recording]:
    """Those that may come next: in each lane the first, and what was under way beside it."""
    until: dict[str, Any] = {}
    due = []
    for recording in left:
        end = until.get(recording.lane)
        if end is None or recording.began < end:
            due.append(recording)
        until[recording.lane] = recording.ended if end is None else min(end, recording.ended)
    return due


def _compare(recording: Recording, recorded: Recorded, path: str, sent: Any) -> Difference | None:
    if path != recording.path:
        return Difference("", f"POST {recording.path}", f"POST {path}", -1)
    return first_difference(recorded.asked, sent)


def _named(recording: Recording) -> Json:
    return {
        "request_id": recording.id,
        "session_id": recording.session_id,
        "path": recording.path,
        "model": recording.model,
    }
