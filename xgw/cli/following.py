"""Following the events of a store, through its server while there is one and from its table else.

Every stored event comes exactly once and in order, whatever happens to the server meanwhile.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import orjson

from xgw import clock
from xgw.cli.server import ServerAddress, find_server
from xgw.providers.sse import EventSplitter, EventTooLarge
from xgw.queries import events
from xgw.store.database import Store

POLL_SECONDS = 0.2
RETRY_SECONDS = 2.0
CONNECT_SECONDS = 5.0
MISSES = 3
"""How often a server has to be asked in vain until that is told."""

PAGE = 500
MAX_EVENT_BYTES = 8 << 20
BLOCK = 65536

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to follow: `types` of events, of one session or all, after the cursor `after`."""

    types: frozenset[str]
    after: int
    session_id: str | None = None


class Refused(Exception):
    """The server does not let us watch; the text says why."""


class Follower:
    """The events of a store in batches, until it is stopped; an empty batch now and then.

    `token` opens the server; without one its own key does, to those who can read that. `say` is
    told what a person should know, each thing once.
    """

    def __init__(
        self,
        store: Store,
        wanted: Wanted,
        token: str,
        heartbeat_seconds: float,
        say: Callable[[str], None],
    ) -> None:
        self.after = wanted.after
        self._store = store
        self._wanted = wanted
        self._token = token
        self._silence = 3 * heartbeat_seconds + CONNECT_SECONDS
        self._say = say
        self._said: set[str] = set()
        self._stopped = threading.Event()
        self._sock: socket.socket | None = None
        self._not_before = 0.0
        self._silent: ServerAddress | None = None
        self._misses = 0

    def batches(self) -> Iterator[list[Event]]:
        """Goes on until it is interrupted or stopped."""
        while not self._stopped.is_set():
            server = find_server(self._store.path)
            if server is not None and clock.monotonic() >= self._not_before:
                yield from self._served(server)
            yield from self._stored()
            self._stopped.wait(POLL_SECONDS)

    def stop(self) -> None:
        """End `batches`, from another thread, also while it waits for the server."""
        self._stopped.set()
        sock = self._sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # -- from the table ----------------------------------------------------------------------------

    def _stored(self) -> Iterator[list[Event]]:
        """What the store has after the cursor."""
        newest = events.newest(self._store)
        while self.after < newest:
            page = events.list_events(
                self._store,
                self.after,
                PAGE,
                session_id=self._wanted.session_id,
                types=self._wanted.types,
            )
            last = page[-1].seq if page else None
            # Commits are in the order of seq: what was not there up to `newest` never will be.
            self.after = last if last is not None and len(page) == PAGE else max(newest, last or 0)
            if page:
                yield [envelope.to_json() for envelope in page]

    # -- from the server ---------------------------------------------------------------------------

    def _served(self, server: ServerAddress) -> Iterator[list[Event]]:
        """What the server sends, until it ends, falls silent, or refuses."""
        address = urlsplit(server.url)
        connection = http.client.HTTPConnection(
            address.hostname or "", address.port, timeout=CONNECT_SECONDS
        )
        try:
            yield from self._received(connection, self._token or server.key)
        except Refused as refusal:
            if find_server(self._store.path) == server:  # else another one has other keys
                self._not_before = clock.monotonic() + RETRY_SECONDS
                self._once(f"{refusal}; reading the store instead, without live progress")
        except TimeoutError:
            self._not_before = clock.monotonic() + RETRY_SECONDS
            self._missed(server)
        except (OSError, http.client.HTTPException, EventTooLarge):
            pass  # the store has whatever did not come from here
        finally:
            self._sock = None
            connection.close()

    def _received(self, connection: http.client.HTTPConnection, key: str) -> Iterator[list[Event]]:
        # The server accepts this name wherever it is bound.
        headers = {"Host": "localhost", "Accept": "text/event-stream"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        connection.request("GET", self._path(), headers=headers)
        self._sock = connection.sock
        if self._stopped.is_set():
            return
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(_why(connection, response))
        if connection.sock is not None:
            connection.sock.settimeout(self._silence)
        splitter = EventSplitter(MAX_EVENT_BYTES)
        while block := response.read1(BLOCK):
            yield self._batch(splitter, block)

    def _batch(self, splitter: EventSplitter, block: bytes) -> list[Event]:
        batch: list[Event] = []
        for event in splitter.feed(block):
            if event.data is None:
                continue
            envelope: Event = orjson.loads(event.data)
            if envelope["seq"] is not None:
                self.after = envelope["seq"]
            batch.append(envelope)
        return batch

    def _path(self) -> str:
        session = self._wanted.session_id
        path = "/events" if session is None else f"/sessions/{quote(session)}/events"
        return f"{path}?after={self.after}&types={','.join(sorted(self._wanted.types))}"

    def _missed(self, server: ServerAddress) -> None:
        """It is in vain again and again where a server does not just start or end."""
        if server != self._silent:
            self._silent, self._misses = server, 0
        self._misses += 1
        if self._misses == MISSES:
            self._once(
                f"the server at {server.url} (process {server.pid}) does not answer; "
                "reading the store instead, without live progress"
            )

    def _once(self, words: str) -> None:
        if words not in self._said:
            self._said.add(words)
            self._say(words)


def _why(connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> str:
    where = f"the server at {connection.host}:{connection.port}"
    if response.status == 401:
        return f"{where} wants its token (XGW_TOKEN, or [server] token)"
    try:
        message = json.loads(response.read(BLOCK))["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = response.reason
    return f"{where} answered {response.status} ({message})"
