"""Large selects over a list of ids, spelled once for each length of the list.

peewee takes milliseconds to spell such a select, SQLite a fraction of one to answer it; lists that
are drawn anew all the time would spend most of their time there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.fields import JsonField, TimeField

LENGTHS = 64
"""How many lengths of lists are remembered."""

Build = Callable[[Sequence[str]], Any]
Column = tuple[str, Callable[[Any], Any] | None]


_MARK = "\0"
"""Stands for an id while a select is spelled."""


@dataclass(frozen=True, slots=True)
class _Spelled:
    """The statement, its parameters around the ids, and its columns with what reads a value."""

    text: str
    before: tuple[Any, ...]
    after: tuple[Any, ...]
    columns: tuple[Column, ...]


class SelectByIds:
    """A select that is built with ids, which stand in one place of it."""

    def __init__(self, build: Build) -> None:
        self._spelled = lru_cache(LENGTHS)(lambda count: _spell(build, count))

    def fetch(self, store: Store, ids: Sequence[str]) -> list[Row]:
        """The rows for these ids, as `Store.fetch` gives them: one statement."""
        spelled = self._spelled(len(ids))
        return [
            {
                name: value if read is None else read(value)
                for (name, read), value in zip(spelled.columns, values, strict=True)
            }
            for values in store.sql(spelled.text, (*spelled.before, *ids, *spelled.after))
        ]


def _spell(build: Build, count: int) -> _Spelled:
    marks = [_MARK] * count
    query: Any = build(marks)
    text, params = query.sql()
    first = params.index(_MARK)
    before, after = params[:first], params[first + count :]
    if params[first : first + count] != marks or _MARK in after:
        raise ValueError("the ids must stand in one place of the select")
    columns = tuple(_column(column) for column in query.selected_columns)
    return _Spelled(text, tuple(before), tuple(after), columns)


def _column(column: Any) -> Column:
    """A field under its own name, or anything under the name that it was given."""
    inner = column.unwrap()
    name: str = getattr(column, "_alias", None) or column.column_name
    return name, inner.python_value if isinstance(inner, JsonField | TimeField) else None
