"""Who holds a session: the agent's turn that is open in it, in whatever process."""

from __future__ import annotations

from xgw.queries.agents import find_holder
from xgw.queries.pages import Row
from xgw.recording import owner
from xgw.recording.recovery import Recovery
from xgw.store.database import Store
from xgw.store.writer import Patience, Writer


class Holders:
    """Finds them as they stand now."""

    def __init__(self, store: Store, writer: Writer) -> None:
        self._store = store
        self._writer = writer
        self._recovery = Recovery(store, writer)

    def find(self, session_id: str) -> Row | None:
        """As `find_holder` has it; a run whose process is gone has been paused by then.

        Otherwise that is noticed every few seconds, and a message would wait for nobody meanwhile.
        """
        held = find_holder(self._store, session_id)
        if held is None or held["run_status"] != "running" or owner.is_alive(held["owner"]):
            return held
        for ticket in self._recovery.reconcile():
            self._writer.wait(ticket, Patience())
        return find_holder(self._store, session_id)
