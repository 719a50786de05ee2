"""Whether all is well, in words: what `/health` says and what stands on top of every page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import peewee

from xgw.store import migrations
from xgw.web.serialize import Json

if TYPE_CHECKING:
    from xgw.web.app import Services

LAG_LIMIT_MS = 2000
"""Rows that wait longer than this for their commit are trouble."""


def describe_store(running: Services) -> tuple[Json, list[str]]:
    """Path, size and schema, each null if it cannot be read; and why it cannot."""
    store: Json = {"path": str(running.store.path), "size_bytes": None, "schema": None}
    try:
        store["size_bytes"] = running.store.size_bytes()
        store["schema"] = migrations.schema_version(running.store)
    except (peewee.DatabaseError, OSError) as error:
        return store, [f"the store cannot be read: {error}"]
    return store, []


def writing_troubles(running: Services) -> list[str]:
    """What is wrong with recording, a sentence each; reads nothing."""
    writer = running.writer
    troubles = []
    if running.store.was_taken_away:
        troubles.append(
            "the store's file was deleted or replaced while in use: what is recorded now is lost "
            "when xgw ends; put the file back, or start xgw anew"
        )
    if writer.down or writer.down_reason is not None:
        troubles.append(f"the store cannot be written: {writer.down_reason}")
    elif writer.lag_ms > LAG_LIMIT_MS:
        troubles.append(f"writing lags {writer.lag_ms / 1000:.1f} s behind")
    lost = {what: count for what, count in writer.dropped.items() if count}
    if lost:
        counts = " and ".join(f"{count} {what}" for what, count in lost.items())
        troubles.append(f"not recorded since the start, for want of memory: {counts}")
    return troubles


def troubles(running: Services) -> list[str]:
    """Everything that is wrong, a sentence each."""
    return [*describe_store(running)[1], *writing_troubles(running)]
