"""A Python function as a tool: its schema from type hints and docstring, its arguments checked.

`**kwargs` means any properties. What a function returns is text as it is, anything else JSON.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import docstring_parser
import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from xgw.providers.transport import Call

_NO_KEYWORD = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)


class BadTool(Exception):
    """A function cannot be a tool; the text completes the sentence "[tools.x] python …"."""


class BadArguments(Exception):
    """Arguments that the function's schema refuses; the text is for the model."""


class ToolFailed(Exception):
    """A tool could not do what it was asked; the text is for the model as it is."""


class Callee(Protocol):
    """What stands behind a tool: what a model is told of it, and how it is called."""

    @property
    def description(self) -> str:
        """What it does."""

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""

    def check(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments as it takes them; BadArguments says what is wrong."""

    def call(self, arguments: dict[str, Any], stop: Call | None = None) -> str:
        """What it returns, as text; whatever it raises is its failure.

        `stop` is cancelled when nobody waits for that any more.
        """


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a model may call: what it is told of it, and how it is called."""

    description: str
    parameters: dict[str, Any]
    _arguments: type[BaseModel]
    _function: Callable[..., Any]
    _names: dict[str, str]

    def check(self, given: dict[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them; BadArguments says what is wrong."""
        try:
            model = self._arguments.model_validate(given)
        except ValidationError as error:
            raise BadArguments("; ".join(_sentence(one) for one in error.errors())) from None
        given_fields = self._names.keys() & model.model_fields_set
        found = {self._names[field]: getattr(model, field) for field in given_fields}
        return found | (model.model_extra or {})

    def bound(self, function: Callable[..., Any]) -> Function:
        """The same for the model, but this is what is called."""
        return replace(self, _function=function)

    def call(self, arguments: dict[str, Any], stop: Call | None = None) -> str:
        """What the function returns, as text. Raises whatever the function raises.

        A thread cannot be stopped from outside: `stop` has no effect.
        """
        returned = self._function(**arguments)
        if inspect.iscoroutine(returned):
            returned = asyncio.run(returned)
        if isinstance(returned, str):
            return returned
        return pydantic_core.to_json(returned, fallback=str).decode()


def read_function(function: Callable[..., Any]) -> Function:
    """The tool that a function is; BadTool if a model could not call it."""
    told = docstring_parser.parse(inspect.getdoc(function) or "")
    texts = {one.arg_name: one.description or "" for one in told.params}
    parameters = inspect.signature(function).parameters.values()
    if wrong := next((p for p in parameters if p.kind in _NO_KEYWORD), None):
        raise BadTool(f"takes {wrong.name} by position: a model names every argument")
    hints = _hints(function)
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for number, parameter in enumerate(parameters):
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        # A field of pydantic's cannot have every name that a parameter can have.
        field = f"p{number}"
        names[field] = parameter.name
        fields[field] = (hints.get(parameter.name, Any), _field(parameter, texts))
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    try:
        arguments = create_model(
            "Arguments",
            __config__=ConfigDict(extra="allow" if takes_any else "forbid"),
            **fields,
        )
        schema = arguments.model_json_schema(by_alias=True)
    except (PydanticUserError, pydantic_core.SchemaError) as error:
        reason = str(error).partition("\n")[0]
        raise BadTool(f"has type hints that are no JSON schema: {reason}") from None
    described = "\n\n".join(t for t in (told.short_description, told.long_description) if t)
    return Function(described, _without_titles(schema), arguments, function, names)


def load_function(spec: str) -> Callable[..., Any]:
    """The function that "path.py:function" names; BadTool if the file fails or lacks it."""
    path, _, name = spec.rpartition(":")
    found = getattr(_load_module(Path(path)), name, None)
    if found is None:
        raise BadTool(f"must name a function: {path} has no {name}")
    if not callable(found):
        raise BadTool(f"must name a function: {name} in {path} is none")
    function: Callable[..., Any] = found
    return function


def _load_module(path: Path) -> ModuleType:
    """The file run anew; its neighbours can be imported from it."""
    name = f"xgw_tools_{blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadTool(f"cannot be loaded: {path}")
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module  # type hints are looked up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 - the edge to other people's code
        reason = f"{type(error).__name__}: {error}"
        raise BadTool(f"cannot be loaded: {path} fails with {reason}") from None
    return module


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise BadTool(f"has type hints that cannot be read: {error}") from None


def _field(parameter: inspect.Parameter, texts: dict[str, str]) -> Any:
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    return Field(default, alias=parameter.name, description=texts.get(parameter.name) or None)


def _without_titles(schema: Any) -> Any:
    """The schema without the titles that pydantic makes of names; a property may be called that."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: part for key, part in schema.items() if not _is_title(key, part)}
    return {
        key: {name: _without_titles(one) for name, one in part.items()}
        if key in ("properties", "$defs") and isinstance(part, dict)
        else _without_titles(part)
        for key, part in kept.items()
    }


def _is_title(key: str, part: Any) -> bool:
    return key == "title" and isinstance(part, str)


def _sentence(error: pydantic_core.ErrorDetails) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else error["msg"]
