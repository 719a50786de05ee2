"""The store's rows as a bundle has them: all columns by name, in order, a few at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from xgw import clock
from xgw.events import TEXTS, cut_text
from xgw.portable.chosen import Chosen
from xgw.queries.texts import OF_MESSAGES, OF_TURNS, bring_back, bring_back_events
from xgw.recording.checkpoints import entries_of
from xgw.store import told
from xgw.store.digits import whole_id
from xgw.store.fields import IdField, JsonField, MomentField, TimeField, ToldField
from xgw.store.models import TABLES

Row = dict[str, Any]

MODELS = {model._meta.table_name: model for model in TABLES}
COLUMNS = {
    name: tuple(field.column_name for field in model._meta.sorted_fields)
    for name, model in MODELS.items()
}
"""The columns of each table, in the order in which a bundle has them."""

AT_ONCE = {"messages": 50, "turns": 50, "events": 50}
"""Rows whose long texts are in memory together."""

USUALLY = 200
_TEXTS = {"messages": OF_MESSAGES, "turns": OF_TURNS}
_TIME_LENGTH = 26


def key_of(table: str) -> str:
    """The column that rows are in the order of."""
    return "seq" if table == "events" else "id"


def read_rows(chosen: Chosen, table: str) -> Iterator[Row]:
    """The rows of a table that were chosen; what they only hint at is brought back.

    Texts in events are whole: they are to be cut when they are masked, see `cut_event`.
    """
    conversions = _CONVERSIONS[table]
    for batch in _batches(chosen, table):
        rows = [dict(zip(COLUMNS[table], values, strict=True)) for values in batch]
        for name, converted in conversions.items():
            for row in rows:
                if row[name] is not None:
                    row[name] = converted(row[name])
        if table in _TEXTS:
            bring_back(chosen.store, rows, _TEXTS[table])
        elif table == "events":
            bring_back_events(chosen.store, rows, cut=str)
        elif table == "runs":
            kept = (row["checkpoint"] for row in rows)
            calls = [call for one in kept if isinstance(one, dict) for call in entries_of(one)]
            bring_back(chosen.store, calls, ("result",))
        yield from rows


def cut_event(row: Row) -> Row:
    """An event with its texts as they were told: cut at 4 KiB."""
    told = row["payload"]
    cut = {name: cut_text(told[name]) for name in TEXTS if isinstance(told.get(name), str)}
    return row | {"payload": told | cut}


def _batches(chosen: Chosen, table: str) -> Iterator[list[tuple[Any, ...]]]:
    count, key = AT_ONCE.get(table, USUALLY), key_of(table)
    select = f"SELECT {', '.join(COLUMNS[table])} FROM {table}"
    if not chosen.everything:
        named = f"{select} WHERE {key} IN (SELECT value FROM json_each(?)) ORDER BY {key}"
        for keys in chosen.batches(table, count):
            yield chosen.store.sql(named, (orjson.dumps(keys).decode(),))
        return
    place = COLUMNS[table].index(key)
    following = f"{select} WHERE {key} > ? ORDER BY {key} LIMIT {count}"
    last: str | int = -1 if table == "events" else ""
    while rows := chosen.store.sql(following, (last,)):
        yield rows
        last = rows[-1][place]


def json_value(text: str) -> Any:
    """The value of a JSON column; its text where an old row has something else there."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(text)  # takes halves of surrogate pairs, too
    except (ValueError, RecursionError):
        return text


def time_text(text: str) -> str:
    """A time as JSON spells it, from the store's spelling; what is no time stays as it is."""
    if len(text) == _TIME_LENGTH:
        return f"{text[:10]}T{text[11:]}Z"
    try:
        return clock.to_rfc3339(clock.from_db(text))
    except ValueError:
        return text


def _moment(passed: int) -> str:
    return clock.to_rfc3339(clock.from_microseconds(passed))


def _conversion(field: Any) -> Callable[[Any], Any] | None:
    match field:
        case TimeField():
            return time_text
        case MomentField():
            return _moment
        case JsonField():
            return json_value
        case IdField():
            prefix = field.prefix
            return lambda kept: whole_id(kept, prefix)
        case ToldField():
            return told.unpacked
        case _:
            return None


_CONVERSIONS = {
    name: {
        field.column_name: converted
        for field in model._meta.sorted_fields
        if (converted := _conversion(field)) is not None
    }
    for name, model in MODELS.items()
}
