"""Identifiers: the ones xgw mints (a prefix and a UUIDv7) and the ones that clients supply."""

from __future__ import annotations

import re
import unicodedata

import uuid_utils

PREFIXES = ("sess", "turn", "run", "step", "msg", "req", "key")
MAX_IDENTIFIER_LENGTH = 256

_MINTED = re.compile(rf"({'|'.join(PREFIXES)})_([0-9a-f]{{32}})")
_JOINERS = "\u200c\u200d"
"""Invisible, but part of how Persian, Indic scripts and emoji are spelled."""

_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


def mint(prefix: str) -> str:
    """A new id, `prefix` and the 32 hex digits of a UUIDv7: ids of one process sort by time."""
    if prefix not in PREFIXES:
        raise ValueError(f"no such kind of id: {prefix!r}")
    return f"{prefix}_{uuid_utils.uuid7().hex}"


def is_id(text: str, prefix: str | None = None) -> bool:
    """Whether `text` has the shape of a minted id, of kind `prefix` if that is given."""
    minted = _MINTED.fullmatch(text)
    return minted is not None and prefix in (None, minted[1])


def trace_id_of(turn_id: str) -> str:
    """The W3C trace id of a turn: the 32 hex digits of its own id."""
    return _digits(turn_id, "turn")


def observation_id_of(step_id: str) -> str:
    """The W3C span id of a step: the last 16 hex digits of its own id."""
    return _digits(step_id, "step")[-16:]


def client_identifier(value: str) -> str:
    """An identifier that a client supplied, in Unicode NFC.

    1 to 256 characters after normalisation, any script, printable; else ValueError, whose text
    says what is wrong in words that can be shown to the client.
    """
    if not value:
        raise ValueError("an identifier must not be empty")
    # Normalising takes quadratic time on hostile text, and never shrinks it below a quarter.
    if len(value) > 4 * MAX_IDENTIFIER_LENGTH:
        raise ValueError(_too_long())
    identifier = value if value.isascii() else unicodedata.normalize("NFC", value)
    if len(identifier) > MAX_IDENTIFIER_LENGTH:
        raise ValueError(_too_long())
    if not identifier.isprintable():
        _refuse_unprintable(identifier)
    return identifier


def _digits(minted: str, prefix: str) -> str:
    parts = _MINTED.fullmatch(minted)
    if parts is None or parts[1] != prefix:
        raise ValueError(f"not a {prefix} id: {minted!r}")
    return parts[2]


def _too_long() -> str:
    return f"an identifier must not be longer than {MAX_IDENTIFIER_LENGTH} characters"


def _refuse_unprintable(identifier: str) -> None:
    for character in identifier:
        if unicodedata.category(character) in _UNPRINTABLE and character not in _JOINERS:
            raise ValueError(
                f"an identifier must be printable, but holds the character U+{ord(character):04X}"
            )
