"""Secrets in streamed answers (SSE), also those that are split over several chunks.

The pieces of one text, or of one call's arguments, are read together: the placeholder stands in the
first piece that a secret touches, the others are emptied of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from xgw.portable.redaction.finds import Find
from xgw.portable.redaction.json_text import Scan, looks_like_json, string_finds
from xgw.portable.redaction.spellings import Spelling, json_spelling

_STREAM = re.compile(r"\ufeff?\s*(?:data|event|id|retry)?:")
_LINE = re.compile(r"(data:[ ]?)?([^\r\n]*)[\r\n]*")
_TOKEN = re.compile(r'"((?:[^"\\]++|\\.)*+)"?|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_PIECES = frozenset(
    {"content", "text", "arguments", "partial_json", "thinking", "delta", "reasoning_content"}
    | {"reasoning", "refusal", "transcript"}
)
"""Fields that bring a text piece by piece."""

_TAGS = frozenset({"index", "item_id", "output_index", "content_index", "summary_index"})
"""Fields that tell which text an event goes on with."""

Path = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Frame:
    """An object or a list that is open, by the name it goes by."""

    name: str
    key: str = ""
    is_list: bool = False
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Leaf:
    name: str
    frames: tuple[_Frame, ...]
    start: int
    stop: int

    def path(self) -> Path:
        return (*((frame.name, "|".join(frame.tags)) for frame in self.frames), (self.name, ""))


class _Text:
    """The pieces of one text in the order in which they came."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._spelled: list[tuple[int, Spelling | None]] = []
        self._begins: list[int] = []
        self._size = 0

    def add(self, raw: str, at: int) -> None:
        spelling = json_spelling(raw) if "\\" in raw else None
        self._spelled.append((at, spelling))
        self._pieces.append(raw if spelling is None else spelling.text)
        self._begins.append(self._size)
        self._size += len(self._pieces[-1])

    def finds(self, scan: Scan) -> Iterator[Find]:
        for find in scan("".join(self._pieces)):
            yield from self._parts(find)

    def _parts(self, find: Find) -> Iterator[Find]:
        number = bisect_right(self._begins, find.start) - 1
        rest = False
        while number < len(self._begins) and self._begins[number] < find.stop:
            begin = self._begins[number]
            start, stop = (
                max(find.start - begin, 0),
                min(find.stop - begin, len(self._pieces[number])),
            )
            if start < stop:
                at, spelling = self._spelled[number]
                part = Find(start, stop, find.kind, find.value, find.quote, rest)
                yield (spelling.back(part) if spelling else part).moved(at)
                rest = True
            number += 1


def looks_like_stream(text: str) -> bool:
    """Whether `text` begins as server-sent events do."""
    return _STREAM.match(text) is not None


def stream_finds(text: str, scan: Scan) -> Iterator[Find]:
    """Every secret in server-sent events."""
    texts: dict[Path, _Text] = {}
    for line in _LINE.finditer(text):
        start, stop = line.span(2)
        if line[1] is None or not looks_like_json(line[2]):
            for find in scan(line[2]):
                yield find.moved(start)
            continue
        for leaf in _leaves(text, start, stop):
            inner = text[leaf.start : leaf.stop]
            if leaf.name in _PIECES:
                texts.setdefault(leaf.path(), _Text()).add(inner, leaf.start)
            else:
                yield from string_finds(leaf.name, inner, leaf.start, scan)
    for together in texts.values():
        yield from together.finds(scan)


def _leaves(text: str, start: int, stop: int) -> list[_Leaf]:
    """The strings of a JSON text with the names that lead to them."""
    leaves: list[_Leaf] = []
    frames: tuple[_Frame, ...] = (_Frame(""),)
    last = ""
    for token in _TOKEN.finditer(text, start, stop):
        mark, top = token[0], frames[-1]
        if mark == "{":
            frames = (*frames, _Frame(top.key))
        elif mark == "[":
            frames = (*frames, _Frame(top.key, top.key, is_list=True))
        elif mark == "}" or mark == "]":
            frames = frames[:-1] if len(frames) > 1 else frames
        elif mark == ":":
            top.key = last
        elif mark == ",":
            top.key = top.key if top.is_list else ""
        elif token[1] is None:
            _tag(frames, mark)
        else:
            last = token[1]
            leaves.append(_Leaf(top.key, frames, *token.span(1)))
            _tag(frames, last)
    return leaves


def _tag(frames: tuple[_Frame, ...], value: str) -> None:
    """An event's type tells what it brings; further down, an index tells of which one."""
    top = frames[-1]
    if top.key in _TAGS or (top.key == "type" and len(frames) == 2):
        top.tags.append(value)
