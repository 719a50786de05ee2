"""What a turn's own tools work on: the session's working memory, and the plan of the run.

These tools reach nothing else and take no time: they are called one after another, in the order of
the calls, so that each of their steps is one change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from xgw.agents.definition import Definition, Tool
from xgw.agents.functions import Function
from xgw.agents.memory import Memory
from xgw.agents.planner import Plan
from xgw.recording.facts import Kept


class Desk:
    """The memory and the plan of one turn."""

    def __init__(self, memory: Memory, plan: Plan) -> None:
        self.memory = memory
        self.plan = plan
        self._calls: Mapping[str, Callable[..., Any]] = {
            "remember": memory.remember,
            "forget": memory.forget,
            "plan": plan.plan,
        }

    def equip(self, definition: Definition) -> Definition:
        """The definition with its own tools bound to this desk."""
        return replace(definition, tools=tuple(self._bound(tool) for tool in definition.tools))

    def kept(self, tool: Tool | None) -> Kept | None:
        """What a call of one of these tools has changed; None for any other tool."""
        if tool is None or tool.own is None:
            return None
        if tool.step_type == "planner":
            return Kept(planner_state=self.plan.kept)
        return Kept(working_memory=self.memory.held)

    def texts(self) -> Iterator[tuple[str, str]]:
        """What the model is told of them: the name of each part, and its text."""
        for name, text in (("working_memory", self.memory.text()), ("plan", self.plan.text())):
            if text is not None:
                yield name, text

    def _bound(self, tool: Tool) -> Tool:
        if tool.own is None or not isinstance(tool.function, Function):
            return tool
        return replace(tool, function=tool.function.bound(self._calls[tool.own]))
