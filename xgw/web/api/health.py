"""Whether all is well, without reading anything that grows."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from flask import Blueprint, Response, request

from xgw import __version__
from xgw.web import condition
from xgw.web.api import edge
from xgw.web.serialize import Json

if TYPE_CHECKING:
    from xgw.web.app import Services

routes = Blueprint("health", __name__)


@routes.get("/health")
def get_health() -> Response:
    """GET /health: always 200; whoever may not see everything is told the status only"""
    running = edge.services()
    store, unreadable = condition.describe_store(running)
    reasons = [*unreadable, *condition.writing_troubles(running)]
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
