"""Reading steps, and what a model call sent compared with the one before it in its session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import peewee
from peewee import fn

from xgw import clock
from xgw.queries import pages
from xgw.queries.pages import Page, Row, Slice, Sort
from xgw.queries.spelled import Brought, fetch_whole
from xgw.store.database import Store
from xgw.store.models import Step, Turn
from xgw.store.payloads import parts

BY_START = Sort(
    "started_at", Step.started_at, Step.id, lambda row: pages.first_text(row, ("started_at",))
)


MAX_COMPARED = 4_000_000
"""Product of the lengths of two lists that are compared element by element."""


@dataclass(frozen=True, slots=True)
class Changes:
    """How the messages of a call differ from those of the session's previous call.

    `common_prefix` messages at the start are the same in both. `added` and the second of each
    pair in `changed` are indexes in this call, `dropped` and the first of each pair in the
    previous one.
    """

    previous_step_id: str
    common_prefix: int
    added: tuple[int, ...]
    changed: tuple[tuple[int, int], ...]
    dropped: tuple[int, ...]


def list_steps(store: Store, session_id: str, page: Page) -> Slice:
    """The steps of a session by their start."""
    inside = Step.session_id == session_id
    return pages.fetch(store, Step.select(), [inside], BY_START, page)


def find_step(store: Store, step_id: str, project: str | None = None) -> Row | None:
    """One step."""
    query = Step.select().where(Step.id == step_id)
    if project is not None:
        query = query.join(Turn, on=(Turn.id == Step.turn_id)).where(Turn.project_id == project)
    return store.fetch_one(query)


def last_call(store: Store, session_id: str) -> Row | None:
    """The newest model call of a session whose request was kept, with what it sent.

    `id`, `input_payload` and `model_requested`. Not one of another agent that a task was handed
    over to.
    """
    calls = _calls(session_id, None).select(Step.id, Step.input_payload, Step.model_requested)
    return store.fetch_one(calls.order_by(Step.started_at.desc(), Step.id.desc()))


def find_changes(store: Store, step: Row) -> Changes | None:
    """What a model call sent compared with the previous call of its session.

    Attempts of one call are compared with the call before it, not with one another. None where
    there is no session, no earlier call, or no list of messages (any more) to compare.
    """
    if not step["input_payload"]:
        return None
    if (step["metadata"] or {}).get("purpose"):
        return None
    with store.reading(), contextlib.suppress(LookupError):
        previous = find_before(store, step)
        if previous is None:
            return None
        now, before = step["input_payload"], previous["input_payload"]
        sent = parts(store, (before, now))
        if sent[now] and sent[before]:
            return compare(previous["id"], sent[before], sent[now])
    return None


def find_before(store: Store, step: Row) -> Row | None:
    """The newest call of the session that began before the first attempt of this one.

    One statement. None where there is none, or the step is no call of a session.
    """
    query = _before(step)
    return None if query is None else store.fetch_one(query)


def find_before_whole(store: Store, step: Row) -> tuple[Row | None, Brought]:
    """The same with the bodies of what both sent: one statement."""
    query = _before(step)
    if query is None:
        return None, {}
    keys = [step["input_payload"]]
    rows, brought = fetch_whole(store, query.limit(1), hashes=("input_payload",), keys=keys)
    return (rows[0] if rows else None), brought


def _before(step: Row) -> Any:
    if step["step_type"] != "llm_call" or not step["session_id"]:
        return None
    if (step["attempt"] or 1) > 1:
        first = _first_attempt(step)
        start, began = first(Step.started_at), first(Step.started_at, Step.id)
    else:
        start = clock.to_db(step["started_at"])
        began = peewee.Tuple(start, step["id"])
    earlier = _calls(step["session_id"], step["parent_step_id"]).where(
        Step.started_at <= start, peewee.Tuple(Step.started_at, Step.id) < began
    )
    return earlier.order_by(Step.started_at.desc(), Step.id.desc())


def compare(previous_step_id: str, before: list[str], now: list[str]) -> Changes:
    """Two lists of message hashes compared."""
    prefix = _common(before, now)
    suffix = _common(before[prefix:][::-1], now[prefix:][::-1])
    left, new = before[prefix : len(before) - suffix], now[prefix : len(now) - suffix]
    added: list[int] = []
    changed: list[tuple[int, int]] = []
    dropped: list[int] = []
    for i1, i2, j1, j2 in _differences(left, new):
        paired = min(i2 - i1, j2 - j1)
        changed += [(prefix + i1 + n, prefix + j1 + n) for n in range(paired)]
        dropped += range(prefix + i1 + paired, prefix + i2)
        added += range(prefix + j1 + paired, prefix + j2)
    return Changes(previous_step_id, prefix, tuple(added), tuple(changed), tuple(dropped))


def _common(before: list[str], now: list[str]) -> int:
    """How many are the same from the start."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((at for at, (old, new) in pairs if old != new), min(len(before), len(now)))


def _differences(before: list[str], now: list[str]) -> list[tuple[int, int, int, int]]:
    # Lists that repeat one message take quadratic time; such long ones are paired as they stand.
    if len(before) * len(now) > MAX_COMPARED:
        return [(0, len(before), 0, len(now))]
    matcher = SequenceMatcher(None, before, now, autojunk=False)
    return [(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]


def _calls(session_id: str, parent: str | None) -> peewee.ModelSelect[Step]:
    """The calls of one conversation, the session's own or that under the step of a handoff: not
    those for a summary of it."""
    return Step.select().where(
        Step.session_id == session_id,
        Step.step_type == "llm_call",
        Step.input_payload.is_null(False),
        _under(Step, parent),
        fn.json_extract(Step.metadata, "$.purpose").is_null(),
    )


def _under(step: Any, parent: str | None) -> Any:
    return step.parent_step_id.is_null() if parent is None else step.parent_step_id == parent


def _first_attempt(step: Row) -> Callable[..., Any]:
    """A select of columns of the first attempt of this call, of the step itself for want of it."""
    first = Step.alias()
    is_itself = first.id == step["id"]

    def select(*columns: peewee.Field) -> Any:
        named = [getattr(first, column.name) for column in columns]
        attempts = first.select(*named).where(
            first.run_id == step["run_id"],
            first.step_type == "llm_call",
            first.step_index <= step["step_index"],
            (first.attempt == 1) | is_itself,
            _under(first, step["parent_step_id"]),
        )
        return attempts.order_by(is_itself, first.step_index.desc()).limit(1)

    return select
