"""Rows of payloads: how a body is written in them, and what a row refers to.

A JSON body with long texts in it is written as a template: what is around its string literals, and
a reference to each long one, which is a row of its own. So a text costs its size once, however many
bodies, messages and events tell of it.

Codecs: `raw`, `text` (packed with `packing.WORDS`) and `zlib` hold the bytes. `list` is a node: one
byte of level, then hashes of 16 bytes. `parts` is the template, JSON as it is or packed: literal
texts, `{"r": hash}`, `{"t": hash}` for
the text of a JSON string literal, `{"a": hash}` for the literal spelled in ASCII, and in requests
`{"l": root, "s": separator}` for a list, `{"n": hashes, "s": separator}` for a short one or the end
of a long one, `{"e": hash}` for each element of a list that is spaced unevenly. `stream` is a
streamed answer: packed likewise, the reference to what is said in it and the fields of
`templates.Stream`. `pruned` holds nothing any more: of the body its size is all that is left, until
the very same one is recorded again.

What is packed is a byte 2, the JSON packed with `packing.FORMS`, in which a zero stands for each
hash and its quotes, and the hashes of 16 bytes one after the other. Behind a byte 1 the hashes are
in the JSON; without either, it is zlib's own format: neither is written any more.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import orjson

from xgw.store.packing import FORMS, WORDS, pack, unpack, unpack_first
from xgw.store.templates import LONG, Stream, take_out_stream, take_out_texts

PACKED_FROM = 200
"""Bytes from which it pays to compress."""

REMEMBERED, REMEMBERED_SIZE = 64, 1 << 15
"""Of how many bodies, each up to which size, the hash need not be worked out again."""

PRUNED = "pruned"

TEXT_UNPACKED, PARTS_UNPACKED, STREAM_UNPACKED, UNTOUCHED = "text?", "parts?", "stream?", "?"
"""Of rows that are still to be packed, or taken apart before; the store never has them."""

_WITH_FORMS = b"\x01"
_AND_HASHES = b"\x02"
_GAP = b"\0"
"""Stands for a hash: JSON has no such byte."""

_QUOTED = re.compile(rb'"([0-9a-f]{32})"')

REFERENCE = "\x1f"
JSON_REFERENCE = '"\\u001f'
"""What a text column and a JSON column begin with that name the payload which has their value."""

PayloadRow = tuple[str, int, str, bytes]
Segment = str | dict[str, Any]

_NAMED = re.compile(rb'"payload\\?":\\?"([0-9a-f]{32})')


def digest(content: bytes) -> bytes:
    """The hash of a body: BLAKE2b, 16 bytes."""
    return _remembered(content) if len(content) <= REMEMBERED_SIZE else _digest(content)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


# What is said stands in a request's body, in its message and in events; instructions stand in every
# request. To find them again takes a tenth of the time.
_remembered = lru_cache(maxsize=REMEMBERED)(_digest)


def node_digest(content: bytes) -> bytes:
    """Of its own kind: no body, whatever its bytes, has the hash of a node."""
    return blake2b(content, digest_size=16, person=b"list").digest()


def is_long(text: str | None) -> bool:
    """Whether a text is worth a row of its own."""
    return text is not None and len(text) >= LONG


def key_named(value: object) -> str | None:
    """The hash of the payload that a column's value names; None if it is the value itself."""
    return value[1:] if isinstance(value, str) and value.startswith(REFERENCE) else None


def row_of(key: str, content: bytes) -> PayloadRow:
    """A body as it is, still to be packed."""
    return (key, len(content), TEXT_UNPACKED if len(content) >= PACKED_FROM else "raw", content)


def template_row(key: str, size: int, segments: Iterable[Segment]) -> PayloadRow:
    """A body of `size` bytes that is put together from segments, still to be packed."""
    return (key, size, PARTS_UNPACKED, orjson.dumps(list(segments)))


def untouched_row(key: str, content: bytes) -> PayloadRow:
    """A body of which nothing is known yet but its hash."""
    return (key, len(content), UNTOUCHED, content)


def packed_rows(rows: Iterable[PayloadRow], there: set[str]) -> Iterator[PayloadRow]:
    """The rows as the store has them, long texts that are not `there` included; all are added."""
    for row in rows:
        if row[2] != UNTOUCHED:
            there.add(row[0])
            yield packed_row(row)
            continue
        made: list[PayloadRow] = []
        put(made, row[0], row[3], there.__contains__)
        there.update([one[0] for one in made])
        for one in made:
            yield packed_row(one)


def packed_row(row: PayloadRow) -> PayloadRow:
    """The row as the store has it."""
    key, size, codec, content = row
    if codec == TEXT_UNPACKED:
        packed = pack(content, WORDS)
        small = len(packed) < len(content)
        return (key, size, "text", packed) if small else (key, size, "raw", content)
    if codec == PARTS_UNPACKED:
        return (key, size, "parts", min(content, _packed(content), key=len))
    if codec == STREAM_UNPACKED:
        return (key, size, "stream", _packed(content))
    return row


def put(rows: list[PayloadRow], key: str, content: bytes, knows: Callable[[str], bool]) -> None:
    """Add the rows of a body, and of those of its long texts that `knows` does not know.

    They are still to be packed.
    """
    segments = take_out_texts(content)
    if segments is None:
        rows.append(_stream_row(rows, key, content, knows) or row_of(key, content))
        return
    written: list[Segment] = []
    for segment in segments:
        if isinstance(segment, bytes):
            mark, literal = _spelled(segment)
            written.append({mark: put_literal(rows, literal, knows)})
        else:
            written.append(segment)
    rows.append(template_row(key, len(content), written))


def _stream_row(
    rows: list[PayloadRow], key: str, content: bytes, knows: Callable[[str], bool]
) -> PayloadRow | None:
    found = take_out_stream(content)
    if found is None:
        return None
    stream, said = found
    mark, literal = _spelled(said)
    reference = {mark: put_literal(rows, literal, knows)}
    text = orjson.dumps([reference, stream.opening, stream.lengths, stream.between])
    return (key, len(content), STREAM_UNPACKED, text)


def woven(content: bytes, said: Callable[[str], bytes]) -> bytes:
    """A streamed answer from its row's opened content; `said` gives the bytes behind a hash."""
    reference, *stream = orjson.loads(content)
    (key,) = reference.values()
    return Stream(*stream).woven(spelled_out(reference, said(key)))


def put_literal(rows: list[PayloadRow], literal: bytes, knows: Callable[[str], bool]) -> str:
    """Add the row of a string literal, unless it is known; returns its hash."""
    key = digest(literal).hex()
    if not knows(key):
        rows.append(row_of(key, literal))
    return key


def opened(codec: str, content: bytes) -> bytes:
    """What a row holds, uncompressed."""
    if codec == "text":
        return unpack(content, WORDS)
    if codec in ("parts", "stream") and content[:1] == _AND_HASHES:
        return _with_hashes(*unpack_first(content[1:], FORMS))
    if codec in ("parts", "stream") and content[:1] == _WITH_FORMS:
        return unpack(content[1:], FORMS)
    if codec in ("zlib", "stream") or (codec == "parts" and content[:1] != b"["):
        return zlib.decompress(content)
    return content


def _packed(template: bytes) -> bytes:
    # The odd ones are the hashes; what is around them is often the same.
    pieces = _QUOTED.split(template)
    shape = _GAP.join(pieces[::2])
    packed = _packed_often(shape) if len(shape) < PACKED_FROM else pack(shape, FORMS)
    return b"".join([_AND_HASHES, packed, bytes.fromhex(b"".join(pieces[1::2]).decode())])


@lru_cache(maxsize=256)
def _packed_often(shape: bytes) -> bytes:
    return pack(shape, FORMS)


def _with_hashes(shape: bytes, hashes: bytes) -> bytes:
    """The JSON whose hashes were taken out."""
    first, *others = shape.split(_GAP)
    keys = (hashes[at : at + 16].hex().encode() for at in range(0, len(hashes), 16))
    return first + b"".join([b'"%b"%b' % pair for pair in zip(keys, others, strict=True)])


def references(codec: str, content: bytes) -> list[str]:
    """The hashes that a row needs to be put together, from its opened content."""
    if codec == "parts":
        named = [s for s in orjson.loads(content) if isinstance(s, dict)]
        lists = [key for segment in named for key in segment.get("n", ())]
        return lists + [segment[mark] for segment in named for mark in "retal" if mark in segment]
    if codec == "stream":
        return list(orjson.loads(content)[0].values())
    return entries(content) if codec == "list" else []


def reference_list(codec: str, data: bytes) -> str:
    """The hashes that a stored row needs, as a JSON list: for a select that follows them."""
    return orjson.dumps(references(codec, opened(codec, data))).decode()


def node_list(codec: str, data: bytes) -> str:
    """The same, but only the nodes of lists: what is said in the elements is not looked at."""
    content = opened(codec, data)
    if codec == "list":
        return orjson.dumps(entries(content) if content[0] > 0 else []).decode()
    named = orjson.loads(content) if codec == "parts" else ()
    return orjson.dumps([s["l"] for s in named if isinstance(s, dict) and "l" in s]).decode()


def leads_to(codec: str, data: bytes) -> list[str]:
    """Every hash that a stored row may lead to: its references, and what its text names."""
    if codec not in ("parts", "list", "stream"):
        return []
    content = opened(codec, data)
    found = references(codec, content)
    return found if codec != "parts" else found + [k.decode() for k in _NAMED.findall(content)]


def entries(node: bytes) -> list[str]:
    """The hashes in a node of a list."""
    return [node[at : at + 16].hex() for at in range(1, len(node), 16)]


def spelled_out(segment: dict[str, Any], content: bytes) -> bytes:
    """The bytes that a segment stands for, whose reference leads to `content`."""
    if "t" in segment:
        text: str = orjson.loads(content)
        return text.encode()
    if "a" in segment:
        return json.dumps(orjson.loads(content)).encode()
    return content


def _spelled(literal: bytes) -> tuple[str, bytes]:
    """A literal as clients in Python spell it is that of the plain text, marked `a`."""
    if literal.find(b"\\u") >= 0:
        try:
            text = orjson.loads(literal)
        except orjson.JSONDecodeError:
            return "r", literal
        if json.dumps(text).encode() == literal:
            plain = orjson.dumps(text)
            return ("r" if plain == literal else "a"), plain
    return "r", literal
