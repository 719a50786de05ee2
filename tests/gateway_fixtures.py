"""The gateway between real sockets: a scripted model behind it, clients in front, its record."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import peewee
from flask import Flask

import bundles
from scripted_model import Model, Row
from servers import DEADLINE, eventually, in_process
from xgw.config import Config, Loaded, Provider, Route
from xgw.config.leaves import list_leaves
from xgw.queries.texts import OF_MESSAGES, OF_TURNS, bring_back, bring_back_events
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.models import Event, Message, RequestLog, Run, Session, Step, Turn
from xgw.web.app import Services, create_app

COLUMNS_OF: dict[type[peewee.Model], tuple[str, ...]] = {Message: OF_MESSAGES, Turn: OF_TURNS}
"""Whose long texts are brought back, as those who ask the server get them."""

CHAT = "/v1/chat/completions"
PROVIDER_KEY = "sk-provider-SECRET-0001"


# -- clients ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reply:
    """A whole answer; header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def text(self) -> Any:
        """What a whole chat answer says."""
        return self.json["choices"][0]["message"]["content"]

    @property
    def events(self) -> list[bytes]:
        """The data of a stream's events."""
        blocks = self.body.split(b"\n\n")
        return [block.removeprefix(b"data: ") for block in blocks if block.startswith(b"data:")]


class Reading:
    """An answer that is still being read."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self._sock = connection.sock
        self._response = connection.getresponse()
        self.status = self._response.status
        self.all_headers = self._response.getheaders()
        self.headers = {name.lower(): value for name, value in self.all_headers}
        self.body = b""

    def until(self, text: bytes) -> bytes:
        """Everything so far, once `text` is in it."""
        while text not in self.body:
            assert self.more(), f"the answer ended without {text!r}: {self.body!r}"
        return self.body

    def more(self) -> bytes:
        """What comes next; b"" at the end."""
        block = self._response.read1(65536)
        self.body += block
        return block

    def until_end(self) -> bytes:
        """Everything; the connection stays open."""
        self.body += self._response.read()
        return self.body

    def rest(self) -> Reply:
        with contextlib.closing(self._connection):
            self.body += self._response.read()
        return Reply(self.status, self.headers, self.body)

    def leave(self) -> None:
        """Go away in the middle of it."""
        hang_up(self._sock)
        self._response.close()
        self._connection.close()

    def close(self) -> None:
        """Go away as a program does that has had enough."""
        self._response.close()
        self._connection.close()
        self._sock.close()


def hang_up(sock: socket.socket) -> None:
    """Close with a reset, whatever is still to be read."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Client:
    """Asks a server at `url`, one connection a request."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.address = urlsplit(url).hostname or "", urlsplit(url).port or 0

    def send(
        self, body: Any, path: str = CHAT, method: str = "POST", **headers: str
    ) -> http.client.HTTPConnection:
        """A request on its way; `_` in a header's name stands for `-`. A text is UTF-8 there."""
        connection = http.client.HTTPConnection(*self.address, timeout=DEADLINE)
        content = body if isinstance(body, bytes | None) else orjson.dumps(body)
        sent = {"content_type": "application/json"} if content is not None else {}
        pairs = {name.replace("_", "-"): value.encode() for name, value in (sent | headers).items()}
        connection.request(method, path, content, pairs)
        return connection

    def open(self, body: Any, path: str = CHAT, **headers: str) -> Reading:
        """An answer whose head has come."""
        return Reading(self.send(body, path, **headers))

    def post(self, body: Any, path: str = CHAT, **headers: str) -> Reply:
        """A whole answer."""
        return Reading(self.send(body, path, **headers)).rest()

    def write(self, headers: bytes, body: Any, path: str = CHAT) -> Reply:
        """A request with header lines of these very bytes."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        length = f"Content-Length: {len(content)}\r\n\r\n"
        return self.exchange(head.encode() + headers + length.encode() + content)

    def exchange(self, request: bytes, *, ends: bool = False) -> Reply:
        """The answer to these very bytes; `ends` says that nothing more will come."""
        with socket.create_connection(self.address, DEADLINE) as sock:
            sock.sendall(request)
            if ends:
                sock.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(sock, method="POST")
            response.begin()
            with response:
                found = {name.lower(): value for name, value in response.getheaders()}
                return Reply(response.status, found, response.read())

    def get(self, path: str, method: str = "GET", **headers: str) -> Reply:
        return Reading(self.send(None, path, method, **headers)).rest()


# -- the record ------------------------------------------------------------------------------------


class Records:
    """What a store holds, by what clients were told."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def all(self, table: type[peewee.Model], *where: Any, by: Any = None) -> list[Row]:
        query = table.select().where(*where) if where else table.select()
        rows = self.store.fetch(query.order_by(by if by is not None else table._meta.primary_key))
        bring_back(self.store, rows, COLUMNS_OF.get(table, ()))
        if table is Event:
            bring_back_events(self.store, rows)
        return rows

    def turn(self, reply: Reply | Reading | str) -> Row:
        """The turn of an answer (or of a run's id)."""
        run_id = reply if isinstance(reply, str) else reply.headers["x-run-id"]
        return self.all(Turn, Turn.id << Run.select(Run.turn_id).where(Run.id == run_id))[0]

    def run(self, turn: Row) -> Row:
        return self.all(Run, Run.turn_id == turn["id"])[0]

    def session(self, key: str, project: str = "default") -> Row:
        found = self.all(Session, Session.session_key == key, Session.project_id == project)
        assert len(found) == 1, f"{len(found)} sessions {key!r}"
        return found[0]

    def sessions(self) -> list[Row]:
        return self.all(Session)

    def turns(self, session: str) -> list[Row]:
        """The turns of a session, in order; none before it is there."""
        if not self.all(Session, Session.session_key == session):
            return []
        return self.all(Turn, Turn.session_id == self.session(session)["id"], by=Turn.turn_index)

    def steps(self, turn: Row, kind: str | None = None) -> list[Row]:
        found = self.all(Step, Step.turn_id == turn["id"], by=Step.step_index)
        return [step for step in found if kind in (None, step["step_type"])]

    def requests(self, turn: Row) -> list[Row]:
        return self.all(RequestLog, RequestLog.turn_id == turn["id"])

    def messages(self, turn: Row) -> list[Row]:
        return self.all(Message, Message.turn_id == turn["id"], by=Message.message_index)

    def events(self, turn: Row) -> list[Row]:
        """Those of a turn, and those of its session that came before its end."""
        mine = self.all(Event, Event.turn_id == turn["id"])
        if turn["session_id"] is None:
            return mine
        last = mine[-1]["seq"]
        others = self.all(
            Event,
            Event.session_id == turn["session_id"],
            Event.turn_id.is_null(),
            Event.seq < last,
        )
        return sorted([*mine, *others], key=lambda told: int(told["seq"]))

    def story(self, turn: Row) -> list[str]:
        """The events in order, each with what tells it from others of its type."""
        events = self.events(turn)
        times = [told["at"] for told in events]
        assert times == sorted(times), "the record goes back in time"
        return [tell(told) for told in events]

    def payload(self, key: str | None) -> bytes:
        assert key is not None
        return payloads.load(self.store, key)


def tell(told: Row) -> str:
    """An event in a few words."""
    payload = told["payload"]
    names = {
        "message.added": ("role",),
        "step.started": ("step_type",),
        "step.completed": ("status",),
        "run.updated": ("status",),
        "run.completed": ("status",),
        "turn.completed": ("status", "ended_by"),
        "turn.updated": ("cause",),
        "llm.error": ("error_type", "next"),
    }
    words = [str(payload[name]) for name in names.get(told["type"], ())]
    return " ".join([told["type"], *words])


# -- the gateway -----------------------------------------------------------------------------------


class Gate(Client, Records):
    """xgw in this process with the model as its provider `p1`."""

    def __init__(self, url: str, model: Model, app: Flask) -> None:
        self.app = app
        self.services: Services = app.extensions["xgw"]
        self.model = model
        Client.__init__(self, url)
        Records.__init__(self, self.services.store)

    def ended(self, reply: Reply | Reading | str) -> Row:
        """The turn of an answer, once it has ended."""
        eventually(lambda: self.turn(reply)["ended_at"])
        return self.turn(reply)

    def only_turn(self, **where: Any) -> Row:
        """The one turn with these columns, once it has ended."""
        conditions = [getattr(Turn, name) == value for name, value in where.items()]
        eventually(lambda: self.all(Turn, *conditions, Turn.ended_at.is_null(False)))
        found = self.all(Turn, *conditions)
        assert len(found) == 1
        return found[0]


def provider(model: Model, name: str = "p1", **fields: Any) -> Provider:
    return Provider(**{"name": name, "base_url": model.url, "api_key": PROVIDER_KEY} | fields)


@contextlib.contextmanager
def gateway(folder: Path, model: Model, **tables: Any) -> Iterator[Gate]:
    """A gateway for a `with` block; `tables` are those of its configuration."""
    given: Row = {
        "providers": (provider(model),),
        "routes": (Route(model="m", targets=("p1/m",)),),
    }
    store = Store(folder / "xgw.db")
    migrations.migrate(store)
    config = Config(**given | tables)
    sources = {leaf.key: "default" for leaf in list_leaves(config)}
    app = create_app(Loaded(config, sources, None), store)
    services: Services = app.extensions["xgw"]
    services.start()
    try:
        with in_process(app) as url:
            yield Gate(url, model, app)
    finally:
        services.drain(1)
        services.stop()
    bundles.check_store(store.path)


@contextlib.contextmanager
def gate_and_model(folder: Path, model: Model | None = None, **tables: Any) -> Iterator[Gate]:
    """A gateway and the model behind it, which ends with it."""
    model = model or Model()
    try:
        with gateway(folder, model, **tables) as gate:
            yield gate
    finally:
        model.close()


@contextlib.contextmanager
def a_test_of(gate: Gate) -> Iterator[Gate]:
    """One test's use of a gateway that several share."""
    gate.model.start_over()
    yield gate
    gate.model.check()
    eventually(lambda: gate.services.calls.count == 0)
    eventually(lambda: len(gate.services.recorder.live) == 0)
