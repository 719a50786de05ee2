"""The formats of an export, and how each is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import BinaryIO

from xgw.frozen import frozen
from xgw.portable import bundle
from xgw.portable.source import Asked, Source, moment, reading
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

MOST_PASSES = 3


def write(store: Store, asked: Asked, format: str, out: BinaryIO) -> None:
    """Write what is asked for to `out`, a file, as it is in the store at this moment.

    Secrets that were met by their name may stand without it in what was written before: where there
    are such, all is written again.
    """
    start = out.tell()
    with moment(store):
        for number in range(1, MOST_PASSES + 1):
            with reading(store, asked) as source:
                FORMATS[format].write(source, out)
            if not asked.redactor.has_learned or number == MOST_PASSES:
                return
            asked = replace(asked, redactor=asked.redactor.renewed())
            out.seek(start)
            out.truncate()
