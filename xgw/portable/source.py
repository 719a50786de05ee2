"""What an export tells, read at one moment of the store: its head, its rows, its bodies."""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from platform import platform, python_version
from typing import Any, BinaryIO

import orjson

from xgw import __version__, clock
from xgw.frozen import field, frozen
from xgw.portable import kept
from xgw.portable.bodies import Bodies
from xgw.portable.bodiless import measured, without_contents
from xgw.portable.chosen import Chosen, Root
from xgw.portable.masked_rows import masked
from xgw.portable.redaction import Place, Redactor
from xgw.portable.rows import Row, cut_event, read_rows
from xgw.portable.scratch import Scratch
from xgw.queries.payloads import COLUMNS as PAYLOADS
from xgw.queries.snapshot import snapshot
from xgw.store.database import Store

VERSION = 1
"""Of the bundle's format."""

LIBRARIES = ("flask", "gunicorn", "openai", "orjson", "peewee", "pydantic")

Json = dict[str, Any]
DefinitionOf = Callable[[str], Json | None]


@frozen
class Asked:
    """What is exported: `roots`, None for everything in the store; `filter` is how they were found.

    They are gone through more than once. `definition_of` tells how an agent is configured now.
    Without `bodies` contents stay here. `redactor` masks what leaves; a new one for each export.
    `before_row` is called as often as there are rows, and may raise to end it.
    """

    roots: Iterable[Root] | None
    definition_of: DefinitionOf
    filter: Json | None = None
    bodies: bool = True
    redactor: Redactor = field(default_factory=Redactor)
    before_row: Callable[[], None] = lambda: None


class Source:
    """One export's rows and bodies. `rows` is to be read once for each table, in order."""

    def __init__(self, store: Store, scratch: Scratch, asked: Asked, spool: BinaryIO) -> None:
        self.spool = spool
        self._asked = asked
        self._redactor = asked.redactor
        self._imported = kept.read_head(store)
        if self._imported is not None:
            self._redactor.take(kept.placeholders(self._imported))
        self._bodies = Bodies(store, scratch, spool, asked.redactor, whole=asked.bodies)
        self._chosen = Chosen(store, scratch, everything=asked.roots is None)
        self._named: list[str] = []
        self._agents: set[str] = set()
        self._choose()

    def _choose(self) -> None:
        roots = iter(self._asked.roots or ())
        if self._asked.filter is not None:
            self._chosen.add(roots)
            return
        for root in roots:
            self._named.append(root.id)
            self._chosen.add([root])

    def head(self) -> Json:
        """What stands before the rows."""
        before = self._imported or {}
        head = {
            "xgw_bundle": VERSION,
            "exported_at": before.get("exported_at") or clock.to_rfc3339(clock.now()),
            "xgw": before.get("xgw") or versions(),
            "asked_for": self._named,
            "filter": self._filter(self._asked.filter),
        }
        if before and self._chosen.everything:
            head |= {"asked_for": before["asked_for"], "filter": self._filter(before["filter"])}
        return head

    def _filter(self, told: Json | None) -> Json | None:
        """How the rows were found, as far as it may leave; None where nothing narrowed it."""
        if not told:
            return None
        at = ("", "", "filter")
        masked = {name: self._redactor.text(told[name], at) for name in told if name != "where"}
        where = told.get("where", {})
        texts = {name: [self._redactor.text(one, at) for one in where[name]] for name in where}
        return masked | ({"where": texts} if texts else {})

    def rows(self, table: str) -> Iterator[Row]:
        """The rows of a table; their bodies go to the spool."""
        for read in read_rows(self._chosen, table):
            self._asked.before_row()
            if read.get("agent_name"):
                self._agents.add(read["agent_name"])
            row = masked(self._redactor, table, read)
            if table == "events":
                row = cut_event(row)
            else:
                self._put_bodies(table, row)
            if self._imported is not None:
                row |= kept.read_originals(self._chosen.store, table, row)
            yield row if self._asked.bodies else without_contents(table, row)

    def agents(self) -> list[Json]:
        """The agents that the rows name, as they are configured now; of an import as they were."""
        if self._imported is None:
            return [
                self._agent(name, self._asked.definition_of(name)) for name in sorted(self._agents)
            ]
        told: list[Json] = self._imported["agents"]
        everything = self._chosen.everything
        kept = (one for one in told if everything or one["name"] in self._agents)
        return [self._agent(one["name"], one["definition"]) for one in kept]

    def _agent(self, name: str, definition: Json | None) -> Json:
        told = self._redactor.value(definition, ("agents", name, "definition"))
        if told is not None and not self._asked.bodies:
            told = told | {"instructions": measured(told.get("instructions"))}
        return {"name": self._redactor.text(name, ("agents", name, "name")), "definition": told}

    def payloads(self) -> Iterator[bytes]:
        """The bodies of the rows that were read, a JSON object each.

        Where an import has none, those that were left out, also the ones that no row names.
        """
        store, before = self._chosen.store, self._imported
        if before and self._chosen.everything and not before["redaction"]["bodies"]:
            yield from map(orjson.dumps, kept.read_sizes(store))
            return
        self.spool.seek(0)
        for line in self.spool:
            yield line[:-1]

    def tail(self) -> Json:
        """What stands behind the bodies."""
        redaction = {
            "on": self._redactor.on,
            "bodies": self._asked.bodies,
            "masked": self._redactor.report(),
        }
        if self._imported is None:
            return {"redaction": redaction, "imported": None}
        before = self._imported["redaction"]
        redaction = {
            "on": before["on"] or redaction["on"],
            "bodies": before["bodies"] and redaction["bodies"],
            "masked": [*before["masked"], *self._redactor.report()],
        }
        return {"redaction": redaction, "imported": self._imported["imported"]}

    def _put_bodies(self, table: str, row: Row) -> None:
        """The bodies that a row names, by their hashes in the bundle from now on."""
        for name in PAYLOADS:
            if (key := row.get(name)) is None:
                continue
            row[name] = self._bodies.put(key, (table, row["id"], name)).hash or key
            if name == "response_body" and row[name] != key:
                row["frames"] = self._redactor.moved(row["frames"], self._bodies.edits_of(key))
        if table == "messages":
            self._put_parts(row["parts"], (table, row["id"], "parts"))

    def _put_parts(self, value: Any, at: Place) -> None:
        """The long texts that a message's parts name."""
        if isinstance(value, dict):
            if isinstance(key := value.get("payload"), str):
                noted = self._bodies.put(key, at)
                if noted.hash is not None:
                    value |= {"payload": noted.hash, "size": noted.size}
            value = list(value.values())
        if isinstance(value, list):
            for inner in value:
                self._put_parts(inner, at)


@contextlib.contextmanager
def moment(store: Store) -> Iterator[None]:
    """Everything read inside is as it is now, whatever is recorded meanwhile."""
    with _whatever_the_text(store), snapshot(store):
        yield


@contextlib.contextmanager
def reading(store: Store, asked: Asked) -> Iterator[Source]:
    """What is exported; inside one moment of the store."""
    with contextlib.closing(Scratch()) as scratch, tempfile.TemporaryFile() as spool:
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
