"""Loading: file, environment and command line become one configuration, or a list of mistakes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from xgw.config import checks, discovery, document, mistakes, rules
from xgw.config.agent_checks import find_missing_files
from xgw.config.agents import Agent, Mcp, Retrieval, Tool
from xgw.config.credentials import is_credential_name
from xgw.config.leaves import list_leaves
from xgw.config.mistakes import Mistake
from xgw.config.positions import KeyPath
from xgw.config.schema import Config, Retry, Route
from xgw.config.table import Text
from xgw.errors import UsageError

_VARIABLES: dict[str, KeyPath] = {
    "XGW_HOST": ("server", "host"),
    "XGW_PORT": ("server", "port"),
    "XGW_TOKEN": ("server", "token"),
    "XGW_ALLOWED_HOSTS": ("server", "allowed_hosts"),
    "XGW_STORAGE_URL": ("storage", "url"),
}
_FLAGS = {"storage.url": "--db"}

Named = TypeVar("Named", Agent, Tool)
HasKeys = Callable[[Path], bool]


@dataclass(frozen=True)
class Loaded:
    """A configuration in force; `sources` tells for each value's key where it comes from.

    A source is "xgw.toml:12" (with ", environment NAME" where the value refers to one),
    "environment NAME", "--flag" or "default". `path` is the file, None if there is none.
    """

    config: Config
    sources: dict[str, str]
    path: Path | None
    again: Callable[[], Loaded] | None = field(default=None, compare=False, repr=False)
    """Reads it anew, from the same places; UsageError with every mistake."""


def load(
    path: Path | None = None,
    *,
    env: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    overrides: Mapping[str, object] = MappingProxyType({}),
    demo: bool = False,
    probe: discovery.Probe = discovery.answers,
    has_keys: HasKeys = lambda store: False,
) -> Loaded:
    """The configuration in force.

    `path` is the file that the command line names, `overrides` its other options by dotted key
    ("server.port"; None is not given), `demo` asks for the demo alone, `probe` tells whether a
    local server answers, `has_keys` whether the store at a path has client keys, which there may be
    instead of configured ones. UsageError with every mistake at once.
    """
    folder = cwd or Path.cwd()
    draft = _Draft(document.read(path, env, folder), has_keys)
    draft.override(env, overrides)
    if demo:
        draft.serve([discovery.demo("--demo")])
        draft.tree.pop("routes", None)
    unset = draft.document.expand(env)
    if draft.tree.get("providers", []) == []:
        draft.found_keys = True
        draft.serve(discovery.find_providers(env, probe, draft.is_own_address))
    draft.offer_demo_agent()
    draft.refuse_mistakes(unset, folder)
    again = partial(
        load,
        draft.document.path,
        env=env,
        cwd=folder,
        overrides=overrides,
        demo=demo,
        probe=probe,
        has_keys=has_keys,
    )
    return replace(draft.finish(folder), again=again)


class _Draft:
    """The values on their way; `origins` tells of those that do not come from the file."""

    def __init__(self, file: document.Document, has_keys: HasKeys) -> None:
        self.document = file
        self._has_keys = has_keys
        self.origins: dict[KeyPath, str] = {}
        self.found_keys = False

    @property
    def tree(self) -> dict[str, Any]:
        return self.document.tree

    def override(self, env: Mapping[str, str], flags: Mapping[str, object]) -> None:
        for name, path in _VARIABLES.items():
            if env.get(name):
                self._set(path, Text(env[name]), f"environment {name}")
        for key, value in flags.items():
            if value is not None:
                flag = _FLAGS.get(key, f"--{key.rpartition('.')[2].replace('_', '-')}")
                given = Text(value) if isinstance(value, (str, Path)) else value
                self._set(tuple(key.split(".")), given, flag)

    def serve(self, found: list[discovery.Found]) -> None:
        """Take these providers instead of the file's."""
        self.tree["providers"] = [one.provider for one in found]
        for index, one in enumerate(found):
            self.origins["providers", index] = one.origin
            for key, origin in one.origins.items():
                self.origins["providers", index, key] = origin

    def offer_demo_agent(self) -> None:
        """Where the file defines no agent and the demo serves, there is one that shows the flow."""
        named = checks.find_demo(self.tree)
        if named is not None and "agents" not in self.tree:
            self.tree["agents"] = {"demo": discovery.demo_agent(named)}
            self.origins["agents", "demo"] = "default"

    def is_own_address(self, url: str) -> bool:
        return checks.is_own_address(url, self.tree)

    def refuse_mistakes(self, unset: list[Mistake], folder: Path) -> None:
        found = [
            *unset,
            *mistakes.find_schema_mistakes(self.tree, self._is_private),
            *checks.find_conflicts(
                self.tree, self._place, self.found_keys, lambda: self._has_issued(folder)
            ),
            *find_missing_files(self.tree, self._home(folder)),
        ]
        kept = mistakes.keep_first(found)
        if not any(mistake.path[:1] == ("storage",) for mistake in kept):
            kept += self._storage_mistakes(folder)
        if kept:
            kept.sort(key=lambda mistake: self.document.line(mistake.at or mistake.path))
            raise UsageError(*(mistakes.describe(one, self.tree, self._place) for one in kept))

    def finish(self, folder: Path) -> Loaded:
        config = Config.model_validate(self.tree)
        stored = f"{rules.SQLITE}{self._storage_path(config.storage.url, folder)}"
        storage = config.storage.model_copy(update={"url": stored})
        routes = tuple(_with_retry(route, config.gateway.retry) for route in config.routes)
        home = self._home(folder)
        config = config.model_copy(
            update={
                "storage": storage,
                "routes": routes,
                "agents": {name: _at_home(one, home) for name, one in config.agents.items()},
                "tools": {name: _at_home(one, home) for name, one in config.tools.items()},
            }
        )
        sources = {leaf.key: self._source(leaf.path) for leaf in list_leaves(config)}
        return Loaded(config, sources, self.document.path)

    def _set(self, path: KeyPath, value: object, origin: str) -> None:
        table = self.tree
        for key in path[:-1]:
            table = table.setdefault(str(key), {})
            if not isinstance(table, dict):
                return  # the file has something else there, which is a mistake of its own
        table[str(path[-1])] = value
        self.origins[path] = origin

    def _home(self, folder: Path) -> Path:
        """What relative paths are relative to: the folder of the file."""
        return self.document.path.parent if self.document.path else folder

    def _storage_path(self, url: str, folder: Path) -> Path:
        if self.document.path and ("storage", "url") not in self.origins:
            folder = self.document.path.parent
        return rules.storage_path(url, folder)

    def _storage_mistakes(self, folder: Path) -> list[Mistake]:
        storage = self.tree.get("storage", {})
        path = self._storage_path(str(storage.get("url", "")), folder)
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
            fault = f"must name a file: {path} is a folder" if is_folder else None
        except (FileNotFoundError, NotADirectoryError):
            fault = None  # it is made, or told about, where the store is opened
        except OSError as error:
            fault = f"must name a file that can be reached: {path} ({error.strerror})"
        return [] if fault is None else [Mistake(("storage", "url"), fault)]

    def _has_issued(self, folder: Path) -> bool:
        storage = self.tree.get("storage", {})
        url = storage.get("url", "") if isinstance(storage, dict) else None
        if not isinstance(url, str):
            return False  # a mistake of its own
        try:
            return self._has_keys(self._storage_path(rules.check_storage_url(url), folder))
        except ValueError:
            return False

    def _is_private(self, path: KeyPath) -> bool:
        names = self.document.variables.get(path, [])
        return mistakes.holds_credential(path) or any(is_credential_name(name) for name in names)

    def _origin(self, path: KeyPath) -> str | None:
        """What the value or the nearest table around it comes from, if not from the file."""
        starts = (path[:length] for length in range(len(path), 0, -1))
        return next((self.origins[start] for start in starts if start in self.origins), None)

    def _place(self, path: KeyPath) -> str:
        return self._origin(path) or self.document.place(path)

    def _source(self, path: KeyPath) -> str:
        if origin := self._origin(path):
            return origin
        if self.document.holds(path):
            names = self.document.variables.get(path, [])
            return ", environment ".join([self.document.place(path), *names])
        if path[0] == "routes" and path[2] == "retry":
            return self._source(("gateway", *path[2:]))
        return "default"


def _at_home(table: Named, home: Path) -> Named:
    """An agent or a tool with the file that it names as an absolute path."""
    files = {
        key: str(home.absolute() / named)
        for key in ("instructions_file", "python")
        if (named := getattr(table, key, None))
    }
    inner = _tables_at_home(table, home) if isinstance(table, Tool) else {}
    return table.model_copy(update={**files, **inner})


def _tables_at_home(tool: Tool, home: Path) -> dict[str, Mcp | Retrieval]:
    """What a tool says in a table of its own: the folder that is searched, or run in.

    What an MCP server's command names is relative to the file as well.
    """
    found: dict[str, Mcp | Retrieval] = {}
    if tool.mcp is not None:
        found["mcp"] = tool.mcp.model_copy(update={"cwd": str(home.absolute() / tool.mcp.cwd)})
    if tool.retrieval is not None:
        path = str(home.absolute() / tool.retrieval.path)
        found["retrieval"] = tool.retrieval.model_copy(update={"path": path})
    return found


def _with_retry(route: Route, usual: Retry) -> Route:
    """The route with what its own `retry` leaves open taken from `[gateway.retry]`."""
    if route.retry is None:
        return route
    own = {key: getattr(route.retry, key) for key in route.retry.model_fields_set}
    return route.model_copy(update={"retry": usual.model_copy(update=own)})
