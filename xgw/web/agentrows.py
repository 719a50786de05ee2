"""Agents as their list and their page show them: how much they are used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from xgw.agents.definition import Definition
from xgw.queries import filters
from xgw.queries.agents import Use, count_use
from xgw.queries.filters import Filters

if TYPE_CHECKING:
    from xgw.web.app import Services


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent in the list of them, and its use."""

    agent: Definition
    use: Use


def list_agents(services: Services) -> list[AgentRow]:
    """Every agent with its use: one statement."""
    use = count_use(services.store)
    return [AgentRow(one, use.get(one.name, Use())) for one in services.agents.values()]


def sessions_of(name: str) -> Filters:
    """What narrows the list of sessions to those of an agent."""
    return filters.parse("sessions", [("agent", name), ("kind", "agent")])
