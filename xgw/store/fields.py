"""Column types of the store: JSON as text, naive UTC times that sort as they read."""

from __future__ import annotations

import datetime
from typing import Any

import orjson
import peewee

from xgw import clock


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
