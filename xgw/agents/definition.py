"""Agents as they are defined: a model, instructions, tools that can be called, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from xgw.agents import builtin
from xgw.agents.fetching import Fetching
from xgw.agents.functions import BadTool, Function, load_function, read_function
from xgw.agents.memory import Memory
from xgw.agents.planner import Plan
from xgw.config import PLANNER, Agent, Approval, Config, Mode
from xgw.config import Tool as ToolTable
from xgw.errors import UsageError, not_found

NOWHERE: Mapping[str, str] = MappingProxyType({})
MODES: tuple[Mode, ...] = ("chat", "task")

_PLAIN: Mapping[str, Callable[..., Any]] = {
    "calculator": builtin.calculator,
    "current_time": builtin.current_time,
    "demo_weather": builtin.demo_weather,
    "remember": Memory().remember,
    "forget": Memory().forget,
}
_OF_MEMORY = ("remember", "forget")


_PURE = frozenset(_PLAIN)
"""They change nothing anywhere: running one again does no harm."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may be offered; times are in seconds.

    `step_type` is that of its calls. `own` is set of one that works on the turn's own desk.
    """

    name: str
    function: Function
    timeout_seconds: float
    max_output_bytes: int
    retry_safe: bool
    approval: Approval = "never"
    step_type: str = "tool_call"
    own: str | None = None

    def offer(self) -> dict[str, Any]:
        """As the chat API offers it."""
        return {"type": "function", "function": {"name": self.name, **self.told()}}

    def told(self) -> dict[str, Any]:
        """What a model is told of it besides the name."""
        return {
            "description": self.function.description,
            "parameters": self.function.parameters,
        }


@dataclass(frozen=True, slots=True)
class Definition:
    """One agent. It never changes: a turn keeps the one that it began with."""

    name: str
    table: Agent
    instructions: str
    tools: tuple[Tool, ...]

    def find_tool(self, name: str | None) -> Tool | None:
        """The tool that a model calls by this name."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def in_mode(self, mode: Mode) -> Definition:
        """As it is in this mode: where a plan is kept, there is a tool for it."""
        if not self.table.plans(mode):
            return self
        return replace(self, tools=(*self.tools, _PLANNER))


_PLANNER = Tool(
    PLANNER,
    read_function(Plan().plan),
    timeout_seconds=30,
    max_output_bytes=65_536,
    retry_safe=True,
    step_type="planner",
    own=PLANNER,
)
"""The tool by which a plan is kept."""

Agents = Mapping[str, Definition]


@dataclass(slots=True)
class _Mistakes:
    """One line each: where it stands, table, key, what is wrong."""

    sources: Mapping[str, str]
    lines: list[str] = field(default_factory=list)

    def add(self, table: str, key: str, text: str) -> None:
        source = self.sources.get(f"{table}.{key}")
        self.lines.append(f"{f'{source}: ' if source else ''}[{table}] {key} {text}")


def read_agents(config: Config, sources: Mapping[str, str] = NOWHERE) -> Agents:
    """The agents of a configuration, with the functions of their tools.

    UsageError with everything that cannot be read or called, a line each; `sources` tells where
    the keys stand.
    """
    mistakes = _Mistakes(sources)
    tools = dict(_read_tools(config, mistakes))
    agents: dict[str, Definition] = {}
    for name, table in config.agents.items():
        found = tuple(tools[tool] for tool in table.tools if tool in tools)
        agents[name] = Definition(name, table, _instructions(name, table, mistakes), found)
    if mistakes.lines:
        raise UsageError(*mistakes.lines)
    return agents


def find_agent(agents: Agents, name: str) -> Definition:
    """The agent of this name; ApiError 404 if there is none."""
    found = agents.get(name)
    if found is None:
        raise not_found(f"there is no agent {name[:64]!r}", code="agent_not_found")
    return found


def _read_tools(config: Config, mistakes: _Mistakes) -> Iterator[tuple[str, Tool]]:
    used = {name for agent in config.agents.values() for name in agent.tools}
    for name in dict.fromkeys((*config.tools, *used)):
        # A built-in needs no table: without one it is as its defaults are.
        table = config.tools.get(name) or ToolTable.model_validate({"builtin": name})
        try:
            function = read_function(_function_of(table))
        except BadTool as error:
            mistakes.add(f"tools.{name}", "python", str(error))
            continue
        own = table.builtin if table.builtin in _OF_MEMORY else None
        yield (
            name,
            Tool(
                name,
                function,
                table.timeout_seconds,
                table.max_output_bytes,
                # What one of these changes is recorded along with its end.
                table.retry_safe or table.builtin in _PURE or own is not None,
                table.approval,
                step_type="tool_call" if own is None else "memory_write",
                own=own,
            ),
        )


def _function_of(table: ToolTable) -> Callable[..., Any]:
    if table.python is not None:
        return load_function(table.python)
    if table.builtin == "http_get":
        fetching = Fetching(table.allow_private, table.timeout_seconds, table.max_output_bytes)
        return fetching.function()
    return _PLAIN[table.builtin or ""]


def _instructions(name: str, table: Agent, mistakes: _Mistakes) -> str:
    if not table.instructions_file:
        return table.instructions
    try:
        return Path(table.instructions_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        mistakes.add(f"agents.{name}", "instructions_file", f"cannot be read: {reason}")
        return ""
