"""The gateway between real sockets: a scripted model behind it, clients in front, its record."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import peewee

from scripted_upstream import Peer, Upstream
from servers import DEADLINE, eventually, in_process
from xgw.config import Config, Loaded, Provider, Route
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.models import Event, Message, RequestLog, Run, Session, Step, Turn
from xgw.web.app import Services, create_app

CHAT = "/v1/chat/completions"
PROVIDER_KEY = "sk-provider-SECRET-0001"
Row = dict[str, Any]


# -- the model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A request as the model got it."""

    head: bytes
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def line(self) -> str:
        return self.head.split(b"\r\n")[0].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names in lower case."""
        pairs = [line.decode("latin-1").partition(": ") for line in self.head.split(b"\r\n")[1:]]
        return [(name.lower(), value) for name, _, value in pairs]


Answer = Callable[[Peer, Asked], None]


class Model:
    """An upstream: each request it gets is answered by the next of the planned answers."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._planned: deque[Answer] = deque()
        self._unplanned = 0
        self._usual: Answer | None = None
        self._lock = threading.Lock()
        self._upstream = Upstream(*[self._serve] * 2000)
        self.url = f"{self._upstream.url}/v1"

    def will(self, *answers: Answer) -> None:
        """Plan the next answers."""
        self._planned.extend(answers)

    def always(self, answer: Answer | None) -> None:
        """What to answer where nothing is planned; None makes that a fault again."""
        self._usual = answer

    def start_over(self) -> None:
        """A test begins."""
        self.asked.clear()
        self._usual = None

    def check(self) -> None:
        """A test ended: nothing was asked that was not planned, and everything was asked."""
        left, more = len(self._planned), self._unplanned
        self._planned.clear()
        self._unplanned = 0
        assert (left, more) == (0, 0), f"{left} answers not asked for, {more} not planned"

    def close(self) -> None:
        self._upstream.close()

    def _serve(self, peer: Peer) -> None:
        with contextlib.suppress(ConnectionError):
            while peer.sock.fileno() >= 0 and _has_more(peer):
                asked = Asked(*peer.request())
                self._next(asked)(peer, asked)

    def _next(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            if self._planned:
                return self._planned.popleft()
            if self._usual is not None:
                return self._usual
            self._unplanned += 1
            return whole({"error": {"message": "nothing is planned"}}, status="418 No Plan")


def _has_more(peer: Peer) -> bool:
    peer.sock.settimeout(None)
    more = bool(peer.sock.recv(1, socket.MSG_PEEK))
    peer.sock.settimeout(DEADLINE)
    return more


def whole(body: Any, *, status: str = "200 OK", headers: str = "", kind: str = "json") -> Answer:
    """One body with its length."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    label = f"Content-Type: application/{kind}\r\n" if kind else ""

    def answer(peer: Peer, _: Asked) -> None:
        peer.answer(content, status=status, headers=label + headers)

    return answer


CUT, RESET, HANG = "cut", "reset", "hang"
Piece = bytes | Row | threading.Event | str | Callable[[], None]


def stream(*pieces: Piece, headers: str = "", label: str = "text/event-stream") -> Answer:
    """A chunked body, one chunk a piece: bytes as they are, a dict as an event; an event is waited
    for, a function called; CUT, RESET and HANG (until xgw hangs up) end it badly."""

    def answer(peer: Peer, _: Asked) -> None:
        kind = f"Content-Type: {label}\r\n" if label else ""
        peer.send(f"HTTP/1.1 200 OK\r\n{kind}{headers}Transfer-Encoding: chunked\r\n\r\n".encode())
        for piece in pieces:
            if isinstance(piece, str):
                {CUT: peer.sock.close, RESET: peer.reset, HANG: peer.wait_for_end}[piece]()
                peer.sock.close()
                return
            _send(peer, piece)
        peer.send(b"0\r\n\r\n")

    return answer


def _send(peer: Peer, piece: bytes | Row | threading.Event | Callable[[], None]) -> None:
    if isinstance(piece, threading.Event):
        assert piece.wait(DEADLINE)
    elif isinstance(piece, bytes | dict):
        block = piece if isinstance(piece, bytes) else event(piece)
        peer.send(f"{len(block):x}\r\n".encode() + block + b"\r\n")
    else:
        piece()


def raw(*blocks: bytes, then: str = CUT) -> Answer:
    """Exactly these bytes."""

    def answer(peer: Peer, _: Asked) -> None:
        for block in blocks:
            peer.send(block)
        {CUT: peer.sock.close, RESET: peer.reset, HANG: peer.wait_for_end}[then]()
        peer.sock.close()

    return answer


def event(value: Row) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"


def chunk(*choices: Row, **more: Any) -> Row:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-served"}
    return head | {"choices": list(choices)} | more


def delta(text: str | None = None, index: int = 0, **fields: Any) -> Row:
    said = fields if text is None else {"content": text} | fields
    return chunk({"index": index, "delta": said, "finish_reason": None})


def finish(reason: str = "stop", index: int = 0, **more: Any) -> Row:
    return chunk({"index": index, "delta": {}, "finish_reason": reason}, **more)


def counts(sent: int, received: int, **more: Any) -> Row:
    return {
        "prompt_tokens": sent,
        "completion_tokens": received,
        "total_tokens": sent + received,
    } | more


def usage(sent: int, received: int, **more: Any) -> Row:
    return chunk(usage=counts(sent, received, **more))


def call(call_id: str, name: str = "look", arguments: str = "{}") -> Row:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def completion(text: str | None = "ok", *calls: Row, **more: Any) -> Row:
    """A whole answer; it asks for tools where `calls` are given."""
    message: Row = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-served",
        "choices": [choice],
        "usage": counts(7, 3),
    } | more


def says(text: str = "ok") -> Answer:
    return whole(completion(text))


def streams(*texts: str, reason: str = "stop") -> Answer:
    return stream(delta(role="assistant"), *map(delta, texts), finish(reason), usage(7, 3), DONE)


def asks_for(*call_ids: str) -> Answer:
    """An answer that asks for tools."""
    return whole(completion(None, *map(call, call_ids)))


# -- requests --------------------------------------------------------------------------------------


def user(text: Any) -> Row:
    return {"role": "user", "content": text}


def said(text: str | None, *calls: Row) -> Row:
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls)} if calls else {})


def result(call_id: str, text: str = "found") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def chat(*messages: str | Row, model: str = "m", **fields: Any) -> Row:
    """A chat request; a text is a user message. `metadata` and others as given."""
    elements = [user(m) if isinstance(m, str) else m for m in messages or ("hi",)]
    return {"model": model, "messages": elements, **fields}


def named(session: str | None = None, turn: str | None = None, **more: Any) -> Row:
    """Metadata that names a session and a turn."""
    metadata = {"session_id": session, "turn_id": turn} | more
    return {"metadata": {k: v for k, v in metadata.items() if v is not None}}


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
            block = self._response.read1(65536)
            assert block, f"the answer ended without {text!r}: {self.body!r}"
            self.body += block
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
        pairs = {
            name.replace("_", "-"): value.encode() for name, value in (sent | headers).items()
        }
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
        connection = http.client.HTTPConnection(*self.address, timeout=DEADLINE)
        connection.connect()
        connection.sock.sendall(head.encode() + headers + length.encode() + content)
        response = http.client.HTTPResponse(connection.sock, method="POST")
        response.begin()
        with contextlib.closing(connection), response:
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
        return self.store.fetch(query.order_by(by if by is not None else table._meta.primary_key))

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
        """The turns of a session, in order."""
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

    def __init__(self, url: str, model: Model, services: Services) -> None:
        Client.__init__(self, url)
        Records.__init__(self, services.store)
        self.model = model
        self.services = services

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
    app = create_app(Loaded(Config(**given | tables), {}, None), store)
    services: Services = app.extensions["xgw"]
    services.start()
    try:
        with in_process(app) as url:
            yield Gate(url, model, services)
    finally:
        services.drain(1)
        services.stop()


@contextlib.contextmanager
def gate_and_model(folder: Path, **tables: Any) -> Iterator[Gate]:
    """A gateway and the model behind it."""
    model = Model()
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
