"""The ways to the agents of a store: through its running server, or by a server's parts in here."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from xgw import __version__
from xgw.cli.asking import ask, follow, parse_answer, stream
from xgw.cli.server import ServerAddress, ServerLock, find_server
from xgw.cli.terminal import note

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

    from xgw.config import Loaded
    from xgw.store.database import Store

KEY_BYTES = 24


class Door(Protocol):
    """Takes requests of the JSON API; WorkError if one is refused or cannot be asked."""

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON."""

    def stream(self, path: str, body: Any) -> Iterator[bytes]:
        """The answer to a POST as it comes."""

    def follow(self, path: str) -> Iterator[bytes]:
        """The answer to a GET as it comes."""


class ServerDoor:
    """A server that runs."""

    def __init__(self, server: ServerAddress) -> None:
        self._server = server

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As `Door` has it."""
        return ask(self._server, method, path, body)

    def stream(self, path: str, body: Any) -> Iterator[bytes]:
        """As `Door` has it."""
        return stream(self._server, path, body)

    def follow(self, path: str) -> Iterator[bytes]:
        """As `Door` has it."""
        return follow(self._server, path)


class OwnDoor:
    """The application in this very process, without a socket; `key` opens it."""

    def __init__(self, app: WSGIApplication, key: str) -> None:
        self._app = app
        self._key = key

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As `Door` has it."""
        blocks, status, reason = self._begin(method, path, body)
        with contextlib.closing(blocks):
            return parse_answer(status, reason, b"".join(blocks))

    def stream(self, path: str, body: Any) -> Iterator[bytes]:
        """As `Door` has it."""
        return self._blocks("POST", path, body)

    def follow(self, path: str) -> Iterator[bytes]:
        """As `Door` has it."""
        return self._blocks("GET", path, None)

    def _blocks(self, method: str, path: str, body: Any) -> Iterator[bytes]:
        blocks, status, reason = self._begin(method, path, body)
        with contextlib.closing(blocks):
            if status >= 400:
                parse_answer(status, reason, b"".join(blocks))
            # `yield from` would close them a second time.
            for block in blocks:  # noqa: UP028
                yield block

    def _begin(self, method: str, path: str, body: Any) -> tuple[Any, int, str]:
        from werkzeug.test import EnvironBuilder, run_wsgi_app

        path, _, query = path.partition("?")
        asked = EnvironBuilder(
            path=path,
            base_url="http://localhost",
            query_string=query,
            method=method,
            headers=[
                ("Authorization", f"Bearer {self._key}"),
                ("User-Agent", f"xgw/{__version__}"),
            ],
            content_type=None if body is None else "application/json",
            data=None if body is None else orjson.dumps(body),
        )
        blocks, status, _ = run_wsgi_app(self._app, asked.get_environ(), buffered=False)
        code, _, reason = status.partition(" ")
        return blocks, int(code), reason


# -- which of them ---------------------------------------------------------------------------------


@contextlib.contextmanager
def opened_door(loaded: Loaded) -> Iterator[tuple[Door, Store]]:
    """The way to the agents, and the store in which their turns are recorded.

    Without a server on the store its parts run here until the block ends. A store that cannot be
    written is replaced by one that is gone afterwards, with one warning.
    """
    from xgw.store.database import Store

    storage = loaded.config.storage
    server = find_server(storage.path)
    if server is not None:
        store = Store(storage.path)
        try:
            yield ServerDoor(server), store
        finally:
            store.close()
    elif is_writable(storage.path):
        with _alone(loaded, Store(storage.path, storage.durability)) as opened:
            yield opened
    else:
        note(f"xgw: warning: the store {storage.path} cannot be written: nothing is kept")
        with (
            tempfile.TemporaryDirectory(prefix="xgw-", ignore_cleanup_errors=True) as folder,
            _alone(loaded, Store(Path(folder) / "xgw.db")) as opened,
        ):
            yield opened


def is_writable(path: Path) -> bool:
    """Whether a store may be written there, or made."""
    if path.exists() and not os.access(path, os.W_OK):
        return False
    folder = next((parent for parent in path.absolute().parents if parent.exists()), None)
    return folder is not None and os.access(folder, os.W_OK | os.X_OK)


@contextlib.contextmanager
def _alone(loaded: Loaded, store: Store) -> Iterator[tuple[Door, Store]]:
    from xgw.cli.serve import log_to_stderr
    from xgw.web.app import create_app

    log_to_stderr()
    _migrate(store)
    key = secrets.token_urlsafe(KEY_BYTES)
    app = create_app(loaded, store, key, serves=False)
    services = app.extensions["xgw"]
    services.start()
    try:
        yield OwnDoor(app.wsgi_app, key), store
    finally:
        services.drain(0)
        services.stop()


def _migrate(store: Store) -> None:
    """Under the lock of servers, which is given back: several commands may work on a store."""
    from xgw.store.migrations import migrate

    lock = ServerLock.acquire(store.path)
    try:
        report = migrate(store)
    finally:
        lock.release()
    if report.backup is not None:
        note(f"the store was migrated; its copy from before: {report.backup}")
