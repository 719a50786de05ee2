"""Asking the running server of a store to do something, over HTTP: one answer, or a stream."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson

from xgw import __version__
from xgw.cli.server import ServerAddress
from xgw.errors import WorkError

ANSWER_SECONDS = 60.0
BLOCK = 65536


class Refusal(WorkError):
    """The server refuses what it was asked, with the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def ask(
    server: ServerAddress,
    method: str,
    path: str,
    body: Any = None,
    seconds: float | None = ANSWER_SECONDS,
) -> Any:
    """What the server answers; WorkError in its own words if it refuses or cannot be reached.

    It may be silent for `seconds`, for ever if that is None.
    """
    with _answering(server, method, path, body, seconds) as response:
        return parse_answer(response.status, response.reason, response.read())


def stream(server: ServerAddress, path: str, body: Any) -> Iterator[bytes]:
    """What the server answers to a POST, block by block as it comes; WorkError as `ask` has it."""
    with _answering(server, "POST", path, body) as response:
        if response.status >= 400:
            parse_answer(response.status, response.reason, response.read())
        while block := response.read1(BLOCK):
            yield block


def follow(server: ServerAddress, path: str) -> Iterator[bytes]:
    """What the server goes on telling in answer to a GET; WorkError as `ask` has it."""
    with _answering(server, "GET", path, None) as response:
        if response.status >= 400:
            parse_answer(response.status, response.reason, response.read())
        while block := response.read1(BLOCK):
            yield block


def parse_answer(status: int, reason: str, content: bytes) -> Any:
    """The JSON of an answer, None where it is none; Refusal if it is an error."""
    try:
        answer = orjson.loads(content) if content else None
    except orjson.JSONDecodeError:
        answer = None
    if status >= 400:
        refusal = answer.get("error") if isinstance(answer, dict) else None
        message = refusal.get("message") if isinstance(refusal, dict) else reason
        raise Refusal(status, str(message))
    return answer


@contextlib.contextmanager
def _answering(
    server: ServerAddress,
    method: str,
    path: str,
    body: Any,
    seconds: float | None = ANSWER_SECONDS,
) -> Iterator[http.client.HTTPResponse]:
    url = urlsplit(server.url)
    headers = {
        # Its own name, whatever address it is bound to.
        "Host": f"localhost:{url.port}",
        "Content-Type": "application/json",
        "Authorization": f"Bearer {server.key}",
        "User-Agent": f"xgw/{__version__}",
    }
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=seconds)
    try:
        connection.request(method, path, orjson.dumps(body or {}), headers)
        with connection.getresponse() as response:
            yield response
    except (OSError, http.client.HTTPException) as error:
        raise WorkError(f"the server at {server.url} cannot be asked: {error}") from None
    finally:
        connection.close()
