"""A request sent and the head of its answer awaited, with what can go wrong until then."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xgw import clock
from xgw.frozen import frozen
from xgw.providers.transport.framing import CutShort, Head, HeadReader, ProtocolFault
from xgw.providers.transport.origins import Origin
from xgw.providers.transport.requests import Piece, Timeouts
from xgw.providers.transport.wire import Silence, Wire
from xgw.values import UpstreamFailure


class NoAnswer(UpstreamFailure):
    """The connection ended `after` seconds without one byte of an answer."""

    def __init__(self, origin: Origin, after: float) -> None:
        message = f"{origin.name} closed the connection without an answer"
        super().__init__("upstream_connection", message)
        self.after = after


@frozen
class Asked:
    """A request whose answer has begun: its head, and the bytes after it that came along.

    `whole` is False if the upstream answered before it had taken the whole request.
    """

    head: Head
    rest: bytes
    sent_at: float
    whole: bool


def ask(
    wire: Wire,
    origin: Origin,
    head: bytes,
    body: Sequence[Piece],
    timeouts: Timeouts,
    meanwhile: Callable[[], None] | None,
) -> Asked:
    """Send a request to an upstream and wait for the head of its answer.

    `meanwhile` is called once the request is out, and each time that this has to be waited for.
    Raises UpstreamFailure (NoAnswer among them), Cancelled and ClientGone.
    """
    began = clock.monotonic()
    answer = HeadReader()
    try:
        whole = wire.send(head, body, timeouts.idle, answer, meanwhile)
        sent_at = clock.monotonic()
        if meanwhile is not None:
            meanwhile()
        found = answer.head or _await_head(wire, answer, sent_at + timeouts.first_byte)
        if found is None:
            cause = f"sent no byte of its answer within {timeouts.first_byte:g} s"
            raise UpstreamFailure("upstream_timeout", f"{origin.name} {cause}")
    except Silence:
        cause = f"took no more of the request for {timeouts.idle:g} s"
        raise UpstreamFailure("upstream_timeout", f"{origin.name} {cause}") from None
    except ProtocolFault as fault:
        raise UpstreamFailure("upstream_protocol_error", f"{origin.name} {fault}") from None
    except (OSError, CutShort) as fault:
        if answer.untouched:
            raise NoAnswer(origin, clock.monotonic() - began) from None
        cut = isinstance(fault, CutShort)
        raise UpstreamFailure(
            "upstream_truncated" if cut else "upstream_connection",
            f"{origin.name} broke the connection off in the head of its answer",
        ) from None
    return Asked(found, answer.rest, sent_at, whole)


def _await_head(wire: Wire, answer: HeadReader, deadline: float) -> Head | None:
    """The head, None at the deadline. Raises OSError and CutShort when the connection ends."""
    while True:
        block = wire.receive()
        if block:
            if (head := answer.feed(block)) is not None:
                return head
        elif block is not None:
            raise CutShort
        elif not wire.wait(deadline):
            return None
