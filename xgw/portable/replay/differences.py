"""What an app sends, held against the record: the first thing that is another one.

White space and the order of keys say nothing. What xgw puts into a request or takes out of it, and
the usage in a stream, may be there or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.portable.replay.masked import as_masked, stands_for

OWN_METADATA = frozenset({"session_id", "turn_id", "task_id", "end_user_id", "parent_turn_id"})
SHOWN = 500

MISSING = object()
"""Stands for what is not there at all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two values differ (a JSON pointer), and both; `alike` is how much before it is not."""

    pointer: str
    recorded: Any
    sent: Any
    alike: int

    def to_json(self) -> dict[str, Any]:
        """As an answer has it; what is not there is left out."""
        told = {"pointer": self.pointer}
        for name, value in (("recorded", self.recorded), ("sent", self.sent)):
            if value is not MISSING:
                told[name] = _shown(value)
        return told

    def words(self) -> str:
        """In a sentence."""
        where = self.pointer or "the whole body"
        if self.recorded is MISSING:
            return f"{where} is not in the record, and {_spelled(self.sent)} was sent"
        if self.sent is MISSING:
            return f"{where} is missing: the record has {_spelled(self.recorded)}"
        return (
            f"{where} differs: the record has {_spelled(self.recorded)}, "
            f"and {_spelled(self.sent)} was sent"
        )


def first_difference(recorded: Any, sent: Any) -> Difference | None:
    """The first difference of two requests' bodies; None where they ask for the same.

    Placeholders in the record stand for what would be masked like that.
    """
    before = _essence(recorded)
    found = _Walk().compare(before, _essence(sent), "")
    if found is None or not isinstance(found.recorded, str):
        return found
    masked = _Walk().compare(before, _essence(as_masked(sent)), "")
    return found if masked is not None and masked.alike <= found.alike else masked


def _essence(body: Any) -> Any:
    """A body without what may differ."""
    if not isinstance(body, dict):
        return body
    kept = dict(body)
    options = kept.get("stream_options")
    if isinstance(options, dict):
        _put(kept, "stream_options", {k: v for k, v in options.items() if k != "include_usage"})
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        own = {name for name in metadata if name.lower() in OWN_METADATA}
        _put(kept, "metadata", {k: v for k, v in metadata.items() if k not in own})
    return kept


def _put(body: dict[str, Any], name: str, value: dict[str, Any]) -> None:
    if value:
        body[name] = value
    else:
        del body[name]


class _Walk:
    def __init__(self) -> None:
        self._alike = 0

    def compare(self, recorded: Any, sent: Any, at: str) -> Difference | None:
        if isinstance(recorded, dict) and isinstance(sent, dict):
            return self._maps(recorded, sent, at)
        if isinstance(recorded, list) and isinstance(sent, list):
            return self._lists(recorded, sent, at)
        if _is_same(recorded, sent):
            self._alike += 1
            return None
        return Difference(at, recorded, sent, self._alike)

    def _maps(
        self, recorded: Mapping[str, Any], sent: Mapping[str, Any], at: str
    ) -> Difference | None:
        for name in [*recorded, *(name for name in sent if name not in recorded)]:
            before, now = recorded.get(name, MISSING), sent.get(name, MISSING)
            if found := self.compare(before, now, f"{at}/{_escaped(name)}"):
                return found
        return None

    def _lists(self, recorded: list[Any], sent: list[Any], at: str) -> Difference | None:
        pairs = itertools.zip_longest(recorded, sent, fillvalue=MISSING)
        for number, (before, now) in enumerate(pairs):
            if found := self.compare(before, now, f"{at}/{number}"):
                return found
        return None


def _is_same(recorded: Any, sent: Any) -> bool:
    if isinstance(recorded, str) and isinstance(sent, str):
        return stands_for(recorded, sent)
    if isinstance(recorded, bool) or isinstance(sent, bool):
        return recorded is sent
    return bool(recorded == sent)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _spelled(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _shown(value: Any) -> Any:
    return value if len(orjson.dumps(value)) <= SHOWN else _spelled(value)
