"""Where rows refer to payloads: by a column, by the name that stands for a text, or in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from xgw.store.rows import key_named


class Referring(NamedTuple):
    """Where rows of a table refer to payloads: `bodies` may be pruned before the row goes.

    `turn` is whose the row is, `owners` are those with which it goes, `json` finds JSON in which
    payloads are named.
    """

    turn: str = "r.turn_id"
    owners: str = "r.session_id, r.turn_id"
    bodies: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    json: str = ""


TABLES: dict[str, Referring] = {
    "turns": Referring(
        "r.id",
        "r.session_id, r.id",
        bodies=("input_payload",),
        others=("config_snapshot",),
        names=("user_input", "final_output"),
    ),
    "steps": Referring(bodies=("input_payload", "output_payload")),
    "request_logs": Referring(
        owners="r.session_id, r.turn_id, r.id", bodies=("request_payload", "response_body")
    ),
    "messages": Referring(
        names=("content",),
        json="SELECT r.parts FROM messages r WHERE {stays} AND r.parts IS NOT NULL "
        "AND (r.parts LIKE '%\"payload\"%' OR substr(r.parts, 1, 7) = '\"\\u001f')",
    ),
    "runs": Referring(
        owners="r.turn_id",
        json="SELECT r.checkpoint FROM runs r WHERE {counts} AND r.checkpoint LIKE '%\\u001f%'",
    ),
    "events": Referring(json="SELECT r.payload FROM events r WHERE {stays}"),
}


def named_in(value: Any) -> Iterator[str]:
    """The hashes of `{"payload": hash}` and of texts that name one, anywhere in a JSON value."""
    if isinstance(value, str):
        if (named := key_named(value)) is not None:
            yield named
        return
    if isinstance(value, dict):
        key = value.get("payload")
        if isinstance(key, str):
            yield key
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from named_in(entry)
