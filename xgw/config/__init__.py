"""Configuration: what xgw.toml, the environment and the command line say, checked and explained."""

from __future__ import annotations

from xgw.config.agents import OF_MEMORY, PLANNER, Agent, AgentLimits, Approval, Mcp, Mode, Tool
from xgw.config.credentials import MASK, PASSTHROUGH, is_credential_name, is_credential_parameter
from xgw.config.loading import Loaded, load
from xgw.config.rules import check_parameters, handoff_name
from xgw.config.schema import (
    DEMO_LABEL,
    ClientKey,
    Config,
    Gateway,
    Price,
    Provider,
    Retention,
    Retry,
    Route,
    Server,
    Storage,
    Timeouts,
)
from xgw.config.showing import show

__all__ = [
    "DEMO_LABEL",
    "MASK",
    "OF_MEMORY",
    "PASSTHROUGH",
    "PLANNER",
    "Agent",
    "AgentLimits",
    "Approval",
    "ClientKey",
    "Config",
    "Gateway",
    "Loaded",
    "Mcp",
    "Mode",
    "Price",
    "Provider",
    "Retention",
    "Retry",
    "Route",
    "Server",
    "Storage",
    "Timeouts",
    "Tool",
    "check_parameters",
    "handoff_name",
    "is_credential_name",
    "is_credential_parameter",
    "load",
    "show",
]
