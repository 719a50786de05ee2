"""The API's description of itself: OpenAPI 3.1, made of the tables that the API runs on."""

from __future__ import annotations

from typing import Any

from xgw import __version__
from xgw.web.openapi import gateway, operations, schemas

Json = dict[str, Any]

ABOUT = (
    "The OpenAI-compatible surface (`/v1`) and the API for what was recorded. `HEAD` works "
    "wherever `GET` does. What is not known is null, never 0. What can be read here can be "
    "read of an import under `/imports/{id}`, too. The websocket `/ws` is not described here."
)
SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "The token, which sees every project, or a client key.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "xgwKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Xgw-Key",
        "description": "Leaves Authorization for a provider that takes the client's own key.",
    },
}


def describe(*, wants_key: bool) -> Json:
    """The whole document; `wants_key` tells whether requests have to show a key."""
    security: Json = {"security": [{name: []} for name in SECURITY]} if wants_key else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "xgw", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/"}],
        **security,
        "paths": {**operations.paths(), **gateway.paths()},
        "components": {
            "schemas": schemas.components(),
            "responses": operations.RESPONSES,
            "securitySchemes": SECURITY,
        },
    }
