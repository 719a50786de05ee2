"""Each single value of a configuration, with the key that people know it by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from xgw.config.positions import KeyPath, dotted
from xgw.config.schema import Config


@dataclass(frozen=True)
class Leaf:
    """One value: `path` leads to it in the file, `key` names it ("providers.openai.api_key")."""

    path: KeyPath
    key: str
    value: object


def list_leaves(config: Config) -> Iterator[Leaf]:
    """All values in the order of the documentation; lists of text are one value each."""
    for table in ("server", "storage", "gateway"):
        yield from _of_table(getattr(config, table), (table,), (table,))
    for index, provider in enumerate(config.providers):
        yield from _of_table(provider, ("providers", index), ("providers", provider.name))
    for index, route in enumerate(config.routes):
        yield from _of_table(route, ("routes", index), ("routes", route.model))
    for model, price in config.prices.items():
        yield from _of_table(price, ("prices", model), ("prices", model))
    for index, client in enumerate(config.keys):
        yield from _of_table(client, ("keys", index), ("keys", index + 1))
    for table in ("retention", "redact"):
        yield from _of_table(getattr(config, table), (table,), (table,))
    for name, agent in config.agents.items():
        yield from _of_table(agent, ("agents", name), ("agents", name))
    for name, tool in config.tools.items():
        yield from _of_table(tool, ("tools", name), ("tools", name))


def _of_table(table: BaseModel, path: KeyPath, names: KeyPath) -> Iterator[Leaf]:
    for key in type(table).model_fields:
        value = getattr(table, key)
        if isinstance(value, BaseModel):
            yield from _of_table(value, (*path, key), (*names, key))
        elif isinstance(value, dict) and value:
            for name, part in value.items():
                yield Leaf((*path, key, name), dotted((*names, key, name)), part)
        else:
            yield Leaf((*path, key), dotted((*names, key)), value)
