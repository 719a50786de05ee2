"""Reading payloads by hash: sizes for lists, bodies decoded for those who ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from xgw import spelling
from xgw.frozen import frozen
from xgw.store import payloads
from xgw.store.database import Store
from xgw.store.models import Payload
from xgw.store.rows import PRUNED

COLUMNS = (
    "input_payload",
    "output_payload",
    "config_snapshot",
    "request_payload",
    "response_body",
)
"""The columns of all nouns that hold a payload's hash."""

DEEPEST = 200
"""Levels of JSON that are shown as such: orjson reads 1,024 and writes 254."""


def hashes_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The payload hashes in these rows and in the runs and steps inside them, each once."""
    found: dict[str, None] = {}
    for row in rows:
        found.update(dict.fromkeys(row[name] for name in COLUMNS if row.get(name)))
        for inner in ("runs", "steps"):
            found.update(dict.fromkeys(hashes_of(row.get(inner, ()))))
    return list(found)


@frozen
class Known:
    """What the store tells of bodies: sizes in bytes, and which of them were pruned."""

    sizes: dict[str, int]
    pruned: frozenset[str] = frozenset()


NOTHING = Known({})


def known(store: Store, hashes: Iterable[str]) -> Known:
    """Of those that the store has, or had until they were pruned: one statement."""
    wanted = list(hashes)
    if not wanted:
        return NOTHING
    query = Payload.select(Payload.hash, Payload.size, Payload.codec)
    rows = store.fetch(query.where(Payload.hash.in_(wanted)))
    pruned = frozenset(row["hash"] for row in rows if row["codec"] == PRUNED)
    return Known({row["hash"]: row["size"] for row in rows}, pruned)


def sizes(store: Store, hashes: Iterable[str]) -> dict[str, int]:
    """Sizes in bytes, of those that the store still has."""
    found = known(store, hashes)
    return {key: size for key, size in found.sizes.items() if key not in found.pruned}


def pruned_words(store: Store, key: str | None) -> str | None:
    """What to say in the place of a body that was pruned; None if it was not."""
    if key is None or key not in (found := known(store, [key])).pruned:
        return None
    return f"body pruned: {spelling.size(found.sizes[key])}, hash {key}"


def bodies(store: Store, hashes: Iterable[str]) -> dict[str, Any]:
    """Bodies decoded: JSON as its value, anything else as text; missing ones are left out."""
    return {key: decoded(body) for key, body in find_bodies(store, hashes).items()}


def find_bodies(store: Store, hashes: Iterable[str]) -> dict[str, bytes]:
    """The bytes of bodies by hash, of those that the store (still) has whole."""
    return payloads.find_many(store, hashes)


def find_listed(store: Store, hashes: Iterable[str]) -> dict[str, tuple[bytes, list[str]]]:
    """The same, each with the hashes of its messages, [] where it has no list of them."""
    return payloads.find_listed(store, hashes)


def find_body(store: Store, hash: str) -> bytes | None:
    """The bytes of one body; None where the store does not have (all of) it any more."""
    return find_bodies(store, [hash]).get(hash)


def decoded(body: bytes) -> Any:
    """A JSON body's value; the text of any other, and of one too deep to be written again."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace")
    return body.decode() if _is_deep(body, value) else value


def _is_deep(body: bytes, value: Any) -> bool:
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return False
    level, depth = [value], 0
    while level and depth < DEEPEST:
        inner = (one.values() if isinstance(one, dict) else one for one in level)
        level = [v for entries in inner for v in entries if isinstance(v, dict | list)]
        depth += 1
    return bool(level)
