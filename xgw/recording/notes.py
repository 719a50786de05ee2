"""The units that most requests bring, as notes: another process can do what they say."""

from __future__ import annotations

import msgspec

from xgw import clock
from xgw.recording.requests import Ending, Opening, end_request, open_request
from xgw.store.transaction import Transaction
from xgw.store.units import Note

_BEGIN, _END = "begin", "end"
_BEGUN = "SELECT 1 FROM steps WHERE id = ?"
# Something else may have ended it before: at another moment.
_ENDED = "SELECT 1 FROM steps WHERE id = ? AND ended_at = ?"
_read_begin = msgspec.msgpack.Decoder(tuple[Opening, str]).decode
_read_end = msgspec.msgpack.Decoder(tuple[Ending]).decode


def note_begin(opening: Opening, owner: str) -> Note | None:
    """A request begins, and a try with it; None for one without."""
    if opening.attempt is None:
        return None
    return Note(_BEGIN, (opening, owner), (_BEGUN, (opening.attempt.step_id,)))


def note_end(ending: Ending) -> Note | None:
    """A request ends, and its try; None where that has ended before."""
    if ending.attempt is None or ending.end is None:
        return None
    trace = ending.attempt.step_id, clock.to_db(ending.end.ended_at)
    return Note(_END, (ending,), (_ENDED, trace))


def perform(tx: Transaction, kind: str, facts: bytes) -> None:
    """Do what a note says."""
    if kind == _BEGIN:
        open_request(tx, *_read_begin(facts))
    elif kind == _END:
        end_request(tx, *_read_end(facts))
    else:
        raise ValueError(f"no such kind of note: {kind!r}")
