"""The formats of an export, and how each is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from xgw.frozen import frozen
from xgw.portable import bundle
from xgw.portable.source import Asked, Source, reading
from xgw.store.database import Store


@frozen
class Format:
    """How an export is written, and what a file of it is called and is."""

    write: Callable[[Source, BinaryIO], None]
    suffix: str
    media_type: str


FORMATS: dict[str, Format] = {
    "json": Format(bundle.write_json, ".json", "application/json"),
    "jsonl": Format(bundle.write_lines, ".jsonl", "application/x-ndjson"),
}

DEFAULT = "json"


def write(store: Store, asked: Asked, format: str, out: BinaryIO) -> None:
    """Write what is asked for to `out`, as it is in the store at this moment."""
    with reading(store, asked) as source:
        FORMATS[format].write(source, out)
