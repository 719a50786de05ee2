"""The formats of an export, and how each is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import BinaryIO

from xgw.frozen import frozen
from xgw.portable import bundle
from xgw.portable.formats.chat import write_openai
from xgw.portable.formats.curl import write_curl
from xgw.portable.formats.html import write_html
from xgw.portable.formats.markdown import write_markdown
from xgw.portable.formats.python import write_python
from xgw.portable.source import Asked, Source, reading
from xgw.store.database import Store


@frozen
class Format:
    """How an export is written, and what a file of it is called and is."""

    write: Callable[[Source, BinaryIO], Iterable[str] | None]
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


def write(store: Store, asked: Asked, format: str, out: BinaryIO) -> list[str]:
    """Write what is asked for to `out`, as it is in the store at this moment.

    Returns what the format could not tell, in words.
    """
    with reading(store, asked) as source:
        return list(FORMATS[format].write(source, out) or ())
