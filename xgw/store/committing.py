"""How a batch of units gets into the file: on the writer's own connection, or by a scribe."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from xgw.store.backlog import Ticket, bodies_of
from xgw.store.database import Store
from xgw.store.handing import Handing
from xgw.store.pins import Kept
from xgw.store.scribe import Employ
from xgw.store.transaction import Transaction
from xgw.store.units import Committed, begin, carry_out


class Committing:
    """Owns the write connection. For one thread at a time."""

    def __init__(self, store: Store, employ: Employ | None, kept: Kept) -> None:
        self._store = store
        self._kept = kept
        self._connection: sqlite3.Connection | None = None
        self.handing = Handing(employ)

    @property
    def is_lasting(self) -> bool:
        """Whether each commit waits until the disk has it."""
        return self._store.durability == "full"

    def begin(self, *, in_order: bool) -> Transaction | None:
        """An open transaction; None where the next one is to be another process's.

        What a scribe is given leaves the queue before it can be written: not while the file is not
        `in_order`. And what it puts there of its own accord no sweep would notice.
        """
        if in_order and not self._kept.sweeping and self.handing.pays:
            return None
        return self._open()

    def commit(self, batch: Sequence[Ticket], transaction: Transaction | None) -> Committed:
        """Have these written; whatever it raises, nothing of them was committed."""
        if transaction is None:
            committed = self.handing.write(batch)
            if committed is not None:
                return committed
            transaction = self._open()
        done = self.handing.done(transaction)
        works = [ticket.work for ticket in batch if ticket not in done]
        return carry_out(transaction, bodies_of(batch), works)

    def disconnect(self) -> None:
        """Closing rolls back what is open; the next transaction opens the file anew."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Transaction:
        if self._connection is None:
            self._connection = self._store.open_writer()
        return begin(self._connection, self._kept)
