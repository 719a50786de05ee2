"""How values get into statements: what sqlite3 does with types that it does not bind as they are.

It looks adapters up in C, for the exact type: cheaper than a look at every value here.
"""

from __future__ import annotations

import datetime
import sqlite3
from typing import Any

import orjson

from xgw import clock


def json_text(value: Any) -> str:
    """A JSON value as columns have it."""
    return orjson.dumps(value).decode()


sqlite3.register_adapter(datetime.datetime, clock.to_db)
sqlite3.register_adapter(dict, json_text)
sqlite3.register_adapter(list, json_text)

# These stay as they are. Of types without an adapter sqlite3 asks each value for `__conform__`,
# which takes twice as long as a call that C answers: a request's rows have a hundred nulls.
_nulls: dict[None, None] = {}
sqlite3.register_adapter(type(None), _nulls.get)
sqlite3.register_adapter(bytes, bytes.__bytes__)
