"""`[agents.NAME]` and `[tools.NAME]`: what may stand there, and its defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo

from xgw.config import rules
from xgw.config.credentials import is_credential_name
from xgw.config.table import Bytes, Count, Seconds, Table

Mode = Literal["chat", "task"]
Approval = Literal["never", "always"]
Builtin = Literal["calculator", "current_time", "http_get", "demo_weather", "remember", "forget"]
PURE: frozenset[Builtin] = frozenset({"calculator", "current_time", "demo_weather"})
"""They change nothing anywhere: running one again does no harm."""

OF_MEMORY: frozenset[Builtin] = frozenset({"remember", "forget"})
"""What they change is recorded along with their end."""

PLANNER = "plan"
"""What a model calls the tool by that keeps its plan of a task."""

Usd = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class AgentLimits(Table):
    """`[agents.NAME.limits]`: where a turn ends, gracefully; None is no limit of that kind."""

    max_iterations: Annotated[int, Field(ge=1, le=1000)] = 10
    max_turn_tokens: Count | None = None
    max_session_tokens: Count | None = None
    max_turn_cost_usd: Usd | None = None
    max_session_cost_usd: Usd | None = None
    max_seconds: Seconds | None = None


class AgentMode(Table):
    """`[agents.NAME.modes.MODE]`: what is different there; None is what `limits` says."""

    max_iterations: Annotated[int, Field(ge=1, le=1000)] | None = None


class TaskMode(AgentMode):
    """`[agents.NAME.modes.task]`: with `planner` the model keeps a plan of the task."""

    planner: bool = False


class AgentModes(Table):
    """`[agents.NAME.modes]`: a conversation, or a task to be worked off."""

    chat: AgentMode = AgentMode()
    task: TaskMode = TaskMode()


class AgentContext(Table):
    """`[agents.NAME.context]`: `window` in tokens is None for the model's own.

    Above the share `compact_at` of it earlier turns are summarised, but for the last ones.
    """

    window: Count | None = None
    compact_at: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.8
    keep_last_turns: Annotated[int, Field(ge=0, le=1000)] = 4


class Agent(Table):
    """`[agents.NAME]`: a model, its instructions, its tools and its limits.

    `handoffs` are the agents that it may hand a task over to.
    """

    description: str = ""
    model: Annotated[str, Field(min_length=1)]
    instructions: str = ""
    instructions_file: str = ""
    parameters: Annotated[dict[str, Any], AfterValidator(rules.check_parameters)] = Field(
        default_factory=dict
    )
    tools: tuple[Annotated[str, AfterValidator(rules.check_tool_name)], ...] = ()
    handoffs: tuple[str, ...] = ()
    modes: AgentModes = AgentModes()
    limits: AgentLimits = AgentLimits()
    context: AgentContext = AgentContext()

    def max_iterations(self, mode: Mode) -> int:
        """How many model answers a turn in this mode may ask for."""
        own: AgentMode = getattr(self.modes, mode)
        return own.max_iterations or self.limits.max_iterations

    def plans(self, mode: Mode) -> bool:
        """Whether the model keeps a plan in this mode."""
        return mode == "task" and self.modes.task.planner


class Mcp(Table):
    """`mcp` of a tool: an MCP server's command with its arguments, or the URL of one.

    `cwd` is the folder that the command runs in. It sees `env`, and of xgw's own environment only
    what every program needs.
    """

    command: Annotated[tuple[str, ...], AfterValidator(rules.check_command)] = ()
    cwd: str = ""
    env: Annotated[dict[str, str], AfterValidator(rules.check_environment)] = Field(
        default_factory=dict, repr=False
    )
    url: Annotated[str | None, AfterValidator(rules.check_mcp_url)] = None
    headers: Annotated[dict[str, str], AfterValidator(rules.check_headers)] = Field(
        default_factory=dict, repr=False
    )

    def secrets(self) -> set[str]:
        """The values that its environment and its headers hold under a credential's name."""
        pairs = [*self.env.items(), *self.headers.items()]
        named = {value for name, value in pairs if is_credential_name(name)}
        return named | {value.split(" ", 1)[-1].strip() for value in named}


class Retrieval(Table):
    """`retrieval` of a tool: the folder that it searches, and how many passages it returns."""

    path: Annotated[str, Field(min_length=1)]
    top_k: Annotated[int, Field(ge=1, le=50)] = 5


def _or_always(value: bool, info: ValidationInfo) -> bool:
    """A search changes nothing either."""
    is_safe = info.data.get("builtin") in PURE | OF_MEMORY
    return value or is_safe or info.data.get("retrieval") is not None


class Tool(Table):
    """`[tools.NAME]`: a Python function ("file.py:function"), one that is built in, the tools of
    an MCP server, or a search over a folder.

    `allow_private` is for `http_get` alone: whether it may reach private and loopback addresses.
    """

    python: Annotated[str | None, AfterValidator(rules.check_python_tool)] = None
    builtin: Builtin | None = None
    mcp: Mcp | None = None
    retrieval: Retrieval | None = None
    approval: Approval = "never"
    timeout_seconds: Seconds = 30
    retry_safe: Annotated[bool, AfterValidator(_or_always)] = Field(False, validate_default=True)
    max_output_bytes: Bytes = 65_536
    allow_private: bool = False
