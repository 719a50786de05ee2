"""Bodies and long texts of older rows on their way to the payloads, a batch at a time."""

from __future__ import annotations

import orjson

from xgw.masking import Masker
from xgw.store.payloads import Shelf, Stored
from xgw.store.rows import REFERENCE, PayloadRow, digest
from xgw.store.templates import LONG

SMALL = 1024
"""Bytes up to which a body is kept as it is: there is little to share in it."""


class Bodies:
    """Prepares what a batch of rows refers to; `size` is how many bytes of it wait to be taken."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._shelf = Shelf()
        self.rows: dict[str, PayloadRow] = {}
        self.size = 0

    def take(self) -> tuple[PayloadRow, ...]:
        """The rows since the last time, in the order in which the store finds them fastest."""
        rows, self.rows, self.size = tuple(sorted(self.rows.values())), {}, 0
        return rows

    def committed(self, rows: tuple[PayloadRow, ...]) -> None:
        """These are in the store."""
        self._shelf.committed(rows)

    def column(self, told: str | None) -> str | None:
        """What a column holds for a text: if it is long, the name of the payload that has it."""
        if told is None or (len(told) < LONG and not told.startswith(REFERENCE)):
            return told
        return REFERENCE + self._note(self._shelf.whole(orjson.dumps(told)))

    def plain_column(self, told: str | None) -> str | None:
        """The same for a text that is searched: itself as a rule, however long."""
        return self.column(told) if told is not None and told.startswith(REFERENCE) else told

    def output(self, told: str) -> str:
        """The hash of a text as a tool's output."""
        return self._note(self._shelf.text(told))

    def masked(self, told: str | None) -> str | None:
        """A text without secrets that are known."""
        return None if told is None else self._masker.text(told)

    def request(self, body: bytes | None) -> str | None:
        """The hash of a request's body, masked."""
        return None if body is None else self._keep(self._masker.body(body), is_request=True)

    def answer(self, body: bytes | None) -> str | None:
        """The hash of an answer's body, masked."""
        return None if body is None else self._keep(self._masker.body(body), is_request=False)

    def _keep(self, body: bytes, *, is_request: bool) -> str:
        if len(body) <= SMALL:
            key = digest(body).hex()
            self.rows[key] = (key, len(body), "raw", body)
            self.size += len(body)
            return key
        return self._note(self._shelf.request(body) if is_request else self._shelf.whole(body))

    def _note(self, stored: Stored) -> str:
        for row in stored.rows:
            self.rows[row[0]] = row
            self.size += len(row[3])
        return stored.hash
