"""What a check found: how it stands, in a sentence, and what to do about it."""

from __future__ import annotations

from typing import Literal

from xgw.frozen import frozen

Standing = Literal["fine", "note", "wrong"]


@frozen
class Finding:
    """One result of a check; a `note` is worth knowing, and nothing is wrong."""

    check: str
    standing: Standing
    says: str
    advice: str | None = None


def fine(check: str, says: str) -> Finding:
    """All is well."""
    return Finding(check, "fine", says)


def note(check: str, says: str, advice: str | None = None) -> Finding:
    """Worth knowing."""
    return Finding(check, "note", says, advice)


def wrong(check: str, says: str, advice: str) -> Finding:
    """Something is wrong."""
    return Finding(check, "wrong", says, advice)
