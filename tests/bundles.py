"""Bundles as their readers see them: held against the schema, bodies put together and counted."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jsonschema_rs

from xgw.portable.chosen import Root
from xgw.portable.imports import Imports, opened
from xgw.portable.redaction import Redactor
from xgw.portable.source import Asked
from xgw.portable.writing import write
from xgw.queries.payloads import find_bodies
from xgw.store import migrations
from xgw.store.database import Store

SCHEMA = Path(__file__).parent.parent / "docs" / "bundle.schema.json"
TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "events")
BODIES = (
    "input_payload",
    "output_payload",
    "config_snapshot",
    "request_payload",
    "response_body",
)

Row = dict[str, Any]


def schema() -> Row:
    whole: Row = json.loads(SCHEMA.read_text("utf-8"))
    return whole


@cache
def validator() -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema())


def export(
    store: Store, *roots: tuple[str, str], format: str = "json", redact: bool = False, **asked: Any
) -> bytes:
    """An export of these things by kind and id, of everything without any."""
    out = io.BytesIO()
    chosen = [Root(kind, id) for kind, id in roots] or None
    write(
        store, Asked(chosen, lambda name: None, redactor=Redactor(on=redact), **asked), format, out
    )
    return out.getvalue()


def read(text: bytes | str) -> Row:
    """The document, which is as the schema says and whose bodies have the hashes that it says."""
    document: Row = json.loads(text)
    errors = [
        f"{'/'.join(map(str, error.instance_path))}: {error.message[:200]}"
        for error in validator().iter_errors(document)
    ]
    assert not errors, errors[:5]
    contents(document)
    for table in TABLES:
        keys = [row["seq" if table == "events" else "id"] for row in document[table]]
        assert keys == sorted(set(keys))
    return document


def contents(document: Row) -> dict[str, bytes]:
    """The bodies by hash, each put together from what stands before it."""
    found: dict[str, bytes] = {}
    for payload in document["payloads"]:
        content = _content(payload, found)
        assert payload["hash"] not in found, "each body is there once"
        if content is not None:
            assert len(content) == payload["size"]
            assert blake2b(content, digest_size=16).hexdigest() == payload["hash"]
        found[payload["hash"]] = content or b""
    return found


def _content(payload: Row, found: dict[str, bytes]) -> bytes | None:
    if "text" in payload:
        return str(payload["text"]).encode()
    if "base64" in payload:
        return base64.b64decode(payload["base64"], validate=True)
    if "parts" in payload:
        parts: Sequence[Any] = payload["parts"]
        return b"".join(p.encode() if isinstance(p, str) else found[p["ref"]] for p in parts)
    return None


def named(document: Row) -> set[str]:
    """The hashes of bodies that rows name."""
    rows = [row for table in TABLES for row in document[table]]
    return {row[name] for row in rows for name in BODIES if row.get(name)}


# -- what any test recorded ------------------------------------------------------------------------

TOGETHER = 100
"""Sessions, and turns without one, that are exported as one document."""

DOCUMENTS = 3
"""So many of them at most, from everywhere: what thousands of calls recorded is much alike."""


def check_store(path: Path) -> None:
    """What a test has recorded leaves as a document that is as it should be, and comes back.

    A store that a test has broken, or that is not of this version, is left alone.
    """
    if not is_whole(path):
        return
    store = Store(path)
    try:
        roots = roots_of(store)
        pages = -(-len(roots) // TOGETHER)
        for page in range(0, pages, -(-pages // DOCUMENTS) or 1):
            at = page * TOGETHER
            text = export(store, *roots[at : at + TOGETHER], redact=True)
            document = read(text)
            assert named(document) - contents(document).keys() <= gone(store, document)
            assert_same(document, there_and_back(text))
    finally:
        store.close()


def there_and_back(text: bytes) -> Row:
    """The document that an import of this one is exported as."""
    with tempfile.TemporaryDirectory() as folder:
        imported, _ = Imports(Path(folder, "xgw.db")).add(io.BytesIO(text), "there.json")
        with opened(imported.path) as store:
            again: Row = json.loads(export(store, redact=True))
            return again


def assert_same(document: Row, again: Row) -> None:
    """These are one document, but for where the second came from."""
    assert list(again) == list(document)
    for name in document:
        if name != "imported":
            assert again[name] == document[name], name


def roots_of(store: Store) -> list[tuple[str, str]]:
    """Kind and id of all sessions, and of the turns without one."""
    sessions = store.sql("SELECT 'session', id FROM sessions ORDER BY id")
    alone = store.sql("SELECT 'turn', id FROM turns WHERE session_id IS NULL ORDER BY id")
    return [*sessions, *alone]  # type: ignore[list-item]


def gone(store: Store, document: Row) -> set[str]:
    """The hashes in a document's rows of which the store does not have (all of) the body."""
    hashes = named(document)
    return hashes - find_bodies(store, hashes).keys()


def is_whole(path: Path) -> bool:
    """Whether this is a store of this version that nothing is wrong with."""
    if not path.is_file():
        return False
    known = {file.stem for file in migrations.DIRECTORY.glob("[0-9]*.py")}
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            applied = connection.execute(f"SELECT name FROM {migrations.HISTORY}").fetchall()
            checked = connection.execute("PRAGMA quick_check").fetchall()
    except sqlite3.Error:
        return False
    return {name for (name,) in applied} == known and checked == [("ok",)]
