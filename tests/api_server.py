"""The JSON API on a real socket, over a store that a test fills."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from filled_store import FilledStore
from xgw.accounting.prices import PriceBook
from xgw.agents.roster import Roster
from xgw.config import ClientKey, Config, Loaded, Provider, Server
from xgw.hub import Hub
from xgw.masking import Masker
from xgw.recording.recorder import Recorder
from xgw.store.payloads import Shelf
from xgw.store.transaction import Transaction
from xgw.store.writer import Writer
from xgw.web.api import create_api
from xgw.web.limits import Places
from xgw.web.refusals import register_errors
from xgw.web.security import Guard, Keyring

TOKEN = "token-that-sees-everything"
TEAM_KEY = "key-of-the-team-project"


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


class ApiServer:
    """Everything real but the gateway; the clients' key is `TEAM_KEY`, of project `team`."""

    def __init__(self, folder: Path, **server: Any) -> None:
        self.filled = FilledStore(folder)
        config = Config(
            server=Server(token=TOKEN, **server),
            providers=(Provider(name="openai", api_key="sk-provider-secret"),),
            keys=(ClientKey(key=TEAM_KEY, project="team"),),
        )
        self.hub = Hub()
        self.writer = Writer(self.filled.store, lambda events: self.recorder.published(events))
        self.recorder = Recorder(self.writer, self.hub, Shelf(packs=False))
        self.watchers = Places(config.server.max_watchers, "watchers")
        self.agents = Roster(Loaded(config, {}, None))
        keyring = Keyring(config)
        app = Flask("api")
        app.extensions["xgw"] = SimpleNamespace(
            config=Loaded(config, {}, None),
            store=self.filled.store,
            hub=self.hub,
            writer=self.writer,
            masker=Masker(config.secrets()),
            recorder=self.recorder,
            prices=PriceBook(),
            agents=self.agents,
            everyone={},
            imported=None,
            configured=lambda: config,
            calls=Places(1, "calls"),
            watchers=self.watchers,
            keyring=keyring,
        )
        register_errors(app)
        app.register_blueprint(create_api())
        self.guarded = Guard(app, config, keyring)
        self._server = make_server(
            "127.0.0.1", 0, self.guarded, threaded=True, request_handler=_QuietHandler
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self.writer.start()
        self.recorder.start()
        self._thread.start()

    def stop(self) -> None:
        self.hub.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.recorder.stop()
        self.writer.stop()
        self.agents.servers.close()
        self.filled.close()

    def open(
        self, path: str, key: str | None = TOKEN, method: str = "GET", **headers: str
    ) -> http.client.HTTPResponse:
        """An answer whose body is still to be read; closing it closes the connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.server_port, timeout=60)
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        response = connection.getresponse()
        connection.sock = None
        return response

    def get(self, path: str, key: str | None = TOKEN, method: str = "GET", **headers: str) -> Reply:
        """A whole answer."""
        with self.open(path, key, method, **headers) as response:
            return Reply(response.status, response.headers, response.read())

    def write(self, work: Callable[[Transaction], None]) -> None:
        """Commit and publish, as the recorder does."""
        assert self.writer.submit(work).wait(30)


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass
