"""Column types of the store: JSON as text, naive UTC times that sort as they read."""

from __future__ import annotations

import datetime
from typing import Any

import orjson
import peewee

from xgw import clock
from xgw.store import told
from xgw.store.digits import packed_hash, packed_id, whole_hash, whole_id


class JsonField(peewee.TextField):
    """A JSON value kept as text; NULL is None."""

    def db_value(self, value: Any) -> str | None:
        """Python value to JSON text."""
        return None if value is None else orjson.dumps(value).decode()

    def python_value(self, value: Any) -> Any:
        """JSON text to a Python value."""
        return None if value is None else orjson.loads(value)


class TimeField(peewee.Field):
    """A UTC time, always written with six digits so that text order is time order."""

    field_type = "DATETIME"

    def db_value(self, value: Any) -> str | None:
        """Naive UTC date-time to its text."""
        return clock.to_db(value) if isinstance(value, datetime.datetime) else value

    def python_value(self, value: Any) -> datetime.datetime | None:
        """Stored text to a naive UTC date-time."""
        return None if value is None else clock.from_db(value)


class MomentField(peewee.IntegerField):
    """A UTC time as microseconds since 1970."""

    def db_value(self, value: Any) -> Any:
        """Naive UTC date-time to its number."""
        return clock.to_microseconds(value) if isinstance(value, datetime.datetime) else value

    def python_value(self, value: Any) -> datetime.datetime | None:
        """Number to a naive UTC date-time."""
        return None if value is None else clock.from_microseconds(value)


class IdField(peewee.Field):
    """An id without its prefix, as sixteen bytes; one that was not minted is kept as its text."""

    field_type = "BLOB"

    def __init__(self, prefix: str, **options: Any) -> None:
        self.prefix = prefix
        super().__init__(**options)

    def db_value(self, value: Any) -> Any:
        """The id as it is kept."""
        return packed_id(value, self.prefix) if isinstance(value, str) else value

    def python_value(self, value: Any) -> str | None:
        """The whole id."""
        return None if value is None else whole_id(value, self.prefix)


class HashField(peewee.Field):
    """A body's hash as sixteen bytes."""

    field_type = "BLOB"

    def db_value(self, value: Any) -> Any:
        """The hash as it is kept."""
        return packed_hash(value) if isinstance(value, str) else value

    def python_value(self, value: Any) -> str | None:
        """The hash as its digits."""
        return None if value is None else whole_hash(value)


class ToldField(peewee.Field):
    """An event's payload, laid out: a list, or an object."""

    field_type = "BLOB"

    def db_value(self, value: Any) -> Any:
        """The payload as it is kept."""
        return None if value is None else told.packed(value)

    def python_value(self, value: Any) -> Any:
        """The payload, laid out."""
        return None if value is None else told.unpacked(value)
