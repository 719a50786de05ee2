"""The MCP servers of this process: one for each that the configuration names, shared by all."""

from __future__ import annotations

import threading
from collections.abc import Collection
from concurrent.futures import wait

from xgw.agents.mcp.looping import LoopThread
from xgw.agents.mcp.server import Server
from xgw.config import Mcp

CLOSE_SECONDS = 6.0
"""How long servers may take to end; a process is killed before."""


class Servers:
    """Every server by the name of its tool; none is started here."""

    def __init__(self) -> None:
        self._loop = LoopThread()
        self._lock = threading.Lock()
        self._servers: list[Server] = []

    def take(self, name: str, table: Mcp) -> Server:
        """The server of a tool: the one that there is, if its table is what it was."""
        with self._lock:
            for server in self._servers:
                if server.name == name and server.table == table:
                    return server
            server = Server(name, table, self._loop)
            self._servers.append(server)
            return server

    def keep(self, used: Collection[Server]) -> None:
        """The others are of no use any more."""
        with self._lock:
            gone = [server for server in self._servers if server not in used]
            self._servers = [server for server in self._servers if server in used]
        for server in gone:
            server.retire()

    def close(self) -> None:
        """End all of them, together."""
        with self._lock:
            servers, self._servers = self._servers, []
        wait([ending for server in servers if (ending := server.end())], CLOSE_SECONDS)
        self._loop.stop()
