"""Several statements that see the store at one moment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from xgw.store.database import Store


@contextlib.contextmanager
def snapshot(store: Store) -> Iterator[None]:
    """Everything read inside sees the same commits; keep it short, and no network inside."""
    with store.reading() as database, database.atomic():
        yield
