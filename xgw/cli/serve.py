"""The command `serve`: from a configuration to a running server, and what it tells the terminal."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import secrets
import shlex
import shutil
import sys
import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from xgw import __version__, clock
from xgw.cli.browser import open_once_it_answers
from xgw.cli.configuration import load, load_agents, unasked_words, with_configuration
from xgw.cli.server import Server, ServerAddress, ServerLock, bind, listen, url_of
from xgw.spelling import usd

if TYPE_CHECKING:
    from xgw.config import Config, Loaded
    from xgw.events import Envelope
    from xgw.hub import Hub
    from xgw.store.database import Store

ERROR_WIDTH = 200
OWN_KEY_BYTES = 24
PAUSE_SECONDS = 0.1


@click.command()
@click.option("--host", help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), help="The port; 0 takes a free one.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in the browser.")
@click.option("--demo", is_flag=True, help="Serve the built-in scripted demo alone.")
@with_configuration
@click.pass_context
def serve(
    ctx: click.Context,
    config_path: Path | None,
    db: str | None,
    host: str | None,
    port: int | None,
    opens: bool,
    demo: bool,
) -> None:
    """Serve: the gateway for OpenAI clients, the record of what passes, and the dashboard.

    Ctrl-C lets calls under way end for 10 seconds; a second one stops at once.

    \b
    Examples:
      xgw serve --open
      xgw serve --demo --port 9000
      XGW_TOKEN=... XGW_ALLOWED_HOSTS=gw.example.com xgw serve --host 0.0.0.0
    """
    log_to_stderr()
    overrides = {"server.host": host, "server.port": port}
    loaded = load(config_path, db, overrides, demo=demo)
    load_agents(loaded)  # a mistake in a tool is told here, not by a server that cannot start
    named = {"--config": config_path, "--db": db}
    options = [part for flag, value in named.items() if value for part in (flag, str(value))]
    ctx.exit(_serve(loaded, shlex.join(options), opens))


def _serve(loaded: Loaded, options: str, opens: bool) -> int:
    from xgw.queries.keys import has_active
    from xgw.store.database import Store
    from xgw.store.migrations import migrate, refuse_unwritable

    config = loaded.config
    store = Store(config.storage.path, config.storage.durability)
    lock = ServerLock.acquire(store.path)
    with contextlib.ExitStack() as held:
        held.callback(lock.release)
        migrate(store, dry_run=True)  # a store that is refused is told of first
        refuse_unwritable(store.path)
        # Before it is made, or migrated: a port in use is found out first.
        bound = bind(config.server.host, config.server.port)
        listener = held.enter_context(contextlib.closing(bound))
        report = migrate(store)
        if report.backup is not None:
            click.echo(f"the store was migrated; its copy from before: {report.backup}", err=True)
        listen(listener)
        url = url_of(listener)
        started_at = clock.to_rfc3339(clock.now())
        issued = has_active(store.path)
        own_key = secrets.token_urlsafe(OWN_KEY_BYTES)
        lock.announce(ServerAddress(url, os.getpid(), started_at, __version__, own_key))
        store.close()

        def greet(services: Any, restarted: bool) -> None:
            # Nobody has to read this for the server to serve.
            with contextlib.suppress(OSError):
                if not restarted:
                    click.echo(banner(config, url, store.size_bytes(), options, issued))
            if opens and not restarted:
                open_once_it_answers(f"{url}/ui/")
            TurnPrinter(services.hub, sys.stdout).start()

        return Server(lambda: _make_app(loaded, store, own_key, lock), listener, [greet]).run()


def _make_app(loaded: Loaded, store: Store, own_key: str, lock: ServerLock) -> tuple[Any, Any]:
    from xgw.cli.memory import give_back_large_blocks
    from xgw.recording.scribing import employment
    from xgw.web.app import create_app

    give_back_large_blocks()
    app = create_app(loaded, store, own_key, employ=employment(store, keep=[lock.fileno()]))
    return app, app.extensions["xgw"]


def log_to_stderr() -> None:
    """From now on what xgw has to warn of is told on stderr."""
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("xgw")
    log.addHandler(writer)
    log.setLevel(logging.WARNING)
    log.propagate = False


# -- what it says ----------------------------------------------------------------------------------


def banner(config: Config, url: str, size: int, options: str = "", issued: bool = False) -> str:
    """What a person needs in order to begin; `options` are those that other commands need too.

    `issued` tells that the store has client keys.
    """
    from xgw.config.first_call import curl_line

    names = ", ".join(provider.label for provider in config.providers)
    unasked = unasked_words(config)
    again, called = f" {options}" if options else "", _called()
    return "\n".join(
        [
            f"xgw {__version__} serves. Dashboard:",
            f"  {url}/ui/",
            "Base URL for clients:",
            f"  {url}/v1",
            f"store:      {config.storage.path} ({_bytes(size)})",
            f"providers:  {names}",
            *([] if unasked is None else [f"not asked:  {unasked}"]),
            f"follow:     {called} tail{again}",
            f"look at:    {called} show{again} ID",
            "try it:",
            curl_line(config, url, issued),
            "",
        ]
    )


def _called() -> str:
    """What calls this program again: by its path where its name alone does not (`make serve`)."""
    path = sys.argv[0]
    if os.path.basename(path) != "xgw" or shutil.which("xgw") is not None:
        return "xgw"
    return shlex.quote(path)


def _bytes(size: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


class TurnPrinter:
    """Prints a line for each turn that completes, in a thread of its own."""

    def __init__(self, hub: Hub, out: TextIO) -> None:
        self._hub = hub
        self._out = out

    def start(self) -> None:
        """Begin; it ends with the hub, or with whoever reads the lines."""
        threading.Thread(target=self._print_all, name="turn lines", daemon=True).start()

    def _print_all(self) -> None:
        closed, pause = False, threading.Event()
        while not closed:
            with self._hub.subscribe(_is_turn_end, live=False) as turns:
                while not closed and turns.lagged is None:
                    lines = [turn_line(envelope) for envelope in turns.get(timeout=60.0)]
                    if lines and not self._print("\n".join(lines)):
                        return
                    closed = turns.closed
                    # Under load this thread is woken once for many turns, not once for each.
                    pause.wait(PAUSE_SECONDS)

    def _print(self, line: str) -> bool:
        try:
            print(line, file=self._out, flush=True)
        except (OSError, ValueError):
            return False
        return True


def _is_turn_end(envelope: Envelope) -> bool:
    return envelope.type == "turn.completed"


def turn_line(envelope: Envelope) -> str:
    """One line about a turn that completed, safe to print: no control characters."""
    turn = envelope.payload
    served = [turn.get("final_provider_name"), turn.get("final_model")]
    parts = [
        _time_of_day(envelope.at.replace(microsecond=0)),
        f"{turn.get('status') or '?':<9}",
        envelope.turn_id or "",
        "/".join(name for name in served if name),
        _tokens(turn),
        "" if turn.get("latency_ms") is None else f"{turn['latency_ms'] / 1000:.1f} s",
        "" if turn.get("cost_usd") is None else usd(turn["cost_usd"]),
        _error(turn.get("error")),
    ]
    line = "  ".join(part for part in parts if part)
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else "�" for char in line)


# Of one second there may be a thousand lines.
@lru_cache(maxsize=16)
def _time_of_day(at: datetime.datetime) -> str:
    return f"{at.replace(tzinfo=datetime.UTC).astimezone():%H:%M:%S}"


def _tokens(turn: dict[str, Any]) -> str:
    """Unknown is not zero: it is a question mark, or nothing where nothing is known."""
    counts = [turn.get("input_tokens"), turn.get("output_tokens")]
    if counts == [None, None]:
        return ""
    sent, received = ("?" if count is None else f"{count:,}" for count in counts)
    cached = f" ({turn['cached_tokens']:,} cached)" if turn.get("cached_tokens") else ""
    return f"{sent} → {received} tokens{cached}"


def _error(error: Any) -> str:
    if not error:
        return ""
    text = f"{error.get('type')}: {error.get('message')}" if isinstance(error, dict) else str(error)
    return text if len(text) <= ERROR_WIDTH else text[: ERROR_WIDTH - 1] + "…"
