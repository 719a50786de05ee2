"""An MCP server as agents know it: started when it is needed, and again when it has ended.

All turns share it. What it told of its tools is kept, so that a turn can begin while it is down.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as TookTooLong
from typing import TYPE_CHECKING, Any, TypeVar

from xgw.agents.functions import ToolFailed
from xgw.agents.mcp.looping import LoopThread
from xgw.config import Mcp
from xgw.providers.transport import Call, Cancelled

if TYPE_CHECKING:
    from xgw.agents.mcp.connection import Connection, Told

START_SECONDS = 30.0
NOT_INSTALLED = "needs a library that is not installed: pip install 'xgw[mcp]'"

Answer = TypeVar("Answer")


class Unavailable(Exception):
    """A server cannot be used; the text completes "the MCP server …"."""


class Server:
    """One server. `told` is what it offers, None before it was ever asked; `problem` why not.

    `calls` is how many are under way.
    """

    def __init__(self, name: str, table: Mcp, loop: LoopThread) -> None:
        self.name = name
        self.table = table
        self._loop = loop
        self._opening = asyncio.Lock()
        self._connection: Connection | None = None
        self._retired = False
        self.told: tuple[Told, ...] | None = None
        self.problem: str | None = None
        self.calls = 0

    def tools(self, stop: Call) -> tuple[Told, ...]:
        """What it offers; it is started for that if it never was. Raises Unavailable, Cancelled."""
        if not self.is_current:
            self._wait(self._learn(), stop)
        assert self.told is not None
        return self.told

    def look(self, seconds: float) -> None:
        """Have it asked what it offers, if it never was, and wait for that, but not longer."""
        if not self.is_current:
            with contextlib.suppress(Unavailable, TookTooLong, CancelledError):
                self._loop.submit(self._learn()).result(seconds)

    @property
    def is_current(self) -> bool:
        """Whether `told` still holds, as far as the server has said."""
        connection = self._connection
        changed = connection is not None and not connection.is_over and connection.tools is None
        return self.told is not None and not changed

    def call(self, name: str, arguments: dict[str, Any], stop: Call) -> str:
        """What a tool returned, as text. Raises ToolFailed, and Cancelled as soon as `stop` is."""
        try:
            text, is_error = self._wait(self._call(name, arguments), stop)
        except Unavailable as error:
            raise ToolFailed(f"the MCP server {error}") from None
        if is_error:
            raise ToolFailed(text or "the tool failed, and said nothing")
        return text

    def retire(self) -> None:
        """Nobody takes it up any more: it ends as soon as no call of it is under way."""
        self._retired = True
        if self._loop.runs:
            self._loop.submit(self._rest())

    def end(self) -> Future[None] | None:
        """End it, whatever it does; None if none of them ever ran."""
        self._retired = True
        return self._loop.submit(self._end()) if self._loop.runs else None

    # -- in the event loop's thread ------------------------------------------------------------

    def _wait(self, work: Coroutine[Any, Any, Answer], stop: Call) -> Answer:
        future = self._loop.submit(work)

        def cancel() -> None:
            future.cancel()

        try:
            stop.attach(cancel)
            return future.result()
        except (CancelledError, Cancelled):
            future.cancel()
            raise Cancelled from None
        finally:
            stop.detach()

    async def _learn(self) -> None:
        connection = await self._connected()
        from xgw.agents.mcp.connection import Broken

        try:
            self.told = connection.tools or await connection.list_tools()
        except Broken as error:
            raise Unavailable(str(error)) from None
        await self._rest()

    async def _call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        connection = await self._connected()
        from xgw.agents.mcp.connection import Broken, Refused
        from xgw.agents.mcp.results import text_of

        self.calls += 1
        try:
            result = await connection.call(name, arguments)
        except Broken as error:
            raise Unavailable(str(error)) from None
        except Refused as error:
            return str(error), True
        finally:
            self.calls -= 1
            await self._rest()
        return text_of(result), result.is_error

    async def _connected(self) -> Connection:
        """The connection that there is, or a new one. Raises Unavailable."""
        try:
            from xgw.agents.mcp.connection import Broken, Connection
        except ImportError:
            self.problem = NOT_INSTALLED
            raise Unavailable(NOT_INSTALLED) from None
        async with self._opening:
            if self._connection is not None and not self._connection.is_over:
                return self._connection
            connection = Connection(self.name, self.table)
            try:
                await connection.open(START_SECONDS)
            except Broken as error:
                self.problem = str(error)
                raise Unavailable(self.problem) from None
            self._connection, self.problem, self.told = connection, None, connection.tools
            return connection

    async def _rest(self) -> None:
        if self._retired and not self.calls:
            await self._end()

    async def _end(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
