"""Whether all is well, without reading anything that grows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import peewee
from flask import Blueprint, Response, request

from xgw import __version__
from xgw.store import migrations
from xgw.web.api import edge
from xgw.web.serialize import Json

if TYPE_CHECKING:
    from xgw.web.app import Services

LAG_LIMIT_MS = 2000
"""Rows that wait longer than this for their commit are trouble."""


routes = Blueprint("health", __name__)


@routes.get("/health")
def get_health() -> Response:
    """GET /health: always 200; whoever may not see everything is told the status only"""
    running = edge.services()
    store, trouble = _store(running)
    reasons = [*trouble, *_writing(running)]
    status = "degraded" if reasons else "ok"
    asking = request.environ.get("xgw.caller")
    if asking is None or not asking.sees_all:
        return edge.answer({"object": "health", "status": status})
    return edge.answer(
        {
            "object": "health",
            "status": status,
            "reasons": reasons,
            "version": __version__,
            "store": store,
            "writer": _writer(running),
            "threads": threading.active_count(),
            "calls": running.calls.count,
            "watchers": running.watchers.count,
            "providers": [
                {"name": p.name, "kind": p.kind, "label": p.label, "endpoints": p.endpoints}
                for p in running.config.config.providers
            ],
        }
    )


def _store(running: Services) -> tuple[Json, list[str]]:
    store: Json = {"path": str(running.store.path), "size_bytes": None, "schema": None}
    try:
        store["size_bytes"] = running.store.size_bytes()
        store["schema"] = migrations.schema_version(running.store)
    except (peewee.DatabaseError, OSError) as error:
        return store, [f"the store cannot be read: {error}"]
    return store, []


def _writer(running: Services) -> Json:
    writer = running.writer
    return {
        "queue_depth": writer.depth,
        "pending_bytes": writer.pending_bytes,
        "lag_ms": round(writer.lag_ms, 1),
        "down": writer.down,
        "down_reason": writer.down_reason,
        "dropped": dict(writer.dropped),
    }


def _writing(running: Services) -> list[str]:
    writer = running.writer
    reasons = []
    if writer.down or writer.down_reason is not None:
        reasons.append(f"the store cannot be written: {writer.down_reason}")
    elif writer.lag_ms > LAG_LIMIT_MS:
        reasons.append(f"writing lags {writer.lag_ms / 1000:.1f} s behind")
    lost = {what: count for what, count in writer.dropped.items() if count}
    if lost:
        counts = " and ".join(f"{count} {what}" for what, count in lost.items())
        reasons.append(f"not recorded since the start, for want of memory: {counts}")
    return reasons
