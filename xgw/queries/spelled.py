"""Large selects over a list of ids, spelled once for each length of the list.

peewee takes milliseconds to spell such a select, SQLite a fraction of one to answer it; lists that
are drawn anew all the time would spend most of their time there.

A select may bring the bodies that its rows name with it, in the same statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.fields import JsonField, TimeField
from xgw.store.rebuilding import Rebuilt, fetch_beside
from xgw.store.rows import JSON_REFERENCE, REFERENCE, key_named

LENGTHS = 64
"""How many lengths of lists are remembered."""

Build = Callable[[Sequence[str]], Any]
Column = tuple[str, Callable[[Any], Any] | None]
Brought = Mapping[str, Rebuilt]
"""Bodies by hash, each with the hashes of its messages, see `payloads.find_listed`."""


class _Mark(str):
    """Stands for one of the ids while a select is spelled: its place in the list, behind a NUL."""

    __slots__ = ()

    @property
    def place(self) -> int:
        return int(self[1:])


@dataclass(frozen=True, slots=True)
class _Spelled:
    """The statement, its parameters, marks among them, and its columns with what reads a value."""

    text: str
    params: tuple[Any, ...]
    columns: tuple[Column, ...]

    def rows(self, found: Iterable[Sequence[Any]]) -> list[Row]:
        return [
            {
                name: value if read is None else read(value)
                for (name, read), value in zip(self.columns, values, strict=True)
            }
            for values in found
        ]


class SelectByIds:
    """A select that is built with ids."""

    def __init__(self, build: Build) -> None:
        self._spelled = lru_cache(LENGTHS)(
            lambda count: _spell(build([_Mark(f"\0{place}") for place in range(count)]))
        )

    def fetch(self, store: Store, ids: Sequence[str]) -> list[Row]:
        """The rows for these ids, as `Store.fetch` gives them: one statement."""
        spelled = self._spelled(len(ids))
        return spelled.rows(store.sql(spelled.text, _with(ids, spelled.params)))

    def fetch_whole(
        self,
        store: Store,
        ids: Sequence[str],
        *,
        texts: Collection[str] = (),
        hashes: Collection[str] = (),
        keys: Collection[str] = (),
    ) -> tuple[list[Row], Brought]:
        """The same with bodies, as the function `fetch_whole` does."""
        spelled = self._spelled(len(ids))
        return _fetch_whole(store, spelled, _with(ids, spelled.params), texts, hashes, keys)


def fetch_whole(
    store: Store,
    query: Any,
    *,
    texts: Collection[str] = (),
    hashes: Collection[str] = (),
    keys: Collection[str] = (),
) -> tuple[list[Row], Brought]:
    """The rows of a select, in no certain order, and bodies: one statement.

    They are those that the columns `hashes` and `keys` name, as far as the store has them. Into the
    columns `texts` the values are put whose payloads they name, None where these are gone.
    """
    spelled = _spell(query)
    return _fetch_whole(store, spelled, spelled.params, texts, hashes, keys)


def _fetch_whole(
    store: Store,
    spelled: _Spelled,
    params: tuple[Any, ...],
    texts: Collection[str],
    hashes: Collection[str],
    keys: Collection[str],
) -> tuple[list[Row], Brought]:
    naming = [
        (place, "" if name in hashes else REFERENCE if read is None else JSON_REFERENCE)
        for place, (name, read) in enumerate(spelled.columns)
        if name in texts or name in hashes
    ]
    width = len(spelled.columns)
    found, bodies = fetch_beside(store, spelled.text, params, width, naming, keys)
    for row in (rows := spelled.rows(found)):
        for name in texts:
            if (key := key_named(row[name])) is not None:
                row[name] = orjson.loads(bodies[key][0]) if key in bodies else None
    return rows, bodies


def _with(ids: Sequence[str], params: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(ids[one.place] if isinstance(one, _Mark) else one for one in params)


def _spell(query: Any) -> _Spelled:
    text, params = query.sql()
    return _Spelled(text, tuple(params), tuple(map(_column, query.selected_columns)))


def _column(column: Any) -> Column:
    """A field under its own name, or anything under the name that it was given."""
    inner = column.unwrap()
    name: str = getattr(column, "_alias", None) or column.column_name
    return name, inner.python_value if isinstance(inner, JsonField | TimeField) else None
