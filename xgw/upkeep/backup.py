"""A copy of the store as it is at one moment, made while others write."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from xgw.errors import UsageError, WorkError
from xgw.store.database import Store

PAGES = 2048
"""As many are copied at a time; the copy is of one moment all the same."""


def back_up(store: Store, target: Path, *, overwrite: bool = False) -> int:
    """Copy the store to a file, which is there only once it is whole; its size in bytes.

    UsageError for a target that cannot be one, WorkError if the copy cannot be written: then there
    is what there was.
    """
    _check(store, target, overwrite)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        _copy(store.path, draft)
        _put_in_place(draft, target, overwrite)
        return target.stat().st_size
    except FileExistsError:
        raise _there_already(target) from None
    except (sqlite3.Error, OSError) as error:
        text = error.strerror if isinstance(error, OSError) else str(error)
        raise WorkError(f"the backup {target} could not be written: {text}") from None
    finally:
        for leftover in (draft, *(Path(f"{draft}{tail}") for tail in ("-wal", "-shm", "-journal"))):
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)


def _check(store: Store, target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise UsageError(f"{target} is a folder: name a file in it")
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no file but a device or a pipe: name a file")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent} for the backup")
    if target.exists() and target.samefile(store.path):
        raise UsageError(f"{target} is the store itself: name another file")
    if target.exists() and not overwrite:
        raise _there_already(target)


def _there_already(target: Path) -> UsageError:
    return UsageError(f"{target} is there already: --overwrite replaces it")


def _copy(source: Path, draft: Path) -> None:
    """Under one read transaction: what is committed meanwhile is not in it."""
    draft.touch(mode=0o600)
    with (
        contextlib.closing(_opened(source)) as original,
        contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as copy,
    ):
        original.execute("BEGIN")
        original.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        original.backup(copy, pages=PAGES)
        original.execute("COMMIT")
        # One file is all that it is.
        copy.execute("PRAGMA journal_mode = delete")
    with draft.open("rb") as written:
        os.fsync(written.fileno())


def _opened(source: Path) -> sqlite3.Connection:
    uri = f"{source.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)


def _put_in_place(draft: Path, target: Path, overwrite: bool) -> None:
    """FileExistsError if it came to be there meanwhile and is not to be replaced."""
    if overwrite:
        draft.replace(target)
        return
    try:
        os.link(draft, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(target) from None
        draft.replace(target)
