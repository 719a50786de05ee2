"""Names that carry credentials: of headers, of fields in JSON, of parameters in a query string."""

from __future__ import annotations

import re
from functools import lru_cache

MASK = "[masked]"
"""Stands in the place of every secret that is stored, logged, shown or exported."""

SHORTEST_SECRET = 8
"""Characters of a secret that is masked wherever it stands; a shorter one only goes by its name.

As text, "test" or "ollama" would tear up what people wrote, and no provider's key is that short.
"""

PASSTHROUGH = "passthrough"
"""A provider's `api_key` that means: the client's own credential goes to the upstream."""

_CREDENTIAL = re.compile(
    "apikey|auth|authorization|cookie|credentials?|jwt|key|passphrase|passwd|password|pwd"
    "|secret|token|accesstoken|authtoken|clientsecret|cookie2"
)
"""The last word of a name that carries a credential."""

_ORDINARY = re.compile(
    "(?:cache|dedup|foreign|idempotency|ordering|partition|primary|public|routing|run|session"
    "|socket|sort|step|surrogate|task|thread|trace|turn) key"
    "|(?:bos|continuation|cursor|end|eos|first|last|mask|max|min|next|pad|page|per|prev|previous"
    "|sep|start|stop|sync|unk) token"
)
"""The last two words of a name that does not: `Idempotency-Key`, `prompt_cache_key`."""

_PARAMETER = re.compile("key|sig|signature|x amz credential|x amz signature")
_LONGEST_NAME = 128
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_credential_name(name: str) -> bool:
    """Whether a header or a JSON field of this name carries a credential.

    Case, `-`, `_`, `.` and camelCase make no difference. A name that ends in key, token, secret,
    password and the like does (`X-Api-Key`, `clientSecret`), unless the word before says that it
    is an ordinary one, or `key` stands alone.
    """
    return len(name) <= _LONGEST_NAME and _is_credential(name)


def is_credential_parameter(name: str) -> bool:
    """Whether a query parameter of this name carries a credential: also `key` and signatures."""
    return is_credential_name(name) or _PARAMETER.fullmatch(" ".join(words_of(name))) is not None


@lru_cache(maxsize=4096)
def _is_credential(name: str) -> bool:
    words = words_of(name)
    if not words or words == ["key"] or _CREDENTIAL.fullmatch(words[-1]) is None:
        return False
    return _ORDINARY.fullmatch(" ".join(words[-2:])) is None


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case: `clientSecret`, `client-secret`, `CLIENT_SECRET`."""
    spaced = re.sub(r"[^A-Za-z0-9]+", " ", _HUMP.sub(" ", name))
    return spaced.lower().split()
