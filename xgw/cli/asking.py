"""Asking the running server of a store to do something, over HTTP: one answer, or a stream."""

from __future__ import annotations

import contextlib
import http.client
import select
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson

from xgw import __version__, clock
from xgw.cli.server import ServerAddress
from xgw.errors import WorkError

ANSWER_SECONDS = 60.0
ALIVE_SECONDS = 10.0
"""How long a server may take to say that it is there, and an answer until that is asked again."""

BLOCK = 65536


class Refusal(WorkError):
    """The server refuses what it was asked, with the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Silent(WorkError):
    """The server is there and says nothing, as one does that was stopped.

    `says` is what is the case, `hint` what to do about it. One that was `asked` before may still do
    what it was asked for, once it goes on.
    """

    def __init__(self, server: ServerAddress, *, asked: bool) -> None:
        self.says = f"the server at {server.url} (process {server.pid}) does not answer"
        self.hint = (
            f"let it go on if it was stopped (kill -CONT {server.pid}), "
            "or end it and start `xgw serve` anew"
        )
        so = "what it was asked for may still be done" if asked else "nothing was asked of it"
        super().__init__(f"{self.says}, {so}: {self.hint}")


def ask(
    server: ServerAddress,
    method: str,
    path: str,
    body: Any = None,
    seconds: float | None = ANSWER_SECONDS,
) -> Any:
    """What the server answers; WorkError in its own words if it refuses or cannot be reached.

    That may take `seconds`, any time if that is None. Silent if the server itself says nothing:
    where that is so to begin with, it is not asked.
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
    # A request that a stopped server has not read is carried out once it goes on.
    _check_alive(server, asked=False)
    with _connected(server, ANSWER_SECONDS, asked=True) as connection:
        connection.request(method, path, orjson.dumps(body or {}), _headers(server))
        _await_answer(connection, server, seconds)
        with connection.getresponse() as response:
            yield response


@contextlib.contextmanager
def _connected(
    server: ServerAddress, seconds: float, *, asked: bool
) -> Iterator[http.client.HTTPConnection]:
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=seconds)
    try:
        yield connection
    except TimeoutError:
        raise Silent(server, asked=asked) from None
    except (OSError, http.client.HTTPException) as error:
        raise WorkError(f"the server at {server.url} cannot be asked: {error}") from None
    finally:
        connection.close()


def _headers(server: ServerAddress) -> dict[str, str]:
    return {
        # Its own name, whatever address it is bound to.
        "Host": f"localhost:{urlsplit(server.url).port}",
        "Content-Type": "application/json",
        "Authorization": f"Bearer {server.key}",
        "User-Agent": f"xgw/{__version__}",
    }


def _check_alive(server: ServerAddress, *, asked: bool) -> None:
    """Silent unless the server says how it is, whatever else it has to do."""
    with _connected(server, ALIVE_SECONDS, asked=asked) as connection:
        connection.request("GET", "/health", headers=_headers(server))
        connection.getresponse().close()


def _await_answer(
    connection: http.client.HTTPConnection, server: ServerAddress, seconds: float | None
) -> None:
    """Until the answer begins; one that takes its time is not given up while its server lives."""
    deadline = None if seconds is None else clock.monotonic() + seconds
    while not select.select([connection.sock], [], [], ALIVE_SECONDS)[0]:
        _check_alive(server, asked=True)
        if deadline is not None and clock.monotonic() > deadline:
            message = f"the server at {server.url} has not answered within {seconds:.0f} s"
            raise WorkError(message)
