"""What rows and events only hint at, brought back: long texts, which are payloads, and fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import orjson
import peewee
from peewee import JOIN, fn

from xgw.events import TEXTS, cut_text
from xgw.queries.payloads import find_bodies
from xgw.store.database import Store
from xgw.store.layouts import spread_out
from xgw.store.models import Payload
from xgw.store.rows import REFERENCE, key_named, opened

OF_MESSAGES = ("content", "parts")
OF_TURNS = ("user_input", "final_output")


def bring_back(
    store: Store,
    rows: Sequence[dict[str, Any]],
    columns: Iterable[str],
    others: Collection[str] = (),
) -> Mapping[str, bytes]:
    """Put the values into these columns whose payloads they name; None where they are gone.

    One statement, none where no column names any. It brings the bodies with the hashes `others`,
    too, which are returned.
    """
    found = [
        (row, name, key)
        for name in columns
        for row in rows
        if (key := key_named(row.get(name))) is not None
    ]
    keys = {*others, *(key for _, _, key in found)}
    bodies = find_bodies(store, keys) if keys else {}
    for row, name, key in found:
        row[name] = orjson.loads(bodies.get(key, b"null"))
    return {key: bodies[key] for key in others if key in bodies}


def with_text(query: peewee.ModelSelect[Any], column: peewee.ColumnBase) -> peewee.ModelSelect[Any]:
    """A query of rows that come with the payload which a text column may name; see `take_text`."""
    named = peewee.Case(
        None, ((fn.SUBSTR(column, 1, 1) == REFERENCE, fn.packed_hash(fn.SUBSTR(column, 2))),)
    )
    joined = query.join(Payload, JOIN.LEFT_OUTER, on=(Payload.hash == named), src=query.model)
    return joined.select_extend(Payload.codec, Payload.data)


def take_text(rows: Iterable[dict[str, Any]], column: str) -> None:
    """Put the text from the payload that came with each row into the column that names it."""
    for row in rows:
        codec, content = row.pop("codec"), row.pop("data")
        if key_named(row[column]) is not None:
            row[column] = None if codec is None else orjson.loads(opened(codec, bytes(content)))


def bring_back_events(
    store: Store, rows: Iterable[dict[str, Any]], *, cut: Callable[[str], str] = cut_text
) -> None:
    """Put events' payloads as they were published into their rows: whole, with the texts cut."""
    payloads = []
    for row in rows:
        row["payload"] = spread_out(row["payload"], row["turn_id"], row["session_id"])
        payloads.append(row["payload"])
    found = [
        (payload, name, payload[name]["payload"])
        for payload in payloads
        for name in TEXTS
        if isinstance(payload.get(name), dict)
    ]
    if not found:
        return
    bodies = find_bodies(store, {key for _, _, key in found})
    texts = {key: cut(orjson.loads(literal)) for key, literal in bodies.items()}
    for payload, name, key in found:
        payload[name] = texts.get(key)
