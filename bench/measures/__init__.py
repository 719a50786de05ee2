"""The measurements by name, in the order of the table."""

from __future__ import annotations

from collections.abc import Callable

from bench.figures import Figure
from bench.measures import (
    calls,
    history,
    machine,
    older,
    pages,
    recording,
    starting,
    streams,
    watching,
)
from bench.setting import Setting

MEASURES: dict[str, Callable[[Setting], list[Figure]]] = {
    "machine": machine.measure,
    "added": calls.measure_added,
    "rate": calls.measure_rate,
    "first-token": streams.measure_first_token,
    "streams": streams.measure_streams,
    "recording": recording.measure,
    "watching": watching.measure,
    "pages": pages.measure,
    "history": history.measure,
    "starting": starting.measure,
    "older": older.measure,
}
