"""Rows of a bundle on their way into a store: each value is what its column holds, or refused.

What was left out of a bundle is an object `{"length", "hash"}` in the place of a text. In the store
words stand there; what the bundle had is kept beside them, and given back when it is exported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from xgw import clock
from xgw.events import TEXTS, TYPES
from xgw.frozen import changed, frozen
from xgw.portable.parsing import TABLES
from xgw.portable.refusal import BadBundle
from xgw.portable.shapes import shape_of
from xgw.queries.payloads import COLUMNS as OF_PAYLOADS
from xgw.store import models
from xgw.store.fields import IdField, JsonField, MomentField, TimeField, ToldField

YEARS = range(1970, 2201)
MOST_NUMBER = (1 << 63) - 1

STATUSES: dict[str, frozenset[str]] = {
    "sessions": frozenset({"active", "archived", "closed"}),
    "turns": frozenset({"queued", "running", "success", "error", "cancelled"}),
    "runs": frozenset(
        {"queued", "running", "waiting_tool", "paused", "success", "error", "cancelled"}
    ),
    "steps": frozenset({"running", "success", "error", "cancelled"}),
}
KINDS: dict[str, frozenset[str]] = {
    "sessions": frozenset({"chat", "agent"}),
    "runs": frozenset({"first", "resume", "rerun"}),
    "messages": frozenset({"message", "tool_call", "tool_result", "status", "error"}),
}

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)
_LEFT_OUT = frozenset({"length", "hash"})
_MARKED = b'"length":'


@frozen
class Arrived:
    """A row as the store has it, and what the bundle had in columns where words stand now."""

    row: dict[str, Any]
    originals: dict[str, Any]


def is_hash(value: object) -> bool:
    """Whether this is the hash of a body."""
    return isinstance(value, str) and _HASH.fullmatch(value) is not None


def arrive(table: str, row: Any, place: int) -> Arrived:
    """The row that a bundle has at this place of a table; BadBundle if it cannot be one."""
    if not isinstance(row, dict):
        raise BadBundle(f"{table}[{place}] is no row")
    columns = _TABLES[table]
    if unknown := row.keys() - columns.keys():
        raise BadBundle(f"{table} has no column {min(unknown)[:64]!r}")
    made: dict[str, Any] = {}
    originals: dict[str, Any] = {}
    for name, column in columns.items():
        value = row.get(name)
        try:
            if value is None:
                made[name] = column.absent()
            elif column.may_be_left_out and _is_left_out(value):
                made[name], originals[name] = column.left_out(value), value
            elif column.is_json:
                made[name] = _spelled(_without_gaps(column.take(value), name, originals))
            else:
                made[name] = column.take(value)
        except ValueError as error:
            where = f"{table}[{place}].{name}"
            raise BadBundle(f"{where} {error}") from None
    return Arrived(made, originals)


def _is_left_out(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == _LEFT_OUT and _is_measure(value)


def _is_measure(value: Mapping[str, Any]) -> bool:
    length = value["length"]
    return isinstance(length, int) and not isinstance(length, bool) and is_hash(value["hash"])


def words_for(value: Mapping[str, Any]) -> str:
    """What stands in the place of a text that was left out."""
    return f"({value['length']:,} characters, left out of the bundle)"


def _spelled(value: Any) -> Any:
    """What a JSON column is given: objects and lists as they are, all else as JSON text."""
    return value if isinstance(value, dict | list) else orjson.dumps(value).decode()


def _without_gaps(value: Any, name: str, originals: dict[str, Any]) -> Any:
    """A JSON value with words for what was left out inside of it."""
    try:
        text = orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise ValueError(f"cannot be kept: {error}") from None
    if _MARKED not in text:
        return value
    told = _told(value)
    if told is not value:
        originals[name] = value
    return told


def _told(value: Any) -> Any:
    if isinstance(value, list):
        entries = [_told(entry) for entry in value]
        return value if all(a is b for a, b in zip(entries, value, strict=True)) else entries
    if not isinstance(value, dict):
        return value
    if _is_left_out(value):
        return words_for(value)
    inner = {key: _told(entry) for key, entry in value.items()}
    return value if all(inner[key] is entry for key, entry in value.items()) else inner


# -- columns ---------------------------------------------------------------------------------------


@frozen
class Column:
    """What one column takes; `take` raises ValueError for anything else."""

    take: Callable[[Any], Any]
    null: bool
    is_json: bool = False
    may_be_left_out: bool = False
    default: Any = None

    def absent(self) -> Any:
        """What stands there without a value; ValueError where there has to be one."""
        if not self.null and self.default is None:
            raise ValueError("is missing")
        return self.default

    def left_out(self, value: Mapping[str, Any]) -> Any:
        """What stands for a whole value that was left out."""
        return None if self.is_json else words_for(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("is no text")
    return value


def _id(value: Any) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError("is no id")
    return value


def _hash(value: Any) -> str:
    if not is_hash(value):
        raise ValueError("is no hash")
    return str(value)


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is no whole number")
    if not -MOST_NUMBER <= value <= MOST_NUMBER:
        raise ValueError("is larger than any number that is kept")
    return value


def _seq(value: Any) -> int:
    if _number(value) < 1:
        raise ValueError("is no seq of an event")
    return int(value)


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is no number")
    return float(value)


def _time(value: Any) -> Any:
    moment = clock.parse_time(_text(value))
    if moment.year not in YEARS:
        raise ValueError(f"is not in the years {YEARS[0]} to {YEARS[-1]}")
    return moment


def _one_of(words: frozenset[str]) -> Callable[[Any], str]:
    def take(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"is none of {', '.join(sorted(words))}")
        return value

    return take


def _event_type(value: Any) -> str:
    if not isinstance(value, str) or value not in TYPES:
        raise ValueError("is no type of event")
    return str(value)


def _told_of(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("is no object")
    for name in TEXTS:
        said = value.get(name)
        if said is not None and not isinstance(said, str) and not _is_left_out(said):
            raise ValueError(f"has {name} that is no text")
    return value


def _column(table: str, field: Any) -> Column:
    name = field.column_name
    null = bool(field.null)
    if name == "seq":
        return Column(_seq, null=False)
    if isinstance(field, JsonField):
        shape = shape_of(table, name)
        return Column(shape or (lambda value: value), null, is_json=True, may_be_left_out=True)
    if isinstance(field, ToldField):
        return Column(_told_of, null, is_json=True)
    if isinstance(field, TimeField | MomentField):
        return Column(_time, null)
    if name in OF_PAYLOADS:
        return Column(_hash, null)
    if isinstance(field, IdField) or ((name == "id" or name.endswith("_id")) and _is_minted(field)):
        return Column(_id, null)
    return Column(_plain(table, name, field), null, default=field.default)


def _is_minted(field: Any) -> bool:
    """Ids of rows are; those of tasks, users, projects and calls are whatever others say."""
    return field.field_type == "VARCHAR" or hasattr(field, "rel_model")


def _plain(table: str, name: str, field: Any) -> Callable[[Any], Any]:
    if name == "status":
        return _one_of(STATUSES[table])
    if name == "kind" and table in KINDS:
        return _one_of(KINDS[table])
    if table == "events" and name == "type":
        return _event_type
    return {"INT": _number, "BIGINT": _number, "DOUBLE": _amount}.get(field.field_type, _text)


_CONTENTS = frozenset(
    {"content", "error_body", "final_output", "partial_output", "session_summary", "user_input"}
)


def _columns(model: type[models.Table]) -> dict[str, Column]:
    table = model._meta.table_name
    return {
        field.column_name: _as_content(_column(table, field))
        if field.column_name in _CONTENTS
        else _column(table, field)
        for field in model._meta.sorted_fields
    }


def _as_content(column: Column) -> Column:
    return changed(column, may_be_left_out=True)


_TABLES = {
    model._meta.table_name: _columns(model)
    for model in models.TABLES
    if model._meta.table_name in TABLES
}
