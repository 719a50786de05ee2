"""The chunks of a stream taken apart: which texts each brings, and what else it says.

Chunks of one stream are alike but for a few texts and numbers. What one looks like is worked out
token by token; those after it that look the same are read by one expression.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from xgw.portable.redaction.json_text import is_json, looks_like_json

PIECES = frozenset(
    {"content", "text", "arguments", "partial_json", "thinking", "delta", "reasoning_content"}
    | {"reasoning", "refusal", "transcript"}
)
"""Fields that bring a text piece by piece."""

_TAGS = frozenset({"index", "item_id", "output_index", "content_index", "summary_index"})
"""Fields that tell which text an event goes on with."""

_TOKEN = re.compile(r'"((?:[^"\\]++|\\.)*+)"?|[{}\[\],:]|[^\s"{}\[\],:]+', re.DOTALL)
_STRING, _SCALAR = r'((?:[^"\\]++|\\.)*+)', r'[^\s"{}\[\],:]++'
_MOST_SHAPES = 16
"""Of one stream; one with more of them was made to take long."""

Path = tuple[tuple[str, str], ...]
Piece = tuple[Path, int, int]
"""Which text goes on, and where in the stream the piece stands."""


@dataclass(slots=True)
class _Frame:
    """An object or a list that is open, by the name it goes by."""

    name: str
    key: str = ""
    is_list: bool = False
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _String:
    """One in quotes, `[start:stop]` inside of them, in a field of this name.

    `is_fixed`: chunks that look alike have the same one; `path` is that of a piece.
    """

    name: str
    start: int
    stop: int
    is_fixed: bool = False
    path: Path | None = None


Leaf = tuple[str, int, int]
"""The name of a string's field, and where it stands."""


class Chunk:
    """What is to be looked at by itself (`leaves`), and the pieces of longer texts."""

    __slots__ = ("_shape", "_told", "leaves", "pieces")

    def __init__(
        self,
        leaves: Sequence[Leaf],
        pieces: Sequence[Piece],
        shape: _Shape | None = None,
        told: tuple[str, ...] = (),
    ) -> None:
        self.leaves = leaves
        self.pieces = pieces
        self._shape, self._told = shape, told

    def is_clean(self) -> None:
        """There is no secret in the leaves: the same ones need not be looked at again."""
        if self._shape is not None:
            self._shape.clean = self._told


class Chunks:
    """Reads those of one stream, `text`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._shapes: list[_Shape] = []
        self._met: set[str] = set()

    def read(self, start: int, stop: int) -> Chunk | None:
        """The chunk that stands there; None where there is no JSON."""
        for shape in self._shapes:
            if (chunk := shape.read(self._text, start, stop)) is not None:
                return chunk
        if not looks_like_json(self._text[start:stop]):
            return None
        strings, scalars = _taken_apart(self._text, start, stop)
        is_whole = is_json(self._text[start:stop])
        if is_whole and len(self._shapes) < _MOST_SHAPES:
            self._note(_pattern(self._text, strings, scalars, start, stop), strings)
        others = [(one.name, one.start, one.stop) for one in strings if one.path is None]
        pieces = [(one.path, one.start, one.stop) for one in strings if one.path]
        # What is cut off may have words outside of its strings; in a whole one these are numbers.
        loose = [] if is_whole else [("", *span) for span in scalars]
        return Chunk([*others, *loose], pieces)

    def _note(self, pattern: str, strings: list[_String]) -> None:
        """Those that come and look like this one are read faster, if it is not the first."""
        if pattern in self._met:
            self._shapes.insert(0, _Shape(pattern, strings))
        self._met.add(pattern)


class _Shape:
    """What several chunks look like: all but their texts and numbers.

    `clean`: texts in which there was no secret, of one of them.
    """

    def __init__(self, pattern: str, strings: list[_String]) -> None:
        self.clean: tuple[str, ...] | None = None
        self._pattern = re.compile(pattern, re.DOTALL)
        numbered = list(enumerate(strings, 1))
        self._pieces = [(number, one.path) for number, one in numbered if one.path]
        self._names = [(number, one.name) for number, one in numbered if not one.path]
        # Asked for less than two groups, a match gives no tuple.
        self._numbers = (0, 0, *(number for number, _ in self._names))

    def read(self, text: str, start: int, stop: int) -> Chunk | None:
        """The chunk that stands there, if it looks like this."""
        found = self._pattern.fullmatch(text, start, stop)
        if found is None:
            return None
        pieces = [(path, *found.span(number)) for number, path in self._pieces]
        told = found.group(*self._numbers)[2:]
        if told == self.clean:
            return Chunk((), pieces)
        before = self.clean or (None,) * len(told)
        leaves = [
            (name, *found.span(number))
            for (number, name), now, then in zip(self._names, told, before, strict=True)
            if now != then
        ]
        return Chunk(leaves, pieces, self, told)


def _pattern(
    text: str, strings: list[_String], scalars: list[tuple[int, int]], start: int, stop: int
) -> str:
    """The expression for what looks like this chunk, with a group for each of its strings."""
    open_ends = [(one.start, one.stop, one.is_fixed) for one in strings]
    parts: list[str] = []
    at = start
    for begin, end, fixed in sorted([*open_ends, *((a, b, None) for a, b in scalars)]):
        parts.append(re.escape(text[at:begin]))
        if fixed is None:
            parts.append(_SCALAR)
        else:
            parts.append(f"({re.escape(text[begin:end])})" if fixed else _STRING)
        at = end
    return "".join([*parts, re.escape(text[at:stop])])


def _taken_apart(text: str, start: int, stop: int) -> tuple[list[_String], list[tuple[int, int]]]:
    """The strings of a JSON text with the names that lead to them; its numbers and the like."""
    strings: list[_String] = []
    scalars: list[tuple[int, int]] = []
    of_pieces: list[tuple[_String, tuple[_Frame, ...]]] = []
    frames: tuple[_Frame, ...] = (_Frame(""),)
    for token in _TOKEN.finditer(text, start, stop):
        mark, top = token[0], frames[-1]
        if mark == "{":
            frames = (*frames, _Frame(top.key))
        elif mark == "[":
            frames = (*frames, _Frame(top.key, top.key, is_list=True))
        elif mark == "}" or mark == "]":
            frames = frames[:-1] if len(frames) > 1 else frames
        elif mark == ":":
            if strings:
                strings[-1].is_fixed = True
                top.key = text[strings[-1].start : strings[-1].stop]
        elif mark == ",":
            top.key = top.key if top.is_list else ""
        elif token[1] is None:
            if not _tag(frames, mark):
                scalars.append(token.span())
        else:
            strings.append(_String(top.key, *token.span(1), _tag(frames, token[1])))
            if top.key in PIECES:
                of_pieces.append((strings[-1], frames))
    for one, within in of_pieces:
        one.path = (*((frame.name, "|".join(frame.tags)) for frame in within), (one.name, ""))
    return strings, scalars


def _tag(frames: tuple[_Frame, ...], value: str) -> bool:
    """An event's type tells what it brings; further down, an index tells of which one."""
    top = frames[-1]
    is_tag = top.key in _TAGS or (top.key == "type" and len(frames) == 2)
    if is_tag:
        top.tags.append(value)
    return is_tag
