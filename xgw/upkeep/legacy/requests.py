"""Older request logs as request logs that belong to no turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from xgw.upkeep.bodies import Bodies
from xgw.upkeep.legacy.sessions import PROJECT
from xgw.upkeep.legacy.source import REQUESTS, OldRow
from xgw.upkeep.legacy.values import Origin, loose, number
from xgw.upkeep.minting import mint
from xgw.upkeep.times import later, milliseconds, read_time

IDENTIFIERS = ("session_id", "turn_id")

Request = list[Any]
"""In the order of `adopt.COLUMNS`."""

STARTED = 12


def from_request(origin: Origin, row: OldRow, before: str, bodies: Bodies) -> Request:
    """A request log; `before` is the time of the one before, for one whose own is not known."""
    provider, model, endpoint, status, sent, answer, given, got, took, error, created = row[2:13]
    known = read_time(created)
    at = known or before
    notes: dict[str, Any] = {} if known else {"created_at": loose(created)}
    asked, answered = _bytes(sent), _bytes(answer)
    links = links_of(asked, answered)
    if links:
        notes["links"] = links
    code, latency = number(status), number(took)
    failed = error is not None or (code is not None and code >= 400)
    return [
        mint("req", milliseconds(at) if known else 0, row if row[1] is None else row[1:]),
        PROJECT,
        loose(provider),
        loose(endpoint),
        loose(model),
        code,
        bodies.request(asked),
        bodies.answer(answered),
        "upstream_error" if failed else None,
        bodies.masked(loose(error)),
        number(given),
        number(got),
        at,
        at if latency is None or latency < 0 else later(at, latency),
        latency,
        origin.metadata(row, len(REQUESTS.known), notes),
    ]


def links_of(sent: bytes | None, answer: bytes | None) -> dict[str, Any]:
    """What explicitly says to which turn a request belongs.

    `session_id` and `turn_id` from the request's metadata; `tool_call_ids`: those that its answer
    asked for, else those whose results it brought at its end.
    """
    links: dict[str, Any] = {}
    if sent and b'"metadata"' in sent:
        told = _object(sent).get("metadata")
        if isinstance(told, dict):
            links = {k: told[k] for k in IDENTIFIERS if isinstance(told.get(k), str)}
    called: list[str] = []
    if answer and b'"tool_calls"' in answer:
        called = [*_asked_for(_object(answer))]
    if not called and sent and b'"tool_call_id"' in sent:
        called = [*_brought(_object(sent))]
    if called:
        links["tool_call_ids"] = called
    return links


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _asked_for(answer: dict[str, Any]) -> Iterator[str]:
    for choice in _dicts(answer.get("choices")):
        message = choice.get("message")
        for call in _dicts(message.get("tool_calls") if isinstance(message, dict) else None):
            if isinstance(call.get("id"), str):
                yield call["id"]


def _brought(sent: dict[str, Any]) -> Iterator[str]:
    for element in reversed(_dicts(sent.get("messages"))):
        if element.get("role") != "tool":
            return
        if isinstance(element.get("tool_call_id"), str):
            yield element["tool_call_id"]


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _bytes(value: Any) -> bytes | None:
    if type(value) is str:
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value
    return str(loose(value)).encode()
