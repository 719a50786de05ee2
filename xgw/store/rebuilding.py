"""Bodies out of the store: all rows of them fetched in one statement, and put together again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import orjson

from xgw.store.database import Store
from xgw.store.digits import packed_hash, whole_hash
from xgw.store.rows import PRUNED, entries, opened, references, spelled_out, woven

BATCH = 400
HASH_DIGITS = 32

Opened = dict[str, tuple[str, bytes]]
"""Codec and opened content of rows, by hash."""

Rebuilt = tuple[bytes, list[str]]
"""A body, and the element hashes that `parts` gives."""

_FOLLOWED = """
WITH RECURSIVE needed(hash) AS (
    SELECT value FROM json_each(?)
    UNION
    SELECT led.value FROM needed JOIN payloads AS p ON p.hash = packed_hash(needed.hash),
        json_each({led_by}(p.codec, p.data)) AS led
    WHERE p.codec IN ('parts', 'list', 'stream')
)
SELECT needed.hash, p.codec, p.data
FROM needed LEFT JOIN payloads AS p ON p.hash = packed_hash(needed.hash)
"""
_WHOLE = _FOLLOWED.format(led_by="reference_list")
_NODES = _FOLLOWED.format(led_by="node_list")

_BESIDE = """
WITH RECURSIVE found({columns}) AS MATERIALIZED ({select}),
needed(hash) AS (
    SELECT value FROM json_each(?)
    {named}
    UNION
    SELECT led.value FROM needed JOIN payloads AS p ON p.hash = packed_hash(needed.hash),
        json_each(reference_list(p.codec, p.data)) AS led
    WHERE p.codec IN ('parts', 'list', 'stream')
)
SELECT 0, found.*{short} FROM found
UNION ALL
SELECT 1, needed.hash, p.codec, p.data{rest}
FROM needed LEFT JOIN payloads AS p ON p.hash = packed_hash(needed.hash)
"""
_BODY_COLUMNS = 3


def load(store: Store, key: str) -> bytes:
    """The bytes behind a hash; LookupError if the store does not have them."""
    return load_many(store, [key])[key]


def load_many(store: Store, keys: Iterable[str]) -> dict[str, bytes]:
    """Bodies by hash, in one statement; LookupError for a missing one."""
    wanted = list(dict.fromkeys(keys))
    rows, missing = _fetch(store, _WHOLE, wanted)
    if missing:
        raise _gone(missing)
    return {key: _build(rows, key) for key in wanted}


def find_many(store: Store, keys: Iterable[str]) -> dict[str, bytes]:
    """The same of those that the store (still) has whole."""
    return {key: body for key, (body, _) in find_listed(store, keys).items()}


def find_listed(store: Store, keys: Iterable[str]) -> dict[str, Rebuilt]:
    """The same, each with the element hashes that `parts` gives: one statement."""
    wanted = list(dict.fromkeys(keys))
    return _put_together(wanted, *_fetch(store, _WHOLE, wanted))


def fetch_beside(
    store: Store,
    select: str,
    params: tuple[Any, ...],
    width: int,
    naming: Collection[tuple[int, str]],
    keys: Iterable[str],
) -> tuple[list[Sequence[Any]], dict[str, Rebuilt]]:
    """Rows of a select of `width` columns, in no certain order, and bodies: one statement.

    The bodies are those of `keys` and those that columns name: `naming` has the place of each, and
    what stands before the hash in it.
    """
    given = list(dict.fromkeys(keys))
    text = _beside(select, width, naming)
    rows: list[Sequence[Any]] = []
    of_bodies = []
    for is_body, *values in store.sql(text, (*params, orjson.dumps(given).decode())):
        if is_body:
            of_bodies.append(values[:_BODY_COLUMNS])
        else:
            rows.append(values[:width])
    named = (_name(row[place], before) for row in rows for place, before in naming)
    wanted = dict.fromkeys([*given, *(key for key in named if key)])
    return rows, _put_together(wanted, *_opened(of_bodies))


def _beside(select: str, width: int, naming: Iterable[tuple[int, str]]) -> str:
    named = (
        f"UNION SELECT substr(c{place}, {len(before) + 1}, {HASH_DIGITS}) FROM found"
        f" WHERE substr(c{place}, 1, {len(before)}) = '{before}'"
        for place, before in naming
    )
    return _BESIDE.format(
        columns=", ".join(f"c{place}" for place in range(width)),
        select=select,
        named="\n    ".join(named),
        short=", NULL" * (_BODY_COLUMNS - width),
        rest=", NULL" * (width - _BODY_COLUMNS),
    )


def _name(value: str | None, before: str) -> str | None:
    if value is None or not value.startswith(before):
        return None
    return value[len(before) : len(before) + HASH_DIGITS]


def parts(store: Store, keys: Iterable[str]) -> dict[str, list[str]]:
    """The element hashes of requests' messages, in order, by hash; [] for a body kept whole.

    LookupError for a missing one. One statement, which reads none of the elements.
    """
    wanted = list(dict.fromkeys(keys))
    rows, missing = _fetch(store, _NODES, wanted)
    if missing:
        raise _gone(missing)
    return {key: _elements(rows, key) for key in wanted}


def sizes(store: Store, keys: Iterable[str]) -> dict[str, int]:
    """Size in bytes by hash, of those that the store has, and of those that were pruned."""
    wanted = list(dict.fromkeys(keys))
    found: dict[str, int] = {}
    for at in range(0, len(wanted), BATCH):
        batch = tuple(map(packed_hash, wanted[at : at + BATCH]))
        marks = ", ".join("?" * len(batch))
        rows = store.sql(f"SELECT hash, size FROM payloads WHERE hash IN ({marks})", batch)
        found.update((whole_hash(key), size) for key, size in rows)
    return found


def _fetch(store: Store, text: str, keys: list[str]) -> tuple[Opened, set[str]]:
    """The rows of these bodies, and the hashes that lead to none."""
    if not keys:
        return {}, set()
    return _opened(store.sql(text, (orjson.dumps(keys).decode(),)))


def _opened(found_rows: Iterable[Sequence[Any]]) -> tuple[Opened, set[str]]:
    found: Opened = {}
    missing: set[str] = set()
    for key, codec, content in found_rows:
        if codec is None or codec == PRUNED:
            missing.add(key)
        else:
            found[key] = (codec, opened(codec, content))
    return found, missing


def _put_together(wanted: Iterable[str], rows: Opened, missing: set[str]) -> dict[str, Rebuilt]:
    """Those of these bodies that are whole."""
    gone = _broken_by(rows, missing) if missing else missing
    return {key: (_build(rows, key), _elements(rows, key)) for key in wanted if key not in gone}


def _gone(missing: set[str]) -> LookupError:
    return LookupError(f"payload {min(missing)} is not in the store")


def _broken_by(rows: Opened, missing: set[str]) -> set[str]:
    """Everything that needs one of the missing rows, and these."""
    needs = {key: references(*row) for key, row in rows.items()}
    broken = set(missing)
    while more := {k for k, led in needs.items() if k not in broken and not broken.isdisjoint(led)}:
        broken |= more
    return broken


def _elements(rows: Opened, key: str) -> list[str]:
    codec, content = rows[key]
    found: list[str] = []
    for segment in orjson.loads(content) if codec == "parts" else ():
        if isinstance(segment, str):
            continue
        if "s" in segment:
            found += _listed(rows, segment)
        elif "e" in segment:
            found.append(segment["e"])
    return found


def _leaves(rows: Opened, root: str) -> list[str]:
    node = rows[root][1]
    if node[0] == 0:
        return entries(node)
    return [leaf for entry in entries(node) for leaf in _leaves(rows, entry)]


def _listed(rows: Opened, segment: dict[str, Any]) -> list[str]:
    """The element hashes of a list's segment."""
    if "n" in segment:
        return list(segment["n"])
    return _leaves(rows, segment["l"])


def _build(rows: Opened, key: str) -> bytes:
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
