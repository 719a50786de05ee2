"""Asking the running server of a store to do something: one JSON request over HTTP."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

import orjson

from xgw.cli.server import ServerAddress
from xgw.errors import WorkError

ANSWER_SECONDS = 60.0


def ask(server: ServerAddress, method: str, path: str, body: Any = None) -> Any:
    """What the server answers; WorkError in its own words if it refuses or cannot be reached."""
    url = urlsplit(server.url)
    headers = {
        # Its own name, whatever address it is bound to.
        "Host": f"localhost:{url.port}",
        "Content-Type": "application/json",
        "Authorization": f"Bearer {server.key}",
    }
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=ANSWER_SECONDS)
    try:
        connection.request(method, path, orjson.dumps(body or {}), headers)
        response = connection.getresponse()
        content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise WorkError(f"the server at {server.url} cannot be asked: {error}") from None
    finally:
        connection.close()
    answer = _parsed(content)
    if response.status >= 400:
        refusal = answer.get("error") if isinstance(answer, dict) else None
        message = refusal.get("message") if isinstance(refusal, dict) else response.reason
        raise WorkError(str(message))
    return answer


def _parsed(content: bytes) -> Any:
    try:
        return orjson.loads(content) if content else None
    except orjson.JSONDecodeError:
        return None
