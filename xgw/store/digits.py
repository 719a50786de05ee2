"""Ids and hashes as sixteen bytes instead of 32 digits: how events and payloads hold them."""

from __future__ import annotations

from functools import lru_cache

DIGITS = 32


@lru_cache(maxsize=1024)
def packed_id(id: str, prefix: str) -> str | bytes:
    """The sixteen bytes of a minted id; anything else stays as it is."""
    found = packed_digits(id[len(prefix) + 1 :]) if id.startswith(f"{prefix}_") else None
    return id if found is None else found


def whole_id(kept: str | bytes, prefix: str) -> str:
    """The id that was packed."""
    return kept if isinstance(kept, str) else f"{prefix}_{kept.hex()}"


def packed_hash(hash: str) -> str | bytes:
    """The sixteen bytes of a body's hash; what is none stays as it is."""
    found = packed_digits(hash)
    return hash if found is None else found


def whole_hash(kept: str | bytes) -> str:
    """The hash that was packed."""
    return kept if isinstance(kept, str) else kept.hex()


def packed_digits(digits: str) -> bytes | None:
    """The bytes that these 32 digits spell; None if they are spelled otherwise."""
    if len(digits) != DIGITS:
        return None
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        return None
    return found if found.hex() == digits else None
