"""What an MCP server offers, as tools that a model can call: their names, and their arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from xgw.agents.functions import BadArguments
from xgw.agents.mcp.server import Server
from xgw.providers.transport import Call

if TYPE_CHECKING:
    from xgw.agents.mcp.connection import Told

NAME_CHARACTERS = 64
MAX_MISTAKES = 5

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool of a server; `name` is what models call it by."""

    name: str
    _server: Server
    _told: Told

    @property
    def description(self) -> str:
        """As the server gives it."""
        return self._told.description

    @property
    def parameters(self) -> dict[str, Any]:
        """As the server gives them."""
        return self._told.parameters

    def check(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are; BadArguments says where they do not fit the schema.

        Where the schema itself is none, checking is left to the server.
        """
        import jsonschema
        import referencing.exceptions

        # Without a registry of its own it would fetch what a schema refers to.
        schema, registry = self._told.parameters, referencing.Registry()
        validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        try:
            validator.check_schema(schema)
            found = list(validator(schema, registry=registry).iter_errors(given))
        except (jsonschema.SchemaError, referencing.exceptions.Unresolvable):
            return given
        if found:
            raise BadArguments("; ".join(_sentence(one) for one in found[:MAX_MISTAKES]))
        return given

    def call(self, arguments: dict[str, Any], stop: Call | None = None) -> str:
        """What the tool returned, as text. Raises ToolFailed, Cancelled."""
        return self._server.call(self._told.name, arguments, stop or Call())


def offered_by(server: Server, taken: Collection[str]) -> Iterator[Offered]:
    """The tools that a server has told of, under names that are not `taken`.

    A name that is taken, or that models cannot be told, is changed: the server's goes before it.
    """
    named = set(taken)
    for told in server.told or ():
        name = next(name for name in _names(server.name, told.name) if name not in named)
        named.add(name)
        yield Offered(name, server, told)


def _names(server: str, tool: str) -> Iterator[str]:
    yield _fit(tool, NAME_CHARACTERS)
    longer = _fit(f"{server}_{tool}", NAME_CHARACTERS)
    yield longer
    for number in count(2):
        yield f"{longer[: NAME_CHARACTERS - 5]}_{number}"


def _fit(name: str, length: int) -> str:
    return _UNFIT.sub("_", name)[:length] or "_"


def _sentence(error: Any) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    text = error.message if len(error.message) <= 300 else f"{error.message[:299]}…"
    return f"{where}: {text}" if where else text
