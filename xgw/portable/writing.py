"""The formats of an export, and how each is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import BinaryIO

from xgw.frozen import changed, frozen
from xgw.portable import bundle
from xgw.portable.formats.chat import write_openai
from xgw.portable.formats.curl import write_curl
from xgw.portable.formats.html import write_html
from xgw.portable.formats.markdown import write_markdown
from xgw.portable.formats.python import write_python
from xgw.portable.source import Asked, Source, moment, reading
from xgw.store.database import Store

Writer = Callable[[Source, BinaryIO], Iterable[str] | None]
"""Writes a source to a file; returns what it left out, in words."""


@frozen
class Format:
    """How an export is written, and what a file of it is called and is."""

    write: Writer
    suffix: str
    media_type: str


FORMATS: dict[str, Format] = {
    "json": Format(bundle.write_json, ".json", "application/json"),
    "jsonl": Format(bundle.write_lines, ".jsonl", "application/x-ndjson"),
    "markdown": Format(write_markdown, ".md", "text/markdown"),
    "html": Format(write_html, ".html", "text/html"),
    "curl": Format(write_curl, ".sh", "text/x-shellscript"),
    "python": Format(write_python, ".py", "text/x-python"),
    "openai": Format(write_openai, ".jsonl", "application/x-ndjson"),
}

DEFAULT = "json"

MOST_PASSES = 3


def write(store: Store, asked: Asked, format: str, out: BinaryIO) -> list[str]:
    """Write what is asked for to `out`, a file, as it is in the store at this moment.

    Returns what the format could not tell, in words.
    """
    return written(store, asked, FORMATS[format].write, out)


def written(store: Store, asked: Asked, writer: Writer, out: BinaryIO) -> list[str]:
    """What a writer makes of what is asked for, at the end of `out`; returns what it left out.

    Secrets that were met by their name may stand without it in what was written before, and what
    looks like a placeholder in a text behind it: where there are such, all is written again.
    """
    start = out.tell()
    with moment(store):
        told = _once(store, asked, writer, out)
        for _ in range(MOST_PASSES - 1):
            if not asked.redactor.is_outdated:
                break
            asked = changed(asked, redactor=asked.redactor.renewed())
            out.seek(start)
            out.truncate()
            told = _once(store, asked, writer, out)
    return told


def _once(store: Store, asked: Asked, writer: Writer, out: BinaryIO) -> list[str]:
    with asked.redactor.listening(), reading(store, asked) as source:
        return list(writer(source, out) or ())
