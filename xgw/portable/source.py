"""What an export tells, read at one moment of the store: its head, its rows, its bodies."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from platform import platform, python_version
from typing import Any, BinaryIO

from xgw import __version__, clock
from xgw.frozen import frozen
from xgw.portable.bodies import Bodies
from xgw.portable.bodiless import without_contents
from xgw.portable.chosen import Chosen, Root
from xgw.portable.rows import Row, read_rows
from xgw.portable.scratch import Scratch
from xgw.queries.payloads import COLUMNS
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store

VERSION = 1
"""Of the bundle's format."""

LIBRARIES = ("flask", "gunicorn", "openai", "orjson", "peewee", "pydantic")

Json = dict[str, Any]
DefinitionOf = Callable[[str], Json | None]


@frozen
class Asked:
    """What is exported: `roots`, None for everything in the store; `query` is how they were found.

    `definition_of` tells how an agent is configured now. Without `bodies` contents stay here.
    """

    roots: Iterable[Root] | None
    definition_of: DefinitionOf
    query: str | None = None
    bodies: bool = True


class Source:
    """One export's rows and bodies. `rows` is to be read once for each table, in order."""

    def __init__(self, store: Store, scratch: Scratch, asked: Asked, spool: BinaryIO) -> None:
        self.spool = spool
        self._asked = asked
        self._bodies = Bodies(store, scratch, spool, whole=asked.bodies)
        self._chosen = Chosen(store, scratch, everything=asked.roots is None)
        self._named: list[str] = []
        self._agents: set[str] = set()
        self._choose()

    def _choose(self) -> None:
        roots = iter(self._asked.roots or ())
        if self._asked.query is not None:
            self._chosen.add(roots)
            return
        for root in roots:
            self._named.append(root.id)
            self._chosen.add([root])

    def head(self) -> Json:
        """What stands before the rows."""
        query = self._asked.query
        return {
            "xgw_bundle": VERSION,
            "exported_at": clock.to_rfc3339(clock.now()),
            "xgw": versions(),
            "asked_for": self._named,
            "filter": None if query is None else {"q": query},
        }

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table; their bodies go to the spool."""
        payloads = [name for name in COLUMNS if name in _columns(table)]
        for row in read_rows(self._chosen, table):
            if row.get("agent_name"):
                self._agents.add(row["agent_name"])
            for name in payloads:
                if row[name] is not None:
                    row[name] = self._bodies.put(row[name])
            if table == "messages":
                self._put_parts(row["parts"])
            yield row if self._asked.bodies else without_contents(table, row)

    def agents(self) -> list[Json]:
        """The agents that the rows name, as they are configured now."""
        definition_of = self._asked.definition_of
        return [{"name": name, "definition": definition_of(name)} for name in sorted(self._agents)]

    def tail(self) -> Json:
        """What stands behind the bodies."""
        redaction = {"on": False, "bodies": self._asked.bodies, "masked": []}
        return {"redaction": redaction, "imported": None}

    def _put_parts(self, value: Any) -> None:
        """The long texts that a message's parts name."""
        if isinstance(value, dict):
            if isinstance(key := value.get("payload"), str):
                value["payload"] = self._bodies.put(key)
            value = list(value.values())
        if isinstance(value, list):
            for inner in value:
                self._put_parts(inner)


@contextlib.contextmanager
def reading(store: Store, asked: Asked) -> Iterator[Source]:
    """What is exported, as it is now, whatever is recorded meanwhile."""
    with contextlib.ExitStack() as stack:
        scratch = Scratch()
        stack.callback(scratch.close)
        spool = stack.enter_context(tempfile.TemporaryFile())
        stack.enter_context(_whatever_the_text(store))
        stack.enter_context(snapshot(store))
        yield Source(store, scratch, asked, spool)


@contextlib.contextmanager
def _whatever_the_text(store: Store) -> Iterator[None]:
    """Texts of old rows that are no UTF-8 are read all the same."""
    with store.reading() as database:
        connection: sqlite3.Connection = database.connection()  # type: ignore[no-untyped-call]
        usual = connection.text_factory
        connection.text_factory = text_of
        try:
            yield
        finally:
            connection.text_factory = usual


def text_of(kept: bytes) -> str:
    """A text as SQLite has it; half of a surrogate pair stays one."""
    try:
        return kept.decode()
    except UnicodeDecodeError:
        pass
    try:
        return kept.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return kept.decode("utf-8", "replace")


def versions() -> Json:
    """Of what xgw runs on."""
    return {
        "version": __version__,
        "python": python_version(),
        "platform": platform(),
        "sqlite": sqlite3.sqlite_version,
        "libraries": {name: metadata.version(name) for name in LIBRARIES if _is_there(name)},
    }


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _columns(table: str) -> tuple[str, ...]:
    from xgw.portable.rows import COLUMNS as OF_TABLES

    return OF_TABLES[table]
