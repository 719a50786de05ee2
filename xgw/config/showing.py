"""The configuration in force as people read it: each value, where it comes from, secrets masked."""

from __future__ import annotations

import json

from xgw.config.credentials import MASK, PASSTHROUGH, SHORTEST_SECRET, is_credential_name
from xgw.config.leaves import Leaf, list_leaves
from xgw.config.loading import Loaded


def show(loaded: Loaded) -> list[tuple[str, str, str]]:
    """Rows of (key, value as TOML spells it, source) in the order of the documentation.

    What has no value is left out: no limit, no key, what another table says instead.
    """
    secrets = loaded.config.secrets()
    return [
        (leaf.key, _shown(leaf, secrets), loaded.sources[leaf.key])
        for leaf in list_leaves(loaded.config)
        if leaf.value is not None
    ]


def _shown(leaf: Leaf, secrets: tuple[str, ...]) -> str:
    value = leaf.value
    if isinstance(value, str) and value not in ("", PASSTHROUGH) and _is_secret(leaf):
        return _toml(MASK)
    text = _toml(value)
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return text


def _is_secret(leaf: Leaf) -> bool:
    last = str(leaf.path[-1])
    return is_credential_name(last) or (leaf.path[0] == "keys" and last == "key")


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:.15g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
