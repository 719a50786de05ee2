"""An MCP server of the tests: by stdio, or by HTTP at the port that is its argument.

What happens in it is told by files in the folder of the environment variable NOTES.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.utilities.types import Image
from mcp.types import CallToolResult, ImageContent, TextContent

NOTES = Path(os.environ["NOTES"])
server = MCPServer("tests")


def _note(name: str, text: str = "") -> None:
    (NOTES / name).write_text(text)


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no paper left")


@server.tool()
def picture() -> Any:
    """Draw."""
    return [Image(data=b"\x89PNG" + bytes(96), format="png"), "a dot"]


@server.tool()
def result() -> CallToolResult:
    """Return what has no text of its own."""
    picture = ImageContent(type="image", data="AAAA", mime_type="image/gif")
    text = TextContent(type="text", text="see the picture")
    return CallToolResult(content=[text, picture], structured_content={"dots": 3})


@server.tool()
async def wait() -> str:
    """Wait for ever."""
    _note("waits")
    try:
        await asyncio.Event().wait()
    finally:
        _note("cancelled")
    return "never"


@server.tool()
def environment(name: str) -> str:
    """A variable of its environment."""
    return os.environ.get(name, "unset")


@server.tool(name="odd.name/tool")
def odd() -> str:
    """A name that no model can be told."""
    return "odd"


@server.tool()
async def grow(ctx: Context) -> str:
    """Offer one more tool, and say so."""
    server.add_tool(odd, name="grown")
    await ctx.notify_tools_changed()
    return "grown"


def main() -> None:
    _note(f"started-{os.getpid()}")
    sys.stderr.write(f"hello from {os.environ.get('SECRET_TOKEN', 'nobody')}\n")
    sys.stderr.flush()
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
        return
    server.run("stdio")


if __name__ == "__main__":
    main()
