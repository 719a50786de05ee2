"""A client of `/ws`, and of any websocket: its handshake, what it says and what it is told."""

from __future__ import annotations

import re
import socket
import threading
from typing import Any
from urllib.parse import urlsplit

import orjson
import simple_websocket
from wsproto.events import AcceptConnection, Request

from gateway_fixtures import Client, Reply
from servers import DEADLINE

Frame = dict[str, Any]

FRAME = ["id", "type", "action", "payload", "timestamp"]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Holding:
    """A socket that reads nothing while `reads` is not set, and keeps little by itself."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self._sock = sock
        self.reads = threading.Event()
        self.reads.set()

    def recv(self, size: int) -> bytes:
        self.reads.wait(DEADLINE)
        return self._sock.recv(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


class Handshaking(simple_websocket.Client):
    """Reads no further than the handshake at first: a close may follow it at once."""

    def handshake(self) -> None:
        self.sock = Holding(self.sock)
        host = self.extra_headeers[0][1]
        request = Request(host=host, target=self.path, extra_headers=self.extra_headeers[1:])
        self.sock.sendall(self.ws.send(request))
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.sock.recv(1)
        self.ws.receive_data(head)
        assert isinstance(next(self.ws.events()), AcceptConnection), head
        self.connected = True


def connect(client: Client, path: str, **headers: str) -> Handshaking:
    """An open websocket; `_` in a header's name stands for `-`."""
    address = client.url.replace("http://", "ws://")
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    host = urlsplit(client.url).netloc
    return Handshaking(f"{address}{path}", headers={"Host": host, **named})


def shake_hands(client: Client, path: str, **headers: str) -> Reply:
    """The answer to a handshake that is refused."""
    asked = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec_WebSocket_Version": "13",
    }
    return client.get(path, **asked | headers)


def key(secret: str) -> dict[str, str]:
    """The header that shows a key."""
    return {"Authorization": f"Bearer {secret}"}


class ApiSocket:
    """A socket at `/ws`; `told` is every notification so far that was read."""

    def __init__(self, client: Client, **headers: str) -> None:
        self.ws = connect(client, "/ws", **headers)
        self.told: list[Frame] = []
        self._asked = 0

    def __enter__(self) -> ApiSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def reads(self) -> threading.Event:
        """Cleared, the client reads no further than what is on its way."""
        found: threading.Event = self.ws.sock.reads
        return found

    def say(self, message: str | bytes) -> Frame:
        """The frame that answers a message, without its time."""
        self.ws.send(message)
        return self.answer()

    def answer(self) -> Frame:
        """The next frame that is no notification, without its time."""
        while (frame := self.read())["type"] == "notification":
            pass
        del frame["timestamp"]
        return frame

    def ask(self, action: str, **payload: Any) -> Any:
        """The payload of the response to a request."""
        frame = self._ask(action, payload)
        assert frame["type"] == "response", frame
        return frame["payload"]

    def refused(self, action: str, **payload: Any) -> tuple[str, str | None]:
        """Code and `param` of the error that a request is answered with."""
        frame = self._ask(action, payload)
        assert frame["type"] == "error", frame
        assert set(frame["payload"]) >= {"message", "type", "param", "code"}
        return frame["payload"]["code"], frame["payload"]["param"]

    def _ask(self, action: str, payload: Frame) -> Frame:
        self._asked += 1
        request = {"id": self._asked, "type": "request", "action": action, "payload": payload}
        frame = self.say(orjson.dumps(request).decode())
        assert (frame["id"], frame["action"]) == (self._asked, action)
        return frame

    def read(self) -> Frame:
        """The next frame; simple_websocket.ConnectionClosed at the end."""
        message = self.ws.receive(timeout=DEADLINE)
        assert message is not None, "nothing came"
        frame: Frame = orjson.loads(message)
        assert list(frame) == FRAME
        assert TIME.fullmatch(frame["timestamp"])
        if frame["type"] == "notification":
            assert frame["id"] is None
            self.told.append(frame)
        return frame

    def until(self, action: str, **fields: Any) -> Frame:
        """The payload of the first notification of this action with these fields; reads to it."""
        for frame in self._frames():
            payload = frame["payload"]
            if frame["action"] == action and fields.items() <= payload.items():
                return dict(payload)
        raise AssertionError

    def _frames(self) -> Any:
        at = 0
        while True:
            while at < len(self.told):
                yield self.told[at]
                at += 1
            self.read()

    def end(self) -> int:
        """Read to the end; the code that the server closed with."""
        while True:
            try:
                self.read()
            except simple_websocket.ConnectionClosed as closed:
                return int(closed.reason)

    def close(self) -> None:
        """Leave."""
        if self.ws.connected:
            self.ws.close()
        self.ws.thread.join(DEADLINE)
        self.ws.sock.close()


def events(frames: list[Frame], session_id: str | None = None) -> list[Frame]:
    """The stored events among notifications, in order; of one session or of all."""
    found = [frame["payload"] for frame in frames if frame["payload"].get("seq") is not None]
    return [e for e in found if session_id in (None, e["session_id"])]


def heard(frames: list[Frame]) -> dict[str, str]:
    """The text of each step as its deltas tell it; AssertionError where there is a gap."""
    texts: dict[str, str] = {}
    for frame in frames:
        if frame["action"] != "session.step.delta":
            continue
        step, piece = frame["payload"]["step_id"], frame["payload"]["payload"]
        known = "" if piece.get("replace") else texts.get(step, "")
        texts[step] = known + piece["text"]
        assert len(texts[step]) == piece["text_length"], "a gap, or something came twice"
    return texts
