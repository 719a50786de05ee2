"""`python -m bench.unrecorded serve …`: xgw that relays as ever and keeps nothing.

What recording costs is the difference to the real one. Facts are gathered as always; no body is
hashed or compressed, no row is made, nothing is committed and nobody waits. It exists for this
comparison alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xgw.cli import main
from xgw.recording.recorder import Recorder
from xgw.recording.requests import Ending, Opening
from xgw.resent import Body
from xgw.store.payloads import Shelf, Stored
from xgw.store.transaction import Transaction
from xgw.store.writer import ALONE, Ticket
from xgw.web import app

NOWHERE = "0" * 32


class EmptyShelf(Shelf):
    """Bodies that are not even looked at."""

    def whole(self, content: bytes) -> Stored:
        return Stored(NOWHERE, len(content), ())

    def request(self, body: bytes | Body) -> Stored:
        return Stored(NOWHERE, 0, ())


class Forgetful(Recorder):
    """A recorder whose units are done before they were begun."""

    def begin(self, opening: Opening, bodies: Iterable[Stored], **_: Any) -> Ticket:
        return _done()

    def finish(self, ending: Ending, bodies: Iterable[Stored], **_: Any) -> Ticket:
        if ending.attempt is not None:
            self.live.drop(ending.attempt.step_id)
        return _done()


def _done() -> Ticket:
    ticket = Ticket(_nothing, 0, None, ALONE)
    ticket.finish()
    return ticket


def _nothing(_: Transaction) -> None:
    return None


if __name__ == "__main__":
    vars(app).update(Recorder=Forgetful, Shelf=EmptyShelf)
    main(prog_name="xgw")
