"""Secrets that were met by their name, or are configured: masked wherever they stand after that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from xgw.config.credentials import SHORTEST_SECRET
from xgw.portable.redaction.finds import Find, Kind

_MOST = 500
_LONG = 16


class Known:
    """Values that are secret as they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._kinds: dict[str, Kind] = {}
        self._pattern: re.Pattern[str] | None = None
        self.has_learned = False
        for secret in secrets:
            if len(secret) >= SHORTEST_SECRET:
                self._kinds[secret] = "key"

    def renewed(self) -> Known:
        """The same values, of which none is news."""
        fresh = Known()
        fresh._kinds = dict(self._kinds)
        return fresh

    def learn(self, finds: Iterable[Find], text: str) -> bool:
        """Remember passwords and keys, so that they are found without their names too.

        True if one that is new stands in `text` again.
        """
        new = [
            find.value
            for find in finds
            if find.kind in ("secret", "key") and _is_telling(find.value) and self._add(find)
        ]
        return any(text.count(value) > 1 for value in new)

    def finds(self, text: str) -> Iterator[Find]:
        """Every known value in `text`."""
        if not self._kinds:
            return
        if self._pattern is None:
            longest_first = sorted(self._kinds, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(_spelled, longest_first)))
        for found in self._pattern.finditer(text):
            yield Find(found.start(), found.end(), self._kinds[found[0]], found[0])

    def _add(self, find: Find) -> bool:
        is_new = find.value not in self._kinds and len(self._kinds) < _MOST
        if is_new:
            self._kinds[find.value] = find.kind
            self._pattern = None
            self.has_learned = True
        return is_new


def _spelled(value: str) -> str:
    """Matches a value; a short one only where it is no part of another word."""
    if len(value) >= _LONG:
        return re.escape(value)
    return rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])"


def _is_telling(value: str) -> bool:
    """Whether a value is no word that stands anywhere."""
    return len(value) >= SHORTEST_SECRET and not value.isalpha()
