"""Agents as they are defined: a model, instructions, tools that can be called, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from xgw.agents import builtin
from xgw.agents.fetching import Fetching
from xgw.agents.functions import BadTool, Callee, load_function, read_function
from xgw.agents.handoff import MAX_ANSWER_BYTES, NO_END_SECONDS, offer_of
from xgw.agents.mcp.offering import Offered, offered_by
from xgw.agents.mcp.server import Server, Unavailable
from xgw.agents.mcp.servers import Servers
from xgw.agents.memory import Memory
from xgw.agents.planner import Plan
from xgw.agents.retrieval import Searching
from xgw.config import OF_MEMORY, PLANNER, Agent, Approval, Config, Mode, handoff_name
from xgw.config import Tool as ToolTable
from xgw.errors import UsageError, not_found
from xgw.providers.transport import Call

NOWHERE: Mapping[str, str] = MappingProxyType({})
LOOK_SECONDS = 5.0
MODES: tuple[Mode, ...] = ("chat", "task")

_PLAIN: Mapping[str, Callable[..., Any]] = {
    "calculator": builtin.calculator,
    "current_time": builtin.current_time,
    "demo_weather": builtin.demo_weather,
    "remember": Memory().remember,
    "forget": Memory().forget,
}

StepType = Literal["tool_call", "retrieval", "handoff", "memory_write", "planner"]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may be offered; times are in seconds.

    `step_type` is that of its calls. `own` is set of one that works on the turn's own desk.
    """

    name: str
    function: Callee
    timeout_seconds: float
    max_output_bytes: int
    retry_safe: bool
    approval: Approval = "never"
    step_type: StepType = "tool_call"
    own: str | None = None
    partner: str | None = None
    """The agent that a call hands its task over to."""

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
class Source:
    """A server that tells its tools itself, and what its table says of each of them."""

    server: Server
    table: ToolTable


class NoTools(Exception):
    """The tools of an agent cannot be told; the text is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One agent. It never changes: a turn keeps the one that it began with.

    `tools` lacks those of the `sources`, which are only known once these have been asked.
    """

    name: str
    table: Agent
    instructions: str
    tools: tuple[Tool, ...]
    sources: tuple[Source, ...] = ()
    others: Mapping[str, Definition] = field(default_factory=dict, repr=False, compare=False)
    """The agents that are defined along with it: whom a task is handed over to is found there."""

    def settled(self, stop: Call) -> Definition:
        """The agent with all its tools, those of its servers too. Raises NoTools, Cancelled."""
        for source in self.sources:
            try:
                source.server.tools(stop)
            except Unavailable as error:
                raise NoTools(_unavailable(source.server, str(error))) from None
        return replace(self.known(), sources=())

    def known(self) -> Definition:
        """The agent with the tools that its servers have told of so far; asks none of them."""
        tools = list(self.tools)
        for source in self.sources:
            taken = {tool.name for tool in tools}
            tools += (_offered(one, source.table) for one in offered_by(source.server, taken))
        return replace(self, tools=tuple(tools))

    def look(self) -> None:
        """Have its servers tell their tools, for someone who looks; what fails is a problem."""
        for source in self.sources:
            source.server.look(LOOK_SECONDS)

    def problems(self) -> list[str]:
        """A sentence for each of its servers that could not be used when it was last tried."""
        servers = [source.server for source in self.sources]
        return [_unavailable(server, server.problem) for server in servers if server.problem]

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


def read_agents(
    config: Config, sources: Mapping[str, str] = NOWHERE, servers: Servers | None = None
) -> Agents:
    """The agents of a configuration, with the functions of their tools.

    UsageError with everything that cannot be read or called, a line each; `sources` tells where
    the keys stand. `servers` has the MCP servers that run already.
    """
    mistakes = _Mistakes(sources)
    served = dict(read_sources(config, servers or Servers()))
    tools = dict(_read_tools(config, mistakes))
    agents: dict[str, Definition] = {}
    for name, table in config.agents.items():
        found = tuple(tools[tool] for tool in table.tools if tool in tools)
        asked = tuple(served[tool] for tool in table.tools if tool in served)
        found += tuple(_handoff(partner, config.agents[partner]) for partner in table.handoffs)
        text = _instructions(name, table, mistakes)
        agents[name] = Definition(name, table, text, found, asked, agents)
    if mistakes.lines:
        raise UsageError(*mistakes.lines)
    return agents


def read_sources(config: Config, servers: Servers) -> Iterator[tuple[str, Source]]:
    """The tools of a configuration that are servers, by name; none of them is started."""
    for name, table in config.tools.items():
        if table.mcp is not None:
            yield name, Source(servers.take(name, table.mcp), table)


def refuse_unavailable(config: Config, sources: Mapping[str, str]) -> None:
    """UsageError with every MCP server that cannot be used: each is started, asked and ended."""
    mistakes, servers = _Mistakes(sources), Servers()
    try:
        for name, source in read_sources(config, servers):
            try:
                source.server.tools(Call())
            except Unavailable as error:
                key = "url" if source.server.table.url else "command"
                mistakes.add(f"tools.{name}.mcp", key, str(error))
    finally:
        servers.close()
    if mistakes.lines:
        raise UsageError(*mistakes.lines)


def find_agent(agents: Agents, name: str) -> Definition:
    """The agent of this name; ApiError 404 if there is none."""
    found = agents.get(name)
    if found is None:
        message = f"there is no agent {name[:64]!r}: GET /agents lists those that there are"
        raise not_found(message, code="agent_not_found")
    return found


def _read_tools(config: Config, mistakes: _Mistakes) -> Iterator[tuple[str, Tool]]:
    used = {name for agent in config.agents.values() for name in agent.tools}
    for name in dict.fromkeys((*config.tools, *used)):
        # A built-in needs no table: without one it is as its defaults are.
        table = config.tools.get(name) or ToolTable.model_validate({"builtin": name})
        if table.mcp is not None:
            continue
        try:
            function = read_function(_function_of(table))
        except BadTool as error:
            mistakes.add(f"tools.{name}", "python", str(error))
            continue
        yield name, _tool(name, function, table)


def _tool(name: str, function: Callee, table: ToolTable) -> Tool:
    own = table.builtin if table.builtin in OF_MEMORY else None
    searches = table.retrieval is not None
    return Tool(
        name,
        function,
        table.timeout_seconds,
        table.max_output_bytes,
        table.retry_safe,
        table.approval,
        step_type="memory_write" if own else "retrieval" if searches else "tool_call",
        own=own,
    )


def _handoff(partner: str, table: Agent) -> Tool:
    """How long it takes and what it costs is for the limits of the turn and of the partner."""
    function = read_function(offer_of(partner, table.description))
    return Tool(
        handoff_name(partner),
        function,
        NO_END_SECONDS,
        MAX_ANSWER_BYTES,
        retry_safe=False,
        step_type="handoff",
        partner=partner,
    )


def _offered(offered: Offered, table: ToolTable) -> Tool:
    return _tool(offered.name, offered, table)


def _unavailable(server: Server, problem: str) -> str:
    return f"the MCP server of [tools.{server.name}] {problem}"


def _function_of(table: ToolTable) -> Callable[..., Any]:
    if table.python is not None:
        return load_function(table.python)
    if table.retrieval is not None:
        wanted = table.retrieval
        return Searching(wanted.path, wanted.top_k, table.max_output_bytes).function()
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
