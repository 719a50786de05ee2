"""The agents that there are now: read anew when a file that defines them changes.

A turn under way keeps the definition that it began with. A change with a mistake in it changes
nothing: the mistake is logged, and the agents stay as they were.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from xgw import clock
from xgw.agents.definition import Agents, Definition, read_agents
from xgw.agents.mcp.servers import Servers
from xgw.config import Config, Loaded
from xgw.errors import UsageError

log = logging.getLogger("xgw.agents")

LOOK_SECONDS = 1.0

Stamps = dict[Path, tuple[int, int]]


class Roster(Mapping[str, Definition]):
    """Every agent by name; a look at the files is taken once a second at most."""

    def __init__(self, loaded: Loaded, look_seconds: float = LOOK_SECONDS) -> None:
        """UsageError with every mistake in the agents and their tools."""
        self.servers = Servers()
        self._agents: Agents = {}
        self._stamps: Stamps = {}
        self._look_seconds = look_seconds
        self._lock = threading.Lock()
        self._read(loaded)
        self._looked_at = clock.monotonic()

    def __getitem__(self, name: str) -> Definition:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    @property
    def config(self) -> Config:
        """The configuration that they are of."""
        with self._lock:
            self._look_in_time()
            return self._loaded.config

    def replace(self, loaded: Loaded) -> None:
        """From now on the agents of this configuration; UsageError leaves them as they were."""
        with self._lock:
            self._read(loaded)

    def _now(self) -> Agents:
        with self._lock:
            self._look_in_time()
            return self._agents

    def _look_in_time(self) -> None:
        if clock.monotonic() - self._looked_at >= self._look_seconds:
            self._look()
            self._looked_at = clock.monotonic()

    def _look(self) -> None:
        stamps = _stamps_of(self._loaded)
        if self._loaded.again is None or stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._read(self._loaded.again())
        except UsageError as error:
            log.error("the agents stay as they were: %s", "; ".join(error.lines))

    def _read(self, loaded: Loaded) -> None:
        self._agents = read_agents(loaded.config, loaded.sources, self.servers)
        asked = (source.server for one in self._agents.values() for source in one.sources)
        self.servers.keep(set(asked))
        self._loaded = loaded
        self._stamps = _stamps_of(loaded)


def _stamps_of(loaded: Loaded) -> Stamps:
    """When each of the files changed last, and its size; a file that is gone has none."""
    found: Stamps = {}
    for path in _files_of(loaded.path, loaded.config):
        try:
            status = path.stat()
        except OSError:
            continue
        found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _files_of(path: Path | None, config: Config) -> Iterator[Path]:
    if path is not None:
        yield path
    for agent in config.agents.values():
        if agent.instructions_file:
            yield Path(agent.instructions_file)
    for tool in config.tools.values():
        if tool.python is not None:
            yield Path(tool.python.rpartition(":")[0])
