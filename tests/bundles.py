"""Bundles as their readers see them: held against the schema, bodies put together and counted."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from xgw.portable.chosen import Root
from xgw.portable.redaction import Redactor
from xgw.portable.source import Asked
from xgw.portable.writing import write
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


@cache
def validator() -> Any:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


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
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}"
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
