"""Ids of rows that are made of older ones: the same each time, and in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import orjson

_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def mint(prefix: str, milliseconds: int, identity: Sequence[Any]) -> str:
    """The id of what this identifies, the same each time: a UUIDv7 with a hash for its chance."""
    try:
        told = orjson.dumps(identity)
    except (TypeError, ValueError):
        told = repr(identity).encode("utf-8", "replace")
    digits = blake2b(told, digest_size=10).hexdigest()
    return f"{prefix}_{milliseconds:012x}7{digits[:3]}{_VARIANTS[digits[3]]}{digits[4:19]}"
