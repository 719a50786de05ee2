"""One model answer: targets in order, tries at each, until one answers or none is left.

Every try is an `llm_call` step of its own. The caller begins the record with the first one's facts
and ends it with the last one's; what lies between is recorded here.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from xgw import clock
from xgw.exchange.attempts import UsageRefusals, decide, pause
from xgw.exchange.failures import (
    ERROR_BODY_BYTES,
    client_error,
    failure_of,
    names_usage_option,
    read_bounded,
)
from xgw.exchange.headers import find
from xgw.exchange.means import Means
from xgw.exchange.order import Order
from xgw.exchange.relay import Batch, Relay
from xgw.exchange.routing import Target
from xgw.exchange.trial import Trial
from xgw.providers.dialects.chat import (
    completion_of,
    looks_like_stream,
    parse_completion,
    repair_completion,
    stream_from_completion,
    with_readable_calls,
)
from xgw.providers.dialects.embeddings import parse_embeddings
from xgw.providers.sse import BYTE_ORDER_MARK
from xgw.providers.transport import Call, UpstreamResponse
from xgw.recording.facts import AttemptFacts, Retry, Scope
from xgw.store.writer import Ticket
from xgw.values import Answer, UpstreamFailure

HOLD_SECONDS = 2.0

WHOLE_CHAT_BYTES = 64 << 20
WHOLE_EMBEDDINGS_BYTES = 256 << 20
"""Of an answer that is held whole before any of it goes on: 2,048 long vectors are half of it."""


@dataclass(slots=True)
class Opened:
    """An answer whose first content is there: no retry any more.

    For a stream: `held` are the bytes that came so far, `batch` tells if it is over already,
    `relay` brings the rest. For a whole answer: `body` and `answer`.
    """

    headers: tuple[tuple[str, str], ...]
    relay: Relay | None = None
    held: bytes = b""
    batch: Batch | None = None
    body: bytes = b""
    answer: Answer | None = None


class GaveUp(Exception):
    """No try is left: `failure` is the last one's."""

    def __init__(self, failure: UpstreamFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Exchange:
    """The tries for one order; `trial` is the one under way, or the last."""

    def __init__(self, means: Means, order: Order, refusals: UsageRefusals) -> None:
        self._means = means
        self._order = order
        self._refusals = refusals
        self._history: str | None = None
        self._input_tokens: int | None = None
        self._target = 0
        self._tries = 0
        self._attempt = 0
        self.trial = self._new_trial("initial", None)

    def describe(
        self, history: str | None, input_tokens: int | None, started_at: datetime.datetime
    ) -> None:
        """How this request's history compares with the session's previous call, its size, and when
        the first try began."""
        self._history, self._input_tokens = history, input_tokens
        self.trial.describe(history, input_tokens, started_at)

    @property
    def facts(self) -> AttemptFacts:
        """The try under way, as it is recorded."""
        return self.trial.facts

    @property
    def target(self) -> Target:
        """Whom the try under way asks."""
        return self._order.way.targets[self._target]

    def open(
        self,
        begin: Callable[[], Scope],
        call: Call,
        on_retry: Callable[[Ticket], None],
    ) -> Opened:
        """Ask until one answers. Raises GaveUp, ClientGone and Cancelled.

        `begin` sees to it that the first try is recorded, if that was not done yet, and returns
        where: it is called once the request is out, or when anything has to be waited for, for
        each try.
        """
        announce = partial(self._announce, begin)
        while True:
            self.trial.go()
            try:
                return self._ask(call, announce)
            except UpstreamFailure as failure:
                announce()
                self.trial.close_response()
                retry = self._next(failure)
                if retry.next == "give_up":
                    raise GaveUp(failure) from failure
                self._again(begin(), call, failure, retry, on_retry)
            except BaseException:
                announce()
                raise

    def _announce(self, begin: Callable[[], Scope]) -> None:
        """Have the try under way in the record, and shown."""
        trial = self.trial
        if trial.is_announced:
            return
        trial.is_announced = True
        scope, is_quiet = begin(), self._order.purpose is not None
        live = self._means.recorder.live
        trial.tell(live.start(scope, trial.facts.step_id, is_quiet=is_quiet))

    def _again(
        self,
        scope: Scope,
        call: Call,
        failure: UpstreamFailure,
        retry: Retry,
        on_retry: Callable[[Ticket], None],
    ) -> None:
        end, bodies = self.trial.failed(failure)
        facts = self.facts
        on_retry(self._means.recorder.fail_attempt(scope, facts, end, retry, bodies))
        self.trial.is_recorded = True
        if retry.next == "fallback":
            self._target += 1
            self._tries = 0
        pause(call, (retry.wait_ms or 0) / 1000)
        self.trial = self._new_trial(retry.next, retry.wait_ms)
        recorder = self._means.recorder
        on_retry(recorder.next_attempt(scope, self.facts, self.trial.take_bodies()))

    def _next(self, failure: UpstreamFailure) -> Retry:
        if self._refused_usage(failure):
            self._refusals.add(self.target.provider.name)
            self._tries -= 1
            return Retry("retry", 0, self.target.name)
        return decide(failure, self._order.way, self._target, self._tries)

    def _refused_usage(self, failure: UpstreamFailure) -> bool:
        """Whether the provider refuses what xgw, not the client, put into the request."""
        return (
            self.trial.asked_usage
            and failure.http_status in (400, 422)
            and names_usage_option(failure.http_status, failure.body or b"")
        )

    def _new_trial(self, reason: str, waited_ms: int | None) -> Trial:
        self._attempt += 1
        self._tries += 1
        target = self.target
        ask_usage = (
            self._order.stream
            and not self._order.wants_usage
            and self._order.endpoint == "chat.completions"
            and target.provider.usage_in_stream
            and target.provider.name not in self._refusals
        )
        return Trial(
            self._means,
            self._order,
            target,
            attempt=self._attempt,
            reason=reason,
            waited_ms=waited_ms,
            history=self._history,
            input_tokens=self._input_tokens,
            asks_usage=ask_usage,
        )

    # -- one try -------------------------------------------------------------------------------

    def _ask(self, call: Call, meanwhile: Callable[[], None]) -> Opened:
        trial, means = self.trial, self._means
        response = means.transport.send(trial.request, means.timeouts, call, meanwhile)
        trial.response = response
        if not 200 <= response.status < 300:
            raise failure_of(response, read_bounded(response, trial.capture))
        return self._open_answer(response)

    def _open_answer(self, response: UpstreamResponse) -> Opened:
        if self._order.endpoint != "chat.completions":
            body = self._read_whole(response, b"", WHOLE_EMBEDDINGS_BYTES)
            answer = parse_embeddings(body, status=response.status)
            return Opened(response.headers, body=_readable(body, answer), answer=answer)
        deadline = clock.monotonic() + HOLD_SECONDS
        head = self._first_block(response, deadline)
        streams = looks_like_stream(head, find(response.headers, "content-type"))
        if self._order.stream and streams:
            return self._open_stream(response, head, deadline)
        if streams and not self._order.stream:
            return self._whole_of_stream(response, head)
        body = self._read_whole(response, head, self._most_of_whole(head))
        if self._order.stream:
            return self._stream_of_whole(response, body)
        self.trial.ttft()
        answer = parse_completion(body, status=response.status)
        return Opened(response.headers, body=_readable(body, answer), answer=answer)

    def _first_block(self, response: UpstreamResponse, deadline: float) -> bytes:
        """The first bytes tell what the body is; a stream that says it is one may be slow."""
        until = deadline if self._order.stream and _labelled_stream(response) else None
        most = self._means.config.gateway.max_event_bytes
        blocks: list[bytes] = []
        size = 0
        while not blocks or not blocks[-1].strip():
            if size > most:
                raise _too_long(most)
            block = response.read(until)
            if not block:
                break
            self.trial.capture.add(block)
            blocks.append(block)
            size += len(block)
        return b"".join(blocks)

    def _relay(self, response: UpstreamResponse, head: bytes) -> Relay:
        trial = self.trial
        assert trial.live is not None
        relay = Relay(
            response,
            trial.capture,
            trial.live,
            hide_usage=trial.asked_usage,
            max_event_bytes=self._means.config.gateway.max_event_bytes,
            head=head,
        )
        trial.relay = relay
        return relay

    def _open_stream(self, response: UpstreamResponse, head: bytes, deadline: float) -> Opened:
        """Hold the first events until one says something, at most 2 s."""
        relay = self._relay(response, head)
        held: list[bytes] = []
        while True:
            batch = relay.read(deadline)
            if batch is None:
                return Opened(response.headers, relay, b"".join(held))
            if batch.failure is not None and relay.released_at is None:
                raise batch.failure
            held.append(batch.out)
            if batch.released or batch.ended:
                return Opened(response.headers, relay, b"".join(held), batch)

    def _stream_of_whole(self, response: UpstreamResponse, body: bytes) -> Opened:
        """A JSON answer for a client that asked for a stream."""
        answer = parse_completion(body, status=response.status)
        self.trial.ttft()
        events = stream_from_completion(body, include_usage=self._order.wants_usage)
        if answer.tool_calls:
            events, answer = with_readable_calls(events, answer)
        *first, last = events
        batch = Batch(b"", last, released=True, ended=True)
        self.trial.whole = answer
        return Opened(response.headers, None, b"".join(first), batch, answer=answer)

    def _whole_of_stream(self, response: UpstreamResponse, head: bytes) -> Opened:
        """An event stream for a client that asked for one JSON answer."""
        relay = self._relay(response, head)
        while True:
            batch = relay.read(None)
            if batch is not None and batch.failure is not None:
                raise batch.failure
            if batch is not None and batch.ended:
                self.trial.ttft()
                return Opened(
                    response.headers, body=completion_of(relay.chat), answer=relay.chat.answer()
                )

    def _most_of_whole(self, head: bytes) -> int:
        """Bytes of an answer in one piece that are taken: few of what can be no JSON object."""
        gateway = self._means.config.gateway
        if not head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{"):
            return max(ERROR_BODY_BYTES, gateway.max_event_bytes)
        return max(WHOLE_CHAT_BYTES, gateway.max_response_bytes)

    def _read_whole(self, response: UpstreamResponse, head: bytes, most: int) -> bytes:
        parts, size = [head], len(head)
        while block := response.read(None):
            self.trial.capture.add(block)
            parts.append(block)
            size += len(block)
            if size > most:
                raise _too_long(most)
        return b"".join(parts)

    def client_error(self, failure: UpstreamFailure) -> tuple[int, dict[str, Any]]:
        """Status and body for the client when no try is left."""
        return client_error(failure, self.target.provider.name, self._means.masker)


def _readable(body: bytes, answer: Answer) -> bytes:
    """The body of an answer as any JSON parser takes it; strict JSON needs no repair."""
    return body if answer.names else repair_completion(body.removeprefix(BYTE_ORDER_MARK))


def _too_long(most: int) -> UpstreamFailure:
    message = f"the answer is larger than {most} bytes, or has no end"
    return UpstreamFailure("upstream_protocol_error", message)


def _labelled_stream(response: UpstreamResponse) -> bool:
    label = find(response.headers, "content-type") or ""
    return label.strip().lower().startswith("text/event-stream")
