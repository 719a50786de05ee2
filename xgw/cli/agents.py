"""The command `agents`: which agents are defined, with their models and tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from xgw.cli.configuration import load, with_configuration, with_json
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import note, stdout, write, write_json

if TYPE_CHECKING:
    from xgw.agents.definition import Agents
    from xgw.config import Loaded


@click.command()
@with_configuration
@with_json
def agents(config_path: Path | None, db: str | None, as_json: bool) -> None:
    """List the agents that the configuration defines.

    With --json each is told whole: instructions, modes, tools with their schemas, limits. MCP
    servers are started for that, and asked what they offer.

    \b
    Examples:
      xgw agents
      xgw agents --json | jq -r '.data[].name'
    """
    from xgw.agents.definition import read_agents
    from xgw.agents.mcp.servers import Servers

    loaded = load(config_path, db)
    servers = Servers()
    try:
        found = read_agents(loaded.config, loaded.sources, servers)
        for definition in found.values():
            definition.look()
        _tell(loaded, found, as_json=as_json)
    finally:
        servers.close()


def _tell(loaded: Loaded, found: Agents, *, as_json: bool) -> None:
    from xgw.masking import Masker
    from xgw.web.agents import agent

    masker = Masker(loaded.config.secrets())
    if as_json:
        # Which provider serves a model is for a running server to say.
        told = [agent(definition, None, masker) for definition in found.values()]
        write_json({"object": "list", "data": told})
    elif found:
        write(_table(found))
    else:
        note("No agent is defined: [agents.NAME] in xgw.toml does that")
    for definition in found.values():
        for problem in definition.problems():
            note(f"{definition.name}: {masker.text(problem)}")


_COLUMNS = (Column("agent"), Column("model", spare=1), Column("tools", spare=2))


def _table(found: Agents) -> list[str]:
    cells = [
        (
            Cell(definition.name, "name"),
            Cell(definition.table.model),
            Cell(", ".join(tool.name for tool in definition.known().tools) or "none"),
            Cell(definition.table.description, "faint"),
        )
        for definition in found.values()
    ]
    return render(stdout(), _COLUMNS, cells, tail="description")
