"""The agent behind a conversation with a model alone: no instructions, no tools."""

from __future__ import annotations

from xgw.agents.definition import Agents, Definition
from xgw.config import Agent, Config

NAME = "chat"
"""An agent that is defined by this name is taken in its place."""

ANY_MODEL = "*"
"""Its model where no route names one: each message then has to."""


def with_plain(agents: Agents, config: Config) -> Agents:
    """These agents, and the plain one, which no list names; its model is the first route's."""
    named = (route.model for route in config.routes if not set(route.model) & set("*?["))
    table = Agent(description="A model alone", model=next(named, ANY_MODEL))
    return {NAME: Definition(NAME, table, "", ()), **agents}
