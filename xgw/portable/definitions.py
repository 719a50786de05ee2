"""What the configuration says for an export: agents as they are now, what is masked."""

from __future__ import annotations

from pathlib import Path

from xgw.config import Agent, Config
from xgw.masking import MASK, Masker
from xgw.portable.redaction import Redactor
from xgw.portable.source import DefinitionOf, Json


def redactor_of(config: Config, *, on: bool = True) -> Redactor:
    """What masks an export where this configuration is in force."""
    return Redactor(config.redact.patterns, on, secrets=config.secrets())


def definitions(config: Config) -> DefinitionOf:
    """Finds the definition of an agent by its name; None if there is no such agent any more."""
    masker = Masker(config.secrets())

    def definition_of(name: str) -> Json | None:
        agent = config.agents.get(name)
        if agent is None:
            return None
        tools = {tool: _tool(config, tool) for tool in agent.tools}
        told = agent.model_dump(mode="json", exclude={"instructions_file"})
        whole = told | {"instructions": _instructions(agent), "tools": tools}
        masked: Json = masker.value(whole)
        return masked

    return definition_of


def _instructions(agent: Agent) -> str | None:
    """What the agent is told; None where its file cannot be read now."""
    if not agent.instructions_file:
        return agent.instructions
    try:
        return Path(agent.instructions_file).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _tool(config: Config, name: str) -> Json | None:
    table = config.tools.get(name)
    if table is None:
        return None
    told: Json = table.model_dump(mode="json", exclude_none=True)
    for secret in ("env", "headers"):
        if told.get("mcp", {}).get(secret):
            told["mcp"][secret] = dict.fromkeys(told["mcp"][secret], MASK)
    return told
