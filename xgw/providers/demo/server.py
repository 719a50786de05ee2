"""The demo's server: its threads, its routes, and faults on the wire."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from hashlib import blake2b
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import orjson

from xgw.errors import ApiError, error_body, not_found
from xgw.providers.demo.completion import Completion, measure
from xgw.providers.demo.connection import Connection
from xgw.providers.demo.embeddings import embed
from xgw.providers.demo.faults import Flaky, error_of, fault_of
from xgw.providers.demo.pace import Pace
from xgw.providers.demo.prompt_cache import PromptCache
from xgw.providers.demo.request import ChatRequest, parse_body, parse_chat
from xgw.providers.demo.script import compose

MODEL = "demo"
MODEL_CREATED = 1_767_225_600
SLOW_FACTOR = 10

# A disturbance comes after this many tokens, in a short answer after the half of them.
DISTURBED_AFTER = 8

_log = logging.getLogger(__name__)


class DemoServer:
    """The scripted upstream on a loopback socket, served by daemon threads of this process.

    `pace` multiplies every wait: 1 is the speed of a person reading along, 0 as fast as possible.
    """

    def __init__(self, pace: float = 1.0) -> None:
        self._pace = pace
        self._server: _Server | None = None

    def start(self) -> str:
        """Listens on a free port of 127.0.0.1 and returns the base URL, which ends in /v1."""
        self._server = _Server(self._pace)
        self._server.start()
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def stop(self) -> None:
        """Closes the port and every connection; what is being answered breaks off."""
        if self._server is not None:
            self._server.stop()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, pace: float) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.pace = pace
        self.cache = PromptCache()
        self.flaky = Flaky()
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="xgw-demo", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        # A connection wakes the thread that accepts: waiting for one needs no polling.
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.server_port), timeout=5).close()
        self._thread.join(5)
        self.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self.stopping.is_set():
            self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection to the demo ended in an error", exc_info=True)


class _Exchange(Connection):
    server: _Server

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        try:
            raw = self.read_body()
            self._route(method, unquote(self.path.partition("?")[0]).rstrip("/"), raw)
        except ApiError as refusal:
            self.send_refusal(refusal)
        except ConnectionError:
            self.close_connection = True

    def _route(self, method: str, path: str, raw: bytes) -> None:
        match method, path:
            case "GET", "/v1/models":
                self.send_json(200, {"object": "list", "data": [_model(MODEL)]})
            case "GET", _ if path.startswith("/v1/models/"):
                self.send_json(200, _model(path.removeprefix("/v1/models/")))
            case "POST", "/v1/chat/completions":
                self._chat(parse_chat(parse_body(raw)))
            case "POST", "/v1/embeddings":
                self.send_json(200, embed(parse_body(raw)))
            case _:
                raise not_found(f"Unknown request URL: {method} {path}.", code="unknown_url")

    def _chat(self, request: ChatRequest) -> None:
        fault = fault_of(request.prompt)
        if fault == "flaky" and self.server.flaky.fails(_fingerprint(request)):
            fault = "503"
        error = error_of(fault)
        if error is not None:
            raise error
        replies = [compose(request, fault, index) for index in range(request.choices)]
        completion = Completion(request, replies, measure(request, replies, self.server.cache))
        factor = self.server.pace * (SLOW_FACTOR if fault == "slow" else 1)
        with Pace(self.connection, self.server.stopping, factor) as pace:
            if fault == "hang":
                pace.silence()
            pace.before_first_token()
            if request.stream:
                self._stream(completion, fault, pace)
            else:
                self._whole(completion, fault, pace)

    def _whole(self, completion: Completion, fault: str | None, pace: Pace) -> None:
        pace.before_whole(completion.tokens)
        if fault == "error":
            raise ApiError(500, "server_error", "The server had an error on purpose.")
        body = orjson.dumps(completion.whole())
        half = body[: len(body) // 2]
        sent = half if fault == "garbage" else body
        head = self.head(200, "application/json", [("Content-Length", str(len(sent)))])
        if fault not in ("cut", "stall"):
            self.wfile.write(head + sent)
            return
        self.wfile.write(head + half)
        self._leave_off(fault, pace)

    def _stream(self, completion: Completion, fault: str | None, pace: Pace) -> None:
        self.begin_stream()
        tokens = 0
        disturbed = min(DISTURBED_AFTER, max(1, completion.tokens // 2))
        for is_token, event in completion.events():
            if is_token:
                tokens += 1
                pace.before_token(tokens)
            self.write_event(orjson.dumps(event))
            if is_token and tokens == disturbed and self._disturb(fault, pace):
                return
        self.write_event(b"[DONE]")
        self.end_stream()

    def _disturb(self, fault: str | None, pace: Pace) -> bool:
        """Does to the stream what the fault says; whether that was its end."""
        if fault == "garbage":
            self.write_event(b'{"choices": [{"index": 0, "delta": {"con')
        elif fault == "error":
            message = "The server had an error in mid-stream on purpose (scripted demo)."
            self.write_event(orjson.dumps(error_body(message, "server_error")))
            self.end_stream()
        elif fault in ("cut", "stall"):
            self._leave_off(fault, pace)
        return fault in ("error", "cut", "stall")

    def _leave_off(self, fault: str | None, pace: Pace) -> None:
        if fault == "stall":
            pace.silence()
        self.break_off()


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": MODEL_CREATED, "owned_by": "xgw-demo"}


def _fingerprint(request: ChatRequest) -> bytes:
    return blake2b(orjson.dumps(request.messages), digest_size=16).digest()
