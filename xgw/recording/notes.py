"""The units that most requests bring, as notes: another process can do what they say."""

from __future__ import annotations

import msgspec

from xgw.recording.requests import Ending, Opening, end_request, open_request
from xgw.store.transaction import Transaction
from xgw.store.units import Note

_BEGIN, _END = "begin", "end"
_read_begin = msgspec.msgpack.Decoder(tuple[Opening, str]).decode
_read_end = msgspec.msgpack.Decoder(tuple[Ending]).decode


def note_begin(opening: Opening, owner: str) -> Note:
    """A request begins."""
    return Note(_BEGIN, (opening, owner))


def note_end(ending: Ending) -> Note:
    """A request ends."""
    return Note(_END, (ending,))


def perform(tx: Transaction, kind: str, facts: bytes) -> None:
    """Do what a note says."""
    if kind == _BEGIN:
        open_request(tx, *_read_begin(facts))
    elif kind == _END:
        end_request(tx, *_read_end(facts))
    else:
        raise ValueError(f"no such kind of note: {kind!r}")
