"""`xgw` with a stand-in for its application: what a server does, without what is behind it.

Run as a program it takes xgw's own command line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson
from flask import Flask

from xgw.config import Loaded
from xgw.errors import ApiError, WorkError
from xgw.hub import Hub
from xgw.store.database import Store
from xgw.web.bodies import read_body
from xgw.web.security import Guard, Keyring, answer, is_websocket, no_websocket_here

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class Services:
    """Says on stderr what is asked of it."""

    def __init__(self) -> None:
        self.hub = Hub()
        self.draining = threading.Event()
        self.calls = threading.Condition()
        self.count = 0

    def start(self) -> None:
        if "STANDIN_FAILS" in os.environ:
            raise WorkError("something is missing")
        _say("services started")

    def relaying_threads(self) -> list[int]:
        return []

    def drain(self, seconds: float) -> None:
        _say(f"services drain {seconds:.0f}")
        self.draining.set()
        with self.calls:
            self.calls.wait_for(lambda: self.count == 0, seconds)

    @contextlib.contextmanager
    def under_way(self) -> Iterator[None]:
        """For the time of a call."""
        with self.calls:
            self.count += 1
        try:
            yield
        finally:
            with self.calls:
                self.count -= 1
                self.calls.notify_all()

    def stop(self) -> bool:
        _say("services stopped")
        return True


class Application:
    """A few paths that show how a server treats requests and answers."""

    def __init__(self, services: Services, limit: int) -> None:
        self._services = services
        self._limit = limit

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        name = environ["PATH_INFO"].strip("/").replace("/", "_")
        page = getattr(self, f"page_{name}", None)
        try:
            if name == "v1_responses" and is_websocket(environ):
                raise no_websocket_here()
            if page is None:
                raise ApiError(404, "invalid_request_error", "nothing there", code="not_found")
            return page(environ, start_response)  # type: ignore[no-any-return]
        except ApiError as error:
            return answer(error, environ, start_response)

    def page_health(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        return _json(start, {"status": "ok", "caller": environ.get("xgw.caller") is not None})

    def page_headers(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        headers = {k: v for k, v in environ.items() if k.startswith("HTTP_")}
        extra = {k: environ[k] for k in ("SCRIPT_NAME", "PATH_INFO", "wsgi.url_scheme")}
        return _json(start, headers | extra)

    def page_body(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        body = read_body(environ, self._limit)
        return _json(start, {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()})

    page_v1_chat_completions = page_body

    def page_unread(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        return _json(start, {"read": False})

    def page_boom(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        raise RuntimeError("a fault of the application")

    def page_large(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """16 MiB; says on stderr when it is through with it. `?seconds` is its own patience."""
        if environ["QUERY_STRING"]:
            environ["gunicorn.socket"].settimeout(float(environ["QUERY_STRING"]))
        start("200 OK", [("Content-Type", "text/plain")])
        try:
            yield from (b"x" * 4_194_304 for _ in range(4))
        finally:
            _say("large ended")

    def page_stream(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Begins, and ends when the server is asked to stop."""
        with self._services.under_way():
            start("200 OK", [("Content-Type", "text/event-stream")])
            yield b"data: begun\n\n"
            self._services.draining.wait(60)
            yield b"data: ended\n\n"

    def page_stuck(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Does not end by itself."""
        with self._services.under_way():
            start("200 OK", [("Content-Type", "text/event-stream")])
            yield b"data: begun\n\n"
            threading.Event().wait(60)


def _json(start: StartResponse, value: Any) -> Iterable[bytes]:
    body = orjson.dumps(value)
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start("200 OK", headers)
    return [body]


def create_app(loaded: Loaded, store: Store, own_key: str | None = None, **_: object) -> Flask:
    """As `xgw.web.app` has it."""
    services = Services()
    application = Application(services, loaded.config.server.max_body_bytes)
    app = Flask("standin")
    app.wsgi_app = Guard(application, loaded.config, Keyring(loaded.config))  # type: ignore[method-assign]
    app.extensions["xgw"] = services
    return app


def _lose_patience(seconds: float) -> None:
    from xgw.cli import receiving, worker

    worker.HEAD_SECONDS = seconds
    receiving.BODY_SECONDS = receiving.WRITE_SECONDS = seconds


def _serve_as_where_there_is_no_gunicorn() -> None:
    from xgw.cli import server

    server.Server.run = server._run_threaded  # type: ignore[assignment,method-assign]


if __name__ == "__main__":
    from xgw.cli import main

    if "STANDIN_PATIENCE" in os.environ:
        _lose_patience(float(os.environ["STANDIN_PATIENCE"]))
    if "STANDIN_THREADED" in os.environ:
        _serve_as_where_there_is_no_gunicorn()
    sys.modules["xgw.web.app"] = sys.modules["__main__"]
    main(prog_name="xgw")
