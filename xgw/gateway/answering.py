"""The answer to a proxied request, from the first try to the last byte, and how its record ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from xgw import clock
from xgw.errors import ApiError
from xgw.exchange.exchange import Exchange, GaveUp, Opened
from xgw.exchange.headers import STREAM_HEADERS, Headers, to_client
from xgw.exchange.means import Means
from xgw.exchange.order import Order
from xgw.gateway.identity import header_value
from xgw.gateway.record import Record
from xgw.providers.transport import Call, Cancelled, ClientGone
from xgw.recording.facts import Scope
from xgw.values import Answer, UpstreamFailure

HEARTBEAT = b": heartbeat\n\n"

_TYPE = frozenset({"content-type"})
_OF_STREAMS = _TYPE.union(name.lower() for name, _ in STREAM_HEADERS)


def _at_once() -> None:
    """There is nothing to wait for."""


@dataclass(slots=True)
class Reply:
    """The answer to a client: a whole body, or an iterator of a stream's bytes.

    Nothing of it is to be sent before `wait` has returned: until then its end is not in the record.
    """

    status: int
    headers: list[tuple[str, str]]
    body: bytes = b""
    stream: Iterator[bytes] | None = None
    wait: Callable[[], None] = _at_once


class Answering:
    """A request under way, from the first try to the last byte."""

    def __init__(
        self,
        means: Means,
        exchange: Exchange,
        record: Record,
        order: Order,
        call: Call,
        arrived: float,
        begin: Callable[[], None],
    ) -> None:
        self._means = means
        self._exchange = exchange
        self._record = record
        self._order = order
        self._call = call
        self._arrived = arrived
        self._begin: Callable[[], None] | None = begin
        self._beat = means.config.server.heartbeat_seconds
        self._finish_passed = False
        self._drains = means.config.gateway.on_disconnect == "drain"
        if self._drains:
            call.client = None

    def run(self) -> Reply:
        """Everything up to the first byte; a stream goes on in the reply's iterator."""
        try:
            opened = self._exchange.open(self._begun, self._call, self._record.keep)
            return self._begin_stream(opened) if self._order.stream else self._whole(opened)
        except GaveUp as end:
            return self._give_up(end.failure)
        except ClientGone:
            self._record.leave()
            return Reply(499, self._own_headers())
        except Cancelled:
            self._record.cancel()
            raise self._cancelled() from None
        except BaseException:
            self._record.fail_internally()
            raise

    def begin(self) -> None:
        """Begin the record, unless that was done; `run` does it once the request is out."""
        if self._begin is not None:
            begin, self._begin = self._begin, None
            begin()

    def _begun(self) -> Scope:
        self.begin()
        if self._call.cancelled:
            self._record.wait_for_end()
            raise Cancelled
        self._record.prepare()
        return self._record.scope

    # -- whole answers -------------------------------------------------------------------------

    def _whole(self, opened: Opened) -> Reply:
        assert opened.answer is not None
        self._exchange.trial.close_response()
        self._record.succeed(opened.answer, waits=False)
        headers = [*self._own_headers(), *_json_headers(self._returned(opened.headers))]
        return Reply(200, headers, body=opened.body, wait=self._record.wait_for_end)

    def _give_up(self, failure: UpstreamFailure) -> Reply:
        status, body = self._exchange.client_error(failure)
        self._record.fail(failure)
        upstream = self._returned(to_client_list(failure.headers))
        headers = [*self._own_headers(), *_json_headers(upstream)]
        return Reply(status, headers, body=orjson.dumps(body))

    def _cancelled(self) -> ApiError:
        """What a client hears whose turn was cancelled, or whose server ends."""
        headers = tuple(self._own_headers())
        if self._record.is_shutdown:
            message = "The server was shut down before the answer was complete."
            return ApiError(503, "interrupted", message, code="shutdown", headers=headers)
        message = "The turn was cancelled."
        return ApiError(
            409, "invalid_request_error", message, code="turn_cancelled", headers=headers
        )

    # -- streams -------------------------------------------------------------------------------

    def _begin_stream(self, opened: Opened) -> Reply:
        self._record.wait_for_start()
        headers = [*self._own_headers(), *_stream_headers(self._returned(opened.headers))]
        stream = self._stream(opened)
        next(stream)  # inside its `try`: closed unread, it still ends the record
        return Reply(200, headers, stream=stream)

    def _stream(self, opened: Opened) -> Iterator[bytes]:
        """The bytes of a stream. However it ends, the record ends before the last bytes leave."""
        try:
            yield b""
            yield from self._relay(opened)
        except GeneratorExit:
            if self._drains:
                self._drain(opened)
            else:
                self._leave(opened)
            raise
        except ClientGone:
            self._leave(opened)
        except Cancelled:
            self._record.cancel()
            yield _event(self._cancelled().body())
        finally:
            self._exchange.trial.close_response()
            self._record.fail_internally()

    def _relay(self, opened: Opened) -> Iterator[bytes]:
        held, batch = opened.held, opened.batch
        due = self._arrived + self._beat
        if clock.monotonic() >= due:
            held += HEARTBEAT if opened.relay is None else opened.relay.chat.comment(HEARTBEAT)
            due = self._next_beat(due)
        if held:
            yield held
            self._finish_passed = opened.relay is None or opened.relay.chat.finished
        while batch is None or not batch.ended:
            assert opened.relay is not None
            batch = opened.relay.read(due)
            opened.batch = batch or opened.batch
            if batch is None:
                due = self._next_beat(due)
                yield opened.relay.chat.comment(HEARTBEAT)
            elif batch.out:
                yield batch.out
                self._finish_passed = opened.relay.chat.finished
        if batch.failure is not None:
            yield self._fault(batch.failure)
            return
        self._record.succeed(_answer_of(opened))
        if batch.last:
            yield batch.last

    def _fault(self, failure: UpstreamFailure) -> bytes:
        """The upstream failed after its first content: one error event, nothing invented."""
        _, body = self._exchange.client_error(failure)
        error = body["error"]
        self._record.fail(failure)
        return _event({"error": {**error, "type": error.get("type") or failure.error_type}})

    def _leave(self, opened: Opened) -> None:
        """The client left. Once it has the finish reason, that is a success all the same."""
        if self._finish_passed:
            self._record.succeed(_answer_of(opened))
        elif self._call.cancelled:
            self._record.cancel()
        else:
            self._record.leave()

    def _drain(self, opened: Opened) -> None:
        """The client left and the answer is to be kept all the same: read it to its end."""
        relay, batch = opened.relay, opened.batch
        try:
            while relay is not None and (batch is None or not batch.ended):
                batch = relay.read(None)
        except Cancelled:
            self._record.cancel()
            return
        if batch is not None and batch.failure is not None:
            self._record.fail(batch.failure)
        else:
            self._record.succeed(_answer_of(opened))

    def _next_beat(self, due: float) -> float:
        """Heartbeats are counted from the request's arrival; missed ones are not made up for."""
        missed = max(0, int((clock.monotonic() - due) // self._beat))
        return due + (missed + 1) * self._beat

    def _returned(self, headers: Headers) -> Headers:
        """An answer's headers without the keys that a provider may quote in them."""
        mask = self._means.masker.text
        together = "\n".join([value for _, value in headers])
        if mask(together) == together:
            return headers
        return tuple([(name, mask(value)) for name, value in headers])

    def _own_headers(self) -> list[tuple[str, str]]:
        session, scope = self._record.session_name, self._record.scope
        headers = [
            ("X-Turn-Id", header_value(self._record.turn_name)),
            ("X-Run-Id", scope.run_id),
            ("X-Trace-Id", scope.trace_id),
        ]
        return headers if session is None else [("X-Session-Id", header_value(session)), *headers]


def _answer_of(opened: Opened) -> Answer:
    """The answer of a stream that has come to its end, or that came as one body."""
    answer = opened.answer if opened.relay is None else opened.relay.chat.answer()
    assert answer is not None
    return answer


def to_client_list(headers: Headers) -> Headers:
    """An error's headers, without what described its body."""
    return tuple((n, v) for n, v in headers if n.lower() != "content-type")


def _json_headers(upstream: Headers) -> list[tuple[str, str]]:
    return [*to_client(upstream, _TYPE), ("Content-Type", "application/json")]


def _stream_headers(upstream: Headers) -> list[tuple[str, str]]:
    passed = to_client(upstream, _OF_STREAMS)
    return [*passed, ("Content-Type", "text/event-stream; charset=utf-8"), *STREAM_HEADERS]


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
