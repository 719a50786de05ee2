"""Instances of JSON schemas: tool arguments and structured answers, made from a prompt's clues.

Deterministic, and valid for the schemas that clients usually send; what cannot be satisfied (a
rare pattern, a `not`) is answered as well as it can be.
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

from xgw.providers.demo.clues import Clues
from xgw.providers.demo.spec import Spec, read_spec

MAX_DEPTH = 12
MAX_ITEMS = 8
MAX_VALUES = 1_000

PLACE_WORDS = frozenset({"city", "location", "place", "town", "country", "destination", "where"})
ZONE_WORDS = frozenset({"timezone", "zone", "tz"})
SUM_WORDS = frozenset({"expression", "formula", "equation", "calculation", "math"})

_FORMATS = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "time": "12:00:00",
    "email": "ada@example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000001",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "hostname": "example.com",
    "duration": "PT1H",
}


class Instances:
    """Makes instances of one schema from clues; numbers of the prompt are used up in their order.

    `whole` fills optional properties too and never chooses null where there is a choice; otherwise
    they are there only if the prompt has a clue for them.
    """

    def __init__(self, root: object, clues: Clues, *, whole: bool) -> None:
        self._root = root if isinstance(root, dict) else {}
        self._clues = clues
        self._whole = whole
        self._numbers = list(clues.numbers)
        self._left = MAX_VALUES

    def make(self) -> Any:
        """An instance of the root schema."""
        return self._make("", self._root, 0)

    def _make(self, name: str, schema: object, depth: int) -> Any:
        spec = read_spec(schema, self._root)
        self._left -= 1
        exhausted = depth >= MAX_DEPTH or self._left <= 0
        if spec.values:
            return self._choose(spec)
        if spec.nullable and not self._whole and not self._has_clue(name, spec):
            return None
        if spec.options:
            return None if exhausted else self._make(name, _option(spec), depth + 1)
        match spec.kind:
            case "object":
                return {} if exhausted else self._object(spec, depth + 1)
            case "array":
                return [] if exhausted else self._array(name, spec, depth + 1)
            case "integer" | "number":
                return self._number(spec)
            case "boolean":
                return next((p for p in spec.presets if isinstance(p, bool)), True)
            case "null":
                return None
        return spec.fit_text(self._text(name, spec))

    def _choose(self, spec: Spec) -> Any:
        named = (v for v in spec.values if isinstance(v, str) and self._clues.mentions(v))
        preset = (p for p in spec.presets if p in spec.values)
        return next(named, next(preset, spec.values[0]))

    def _object(self, spec: Spec, depth: int) -> dict[str, Any]:
        return {
            name: self._make(name, schema, depth)
            for name, schema in spec.properties.items()
            if name in spec.required
            or self._whole
            or self._has_clue(name, read_spec(schema, self._root))
        }

    def _array(self, name: str, spec: Spec, depth: int) -> list[Any]:
        if spec.prefix:
            return [self._make(name, item, depth) for item in spec.prefix[:MAX_ITEMS]]
        least = min(spec.size("minItems", 0), MAX_ITEMS)
        most = max(least, min(spec.size("maxItems", MAX_ITEMS), MAX_ITEMS))
        items = read_spec(spec.items, self._root)
        size = 2 if self._whole and items.kind == "object" else 1
        if items.kind in ("number", "integer"):
            size = max(size, len(self._numbers))
        elif items.kind == "string" and self._clues.places and is_about(name, PLACE_WORDS):
            return list(self._clues.places)[:most]
        size = max(least, min(size, most))
        made = [self._make(name, spec.items, depth) for _ in range(size)]
        return _distinct(made) if spec.schema.get("uniqueItems") else made

    def _number(self, spec: Spec) -> int | float:
        presets = (p for p in spec.presets if isinstance(p, (int, float)))
        return spec.fit_number(self._numbers.pop(0) if self._numbers else next(presets, 1))

    def _text(self, name: str, spec: Spec) -> str:
        preset = next((p for p in spec.presets if isinstance(p, str)), None)
        for text in (self._clue(name, spec), preset, _FORMATS.get(spec.format)):
            if text is not None:
                return text
        if is_about(name, PLACE_WORDS):
            return "Oslo"
        if is_about(name, ZONE_WORDS):
            return "UTC"
        if self._whole or not self._clues.prompt:
            return f"demo {name.replace('_', ' ') or 'text'}"
        return self._clues.quoted or self._clues.prompt

    def _has_clue(self, name: str, spec: Spec, depth: int = 0) -> bool:
        """Whether the prompt itself says something for a property."""
        if spec.options:
            chosen = read_spec(_option(spec), self._root)
            return depth < MAX_DEPTH and self._has_clue(name, chosen, depth + 1)
        if spec.values:
            return any(isinstance(v, str) and self._clues.mentions(v) for v in spec.values)
        if spec.kind in ("integer", "number"):
            return bool(self._numbers) and self._clues.mentions(name.replace("_", " "))
        return spec.kind == "string" and self._clue(name, spec) is not None

    def _clue(self, name: str, spec: Spec) -> str | None:
        """What the prompt offers for a text of this name and format."""
        clues = self._clues
        if is_about(name, PLACE_WORDS):
            return clues.places[0] if clues.places else None
        if is_about(name, SUM_WORDS):
            return clues.arithmetic
        if spec.format == "email" or is_about(name, {"email", "recipient"}):
            return clues.email
        if spec.format in ("uri", "url") or is_about(name, {"url", "uri", "link"}):
            return clues.url
        if spec.format == "date" or is_about(name, {"date", "day"}):
            return clues.date
        if is_about(name, {"id", "number", "ticket", "order", "code"}):
            return clues.identifier
        if is_about(name, {"path", "file", "filename", "folder", "directory"}):
            return clues.path
        return None


def words_of(name: str) -> list[str]:
    """The words of an identifier in lower case."""
    return re.findall(r"[a-z]+|\d+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower())


def is_about(name: str, words: Set[str]) -> bool:
    """Whether an identifier has one of the words in it, in singular or plural."""
    said = words_of(name)
    plain = {
        *said,
        *(w.removesuffix("s") for w in said),
        *(f"{w[:-3]}y" for w in said if w.endswith("ies")),
    }
    return not plain.isdisjoint(words)


def _option(spec: Spec) -> dict[str, Any]:
    """The first option that is not null, with what stands beside the options."""
    chosen = spec.options[0] if isinstance(spec.options[0], dict) else {}
    beside = {k: v for k, v in spec.schema.items() if k not in ("anyOf", "oneOf", "type")}
    return {**beside, **chosen}


def _distinct(values: list[Any]) -> list[Any]:
    """The values, repeated texts and numbers made different, other repetitions left out."""
    seen: list[Any] = []
    for number, value in enumerate(values):
        if value in seen and isinstance(value, str):
            value = f"{value} {number + 1}"
        elif value in seen and isinstance(value, (int, float)):
            value = value + number
        if value not in seen:
            seen.append(value)
    return seen
