"""The answer of an upstream: its head, then its body as it comes in."""

from __future__ import annotations

from collections.abc import Callable

from xgw import clock
from xgw.providers.transport.asking import Asked
from xgw.providers.transport.calls import Cancelled, ClientGone
from xgw.providers.transport.decoding import Decoder, new_decoder
from xgw.providers.transport.framing import CutShort, Framing, Head, ProtocolFault, new_framing
from xgw.providers.transport.origins import Origin
from xgw.providers.transport.requests import Timeouts
from xgw.providers.transport.wire import Wire
from xgw.values import UpstreamFailure

# A body that comes faster than it is read is never waited for: look after the client anyway.
_GLANCE_EVERY = 64


class UpstreamResponse:
    """Status, headers (as they came, so `content-encoding` may name what `read` undoes) and body.

    One thread reads it, and closes it in the end.
    """

    _idle_deadline: float | None = None
    _blocks = 0
    _decoder: Decoder | None = None
    _fault: ProtocolFault | None = None

    def __init__(
        self,
        wire: Wire,
        asked: Asked,
        *,
        origin: Origin,
        method: str,
        timeouts: Timeouts,
        finish: Callable[[Wire, bool], None],
    ) -> None:
        """`finish` takes the connection at the end, and whether it can be used again."""
        head = asked.head
        self.status = head.status
        self.headers = head.headers
        self._wire: Wire | None = wire
        self._call = wire.call
        self._origin = origin
        self._rest = asked.rest
        self._first_byte = timeouts.first_byte
        self._first_deadline: float | None = asked.sent_at + timeouts.first_byte
        self._idle = timeouts.idle
        self._finish = finish
        self._keeps_alive = asked.whole and head.keeps_alive()
        self._begin(head, method)

    def read(self, until: float | None = None) -> bytes | None:
        """The next bytes of the body (at most 64 KiB, as soon as there are any), b"" at its end.

        None when `clock.monotonic()` has reached `until` and nothing has come. Raises
        UpstreamFailure (upstream_truncated, upstream_protocol_error, upstream_connection,
        upstream_timeout), Cancelled, ClientGone; the connection is closed then.
        """
        try:
            return self._read(until)
        except ProtocolFault as fault:
            failure = self._fail("upstream_protocol_error", str(fault))
        except CutShort as fault:
            failure = self._fail("upstream_truncated", str(fault))
        except OSError:
            failure = self._fail("upstream_connection", "broke the connection off in its answer")
        except (Cancelled, ClientGone):
            self.close()
            raise
        self.close()
        raise failure from None

    def close(self) -> None:
        """Have done with it: a body that has not ended is aborted."""
        if self._wire is not None:
            self._finish(self._wire, False)
            self._wire = None

    def _begin(self, head: Head, method: str) -> None:
        try:
            self._framing: Framing = new_framing(head, method)
            if not self._framing.ended:
                self._decoder = new_decoder(head)
        except ProtocolFault as fault:
            self._fault = fault
            return
        self._framing.surplus |= self._framing.ended and bool(self._rest)
        self._release_at_end()

    def _read(self, until: float | None) -> bytes | None:
        late = False
        while True:
            if self._call.cancelled:
                raise Cancelled
            decoder = self._decoder
            if decoder and (piece := decoder.take(complete=self._framing.ended)):
                return piece
            if self._fault is not None:
                raise self._fault
            if self._framing.ended:
                return b""
            if late:
                return None
            block = self._receive(until)
            if block is None:
                return None
            payload = self._delimit(block)
            if payload and decoder is None:
                return payload
            if decoder is not None:
                decoder.feed(payload)
            late = until is not None and clock.monotonic() >= until

    def _delimit(self, block: bytes) -> bytes:
        if not block:
            self._framing.end_of_file()
        try:
            payload = self._framing.feed(block)
        except ProtocolFault as fault:
            if not fault.before:
                raise
            self._fault, payload = fault, fault.before  # what came before it is part of the answer
        if payload:
            self._first_deadline = None
        self._release_at_end()
        return payload

    def _receive(self, until: float | None) -> bytes | None:
        """Bytes as they came; b"" at the end of the connection, None at `until`."""
        if self._rest:
            block, self._rest = self._rest, b""
            return block
        wire = self._wire
        if wire is None:
            raise ValueError("the response was closed before its body had ended")
        self._blocks += 1
        if self._blocks % _GLANCE_EVERY == 0:
            wire.glance()
        while True:
            received = wire.receive()
            if received is not None:
                self._idle_deadline = None
                return received
            deadline = self._deadline()
            if not wire.wait(deadline if until is None else min(deadline, until)):
                if clock.monotonic() >= deadline:
                    raise self._silence()
                return None

    def _deadline(self) -> float:
        if self._first_deadline is not None:
            return self._first_deadline
        # Counted from the first wait, so that a slow reader is not taken for a silent upstream.
        if self._idle_deadline is None:
            self._idle_deadline = clock.monotonic() + self._idle
        return self._idle_deadline

    def _release_at_end(self) -> None:
        if self._framing.ended and self._wire is not None:
            self._finish(self._wire, self._keeps_alive and not self._framing.surplus)
            self._wire = None

    def _silence(self) -> UpstreamFailure:
        self.close()
        if self._first_deadline is not None:
            cause = f"sent no byte of its answer within {self._first_byte:g} s"
        else:
            cause = f"fell silent in its answer for {self._idle:g} s"
        return self._fail("upstream_timeout", cause)

    def _fail(self, error_type: str, cause: str) -> UpstreamFailure:
        return UpstreamFailure(
            error_type,
            f"{self._origin.name} {cause}",
            http_status=self.status,
            headers=self.headers,
        )
