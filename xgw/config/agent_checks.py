"""Mistakes in `[agents.*]` and `[tools.*]` that only show when several values are seen together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from xgw.config import rules
from xgw.config.agents import PLANNER, Builtin
from xgw.config.mistakes import Mistake
from xgw.config.positions import KeyPath

KINDS = ("python", "builtin", "mcp", "retrieval")
"""What a tool is, by the key that says it."""

BUILTINS: tuple[str, ...] = get_args(Builtin)

Tree = dict[str, Any]


def find_agent_conflicts(tree: Tree) -> Iterator[Mistake]:
    """Names that models and URLs cannot carry, tools that are not there, keys that do not fit."""
    tools = _tables(tree, "tools")
    for name, agent in _tables(tree, "agents").items():
        if not rules.is_agent_name(name):
            text = "must have a name of 1 to 64 letters, digits and . _ -"
            yield Mistake(("agents", name), text)
            continue
        if agent.get("instructions") and agent.get("instructions_file"):
            text = "cannot stand beside instructions: give one of them"
            yield Mistake(("agents", name, "instructions_file"), text)
        yield from _tools_of(name, agent.get("tools"), tools)
        yield from _handoffs_of(name, agent, _tables(tree, "agents"))
        yield from _planner_of(name, agent)
    for name, tool in tools.items():
        yield from _misfits(name, tool)


def find_missing_files(tree: Tree, folder: Path) -> Iterator[Mistake]:
    """Files that agents and tools name and that cannot be read; paths are relative to `folder`."""
    for name, agent in _tables(tree, "agents").items():
        file = agent.get("instructions_file")
        if isinstance(file, str) and file and not (folder / file).is_file():
            text = f"must name a file: there is no {folder / file}"
            yield Mistake(("agents", name, "instructions_file"), text)
    for name, tool in _tables(tree, "tools").items():
        yield from _missing_folder(name, tool, folder)
        spec = tool.get("python")
        if not isinstance(spec, str):
            continue
        path = folder / spec.rpartition(":")[0]
        if path.suffix == ".py" and not path.is_file():
            yield Mistake(("tools", name, "python"), f"must name a file: there is no {path}")


def _missing_folder(name: str, tool: Tree, folder: Path) -> Iterator[Mistake]:
    retrieval = tool.get("retrieval")
    named = retrieval.get("path") if isinstance(retrieval, dict) else None
    if isinstance(named, str) and named and not (folder / named).is_dir():
        at = ("tools", name, "retrieval", "path")
        yield Mistake(at, f"must name a folder: there is no {folder / named}")


def _tools_of(name: str, named: Any, tools: Tree) -> Iterator[Mistake]:
    seen: set[str] = set()
    for index, tool in enumerate(named if isinstance(named, list) else []):
        if not isinstance(tool, str):
            continue
        path = ("agents", name, "tools", index)
        if tool in seen:
            yield Mistake(path, f"must name each tool once, and names {rules.quoted(tool)} again")
        elif tool not in tools and tool not in BUILTINS:
            known = ", ".join([*tools, *(one for one in BUILTINS if one not in tools)])
            text = f"must name tools that there are ({known}), not {rules.quoted(tool)}"
            yield Mistake(path, text)
        seen.add(tool)


def _handoffs_of(name: str, agent: Tree, agents: Tree) -> Iterator[Mistake]:
    named, tools = agent.get("handoffs"), agent.get("tools")
    taken = (
        set(tools) if isinstance(tools, list) and all(isinstance(t, str) for t in tools) else set()
    )
    for index, partner in enumerate(named if isinstance(named, list) else []):
        if not isinstance(partner, str):
            continue
        path = ("agents", name, "handoffs", index)
        others = [other for other in agents if other != name]
        if partner not in others:
            there_are = ", ".join(others) or "there are none"
            text = (
                f"must name other agents that there are ({there_are}), not {rules.quoted(partner)}"
            )
            yield Mistake(path, text)
            continue
        tool = rules.handoff_name(partner)
        if tool in taken:
            yield Mistake(
                path, f"makes a tool {tool} of {rules.quoted(partner)}, which is there already"
            )
        taken.add(tool)


def _planner_of(name: str, agent: Tree) -> Iterator[Mistake]:
    """The tool that keeps the plan has a name that no other of the agent's may have."""
    task = _tables(agent, "modes").get("task", {})
    named = agent.get("tools")
    if task.get("planner") is True and isinstance(named, list) and PLANNER in named:
        text = f"cannot stand beside a tool of the name {PLANNER!r}: the planner is called that"
        yield Mistake(("agents", name, "modes", "task", "planner"), text)


def _misfits(name: str, tool: Tree) -> Iterator[Mistake]:
    at = ("tools", name)
    try:
        rules.check_tool_name(name)
    except ValueError:
        yield Mistake(at, "must have a name of 1 to 64 letters, digits, _ and -")
        return
    given = [key for key in KINDS if tool.get(key)]
    if not given:
        yield Mistake((*at, KINDS[0]), f"is missing (or {', '.join(KINDS[1:])})")
    for key in given[1:]:
        yield Mistake((*at, key), f"cannot stand beside {given[0]}: give one of them")
    if isinstance(mcp := tool.get("mcp"), dict):
        yield from _mcp_misfits((*at, "mcp"), mcp)
    if tool.get("allow_private") and tool.get("builtin") != "http_get":
        yield Mistake((*at, "allow_private"), "has a meaning for builtin http_get alone")


def _mcp_misfits(at: KeyPath, mcp: Tree) -> Iterator[Mistake]:
    if not mcp.get("command") and not mcp.get("url"):
        yield Mistake((*at, "command"), "is missing (or url)")
    if mcp.get("command") and mcp.get("url"):
        yield Mistake((*at, "url"), "cannot stand beside command: give one of them")
    home = "url" if mcp.get("url") else "command"
    for key in ("cwd", "env") if home == "url" else ("headers",):
        if mcp.get(key):
            yield Mistake((*at, key), f"has no meaning beside {home}")


def _tables(tree: Tree, key: str) -> dict[str, Tree]:
    given = tree.get(key)
    pairs = given.items() if isinstance(given, dict) else ()
    return {name: table for name, table in pairs if isinstance(table, dict)}
