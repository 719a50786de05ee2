"""Bodies out of the store: their rows fetched level by level, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from xgw.store.database import Store
from xgw.store.digits import packed_hash, whole_hash
from xgw.store.rows import entries, opened, references, spelled_out, woven

BATCH = 400


def load(store: Store, key: str) -> bytes:
    """The bytes behind a hash; LookupError if the store does not have them."""
    return load_many(store, [key])[key]


def load_many(store: Store, keys: Iterable[str]) -> dict[str, bytes]:
    """Bodies by hash, in a few statements whatever their number; LookupError for a missing one."""
    wanted = list(dict.fromkeys(keys))
    with store.reading():
        rows = _fetch(store, wanted)
        _fetch_below(store, rows)
    return {key: _build(rows, key) for key in wanted}


def parts(store: Store, keys: Iterable[str]) -> dict[str, list[str]]:
    """The element hashes of requests' messages, in order, by hash; [] for a body kept whole.

    LookupError for a missing one. One statement for up to FAN_OUT elements, one more for each
    factor of it beyond, whatever the number of requests.
    """
    with store.reading():
        rows = _fetch(store, list(dict.fromkeys(keys)))
        segments = {key: _segments(*row) for key, row in rows.items()}
        _fetch_nodes(store, rows, [s["l"] for each in segments.values() for s in each if "l" in s])
    return {key: _elements(rows, each) for key, each in segments.items()}


def sizes(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Size in bytes by hash, of those that the store has."""
    wanted = list(dict.fromkeys(keys))
    found: dict[str, int] = {}
    for at in range(0, len(wanted), BATCH):
        batch = tuple(map(packed_hash, wanted[at : at + BATCH]))
        marks = ", ".join("?" * len(batch))
        rows = store.sql(f"SELECT hash, size FROM payloads WHERE hash IN ({marks})", batch)
        found.update((whole_hash(key), size) for key, size in rows)
    return found


def _fetch(store: Store, keys: Sequence[str]) -> dict[str, tuple[str, bytes]]:
    found: dict[str, tuple[str, bytes]] = {}
    for at in range(0, len(keys), BATCH):
        batch = tuple(map(packed_hash, keys[at : at + BATCH]))
        marks = ", ".join("?" * len(batch))
        rows = store.sql(f"SELECT hash, codec, data FROM payloads WHERE hash IN ({marks})", batch)
        for key, codec, content in rows:
            found[whole_hash(key)] = (codec, opened(codec, content))
    missing = [key for key in keys if key not in found]
    if missing:
        raise LookupError(f"payload {missing[0]} is not in the store")
    return found


def _fetch_below(store: Store, rows: dict[str, tuple[str, bytes]]) -> None:
    """Add everything that templates and list nodes refer to, level by level."""
    level = list(rows)
    while level:
        below = {key for parent in level for key in references(*rows[parent])}
        level = [key for key in below if key not in rows]
        rows.update(_fetch(store, level))


def _segments(codec: str, content: bytes) -> list[dict[str, Any]]:
    """What a template refers to."""
    return [s for s in orjson.loads(content) if isinstance(s, dict)] if codec == "parts" else []


def _elements(rows: dict[str, tuple[str, bytes]], segments: Iterable[dict[str, Any]]) -> list[str]:
    found: list[str] = []
    for segment in segments:
        if "s" in segment:
            found += _listed(rows, segment)
        elif "e" in segment:
            found.append(segment["e"])
    return found


def _fetch_nodes(store: Store, rows: dict[str, tuple[str, bytes]], roots: Sequence[str]) -> None:
    """Add the nodes of lists, level by level, without the elements below them."""
    level = list(dict.fromkeys(roots))
    while level:
        nodes = _fetch(store, level)
        rows.update(nodes)
        inner = [node for _, node in nodes.values() if node[0] > 0]
        level = list(dict.fromkeys(key for node in inner for key in entries(node)))


def _leaves(rows: dict[str, tuple[str, bytes]], root: str) -> list[str]:
    node = rows[root][1]
    if node[0] == 0:
        return entries(node)
    return [leaf for entry in entries(node) for leaf in _leaves(rows, entry)]


def _listed(rows: dict[str, tuple[str, bytes]], segment: dict[str, Any]) -> list[str]:
    """The element hashes of a list's segment."""
    if "n" in segment:
        return list(segment["n"])
    return _leaves(rows, segment["l"])


def _build(rows: dict[str, tuple[str, bytes]], key: str) -> bytes:
    codec, content = rows[key]
    if codec == "stream":
        return woven(content, lambda said: _build(rows, said))
    if codec != "parts":
        return content
    built = []
    for segment in orjson.loads(content):
        if isinstance(segment, str):
            built.append(segment.encode())
        elif "s" not in segment:
            (reference,) = segment.values()
            built.append(spelled_out(segment, _build(rows, reference)))
        else:
            parts = (_build(rows, key) for key in _listed(rows, segment))
            built.append(segment["s"].encode().join(parts))
    return b"".join(built)
