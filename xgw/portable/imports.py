"""The bundles that were imported: a folder beside the store, a read-only store for each of them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import peewee

from xgw import clock
from xgw.errors import UsageError, WorkError
from xgw.frozen import frozen
from xgw.portable import kept
from xgw.portable.naming import ID, id_of
from xgw.recording import owner
from xgw.store import migrations
from xgw.store.database import Store

_PART = ".part"
NEWEST = max(path.stem for path in migrations.DIRECTORY.glob("[0-9]*.py"))

Json = dict[str, Any]


@frozen
class Import:
    """One import: its id, its store's file, and the head of the bundle."""

    id: str
    path: Path
    head: Json

    @property
    def file(self) -> str:
        """What the bundle's file was called."""
        return str(self.head["imported"]["file"])

    @property
    def imported_at(self) -> datetime:
        """When it was imported."""
        return clock.parse_time(self.head["imported"]["at"])

    @property
    def exported_at(self) -> datetime:
        """When the bundle was written."""
        return clock.parse_time(self.head["exported_at"])

    @property
    def version(self) -> str:
        """The version of the xgw that wrote it."""
        return str(self.head["xgw"]["version"])

    @property
    def counts(self) -> dict[str, int]:
        """How many rows it has, by table."""
        counts: dict[str, int] = self.head["counts"]
        return counts

    @property
    def has_bodies(self) -> bool:
        """Whether it says what was said."""
        return self.head["redaction"].get("bodies") is not False

    def to_json(self) -> Json:
        """As the API shows it."""
        return {
            "object": "import",
            "id": self.id,
            "file": self.file,
            "imported_at": clock.to_rfc3339(self.imported_at),
            "exported_at": clock.to_rfc3339(self.exported_at),
            "xgw_version": self.version,
            "bodies": self.has_bodies,
            "counts": self.counts,
            "size_bytes": self.path.stat().st_size if self.path.exists() else None,
        }


class Imports:
    """The imports of one store; whoever else works on the folder is seen at once."""

    def __init__(self, store_path: Path) -> None:
        self.folder = store_path.with_name(store_path.name + ".imports")

    def add(self, file: IO[bytes], name: str) -> tuple[Import, bool]:
        """Import a bundle; whether it is new here. BadBundle, with nothing left behind."""
        from xgw.portable.intake import take_in

        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._clear()
        part = self.folder / f"{secrets.token_hex(8)}{_PART}"
        with _owned(part):
            hash, head = take_in(file, _base(name), part)
            id = id_of(hash)
            known = self.find(id)
            if known is not None:
                return known, False
            os.replace(part, self._path(id))
        return Import(id, self._path(id), head), True

    def list(self) -> list[Import]:
        """All imports, the newest first."""
        paths = self.folder.glob("imp_*.db") if self.folder.is_dir() else ()
        found = [one for path in paths if (one := self.find(path.stem)) is not None]
        return sorted(found, key=lambda one: (one.imported_at, one.id), reverse=True)

    def stamp(self, id: str) -> tuple[int, int, int] | None:
        """What is another one once the import's file is; None without one."""
        if ID.fullmatch(id) is None:
            return None
        try:
            found = self._path(id).stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def find(self, id: str) -> Import | None:
        """The import with this id; None if there is none that can be read."""
        if ID.fullmatch(id) is None or not self._path(id).is_file():
            return None
        try:
            with opened(self._path(id)) as store:
                return _read(id, store)
        except (peewee.DatabaseError, UsageError):
            return None

    def get(self, ref: str) -> Import:
        """The import that a person names by its id or the start of it; WorkError."""
        fitting = [one for one in self.list() if one.id == ref or _begins(one.id, ref)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise WorkError(f"{ref} fits more than one import: write more of its id")
        raise WorkError(f"there is no import {ref[:64]!r}: `xgw import --list` lists them")

    def remove(self, id: str) -> bool:
        """Remove an import for good; whether there was one."""
        if ID.fullmatch(id) is None:
            return False
        try:
            self._path(id).unlink()
        except FileNotFoundError:
            return False
        return True

    def _path(self, id: str) -> Path:
        return self.folder / f"{id}.db"

    def _clear(self) -> None:
        """Remove what imports have left whose process is gone."""
        for mark in self.folder.glob(f"*{_PART}.owner"):
            if not owner.is_alive(_text(mark)):
                _remove(mark.with_suffix(""))


def _begins(id: str, ref: str) -> bool:
    return len(ref) >= 6 and (id.startswith(ref) or id.removeprefix("imp_").startswith(ref))


def _base(name: str) -> str:
    """The name alone, whatever path came with it, in characters that can be shown."""
    last = re.split(r"[/\\]", name)[-1]
    return "".join(c for c in last if c.isprintable()).strip() or "bundle"


def _read(id: str, store: Store) -> Import | None:
    head = kept.read_head(store)
    if head is None or head.get("imported", {}).get("id") != id:
        return None
    return Import(id, store.path, head)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The store of an import, with the present schema whichever xgw imported it."""
    store = Store(path)
    try:
        if migrations.schema_version(store) != NEWEST:
            migrations.migrate(store, backup=False)
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def _owned(part: Path) -> Iterator[None]:
    """A file that is gone afterwards, with all that SQLite has beside it."""
    mark = part.with_name(part.name + ".owner")
    mark.write_text(owner.own())
    try:
        yield
    except (sqlite3.OperationalError, peewee.OperationalError) as error:
        raise WorkError(f"the import could not be written ({error})") from None
    finally:
        _remove(part)


def _remove(part: Path) -> None:
    for tail in ("", "-wal", "-shm", "-journal", ".migrate.lock", ".owner"):
        with contextlib.suppress(OSError):
            part.with_name(part.name + tail).unlink(missing_ok=True)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
