"""Taking JSON bodies apart: a request's messages one by one, the long texts of any body."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from xgw.frozen import frozen

WORTH_IT = 200
"""Bytes from which a part of the text is kept by itself."""

LONG = 512
"""Length from which a text is kept by itself."""

MOST_TEXTS = 64

# First the usual case, which takes half as long: a quote without a backslash before it is the end.
# Else with escapes one by one; that matches without a closing quote too, so that no byte is looked
# at more often.
_STRING = re.compile(rb'"(?:[^"]*+"(?<!\\")|[^"\\]*+(?:\\.[^"\\]*+)*+"?)', re.DOTALL)

# Where no quote is escaped: from the end of one literal over all short ones to the next long one.
_NEXT_LONG = re.compile(rb'[^"]*+(?:"[^"]{0,%d}+"[^"]*+)*+("[^"]{%d,}+")' % (LONG - 3, LONG - 2))

_OPENINGS = (b'"content":"', b'"content": "')
_SAID = {
    opening: re.compile(opening + rb'((?:[^"\\]++|\\.)*+)"', re.DOTALL) for opening in _OPENINGS
}

_top = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])

_BEGINNING = 32
"""Bytes of a part that is looked for."""


@frozen
class Apart:
    """A body with a list in it: its elements, what stands before, between and after them."""

    before: bytes
    elements: list[bytes]
    gaps: list[bytes]
    after: bytes
    tools: bytes

    @property
    def gap(self) -> bytes | None:
        """What is between each two elements; None where that is not always the same."""
        return None if len(set(self.gaps)) > 1 else self.gaps[0] if self.gaps else b","

    def segments(self) -> list[Any]:
        """Text, as it is; bytes: a part kept by itself; an element's number; {"s": gap}: the list.

        The list is one where its elements are spaced evenly.
        """
        gap = self.gap
        if gap is not None:
            listed: list[Any] = [{"s": gap.decode()}]
        else:
            listed = [0]
            for number, between in enumerate(self.gaps, 1):
                listed += [between.decode(), number]
        return [*_without(self.before, self.tools), *listed, *_without(self.after, self.tools)]


def take_apart(body: bytes) -> Apart | None:
    """The list of messages (or of inputs) in a request's body, and what is around it.

    None where the body is no JSON object with such a list.
    """
    try:
        top = _top.decode(body)
        raw_list = bytes(top.get("messages", b""))
        if raw_list[:1] != b"[":
            raw_list = bytes(top.get("input", b""))
        if raw_list[:1] != b"[":
            return None
        elements = [*map(bytes, _elements.decode(raw_list))]
        body.decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not elements:
        return None
    at = _find(body, raw_list)
    before, gaps, after = _spacing(raw_list, elements)
    head, tail = body[:at] + before, after + body[at + len(raw_list) :]
    return Apart(head, elements, gaps, tail, bytes(top.get("tools", b"")))


def take_out_texts(content: bytes) -> list[str | bytes] | None:
    """What is around long string literals, and these as bytes, in turn.

    None where there are none, or very many, or the content is no JSON object or array.
    """
    if len(content) < LONG or content[:1] not in (b"{", b"["):
        return None
    long = _long_strings(content)
    if not 0 < len(long) <= MOST_TEXTS:
        return None
    segments: list[str | bytes] = []
    done = 0
    try:
        for start, end in long:
            segments += [content[done:start].decode(), content[start:end]]
            done = end
        return [*segments, content[done:].decode()]
    except UnicodeDecodeError:
        return None


def _long_strings(content: bytes) -> list[tuple[int, int]]:
    """Where long string literals begin and end; one that is not closed goes on to the end."""
    # Most backslashes are line breaks: that there are none at all is seen sooner. (To find takes a
    # third of what `in` does, which tries first whether it is given a number.)
    if content.find(b"\\") < 0 or content.find(b'\\"') < 0:
        long, done, size = [], 0, len(content)
        while size - done >= LONG and (found := _NEXT_LONG.match(content, done)):
            start, done = found.span(1)
            long.append((start, done))
        if size - done < LONG or content.count(b'"', done) % 2 == 0:
            return long
    spans = (found.span() for found in _STRING.finditer(content))
    return [(start, end) for start, end in spans if end - start >= LONG]


@frozen
class Stream:
    """A streamed answer: what opens each piece of text, their lengths in bytes, what is between.

    `between` has runs: how often in turn, and the text.
    """

    opening: str
    lengths: list[int]
    between: list[tuple[int, str]]

    def woven(self, literal: bytes) -> bytes:
        """The answer, of whose text this is the JSON string literal."""
        first, *others = (text.encode() for count, text in self.between for _ in range(count))
        opening, woven, said = self.opening.encode(), [first], 1
        for length, after in zip(self.lengths, others, strict=True):
            woven += [opening, literal[said : said + length], b'"', after]
            said += length
        return b"".join(woven)


def take_out_stream(content: bytes) -> tuple[Stream, bytes] | None:
    """A streamed answer without its text, and that as one JSON string literal.

    None where the content is no stream of events, or what they say is not long.
    """
    if not content.startswith((b"data:", b"event:", b"id:", b":")):
        return None
    opening = next((opening for opening in _OPENINGS if content.find(opening) >= 0), None)
    if opening is None:
        return None
    parts = _SAID[opening].split(content)
    pieces = parts[1::2]
    literal = b'"%b"' % b"".join(pieces)
    if len(literal) < LONG:
        return None
    try:
        between = [(len([*run]), text.decode()) for text, run in groupby(parts[::2])]
    except UnicodeDecodeError:
        return None
    return Stream(opening.decode(), [len(piece) for piece in pieces], between), literal


def _find(text: bytes, part: bytes) -> int:
    """Where `part` stands first in a text that has it.

    The beginning of a long part is found several times as fast: `find` works out a table for it.
    """
    at = text.find(part[:_BEGINNING])
    return at if text.startswith(part, at) else text.find(part)


def _without(text: bytes, part: bytes) -> list[Any]:
    """The text with `part`, if it is worth it and stands there, as a segment of its own."""
    at = text.find(part) if len(part) > WORTH_IT else -1
    if at < 0:
        return [text.decode()]
    return [text[:at].decode(), part, text[at + len(part) :].decode()]


def _spacing(raw_list: bytes, elements: Sequence[bytes]) -> tuple[bytes, list[bytes], bytes]:
    """What stands before the first element, between each two, and after the last."""
    start = _find(raw_list, elements[0])
    position = start + len(elements[0])
    gaps: list[bytes] = []
    gap = b","
    for element in elements[1:]:
        found = position + len(gap)
        # Elements are compared at once where they stand as expected; to look for one takes longer.
        if not (raw_list.startswith(gap, position) and raw_list.startswith(element, found)):
            found = raw_list.find(element, position)
            gap = raw_list[position:found]
        gaps.append(gap)
        position = found + len(element)
    return raw_list[:start], gaps, raw_list[position:]
