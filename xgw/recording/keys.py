"""Client keys: issued and revoked. The store keeps the digest of a key, never the key itself."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from xgw import clock, ids
from xgw.store.transaction import Transaction

START = "xk-"
PREFIX_CHARACTERS = len(START) + 8
RANDOM_BYTES = 24


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; `key` is shown once and kept nowhere."""

    id: str
    name: str
    key: str
    project_id: str
    org_id: str | None = None

    @property
    def prefix(self) -> str:
        """The start of the key, by which people recognise it."""
        return self.key[:PREFIX_CHARACTERS]


def digest(secret: str) -> str:
    """What of a key is kept and compared: the SHA-256 of it, as 64 hex digits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def make_key(name: str, project_id: str, org_id: str | None = None) -> NewKey:
    """A new key: `xk-` and 32 random characters that need no quoting anywhere."""
    text = START + secrets.token_urlsafe(RANDOM_BYTES)
    return NewKey(ids.mint("key"), name, text, project_id, org_id)


def issue_key(tx: Transaction, key: NewKey) -> None:
    """From the commit on the key opens."""
    tx.insert(
        "api_keys",
        {
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "hash": digest(key.key),
            "project_id": key.project_id,
            "org_id": key.org_id,
            "created_at": clock.now(),
        },
    )


def revoke_key(tx: Transaction, key_id: str) -> None:
    """From the commit on the key opens nothing; it stays in the list."""
    tx.execute(
        "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
        (clock.now(), key_id),
    )
