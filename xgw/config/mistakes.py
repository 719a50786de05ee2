"""Mistakes in a configuration, and the one clear line that each of them becomes."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from xgw.config import rules, schema
from xgw.config.credentials import is_credential_name
from xgw.config.positions import KeyPath, dotted


def _tables_of(
    model: type[BaseModel], path: KeyPath = ()
) -> Iterator[tuple[KeyPath, type[BaseModel]]]:
    yield path, model
    for name, field in model.model_fields.items():
        for inner, below in _models_in(field.annotation, (*path, name)):
            yield from _tables_of(inner, below)


def _models_in(annotation: Any, path: KeyPath) -> Iterator[tuple[type[BaseModel], KeyPath]]:
    """The tables that a field may hold; "*" stands for the number or the name of one of many."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, path
    below = (*path, "*") if get_origin(annotation) in (tuple, dict) else path
    for part in get_args(annotation):
        yield from _models_in(part, below)


_TABLES = dict(_tables_of(schema.Config))
_ARRAYS = {"providers": "name", "routes": "model", "keys": "project"}
"""The arrays of tables, and what people know their entries by."""
_NAMED = {"prices": "MODEL", "agents": "NAME", "tools": "NAME"}
"""The tables of tables, and what their keys are."""

_BOUNDS = {"ge": "at least", "gt": "greater than", "le": "at most", "lt": "less than"}
_WANTED = {
    "int_type": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}


@dataclass(frozen=True)
class Mistake:
    """What is wrong with the value at `path`; `text` completes "[table] key …".

    `at` leads to the value that the mistake comes from, where that is another one.
    """

    path: KeyPath
    text: str
    at: KeyPath = ()


def find_schema_mistakes(
    tree: dict[str, Any], is_private: Callable[[KeyPath], bool]
) -> list[Mistake]:
    """Unknown keys, wrong types and bad values; a value that `is_private` is never quoted."""
    try:
        schema.Config.model_validate(tree)
    except ValidationError as error:
        return [
            Mistake(one["loc"], _sentence(one, is_private(one["loc"])))
            for one in error.errors()
            if one["type"] != "default_factory_not_called"  # it only follows from another one
        ]
    return []


def holds_credential(path: KeyPath) -> bool:
    """Whether the value at `path` is a credential, or may be: any header or variable."""
    keys = [key for key in path if isinstance(key, str)]
    return (
        "headers" in keys
        or "env" in keys
        or keys == ["keys", "key"]
        or is_credential_name(keys[-1])
    )


def keep_first(mistakes: Iterable[Mistake]) -> list[Mistake]:
    """One mistake a value: what only follows from an earlier one is left out."""
    kept: list[Mistake] = []
    for mistake in mistakes:
        if not any(mistake.path[: len(earlier.path)] == earlier.path for earlier in kept):
            kept.append(mistake)
    return kept


def describe(mistake: Mistake, tree: dict[str, Any], place: Callable[[KeyPath], str]) -> str:
    """The line for people: where, table, key, and what is wrong."""
    return f"{place(mistake.at or mistake.path)}: {_subject(mistake.path, tree)} {mistake.text}"


def _sentence(error: ErrorDetails, private: bool) -> str:
    path, kind, given = error["loc"], error["type"], error["input"]
    context = error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown(path, given)
    if kind == "missing":
        return "is missing"
    if kind == "string_too_short":
        return "must not be empty"
    if kind == "tuple_type" and path[-1] in _ARRAYS:
        return f"must be written with double brackets: [[{path[-1]}]]"
    if kind == "value_error":
        reason = str(context["error"])
        return reason.partition(", not ")[0] if private else reason
    wanted = _WANTED.get(kind) or _expected(context)
    is_plain = isinstance(given, (str, int, float)) and not private
    return f"must be {wanted}" + (f", not {rules.quoted(given)}" if is_plain else "")


def _expected(context: dict[str, Any]) -> str:
    """What a rule of pydantic's wants, from the bounds or the words that it gives."""
    if words := context.get("expected"):
        return str(words).replace("'", '"')
    limits = [f"{word} {context[name]:.15g}" for name, word in _BOUNDS.items() if name in context]
    return " and ".join(limits) or "another value"


def _unknown(path: KeyPath, given: object) -> str:
    key = str(path[-1])
    known = list(_TABLES[_pattern(path[:-1])].model_fields)
    homes = [
        _header(table) for table, model in _TABLES.items() if table and key in model.model_fields
    ]
    noun = "table" if isinstance(given, (dict, list, tuple)) else "key"
    if near := difflib.get_close_matches(key, known, n=1, cutoff=0.7):
        hint = f"did you mean {near[0]}?"
    elif noun == "key" and homes:
        hint = f"it belongs in {homes[0]}"
    else:
        hint = f"known: {', '.join(known)}"
    return f"is not a known {noun} ({hint})"


def _header(table: KeyPath) -> str:
    """How the tables of this pattern begin: `[server]`, `[[providers]]`, `[prices.MODEL]`."""
    if table[0] in _ARRAYS:
        return f"[[{table[0]}]]"
    return f"[{dotted(_NAMED[str(table[0])] if key == '*' else key for key in table)}]"


def _pattern(path: KeyPath) -> KeyPath:
    if path[:1] and path[0] in _NAMED and len(path) > 1:
        return (path[0], "*", *path[2:])
    return tuple("*" if isinstance(key, int) else key for key in path)


def _subject(path: KeyPath, tree: dict[str, Any]) -> str:
    """The table and the key: `[server] port`, `[[providers]] "openai" api_key`."""
    while len(path) > 2 and isinstance(path[-1], int):
        path = path[:-1]  # an element of a list: its sentence quotes it
    if path[0] in _ARRAYS:
        return f"[[{path[0]}]] {_entry(path, tree)} {dotted(path[2:])}".rstrip()
    length = next((n for n in range(len(path), 0, -1) if _pattern(path[:n]) in _TABLES), 0)
    if not length and isinstance(tree.get(str(path[0])), (dict, list)):
        length = 1
    table = f"[{dotted(path[:length])}] " if length else ""
    return (table + dotted(path[length:])).rstrip()


def _entry(path: KeyPath, tree: dict[str, Any]) -> str:
    """Which of an array's tables: by its name, else by its number."""
    if len(path) < 2 or not isinstance(path[1], int):
        return ""
    entry = tree[str(path[0])][path[1]]
    name = entry.get(_ARRAYS[str(path[0])]) if isinstance(entry, dict) else None
    return rules.quoted(name) if isinstance(name, str) and name else f"#{path[1] + 1}"
