"""What can be played of a store: each call that was answered, or each try of one, in order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from xgw import clock
from xgw.queries import attempts, payloads
from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.models import RequestLog, Step

PATHS = ("/chat/completions", "/embeddings")


@dataclass(frozen=True, slots=True)
class Recording:
    """One exchange that is played.

    `lane` is what it stands in: in one lane a call follows on another, unless both were under way
    side by side. `began` and `ended` are those of the whole call, tries before this one included;
    `waited_ms` lies between its beginning and the moment from which this exchange was timed.
    """

    id: str
    lane: str
    path: str
    began: datetime
    ended: datetime
    waited_ms: int
    model: str | None
    session_id: str | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """All that is known of an exchange: what was asked for and what came back."""

    asked: Any
    stream: bool
    provider: str
    status: int | None
    headers: tuple[tuple[str, str], ...]
    content: bytes
    frames: list[list[int]]
    error_type: str | None
    error_message: str
    latency_ms: int
    was_left: bool
    """The client had left, or cancelled it: nobody knows what would have come."""


@dataclass(frozen=True, slots=True)
class Played:
    """The exchanges in order, and how many cannot be played."""

    recordings: list[Recording]
    left_out: int


def list_recordings(store: Store, *, every_try: bool) -> Played:
    """What is played: of each call the try that answered it, or every try by itself."""
    rows = store.fetch(
        RequestLog.select(
            RequestLog.id,
            RequestLog.session_id,
            RequestLog.turn_id,
            RequestLog.step_id,
            RequestLog.endpoint,
            RequestLog.model,
            RequestLog.request_payload,
            RequestLog.started_at,
            RequestLog.ended_at,
            RequestLog.latency_ms,
        ).order_by(RequestLog.started_at, RequestLog.id)
    )
    known = payloads.sizes(store, [row["request_payload"] or "" for row in rows])
    calls = _one_each(rows) if every_try else _by_call(store, rows)
    found = [_recording(call, known) for call in calls]
    playable = [one for one in found if one is not None]
    playable.sort(key=lambda one: (one.began, one.id))
    return Played(playable, len(found) - len(playable))


def _one_each(rows: list[Row]) -> list[list[Row]]:
    return [[row] for row in rows]


def _by_call(store: Store, rows: list[Row]) -> list[list[Row]]:
    """The exchanges of each call, in order."""
    by_step: dict[str, list[Row]] = {}
    for row in rows:
        by_step.setdefault(row["step_id"] or row["id"], []).append(row)
    columns = [getattr(Step, name) for name in attempts.COLUMNS]
    steps = store.fetch(
        Step.select(*columns)
        .where(Step.step_type == "llm_call")
        .order_by(Step.run_id, Step.step_index)
    )
    calls = []
    for _, of_run in itertools.groupby(steps, key=lambda step: step["run_id"]):
        for call in attempts.grouped(of_run):
            tried = [row for step in call for row in by_step.pop(step["id"], ())]
            if tried:
                calls.append(tried)
    return [*calls, *by_step.values()]


def _recording(call: list[Row], known: dict[str, int]) -> Recording | None:
    first, last = call[0], call[-1]
    is_whole = first["started_at"] is not None and last["ended_at"] is not None
    if not is_whole or last["endpoint"] not in PATHS or last["request_payload"] not in known:
        return None
    return Recording(
        id=last["id"],
        lane=last["session_id"] or last["turn_id"] or last["id"],
        path=last["endpoint"],
        began=first["started_at"],
        ended=last["ended_at"],
        waited_ms=_waited_ms(first, last),
        model=last["model"],
        session_id=last["session_id"],
    )


def _waited_ms(first: Row, last: Row) -> int:
    """How long a call took but for its last try: also what the gateway did before that went out."""
    before = (last["started_at"] - first["started_at"]) / clock.MICROSECOND / 1000
    whole = (last["ended_at"] - first["started_at"]) / clock.MICROSECOND / 1000
    timed: int | None = last["latency_ms"]
    waited: float = before if timed is None else max(before, whole - timed)
    return max(0, round(waited))


def load(store: Store, recording: Recording) -> Recorded:
    """What was recorded of an exchange."""
    row = store.fetch_one(RequestLog.select().where(RequestLog.id == recording.id))
    assert row is not None
    step = store.fetch_one(Step.select().where(Step.id == row["step_id"])) or {}
    content = b""
    if row["response_body"]:
        content = payloads.find_body(store, row["response_body"]) or b""
    if not content and row["error_body"]:
        content = row["error_body"].encode()
    return Recorded(
        asked=_asked(store, row, step.get("model_requested")),
        stream=bool(row["stream"]),
        provider=row["provider_name"] or "the upstream",
        status=row["status_code"],
        headers=tuple((name, value) for name, value in row["response_headers"] or ()),
        content=content,
        frames=row["frames"] or [],
        error_type=row["error_type"],
        error_message=row["error_message"] or "",
        latency_ms=row["latency_ms"] or 0,
        was_left=step.get("status") == "cancelled",
    )


def _asked(store: Store, row: Row, model: str | None) -> Any:
    """The request as its client sent it, as far as that is known: with the model it named."""
    body = payloads.find_body(store, row["request_payload"]) or b"null"
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")
    if isinstance(asked, dict) and model is not None:
        asked["model"] = model
    return asked
