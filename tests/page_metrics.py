"""What a page costs the browser: time that its main thread worked, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_NAMES = {
    "task_ms": "TaskDuration",
    "script_ms": "ScriptDuration",
    "style_ms": "RecalcStyleDuration",
    "layout_ms": "LayoutDuration",
    "styles": "RecalcStyleCount",
    "layouts": "LayoutCount",
    "nodes": "Nodes",
    "listeners": "JSEventListeners",
    "heap_bytes": "JSHeapUsedSize",
}


@dataclass(frozen=True)
class Metrics:
    """Times since the page was opened, and what it holds now; a difference is what was spent.

    `task_ms` is everything on the main thread; `script_ms` leaves out promises and DevTools.
    """

    task_ms: float
    script_ms: float
    style_ms: float
    layout_ms: float
    styles: float
    layouts: float
    nodes: float
    listeners: float
    heap_bytes: float

    def __sub__(self, other: Metrics) -> Metrics:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Metrics(*(mine - its for mine, its in pairs))


class Meter:
    """Reads the metrics of one page."""

    def __init__(self, page: Page) -> None:
        self._tools = page.context.new_cdp_session(page)
        # In time that the thread ran, so that a busy machine changes nothing.
        self._tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read(self) -> Metrics:
        """As of now, without what only waits to be collected."""
        self._tools.send("HeapProfiler.collectGarbage")
        told = self._tools.send("Performance.getMetrics")["metrics"]
        values = {metric["name"]: metric["value"] for metric in told}
        scale = {name: 1000 if name.endswith("_ms") else 1 for name in _NAMES}
        return Metrics(**{name: values[its] * scale[name] for name, its in _NAMES.items()})
