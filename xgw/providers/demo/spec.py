"""JSON schemas as the demo reads them, in types; what is odd in one is ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_REFERENCES = 12
MAX_LENGTH = 10_000
MAX_WHOLE = 2**53

# A client's pattern is tried on short texts only: on long ones some patterns take forever.
MAX_PATTERN_TEXT = 16
_PATTERN_SAMPLES = ("abc", "ABC", "a", "A", "abc-123", "ABC-123", "1", "123", "12345", "#336699",
                    "2026-01-31", "12:00", "1.0.0", "+15550100", "Demo", "demo_value")  # fmt: skip

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spec:
    """One schema, its reference followed and its `allOf` merged.

    `kind` is its first type that is not null (`null` if it has no other); `values` are those of
    `const` or `enum`, `options` those of `anyOf` or `oneOf` that are not null.
    """

    kind: str
    nullable: bool
    values: tuple[Any, ...]
    options: tuple[Any, ...]
    properties: Mapping[str, Any]
    required: frozenset[str]
    items: object
    prefix: tuple[Any, ...]
    presets: tuple[Any, ...]
    schema: Schema

    @property
    def format(self) -> str:
        """The format of a text, empty if it has none."""
        return _text(self.schema.get("format"))

    def size(self, key: str, otherwise: int) -> int:
        """A size such as `minItems`."""
        value = self.schema.get(key)
        return value if _is_number(value) and isinstance(value, int) and value >= 0 else otherwise

    def fit_number(self, value: float) -> int | float:
        """The number within the schema's bounds, on its steps."""
        whole = self.kind == "integer"
        step = self._bound("multipleOf") or (1 if whole else 0)
        above, below = self._bound("exclusiveMinimum"), self._bound("exclusiveMaximum")
        least = self._bound("minimum") if above is None else above + (step or 0.5)
        most = self._bound("maximum") if below is None else below - (step or 0.5)
        value = value if most is None else min(value, most)
        value = value if least is None else max(value, least)
        if step and abs(value / step) < 1e15:
            value = (math.ceil if value == least else math.floor)(value / step) * step
        return int(max(-MAX_WHOLE, min(value, MAX_WHOLE))) if whole else value

    def fit_text(self, text: str) -> str:
        """The text within the schema's length; with a pattern, a sample that fits it."""
        pattern = self.schema.get("pattern")
        if isinstance(pattern, str):
            try:
                matches = re.compile(pattern).search
            except (re.error, OverflowError, RecursionError):
                return text
            samples = (text[:MAX_PATTERN_TEXT], *_PATTERN_SAMPLES)
            return next((sample for sample in samples if matches(sample)), text)
        least = min(self.size("minLength", 0), MAX_LENGTH)
        return text.ljust(least, ".")[: self.size("maxLength", len(text) + least)]

    def _bound(self, key: str) -> float | None:
        value = self.schema.get(key)
        return value if _is_number(value) and isinstance(value, (int, float)) else None


def read_spec(schema: object, root: Schema) -> Spec:
    """What a schema asks for; `root` is the one that references point into."""
    spec = _merged(schema, root)
    given = spec.get("type")
    types = [t for t in (given if isinstance(given, list) else [given]) if isinstance(t, str)]
    options = _list(spec.get("anyOf")) or _list(spec.get("oneOf"))
    solid = tuple(o for o in options if not (isinstance(o, dict) and o.get("type") == "null"))
    default = [spec["default"]] if "default" in spec else []
    return Spec(
        kind=next((t for t in types if t != "null"), "null" if types else _guess(spec)),
        nullable="null" in types or len(solid) < len(options),
        values=(spec["const"],) if "const" in spec else tuple(_list(spec.get("enum"))),
        options=solid,
        properties=_dict(spec.get("properties")),
        required=frozenset(r for r in _list(spec.get("required")) if isinstance(r, str)),
        items=spec.get("items"),
        prefix=tuple(_list(spec.get("prefixItems"))),
        presets=(*default, *_list(spec.get("examples"))),
        schema=spec,
    )


def _merged(schema: object, root: Schema) -> dict[str, Any]:
    spec = _followed(schema, root)
    parts = _list(spec.pop("allOf", None))[:MAX_REFERENCES]
    for part in (_followed(part, root) for part in parts):
        properties = {**_dict(spec.get("properties")), **_dict(part.get("properties"))}
        required = _list(spec.get("required")) + _list(part.get("required"))
        spec = {**spec, **part, "properties": properties, "required": required}
    return spec


def _followed(schema: object, root: Schema) -> dict[str, Any]:
    """The schema with what its reference points to, its own keys first."""
    spec = dict(_dict(schema))
    for _ in range(MAX_REFERENCES):
        target = spec.pop("$ref", None)
        if not isinstance(target, str):
            break
        spec = {**_at_pointer(root, target), **spec}
    return spec


def _at_pointer(root: Schema, pointer: str) -> Schema:
    """The schema that `#/a/b` points to; nothing where it points to nothing."""
    found: object = root
    for key in pointer.removeprefix("#").split("/")[1:]:
        found = _dict(found).get(key.replace("~1", "/").replace("~0", "~"))
    return _dict(found)


def _guess(spec: Schema) -> str:
    if "properties" in spec:
        return "object"
    return "array" if "items" in spec or "prefixItems" in spec else "string"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
