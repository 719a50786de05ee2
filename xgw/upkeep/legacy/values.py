"""Single values of older rows, whatever their type there, and what is noted about a row."""

from __future__ import annotations

from typing import Any

import orjson

from xgw.frozen import frozen
from xgw.upkeep.legacy.source import OldRow, Replaced

EXACT = 1 << 53
SURELY_FLAT = 400
"""Characters up to which JSON cannot be nested deeper than can be written again."""

RESERVED = frozenset({"legacy", "unparsed", "backfilled"})
"""What metadata says of its own accord."""


class Refused(ValueError):
    """A row that cannot be taken over; its text says why."""


@frozen
class Origin:
    """Where rows come from: which takeover, the table, the names of its unknown columns.

    Of `orphans` the id of the session that is not there is noted too. `doubtful`: there may be
    texts that were no UTF-8. `repeated`: a session before it has the same id.
    """

    takeover: int
    table: str
    others: tuple[str, ...] = ()
    orphans: bool = False
    doubtful: bool = False
    repeated: bool = False

    def metadata(
        self,
        row: OldRow,
        known: int,
        notes: dict[str, Any],
        own: Any = None,
        unparsed: str | None = None,
    ) -> str:
        """A row's metadata; of most rows there is nothing to note but where they are from."""
        has_more = notes or self.others or self.orphans or self.doubtful or unparsed is not None
        if not has_more and own in (None, {}) and type(row[1]) is int:
            return f'{{"legacy":{{"source":{self.takeover},"table":"{self.table}","id":{row[1]}}}}}'
        return merged(self.note(row, known, notes), own, unparsed)

    def note(self, row: OldRow, known: int, notes: dict[str, Any]) -> dict[str, Any]:
        """What a row's metadata says of its origin; `notes` is what did not fit elsewhere."""
        legacy = {"source": self.takeover, "table": self.table, "id": plain(row[1]), **notes}
        if self.orphans:
            legacy["conversation"] = plain(row[2])
        if self.others:
            left = zip(self.others, row[known + 1 :], strict=True)
            columns = {name: plain(value) for name, value in left if value is not None}
            if columns:
                legacy["columns"] = columns
        if self.doubtful and any(isinstance(value, Replaced) for value in row):
            legacy["bytes"] = [v.raw.hex() for v in row if isinstance(v, Replaced)]
        return legacy


def plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, bytes):
        return text(value) if _is_text(value) else value.hex()
    return value


def text(value: Any) -> str | None:
    """A column as text; Refused for bytes that are none."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Refused("holds bytes that are no text") from None
    return str(value)


def loose(value: Any) -> str | None:
    """A column as text, bytes that are none as their digits."""
    return value if value is None or type(value) is str else str(plain(value))


def number(value: Any) -> int | None:
    """A column as a whole number; None for anything else."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < EXACT:
        return int(value)
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int) else None


def parsed(value: Any) -> tuple[Any, str | None]:
    """A column that holds JSON, and its text if it does not."""
    told = loose(value)
    if told is None:
        return None, None
    try:
        found = orjson.loads(told)
        if len(told) > SURELY_FLAT:
            orjson.dumps(found)  # what is nested too deep cannot be written again
    except (ValueError, TypeError, RecursionError):
        return None, told
    return found, None


def merged(legacy: dict[str, Any], own: Any = None, unparsed: str | None = None) -> str:
    """A row's metadata: where it is from, what could not be parsed, and what it had of its own."""
    told: dict[str, Any] = {"legacy": legacy}
    if unparsed is not None:
        told["unparsed"] = unparsed
    if own is not None and own != {}:
        if isinstance(own, dict) and RESERVED.isdisjoint(own):
            told.update(own)
        else:
            legacy["metadata"] = own
    return orjson.dumps(told).decode()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
