"""Tools for the agents of tests, as people write them: a file of functions."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from agent_gates import GATES, RUNS, wait_for


def look(city: str, unit: Literal["c", "f"] = "c") -> dict[str, Any]:
    """Look at the weather.

    Args:
        city: The name of a city.
        unit: Celsius or Fahrenheit.
    """
    RUNS.append(f"look {city}")
    return {"city": city, "degrees": 21, "unit": unit}


def note(text: str) -> str:
    """Keep a note."""
    RUNS.append(f"note {text}")
    return f"kept: {text}"


def boom() -> str:
    """Fail."""
    raise RuntimeError("disk on fire")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def mute() -> str:
    """Fail, and fail to say why."""
    raise Unspeakable


def garble() -> str:
    """Fail with far too much that nobody can read."""
    raise RuntimeError("\ud800" + "x" * 5000)


def quit() -> str:
    """Try to end the process."""
    raise SystemExit(3)


def flood() -> str:
    """Return much."""
    return "x" * 5000


def first() -> str:
    """Wait for `second`."""
    GATES["first runs"].set()
    wait_for("second runs")
    return "one"


def second() -> str:
    """Wait for `first`."""
    wait_for("first runs")
    GATES["second runs"].set()
    return "two"


def stuck() -> str:
    """Wait until the test lets it go."""
    GATES["stuck runs"].set()
    wait_for("free")
    return "late"


async def later(number: int) -> int:
    """Count, asynchronously."""
    await asyncio.sleep(0)
    return number + 1


def anything(**properties: Any) -> str:
    """Take any properties."""
    return ", ".join(f"{name}={value}" for name, value in sorted(properties.items()))


def positional(value: int, /) -> int:
    """What no model can call."""
    return value
