"""Secrets that were met by their name, or are configured: masked wherever they stand after that."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator

from xgw.config.credentials import SHORTEST_SECRET
from xgw.portable.redaction import sieve
from xgw.portable.redaction.finds import Find, Kind

_MOST = 500
_LONG = 16


class Known:
    """Values that are secret as they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._kinds: dict[str, Kind] = {}
        self._looked_for: tuple[sieve.Sieve, re.Pattern[str]] | None = None
        self._shortest = sys.maxsize
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                self._keep(secret, "key")

    def renewed(self) -> Known:
        """The same values."""
        fresh = Known()
        for value, kind in self._kinds.items():
            fresh._keep(value, kind)
        return fresh

    def learn(self, finds: Iterable[Find]) -> list[str]:
        """Remember passwords and keys, so that they are found without their names too.

        Returns those that are new.
        """
        return [
            find.value
            for find in finds
            if find.kind in ("secret", "key") and _is_telling(find.value) and self._add(find)
        ]

    def finds(self, text: str) -> Iterable[Find]:
        """Every known value in `text`."""
        return () if len(text) < self._shortest else self._found(text)

    def _found(self, text: str) -> Iterator[Find]:
        if self._looked_for is None:
            longest_first = sorted(self._kinds, key=len, reverse=True)
            pattern = re.compile("|".join(map(_spelled, longest_first)))
            self._looked_for = sieve.of_literals(longest_first), pattern
        quick, pattern = self._looked_for
        if quick.lets_through(text):
            for found in pattern.finditer(text):
                yield Find(found.start(), found.end(), self._kinds[found[0]], found[0])

    def _add(self, find: Find) -> bool:
        is_new = find.value not in self._kinds and len(self._kinds) < _MOST
        if is_new:
            self._keep(find.value, find.kind)
        return is_new

    def _keep(self, value: str, kind: Kind) -> None:
        self._kinds[value] = kind
        self._shortest = min(self._shortest, len(value))
        self._looked_for = None


def _spelled(value: str) -> str:
    """Matches a value; a short one only where it is no part of another word."""
    if len(value) >= _LONG:
        return re.escape(value)
    return rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])"


def _is_telling(value: str) -> bool:
    """Whether a value is no word that stands anywhere."""
    return len(value) >= SHORTEST_SECRET and not value.isalpha()
