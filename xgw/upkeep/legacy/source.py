"""An older store as a file: which of the older tables it has, and their rows in order.

It is only read. Rows are read in short statements, by their rowid (or the key in its place) or by
what they belong to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from xgw.errors import UsageError, WorkError
from xgw.frozen import frozen
from xgw.store.migrations import KEPT, old_tables
from xgw.upkeep.legacy.belonging import Belonging, Rowid, find, lead, repeated
from xgw.upkeep.legacy.files import open_to_read

START = -(1 << 62)
"""The rowid before all others."""

OldRow = tuple[Any, ...]
"""The rowid, the columns of the shape (None for one that the table lacks), and all others."""


@frozen
class Columns:
    """A table of an older shape: its name, and the columns that are known."""

    name: str
    known: tuple[str, ...]


@frozen
class Shape:
    """An older shape: its sessions, their messages, and the column that names the session."""

    name: str
    sessions: Columns
    messages: Columns
    owner: str


GATEWAY = Shape(
    "gateway",
    Columns("conversations", ("id", "title", "user_id", "model", "created_at", "updated_at")),
    Columns(
        "messages",
        (
            "id",
            "conversation_id",
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "created_at",
        ),
    ),
    "conversation_id",
)
TASKS = Shape(
    "tasks",
    Columns(
        "task_sessions",
        ("id", "task_id", "agent", "status", "metadata", "created_at", "updated_at"),
    ),
    Columns(
        "task_session_messages",
        (
            "id",
            "task_session_id",
            "task_id",
            "author_type",
            "type",
            "content",
            "metadata",
            "created_at",
        ),
    ),
    "task_session_id",
)
REQUESTS = Columns(
    "request_logs",
    (
        "id",
        "provider",
        "model",
        "endpoint",
        "status_code",
        "request_body",
        "response_body",
        "prompt_tokens",
        "completion_tokens",
        "latency_ms",
        "error",
        "created_at",
    ),
)
SHAPES = (GATEWAY, TASKS)


class Replaced(str):
    """A text that was no UTF-8, with marks in place of what could not be read; `raw` has it all."""

    raw: bytes


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        replaced = Replaced(raw.decode("utf-8", "replace"))
        replaced.raw = raw
        return replaced


class Source:
    """The older tables of a file; `kept` if they were renamed because the store is the same file.

    `doubtful`: texts were found that are no UTF-8. Raises UsageError for a file without any, and
    WorkError where it turns out to be damaged.
    """

    def __init__(self, path: Path, *, kept: bool = False) -> None:
        self.path = path
        self._prefix = KEPT if kept else ""
        self.doubtful = False
        self._connection = _open(path)
        try:
            found = old_tables(self._connection, self._prefix)
            if not found:
                raise UsageError(f"{path} has none of the tables that xgw takes over")
            self._others = {
                table: tuple(self._unknown(table, columns)) for table, columns in found.items()
            }
            self._columns = found
            self._found = {
                table: find(self._connection, f"{self._prefix}{table}", columns)
                for table, columns in found.items()
            }
            self._leads = {
                shape.name: self._lead(shape) for shape in SHAPES if self.has(shape.messages)
            }
            self._repeated = {
                shape.name: repeated(self._connection, self._found.get(shape.sessions.name))
                for shape in SHAPES
            }
        except sqlite3.DatabaseError as error:
            self.close()
            raise UsageError(f"{path} cannot be read as an older store ({error})") from error
        except UsageError:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def has(self, table: Columns) -> bool:
        """Whether the file has the table."""
        return table.name in self._columns

    def others(self, table: Columns) -> tuple[str, ...]:
        """The names of the columns that the shape does not know."""
        return self._others.get(table.name, ())

    def count(self, table: Columns) -> int:
        """How many rows it has, 0 without the table."""
        if not self.has(table):
            return 0
        return int(self._rows(f"SELECT count(*) FROM {self._name(table)}")[0][0])

    def counts(self) -> dict[str, int]:
        """Rows by table, for those that are there."""
        tables = [table for shape in SHAPES for table in (shape.sessions, shape.messages)]
        return {t.name: self.count(t) for t in (*tables, REQUESTS) if self.has(t)}

    def after(
        self, table: Columns, rowid: Rowid, limit: int, *, including: bool = False
    ) -> list[OldRow]:
        """The next rows behind this rowid, or with it; START is before all of them.

        WorkError for keys that are no text, or no UTF-8, of tables without rowids.
        """
        if not self.has(table):
            return []
        behind = "1" if rowid == START else f"{self._rowid(table)} {'>=' if including else '>'} ?1"
        rows = self._rows(
            f"SELECT {self._selected(table)} FROM {self._name(table)} t "
            f"WHERE {behind} ORDER BY 1 LIMIT ?2",
            rowid,
            limit,
        )
        if self._found[table.name].is_keyed:
            self._refuse_odd_keys(table, rows)
        return rows

    def is_repeated(self, shape: Shape, rowid: Rowid) -> bool:
        """Whether the id of the session in this row is that of one before it, too."""
        return rowid in self._repeated[shape.name]

    def belonging(self, shape: Shape, rowids: Sequence[Rowid]) -> dict[Rowid, list[OldRow]]:
        """The messages of the sessions in these rows, by those, in the order of their rowids.

        Of several sessions with one id the first has them.
        """
        table, found = shape.messages, dict[Rowid, list[OldRow]]()
        if not self.has(table):
            return found
        lead, marks = self._leads[shape.name], ", ".join("?" * len(rowids))
        is_keyed = self._found[table.name].is_keyed
        order = " ORDER BY 2" if is_keyed else ""  # by numbers it takes less to sort them here
        for row in self._rows(
            f"SELECT {lead.owner}, {self._selected(table)} FROM {lead.joined} "
            f"WHERE {lead.owner} IN ({marks}){order}",
            *rowids,
        ):
            found.setdefault(row[0], []).append(row[1:])
        for owned in () if is_keyed else found.values():
            owned.sort(key=itemgetter(0))
        return found

    def orphans(self, shape: Shape) -> list[OldRow]:
        """The messages whose session is not there, in the order of their rowids."""
        table = shape.messages
        if not self.has(table):
            return []
        return self._rows(
            f"SELECT {self._selected(table)} FROM {self._name(table)} t "
            f"WHERE {self._leads[shape.name].orphaned} ORDER BY 1"
        )

    def _refuse_odd_keys(self, table: Columns, rows: Sequence[OldRow]) -> None:
        if any(isinstance(row[0], bytes | Replaced) for row in rows):
            raise WorkError(
                f"{self.path} cannot be read any further (there are keys of {table.name} that are "
                "no text): copy its rows into a table that is not made WITHOUT ROWID"
            )

    def _lead(self, shape: Shape) -> Belonging:
        sessions, messages = self._found.get(shape.sessions.name), self._found[shape.messages.name]
        return lead(self._connection, sessions, messages, shape.owner)

    def _rows(self, statement: str, *values: Any) -> list[OldRow]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            if not self.doubtful and "decode" in str(error):
                self.doubtful, self._connection.text_factory = True, _text
                return self._rows(statement, *values)
            raise WorkError(
                f"{self.path} cannot be read any further ({error}): what was taken over stays"
            ) from error

    def _name(self, table: Columns) -> str:
        return f"main.{self._prefix}{table.name}"

    def _selected(self, table: Columns) -> str:
        there = {column.lower() for column in self._columns[table.name]}
        known = [f"t.{name}" if name in there else "NULL" for name in table.known]
        others = ['t."{}"'.format(name.replace('"', '""')) for name in self._others[table.name]]
        return ", ".join([self._rowid(table), *known, *others])

    def _rowid(self, table: Columns) -> str:
        return f"t.{self._found[table.name].rowid}"

    def _unknown(self, table: str, columns: Sequence[str]) -> Iterator[str]:
        shapes = [t for shape in SHAPES for t in (shape.sessions, shape.messages)]
        known = next(t.known for t in (*shapes, REQUESTS) if t.name == table)
        return (name for name in columns if name.lower() not in known)


def _open(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    try:
        return open_to_read(path)
    except (OSError, sqlite3.Error) as error:
        raise UsageError(f"{path} cannot be opened ({error})") from error
