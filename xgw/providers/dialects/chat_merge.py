"""Parts of a streamed message whose meaning we do not know, or only half, put together again."""

from __future__ import annotations

from itertools import groupby
from typing import Any

# Text that says what something is, and is not continued by the next delta.
_NAMES = frozenset({"id", "type", "format", "role", "name", "object", "status", "mime_type"})


def merge(values: list[Any], key: str = "") -> Any:
    """One value of the field `key` from those of all deltas, in time linear in their size.

    Texts are joined, objects merged by member, lists extended; elements of lists that carry an
    `index` are merged by it. Of names, numbers and mixed values the last that is not null stays.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    if all(isinstance(value, dict) for value in known):
        return {name: merge([v.get(name) for v in known], name) for name in _names_of(known)}
    if all(isinstance(value, list) for value in known):
        return _merge_elements([element for value in known for element in value])
    if key not in _NAMES and all(isinstance(value, str) for value in known):
        return "".join(known)
    return known[-1]


def merge_parts(parts: list[Any]) -> list[Any]:
    """Content parts, where text and thinking continue the part before them."""
    merged: list[Any] = []
    for kind, group in groupby(parts, _continued_kind):
        run = list(group)
        if kind is None:
            merged += run
        elif kind == "text":
            merged.append(merge(run))
        else:
            thinking = [piece for part in run for piece in part["thinking"]]
            merged.append(merge(run) | {"thinking": merge_parts(thinking)})
    return merged


def text_of(thinking: Any) -> str:
    """The text of a thinking part's content: a text itself, or a list of text parts."""
    if isinstance(thinking, str):
        return thinking
    pieces = thinking if isinstance(thinking, list) else []
    texts = (piece.get("text") for piece in pieces if isinstance(piece, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _continued_kind(part: Any) -> str | None:
    if isinstance(part, dict):
        if part.get("type") == "text" and isinstance(part.get("text"), str):
            return "text"
        if part.get("type") == "thinking" and isinstance(part.get("thinking"), list):
            return "thinking"
    return None


def _names_of(objects: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for one in objects for name in one))


def _merge_elements(elements: list[Any]) -> list[Any]:
    places: dict[Any, list[Any]] = {}
    for number, element in enumerate(elements):
        index = element.get("index") if isinstance(element, dict) else None
        place = index if isinstance(index, int) else ("no index", number)
        places.setdefault(place, []).append(element)
    return [merge(group) if len(group) > 1 else group[0] for group in places.values()]
