"""One life of an MCP server: it is started or reached, listed, listened to, and ended.

Everything here runs in the event loop's thread. Imports the library: only once a server is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolResult,
    Implementation,
    ToolListChangedNotification,
)

from xgw import __version__
from xgw.agents.mcp.stderr import Words
from xgw.config import Mcp

CONNECT_SECONDS = 10.0
MAX_PAGES = 100
LAST_WORDS_SECONDS = 2.0

Message = SessionMessage | Exception

# They log with tracebacks, and what they say of a call is told by its step.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())
    logging.getLogger(_name).propagate = False


class Broken(Exception):
    """The server cannot be used; the text completes "the MCP server …"."""


class Refused(Exception):
    """The server answered a request with an error; the text is its own."""


@dataclass(frozen=True, slots=True)
class Told:
    """A tool as its server describes it; `parameters` is its JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Connection:
    """A server that runs. `tools` is what it offers, None once it has said that this changed."""

    def __init__(self, name: str, table: Mcp) -> None:
        self._table = table
        self._over = asyncio.Event()
        self._words = Words(name, table.env.values()) if table.command else None
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self.tools: tuple[Told, ...] | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, by itself or because it was told to."""
        return self._over.is_set()

    async def open(self, seconds: float) -> None:
        """Start it and learn its tools. Raises Broken."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(opened))
        try:
            async with asyncio.timeout(seconds):
                await opened
        except TimeoutError:
            self._task.cancel()
            raise Broken(f"did not answer within {seconds:g} s") from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the library makes of a failure
            raise Broken(await self._told(error)) from None

    async def list_tools(self) -> tuple[Told, ...]:
        """What it offers now. Raises Broken."""
        try:
            return await self._list()
        except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise Broken(f"did not list its tools: {error}") from None

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """What a tool returned. Raises Refused, and Broken if the server ended meanwhile."""
        assert self._client is not None
        try:
            return await self._client.call_tool(name, arguments)
        except MCPError as error:
            if error.code == CONNECTION_CLOSED or self._has_forgotten(error):
                self._over.set()
                raise Broken("ended before the call was answered") from None
            raise Refused(error.message) from None
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._over.set()
            raise Broken("ended before the call was answered") from None
        except (RuntimeError, ValueError) as error:
            raise Refused(f"its result does not hold what it declares: {error}") from None

    async def close(self) -> None:
        """End it; a process gets 2 s to end by itself, and is killed then."""
        self._over.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- its life ------------------------------------------------------------------------------

    async def _live(self, opened: asyncio.Future[None]) -> None:
        info = Implementation(name="xgw", version=__version__)
        try:
            transport = self._watched()
            async with Client(transport, message_handler=self._hear, client_info=info) as client:
                self._client = client
                await self._list()
                if not opened.done():
                    opened.set_result(None)
                listening = asyncio.create_task(self._listen(client))
                await self._over.wait()
                listening.cancel()
                await asyncio.wait([listening])
        except BaseException as error:  # noqa: BLE001 - it is told to whoever opens it
            if not opened.done():
                opened.set_exception(_first(error))
        finally:
            self._over.set()
            if self._words is not None:
                self._words.file.close()

    @contextlib.asynccontextmanager
    async def _watched(self) -> AsyncIterator[Any]:
        """The transport, with a look at its end: the library tells that only to calls under way."""
        async with self._transport() as (incoming, outgoing), anyio.create_task_group() as group:
            send, receive = anyio.create_memory_object_stream[Message](0)

            async def pass_on() -> None:
                async with send:
                    async for message in incoming:
                        await send.send(message)
                    self._over.set()

            group.start_soon(pass_on)
            try:
                yield receive, outgoing
            finally:
                group.cancel_scope.cancel()

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        table = self._table
        if self._words is not None:
            program, *arguments = table.command
            spec = StdioServerParameters(
                command=program, args=arguments, env=dict(table.env), cwd=table.cwd or None
            )
            async with stdio_client(spec, errlog=self._words.file) as streams:
                self._words.file.close()
                yield streams
            return
        # How long a call may take is for its tool to say.
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        async with (
            httpx2.AsyncClient(headers=dict(table.headers), timeout=timeout) as client,
            streamable_http_client(table.url or "", http_client=client) as streams,
        ):
            yield streams

    async def _list(self) -> tuple[Told, ...]:
        assert self._client is not None
        found: list[Told] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._client.list_tools(cursor=cursor, cache_mode="refresh")
            found += (Told(one.name, one.description or "", one.input_schema) for one in page.tools)
            cursor = page.next_cursor
            if cursor is None:
                break
        self.tools = tuple(found)
        return self.tools

    async def _hear(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self.tools = None

    async def _listen(self, client: Client) -> None:
        """Servers of the newer protocol tell of changes only to those who ask for it."""
        told = client.server_capabilities.tools
        if told is None or not told.list_changed:
            return
        with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self.tools = None

    def _has_forgotten(self, error: MCPError) -> bool:
        """Whether a server that is reached by HTTP was started anew, and knows no session of ours.

        The library has no code for it.
        """
        return self._words is None and error.message == "Session terminated"

    async def _told(self, error: BaseException) -> str:
        if self._words is None:
            return f"cannot be reached at {self._table.url}: {_reason(error)}"
        last = await asyncio.to_thread(self._words.wait, LAST_WORDS_SECONDS)
        if isinstance(error, MCPError) and not last:
            return f"cannot be started: {self._table.command[0]} ended before it answered"
        return f"cannot be started: {last if isinstance(error, MCPError) else _reason(error)}"


def _first(error: BaseException) -> BaseException:
    """The first of what several tasks failed with."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, asyncio.CancelledError):
        return Broken("it was stopped")
    return error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        named = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{named}"
    return str(error) or type(error).__name__
