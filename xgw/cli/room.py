"""How much room a disk has, and what is said where that is not enough."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from xgw import spelling
from xgw.errors import WorkError

TO_READ = 64 << 10
"""Bytes that SQLite needs beside a store for being read alone: its index of the log."""

TO_WRITE = 20_000_000
"""For the log of what is written, which is gone through in pieces, whatever is deleted."""

_TEMPORARY = ("/var/tmp", "/usr/tmp", "/tmp")


def is_full(path: Path) -> bool:
    """Whether there is not even room for a store there to be read."""
    return _free(path.parent) < TO_READ


def refuse_to_prune(path: Path) -> None:
    """WorkError unless there is room to delete in a store: that writes before it frees."""
    needed = min(TO_WRITE, 2 * path.stat().st_size)
    if (free := _free(path.parent)) < needed:
        raise WorkError(
            f"nothing was deleted: deleting writes before it frees, and needs"
            f" {spelling.size(needed)} free on the disk of {path}, which has {spelling.size(free)}."
            f" Move something else away first"
        )


def refuse_to_compact(path: Path) -> None:
    """WorkError unless there is room for a store to be written anew beside itself."""
    needed = _used(path)
    places = [path.parent, _temporary()]
    on_one = os.stat(places[0]).st_dev == os.stat(places[1]).st_dev
    for place in places[:1] if on_one else places:
        wanted = 2 * needed if on_one else needed
        if (free := _free(place)) < wanted:
            raise WorkError(
                f"the store was not compacted: to be written anew it needs {spelling.size(wanted)}"
                f" free in {place}, which has {spelling.size(free)}. What was deleted is gone, and"
                f" new rows take its room"
            )


def _used(path: Path) -> int:
    """Bytes of a store that are in use."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        (size,) = store.execute("PRAGMA page_size").fetchone()
        (pages,) = store.execute("PRAGMA page_count").fetchone()
        (free,) = store.execute("PRAGMA freelist_count").fetchone()
    used: int = size * (pages - free)
    return used


def _temporary() -> Path:
    """Where SQLite writes what it does not keep."""
    named = [os.environ[name] for name in ("SQLITE_TMPDIR", "TMPDIR") if os.environ.get(name)]
    found = (place for place in [*named, *_TEMPORARY] if os.access(place, os.W_OK | os.X_OK))
    return Path(next(found, "."))


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
