"""Mistakes that only show when several values are seen together.

The checks look at the tree of values as it was read, which may hold mistakes of other kinds: they
pass over what is not of the right type, so that all mistakes are found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from xgw.config import rules
from xgw.config.agent_checks import find_agent_conflicts
from xgw.config.discovery import VARIABLES
from xgw.config.mistakes import Mistake
from xgw.config.positions import KeyPath
from xgw.config.schema import DEFAULT_ENDPOINTS, Server

Tree = dict[str, Any]


def find_conflicts(
    tree: Tree,
    place: Callable[[KeyPath], str],
    found_keys: bool,
    has_issued: Callable[[], bool],
) -> Iterator[Mistake]:
    """The mistakes between values; `place` tells where a value stands.

    `found_keys` tells that the providers are those of the well-known key variables, `has_issued`
    whether the store has client keys.
    """
    yield from _open_door(tree, has_issued)
    yield from _repeated(tree, "providers", "name", place)
    yield from _repeated(tree, "routes", "model", place)
    yield from _repeated_keys(tree, place)
    for index, provider in _entries(tree, "providers"):
        yield from _misfits(index, provider)
        url = provider.get("base_url")
        if isinstance(url, str) and is_own_address(url, tree):
            yield Mistake(("providers", index, "base_url"), "is the address of xgw itself")
    yield from _unknown_targets(tree, VARIABLES if found_keys else {})
    yield from find_agent_conflicts(tree)


def is_own_address(url: str, tree: Tree) -> bool:
    """Whether `url` leads to this xgw: calls would go round in a circle."""
    server = tree.get("server")
    server = server if isinstance(server, dict) else {}
    own_host = server.get("host", Server().host)
    own_port = str(server.get("port", Server().port))
    try:
        split = urlsplit(url)
        port = split.port or {"http": 80, "https": 443}.get(split.scheme)
    except ValueError:
        return False
    is_here = split.hostname == own_host or rules.is_loopback(split.hostname or "")
    return is_here and own_port == str(port)


def find_demo(tree: Tree) -> str | None:
    """The name of the built-in upstream, if it is among the providers."""
    names = (one.get("name") for _, one in _entries(tree, "providers") if one.get("kind") == "demo")
    return next((name for name in names if isinstance(name, str)), None)


def _open_door(tree: Tree, has_issued: Callable[[], bool]) -> Iterator[Mistake]:
    """Bound beyond this machine, xgw wants to know who may call and by which names."""
    server = tree.get("server")
    host = server.get("host") if isinstance(server, dict) else None
    if not isinstance(server, dict) or not isinstance(host, str) or not _is_open(host):
        return
    because = f"because host {rules.quoted(host)} is open to other machines"
    at = ("server", "host")
    if not server.get("token") and not tree.get("keys") and not has_issued():
        text = f"is needed (or [[keys]], XGW_TOKEN, or a key by `xgw keys create`) {because}"
        yield Mistake(("server", "token"), text, at)
    if not server.get("allowed_hosts"):
        text = f"is needed (or XGW_ALLOWED_HOSTS: the names that clients use) {because}"
        yield Mistake(("server", "allowed_hosts"), text, at)


def _is_open(host: str) -> bool:
    try:
        return not rules.is_loopback(rules.check_host(host))
    except ValueError:
        return False


def _repeated(
    tree: Tree, array: str, key: str, place: Callable[[KeyPath], str]
) -> Iterator[Mistake]:
    seen: dict[str, int] = {}
    for index, entry in _entries(tree, array):
        name = entry.get(key)
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            first = place((array, seen[name], key))
            yield Mistake((array, index, key), f"stands twice: also at {first}")


def _repeated_keys(tree: Tree, place: Callable[[KeyPath], str]) -> Iterator[Mistake]:
    server = tree.get("server")
    token = server.get("token") if isinstance(server, dict) else None
    seen: dict[str, KeyPath] = {token: ("server", "token")} if isinstance(token, str) else {}
    for index, entry in _entries(tree, "keys"):
        key = entry.get("key")
        path: KeyPath = ("keys", index, "key")
        if isinstance(key, str) and key and seen.setdefault(key, path) != path:
            yield Mistake(path, f"is the same as the one at {place(seen[key])}")


def _misfits(index: int, provider: dict[str, Any]) -> Iterator[Mistake]:
    """Keys that a provider of this kind has no use for."""
    kind = provider.get("kind", "openai")
    if kind == "demo":
        for key in provider.keys() - {"name", "kind"}:
            yield Mistake(("providers", index, key), "has no meaning for kind demo")
    endpoints = provider.get("endpoints")
    if isinstance(kind, str) and kind in DEFAULT_ENDPOINTS and isinstance(endpoints, list):
        served = DEFAULT_ENDPOINTS[kind]
        known = [endpoint for some in DEFAULT_ENDPOINTS.values() for endpoint in some]
        if wrong := [one for one in endpoints if one in known and one not in served]:
            text = f"must hold what kind {kind} serves ({', '.join(served)}), not {wrong[0]}"
            yield Mistake(("providers", index, "endpoints"), text)


def _unknown_targets(tree: Tree, variables: Mapping[str, str]) -> Iterator[Mistake]:
    names = [provider.get("name") for _, provider in _entries(tree, "providers")]
    for index, route in _entries(tree, "routes"):
        targets = route.get("targets")
        for number, target in enumerate(targets if isinstance(targets, list) else []):
            name, slash, model = target.partition("/") if isinstance(target, str) else ("", "", "")
            if name and slash and model and name not in names:
                hint = f" ({variables[name]} is not set)" if name in variables else ""
                text = f"must name a provider before the /, not {rules.quoted(target)}"
                yield Mistake(("routes", index, "targets", number), text + hint)


def _entries(tree: Tree, array: str) -> Iterator[tuple[int, dict[str, Any]]]:
    entries = tree.get(array)
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if isinstance(entry, dict):
            yield index, entry
