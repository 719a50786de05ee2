"""Giving free room of the file back to the disk."""

from __future__ import annotations

import contextlib
import sqlite3

from xgw.errors import WorkError
from xgw.store.database import Store

BUSY_MS = 30_000


def compact(store: Store) -> None:
    """Write the file anew without what is free in it; WorkError if that is not possible.

    It needs as much room on the disk as the file takes. What a server records meanwhile waits.
    """
    try:
        with contextlib.closing(store.open_writer(BUSY_MS)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        message = f"the store {store.path} could not be compacted: {error}"
        raise WorkError(f"{message} (the disk needs as much room again as it takes)") from None
