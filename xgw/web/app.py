"""The application: assembles the parts, nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from flask import Flask

from xgw.accounting.prices import PriceBook
from xgw.accounting.tokens import TokenCounter
from xgw.agents.continuing import Continuing
from xgw.agents.definition import Agents
from xgw.agents.parts import Parts
from xgw.agents.plain import with_plain
from xgw.agents.pool import Pool
from xgw.agents.roster import Roster
from xgw.agents.scheduler import Scheduler
from xgw.config import Config, Loaded, Provider
from xgw.exchange.attempts import UsageRefusals
from xgw.exchange.calls import Calls
from xgw.exchange.headers import credential
from xgw.exchange.means import Means
from xgw.exchange.routing import Catalog, Router
from xgw.gateway.control import Control
from xgw.gateway.forwarding import Gateway
from xgw.gateway.refusals import Refusals
from xgw.gateway.sessions import Sessions
from xgw.gateway.waiting import Waiting
from xgw.hub import Hub
from xgw.masking import Masker
from xgw.portable.imports import Import, Imports
from xgw.providers.demo import DemoServer
from xgw.providers.transport import Transport
from xgw.queries import events
from xgw.recording.agents import AgentRecord
from xgw.recording.following import Following
from xgw.recording.recorder import Recorder
from xgw.recording.recovery import Recovery, wait_for
from xgw.store.database import Store
from xgw.store.payloads import Shelf
from xgw.store.scribe import Employ
from xgw.store.writer import Writer
from xgw.upkeep.prune import Prune
from xgw.upkeep.retention import Retention
from xgw.upkeep.sweep import Sweep
from xgw.web.api import OF_IMPORTS, create_api, ws
from xgw.web.headers import describe_nothing
from xgw.web.healthview import Measured
from xgw.web.imported import refuse_acting
from xgw.web.keys import IssuedKeys
from xgw.web.limits import Places
from xgw.web.live.screens import open_screen
from xgw.web.live.socket import add_socket
from xgw.web.mount import Mount
from xgw.web.pages import PAGES_OF_IMPORTS, create_pages
from xgw.web.refusals import register_errors
from xgw.web.security import Guard, Keyring
from xgw.web.sockets import Sockets
from xgw.web.v1 import OpenAI

if TYPE_CHECKING:
    from xgw.events import Envelope

RECOVERY_SECONDS = 5.0
# Not with the first request: its memory would grow by 60 MB, and its client wait.
VOCABULARY_SECONDS = 5.0
FOLLOWED = 100_000


class Services:
    """Everything that lives behind the application in the serving process."""

    def __init__(
        self,
        loaded: Loaded,
        store: Store,
        own_key: str | None = None,
        *,
        serves: bool = True,
        employ: Employ | None = None,
    ) -> None:
        """`serves`: this process has the lock of the store's server, and it alone deletes."""
        self.serves = serves
        self.config = loaded
        self.store = store
        self.on_stop: list[Callable[[], None]] = []
        self.masker = Masker(loaded.config.secrets())
        self.prices = PriceBook(loaded.config.prices)
        self.counter = TokenCounter()
        self.transport = Transport()
        self.hub = Hub(self._read_events, events.newest(store))
        self.writer = Writer(store, self._published, employ)
        # Most units are written by another process where many come: so it is what packs them, too.
        shelf = Shelf(others_delete=not serves, packs=False)
        self.recorder = Recorder(self.writer, self.hub, shelf)
        self.recovery = Recovery(store, self.writer)
        self.following = Following(store, self.hub, self._published)
        self.calls = Calls(loaded.config.server.max_calls)
        self.measured = Measured(store)
        self.watchers = Places(loaded.config.server.max_watchers, "watchers")
        self.keyring = Keyring(loaded.config, IssuedKeys(store), own_key)
        self.sessions = Sessions(store)
        self.sweep = Sweep(store, self.writer, self.recorder.shelf)
        self.control = Control(
            store, self.sessions, self.calls, self.recorder, on_deletion=self.sweep.ask
        )
        self.prune = Prune(store, self.writer, self.sweep, self.control.prune_session)
        kept = loaded.config.retention
        self.retention = Retention(store, self.prune, kept.bodies_days, kept.metadata_days)
        self.waiting = Waiting(
            store, self.sessions, self.recorder, loaded.config.gateway.tool_wait_seconds
        )
        self.agents = self._read_agents()
        self.everyone = self.agents
        """The agents, and those that are nothing but a model."""
        self.imports = Imports(store.path)
        self.imported: Import | None = None
        self._demo = DemoServer()
        self.scheduler: Scheduler
        self.continuing: Continuing
        self.gateway: Gateway
        self.router: Router
        self.refusals: Refusals

    def start(self) -> None:
        """Start the threads: from here on requests can be served."""
        config = self._with_demo(self.config.config)
        catalog = Catalog(self.transport, credential)
        means = Means(config, self.transport, self.recorder, self.masker, self.prices, self.counter)
        self.router = Router(config, catalog)
        self.gateway = Gateway(means, self.router, self.calls, self.sessions)
        record = AgentRecord(self.recorder)
        parts = Parts(means, self.router, UsageRefusals(), record, Pool())
        self.everyone = with_plain(self.agents, config)
        self.scheduler = Scheduler(self.store, parts, self.everyone, self.calls)
        self.continuing = Continuing(self.store, parts, self.scheduler)
        self.refusals = Refusals(means)
        self.writer.start()
        self.recorder.start()
        self.prices.start()
        self.counter.wait(None, VOCABULARY_SECONDS)
        wait_for(self.recovery.reconcile(), RECOVERY_SECONDS)
        self.recovery.start()
        self.following.start()
        self.waiting.start()
        self.scheduler.start()
        if self.serves:
            self.sweep.start()
            self.retention.start()

    def relaying_threads(self) -> list[int]:
        """The native ids of the threads whose work comes with every call."""
        threads = (self.writer.thread_id, self.recorder.thread_id)
        return [thread for thread in threads if thread is not None]

    def drain(self, seconds: float) -> None:
        """Let calls under way end, in `seconds` at most, then end them."""
        if not self.calls.drain(seconds):
            self.calls.cancel_all()
            self.calls.drain(2.0)
        self.hub.close()

    def stop(self) -> bool:
        """Write what is left and stop the threads; whether all of it was written."""
        self.hub.close()
        self.scheduler.stop()
        self.retention.stop()
        for part in (self.sweep, self.waiting, self.following, self.recovery, self.recorder):
            part.stop()
        self.writer.stop()
        for close in self.on_stop:
            close()
        self.transport.close()
        self._demo.stop()
        self.store.close()
        return self.writer.lost == 0

    def _read_agents(self) -> Agents:
        self._roster = Roster(self.config)
        self.on_stop.append(self._roster.servers.close)
        return self._roster

    def configured(self) -> Config:
        """The configuration in force: the agents of its files may be other ones by now."""
        return self._roster.config

    def _with_demo(self, config: Config) -> Config:
        """The demo provider gets the address of its server, which starts now."""
        if not any(provider.kind == "demo" for provider in config.providers):
            return config
        url = self._demo.start()
        return config.model_copy(
            update={"providers": tuple(_at(provider, url) for provider in config.providers)}
        )

    def _published(self, envelopes: Sequence[Envelope]) -> None:
        self.recorder.published(envelopes)

    def _read_events(self, after: int, upto: int) -> list[Envelope]:
        """Events that nobody here has published."""
        found = events.list_events(self.store, after, limit=min(upto - after, FOLLOWED))
        return [envelope for envelope in found if (envelope.seq or 0) <= upto]


class Reader(Services):
    """What the pages and the API of an import run on: nothing that acts, and no thread."""

    def __init__(self, services: Services, one: Import) -> None:
        super().__init__(services.config, Store(one.path))
        self.imported = one
        self.prices, self.counter = services.prices, services.counter
        self.watchers, self.keyring = services.watchers, services.keyring

    def _read_agents(self) -> Agents:
        """None: what is configured here says nothing of another's agents."""
        return {}

    def configured(self) -> Config:
        """The configuration with which the server started."""
        return self.config.config


def create_app(
    loaded: Loaded,
    store: Store,
    own_key: str | None = None,
    *,
    serves: bool = True,
    employ: Employ | None = None,
) -> Flask:
    """The application; `app.extensions["xgw"]` is its Services, to be started by the server.

    `own_key` opens everything, for the commands on this machine; without `serves` others may serve
    the store, or come to.
    """
    app = Flask("xgw", static_folder=None)
    services = Services(loaded, store, own_key, serves=serves, employ=employ)
    app.extensions["xgw"] = services
    register_errors(app)
    app.after_request(describe_nothing)
    app.register_blueprint(create_api())
    app.register_blueprint(create_pages())
    sockets = Sockets(app)
    add_socket(sockets, services, open_screen)
    sockets.add("/ws", ws.converse, ws.admit)
    mount = Mount(app.wsgi_app, services.imports, partial(create_reader, services))
    services.on_stop.append(mount.close)
    surface = OpenAI(mount, services)
    app.wsgi_app = Guard(surface, loaded.config, services.keyring)  # type: ignore[method-assign]
    return app


def create_reader(services: Services, one: Import) -> Flask:
    """The application of an import: the same pages and the same API, without what acts."""
    app = Flask("xgw", static_folder=None)
    app.extensions["xgw"] = Reader(services, one)
    register_errors(app)
    app.after_request(describe_nothing)
    app.before_request(refuse_acting)
    app.register_blueprint(create_api(OF_IMPORTS))
    app.register_blueprint(create_pages(PAGES_OF_IMPORTS))
    return app


def _at(provider: Provider, url: str) -> Provider:
    return provider.model_copy(update={"base_url": url}) if provider.kind == "demo" else provider
