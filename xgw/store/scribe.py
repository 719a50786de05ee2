"""The scribe: a process that turns the notes of requests into rows and commits them.

What a request brings to the store takes as much computing as all else that is done for it. Here it
is done beside the serving process, on another core. That process stays the one that decides what is
written and in which order: its writer hands over a batch, waits, and never writes meanwhile. The
scribe keeps nothing: what it could not write, its writer does. It ends with the link between them.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from xgw.events import Envelope
from xgw.store.database import Store
from xgw.store.pins import Kept
from xgw.store.rows import PayloadRow
from xgw.store.transaction import Transaction
from xgw.store.units import Note, begin, carry_out

MOST_BYTES = 1 << 20
"""Bodies of a batch up to which it is handed over: they are in memory twice meanwhile."""

END_SECONDS = 2.0
"""How long it may take to end."""

BLOCK = 1 << 16
_LENGTH = struct.Struct("!I")
_READY = b""
_REFUSED = b""

log = logging.getLogger("xgw.store")

Perform = Callable[[Transaction, str, bytes], None]
"""Does what a note says inside of a transaction; the facts come as MessagePack."""

_encode = msgspec.msgpack.Encoder().encode
_decode_batch = msgspec.msgpack.Decoder(tuple[list[PayloadRow], list[tuple[str, msgspec.Raw]]])
_decode_events = msgspec.msgpack.Decoder(list[Envelope])


class Scribe:
    """The scribe as the writer sees it; for one thread. The process has the link's other end.

    Once it `has_gone` nothing can be given to it any more.
    """

    def __init__(self, process: subprocess.Popen[bytes], sock: socket.socket) -> None:
        self._process = process
        self._link = Link(sock)
        self._is_ready = False
        self.has_gone = False

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_there(self) -> bool:
        """Whether it can be given something."""
        if not self._is_ready and not self.has_gone and self._link.has_come():
            self._is_ready = self._receive() == _READY
        return self._is_ready and not self.has_gone

    def write(self, bodies: Sequence[PayloadRow], notes: Sequence[Note]) -> list[Envelope] | None:
        """Commit a batch; returns its events. None: it did not, or has gone without saying so."""
        if sum(len(row[3]) for row in bodies) > MOST_BYTES:
            return None
        try:
            message = _encode((bodies, [(note.kind, note.facts) for note in notes]))
        except (
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ):  # only Python has such values
            return None
        with contextlib.suppress(OSError):  # it has gone: what follows finds that out
            self._link.send(message)
        answer = self._receive()
        return _decode_events.decode(answer) if answer else None

    def kill(self) -> None:
        """End it at once; for any thread. What it has not committed is undone."""
        self._process.kill()

    def dismiss(self) -> None:
        """Let it end."""
        if not self.has_gone:
            self.has_gone = True
            self._link.close()
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:  # nothing of it is awaited any more
                self._process.kill()
                self._process.wait()

    def _receive(self) -> bytes | None:
        try:
            message = self._link.receive()
        except OSError:
            message = None
        if message is None:
            log.warning("the process that writes the store is gone: the server writes by itself")
            self.dismiss()
        return message


Employ = Callable[[], Scribe | None]
"""Starts a scribe; None where there can be none."""


class Link:
    """Messages over a socket; OSError where the other side broke it off."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = sock.makefile("rb", buffering=BLOCK)

    def has_come(self) -> bool:
        """Whether a message is there, or the end."""
        try:
            self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:  # broken off, which is an end too
            return True
        return True

    def send(self, message: bytes) -> None:
        """Send one."""
        self._sock.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> bytes | None:
        """The next one; None once the other side has gone."""
        head = self._reader.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        message = self._reader.read(length)
        return message if len(message) == length else None

    def close(self) -> None:
        """The other side receives None."""
        self._reader.close()
        self._sock.close()


# -- in the other process --------------------------------------------------------------------------


def write_for(link: Link, store: Store, perform: Perform) -> None:
    """Be the scribe until the link ends."""
    desk = Desk(store, perform)
    with contextlib.suppress(OSError):
        link.send(_READY)
        while (message := link.receive()) is not None:
            link.send(desk.write(message))
    desk.close()


class Desk:
    """The scribe's own connection to the store."""

    def __init__(self, store: Store, perform: Perform) -> None:
        self._store = store
        self._perform = perform
        self._connection: sqlite3.Connection | None = None

    def write(self, message: bytes) -> bytes:
        """What is answered to a batch: its events, or nothing if it was not written."""
        try:
            bodies, notes = _decode_batch.decode(message)
            works = [partial(self._work, kind, bytes(facts)) for kind, facts in notes]
            if self._connection is None:
                self._connection = self._store.open_writer()
            committed = carry_out(begin(self._connection, Kept()), bodies, works)
        except Exception:  # noqa: BLE001 - the writer tries by itself, and tells what is wrong
            self.close()
            return _REFUSED
        return _encode(committed.events)

    def _work(self, kind: str, facts: bytes, transaction: Transaction) -> None:
        self._perform(transaction, kind, facts)

    def close(self) -> None:
        """Closing rolls back what is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
