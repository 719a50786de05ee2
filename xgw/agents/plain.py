"""The agent behind a conversation with a model alone: no instructions, no tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xgw.agents.definition import Agents, Definition
from xgw.config import Agent, Config

NAME = "chat"
"""An agent that is defined by this name is taken in its place."""

ANY_MODEL = "*"
"""Its model where no route names one: each message then has to."""


class WithPlain(Mapping[str, Definition]):
    """The agents as they are defined at the moment, and the plain one beside them."""

    def __init__(self, agents: Agents, plain: Definition) -> None:
        self._agents = agents
        self._plain = plain

    def __getitem__(self, name: str) -> Definition:
        found = self._agents.get(name)
        if found is not None:
            return found
        if name == NAME:
            return self._plain
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from self._agents
        if NAME not in self._agents:
            yield NAME

    def __len__(self) -> int:
        return len(self._agents) + (NAME not in self._agents)


def with_plain(agents: Agents, config: Config) -> Agents:
    """These agents, and the plain one, which no list names; its model is the first route's."""
    named = (route.model for route in config.routes if not set(route.model) & set("*?["))
    table = Agent(description="A model alone", model=next(named, ANY_MODEL))
    return WithPlain(agents, Definition(NAME, table, "", ()))
