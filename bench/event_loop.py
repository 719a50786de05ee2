"""Which event loop upstream and load run on: uvloop's where it is installed, else asyncio's."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

NAME = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """`asyncio.run` on the faster loop."""
    if NAME == "asyncio":
        return asyncio.run(main)
    uvloop = importlib.import_module("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
