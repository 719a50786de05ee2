"""Reading the client keys that xgw issued; what opens, and which are there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from xgw.queries.pages import Row
from xgw.store.database import Store
from xgw.store.models import ApiKey

SHOWN = [field for field in ApiKey._meta.sorted_fields if field is not ApiKey.hash]
ACTIVE = "SELECT 1 FROM api_keys WHERE revoked_at IS NULL LIMIT 1"


def list_keys(store: Store) -> list[Row]:
    """All keys, revoked ones too, the oldest first; without their digests."""
    return store.fetch(ApiKey.select(*SHOWN).order_by(ApiKey.created_at, ApiKey.id))


def find_keys(store: Store, ref: str, digest: str) -> list[Row]:
    """The keys that `ref` names: an id or the start of one, the start of a key, or a whole key."""
    named = (
        (ApiKey.hash == digest)
        | (ApiKey.id == ref)
        | _starts(ApiKey.id, ref)
        | _starts(ApiKey.prefix, ref)
    )
    return store.fetch(ApiKey.select(*SHOWN).where(named).order_by(ApiKey.created_at))


def list_digests(store: Store) -> list[Row]:
    """Every key as it is compared: one statement over a table of few rows."""
    return store.fetch(ApiKey.select())


def has_active(path: Path) -> bool:
    """Whether a store that may not be there, or may be no store, has a key that opens."""
    if not path.is_file():
        return False
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            return connection.execute(ACTIVE).fetchone() is not None
    except sqlite3.Error:
        return False


def _starts(column: object, ref: str) -> object:
    return column.startswith(ref)  # type: ignore[attr-defined]
