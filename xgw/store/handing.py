"""When the writer hands its units to a scribe, and how."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from xgw.store.backlog import Ticket, bodies_of
from xgw.store.scribe import Employ, Scribe
from xgw.store.transaction import Transaction
from xgw.store.units import Committed

MANY, FEW = 3.5, 2.5
"""Units at once, as a rule, from which they are handed over, and below which no more."""

SHARE = 1 / 16
"""How much one batch counts in what is the rule."""


class Handing:
    """Hands units over where they come thick; the scribe is employed when they do so first.

    One that comes alone is written sooner by the process that has it. Whoever writes after the
    other one has to read the store's pages anew: so it is not decided for each batch.
    """

    def __init__(self, employ: Employ | None) -> None:
        self._employ = employ
        self._scribe: Scribe | None = None
        self._last: Sequence[Ticket] = ()
        self._usual = 0.0
        self.crowded = False
        """Whether they come so thick."""

    @property
    def pays(self) -> bool:
        """Whether to hand over what comes next."""
        if not self.crowded:
            return False
        if self._employ is not None:
            self._scribe, self._employ = self._employ(), None
        return self._scribe is not None and self._scribe.is_there

    def note(self, units: int) -> None:
        """So many came at once."""
        self._usual += (units - self._usual) * SHARE
        self.crowded = self._usual > (FEW if self.crowded else MANY)

    def write(self, batch: Sequence[Ticket]) -> Committed | None:
        """Have these committed; None if the scribe could not, or cannot do one of them."""
        notes = [ticket.note for ticket in batch if ticket.note is not None]
        if self._scribe is None or len(notes) < len(batch):
            return None
        self._last = batch
        events = self._scribe.write(bodies_of(batch), notes)
        return None if events is None else Committed(events)

    def done(self, transaction: Transaction) -> Collection[Ticket]:
        """What a scribe had committed when it was gone before it could say so."""
        first = self._last[0].note if self._last else None
        if first is None or self._scribe is None or self._scribe.is_there:
            return ()
        return self._last if transaction.stored(*first.trace) else ()

    def end(self) -> None:
        """Nothing more comes."""
        if self._scribe is not None:
            self._scribe.dismiss()

    def abandon(self) -> None:
        """Expect nothing of the scribe any more; for another thread, while this one waits."""
        if self._scribe is not None:
            self._scribe.kill()
