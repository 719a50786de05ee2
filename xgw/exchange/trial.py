"""One try at one target: the request that goes out, what came back, and the facts of its end."""

from __future__ import annotations

import datetime

from xgw import clock, ids
from xgw.exchange.answers import (
    output_of,
    quotes_secret,
    says_anything,
    texts_of,
    tool_calls_of,
    without_secrets,
)
from xgw.exchange.failures import message_of
from xgw.exchange.means import Means
from xgw.exchange.order import PATHS, Order, body_for, build_request, labels_of
from xgw.exchange.relay import Capture, Relay
from xgw.exchange.routing import Target
from xgw.providers.transport import UpstreamResponse
from xgw.recording.facts import AttemptEnd, AttemptFacts, RequestFacts
from xgw.recording.live import LiveStep
from xgw.store.payloads import Stored
from xgw.values import Answer, UpstreamFailure, Usage

ERROR_BODY_CHARACTERS = 65536


class Trial:
    """A try, ready to go out, and under way.

    What its record needs is worked out when someone asks for it: the request need not wait for it.
    """

    is_announced = False
    """Whether others have been told that it has begun."""
    is_recorded = False
    """Whether its end is recorded already: another try was to follow."""
    response: UpstreamResponse | None = None
    relay: Relay | None = None
    whole: Answer | None = None
    """An answer that came as one body and goes out as a stream."""
    live: LiveStep | None = None

    # Not `cached_property`: before Python 3.12 that works out one try's at a time, of all.
    _sent: Stored | None = None
    _facts: AttemptFacts | None = None
    _starts_at: datetime.datetime | None = None
    _ttft_ms: int | None = None
    _output: tuple[Answer | None, bytes] = None, b""
    """The last answer in which no secret stands, and what is stored of it."""

    def __init__(
        self,
        means: Means,
        order: Order,
        target: Target,
        *,
        attempt: int,
        reason: str,
        waited_ms: int | None,
        history: str | None,
        input_tokens: int | None,
        asks_usage: bool,
    ) -> None:
        self._means = means
        self._order = order
        self._target = target
        self._attempt = attempt
        self._reason = reason
        self._waited_ms = waited_ms
        self._history = history
        self._input_tokens = input_tokens
        self.body = body_for(order, target, ask_usage=asks_usage)
        self.request = build_request(order, target, self.body)
        self.asked_usage = asks_usage
        self._started = clock.monotonic()
        self.capture = Capture(means.config.gateway.max_response_bytes, self._started)

    @property
    def sent(self) -> Stored:
        """Its body, as it is stored."""
        if self._sent is None:
            means = self._means
            self._sent = means.recorder.shelf.request(means.masker.request(self.body))
        return self._sent

    def describe(
        self, history: str | None, input_tokens: int | None, starts_at: datetime.datetime
    ) -> None:
        """What its facts are to say, before anyone has asked for them; see `Exchange.describe`."""
        self._history, self._input_tokens, self._starts_at = history, input_tokens, starts_at

    @property
    def facts(self) -> AttemptFacts:
        """What is recorded of it from the start."""
        if self._facts is None:
            self._facts = self._first_facts()
        return self._facts

    def _first_facts(self) -> AttemptFacts:
        order, target = self._order, self._target
        return AttemptFacts(
            step_id=ids.mint("step"),
            attempt=self._attempt,
            reason=self._reason,
            provider_name=target.provider.name,
            model=target.model,
            model_requested=order.model,
            started_at=self._starts_at or clock.now(),
            request=self._request_facts(self.sent),
            waited_ms=self._waited_ms,
            history=self._history,
            input_tokens=self._input_tokens,
            context_window=order.window
            or self._means.prices.context_window(target.model, target.provider),
            metadata=labels_of(order),
            parent_step_id=order.parent_step_id,
        )

    def _request_facts(self, stored: Stored) -> RequestFacts:
        url, headers = self._means.recorded(self.request.url, self.request.headers)
        return RequestFacts(
            id=ids.mint("req"),
            endpoint=PATHS[self._order.endpoint],
            method=self.request.method,
            url=url,
            headers=headers,
            payload=stored.hash,
            bytes_sent=self.request.size,
            stream=self._order.stream,
            client=self._order.client,
        )

    def take_bodies(self) -> list[Stored]:
        """The bodies that the start of this try needs in the store."""
        return [self.sent]

    @property
    def began(self) -> float:
        """The moment from which its times count (monotonic)."""
        return self._started

    def go(self) -> None:
        """The clock of this try starts."""
        self._started = clock.monotonic()
        self.capture.started(self._started)

    def tell(self, live: LiveStep) -> None:
        """Its record has begun: from here on what comes is shown, by the clock of this try."""
        self.live = live
        live.started, live.input_tokens = self._started, self.facts.input_tokens
        live.mask = self._means.masker.text

    def ttft(self) -> None:
        """The first content is there: for a whole answer, all of it."""
        if self._ttft_ms is None:
            self._ttft_ms = self._since_start(clock.monotonic())
            if self.live is not None:
                self.live.ttft_ms = self._ttft_ms

    def close_response(self) -> None:
        """Give the connection back, or abort it."""
        if self.response is not None:
            self.response.close()

    def answer_so_far(self) -> Answer | None:
        """What has arrived, as it may be stored, if the answer ends here."""
        answer = self.whole if self.relay is None else self.relay.chat.answer(broken=True)
        return self.storable(answer) if answer is not None else None

    def storable(self, answer: Answer) -> Answer:
        """An answer without the secrets that it may quote; the very same one without any."""
        output = output_of(answer)
        if quotes_secret(answer, output, self._means.masker):
            return without_secrets(answer, self._means.masker)
        self._output = answer, output
        return answer

    # -- ends ----------------------------------------------------------------------------------

    def succeeded(self, answer: Answer) -> tuple[AttemptEnd, list[Stored]]:
        """The answer came whole; it is `storable`."""
        return self._end("success", answer, None)

    def failed(self, failure: UpstreamFailure) -> tuple[AttemptEnd, list[Stored]]:
        """The upstream failed, perhaps after a part of the answer."""
        return self._end("error", self.answer_so_far(), failure)

    def cut(
        self, status: str, error_type: str | None, message: str | None
    ) -> tuple[AttemptEnd, list[Stored]]:
        """The call was ended from this side: the client left, or someone cancelled it."""
        answer = self.answer_so_far()
        failure = UpstreamFailure(error_type, message or "") if error_type else None
        return self._end(status, answer, failure)

    def _end(
        self, status: str, answer: Answer | None, failure: UpstreamFailure | None
    ) -> tuple[AttemptEnd, list[Stored]]:
        if self.relay is not None and self.relay.released_at is not None:
            self._ttft_ms = self._since_start(self.relay.released_at)
        ended_at, moment = clock.together()
        facts, usage = self.facts, self._usage(answer)
        bodies = self._stored_answer(answer)
        body = self._stored_body(answer)
        response = self.response
        error_type, error_message, http_status, error_body = self._error(failure)
        end = AttemptEnd(
            status=status,
            ended_at=ended_at,
            latency_ms=_as_by(facts.started_at, ended_at, self._since_start(moment)),
            error_type=error_type,
            error_message=error_message,
            http_status=http_status,
            error_body=error_body,
            wire_status=response.status if response else None,
            model=(answer.model if answer else None) or self._target.model,
            finish_reason=answer.finish_reason if answer else None,
            finish_reason_raw=answer.finish_reason_raw if answer else None,
            usage=usage,
            cost_usd=self._cost(answer, usage),
            context_tokens=_context_tokens(facts, usage),
            ttft_ms=self._ttft_ms,
            output=bodies[0].hash if bodies else None,
            partial_output=answer.text() if answer and status != "success" else None,
            tool_calls=tool_calls_of(answer),
            response_headers=self._means.masker.headers(response.headers) if response else None,
            body=body.hash if body else None,
            frames=self.capture.frames or None,
            bytes_received=self.capture.received,
            chunks=self.capture.chunks,
            truncated=self.capture.truncated,
            first_byte_at=self.capture.first_byte_at,
            answered=answer is not None and bool(answer.choices or answer.usage),
        )
        return end, [*bodies, *([body] if body else [])]

    def _error(
        self, failure: UpstreamFailure | None
    ) -> tuple[str | None, str | None, int | None, str | None]:
        """Its type and message, the status that it counts as, and the body that told of it."""
        status = self.response.status if self.response else None
        if failure is None:
            return None, None, status, None
        masker, error_body = self._means.masker, None
        if failure.body is not None and failure.http_status is not None:
            text = failure.body.decode("utf-8", "replace")
            error_body = masker.text(text)[:ERROR_BODY_CHARACTERS]
        message = message_of(failure, self._target.provider.name, masker)
        return failure.error_type, message, failure.http_status or status, error_body

    def _usage(self, answer: Answer | None) -> Usage:
        """What the provider reported; where it reported nothing, a marked estimate of the text."""
        if answer is None or (not answer.choices and answer.usage is None):
            return Usage()
        if answer.usage is not None:
            return answer.usage
        if self._order.endpoint != "chat.completions" or not says_anything(answer):
            return Usage()
        return self._estimate(answer)

    def _estimate(self, answer: Answer) -> Usage:
        counter, model = self._means.counter, self._target.model
        sent = self.facts.input_tokens
        said = [counter.count_text(text, model) for text in texts_of(answer)]
        if sent is None or any(count is None for count in said):
            return Usage()
        output = sum(count for count in said if count is not None)
        return Usage(sent, output, total_tokens=sent + output, source="estimated")

    def _cost(self, answer: Answer | None, usage: Usage) -> float | None:
        if answer is None or usage.source is None:
            return None
        provider = self._target.provider
        return self._means.prices.cost_usd(answer.model or self._target.model, usage, provider)

    def _stored_answer(self, answer: Answer | None) -> list[Stored]:
        if answer is None or not answer.choices:
            return []
        looked_at, output = self._output
        if looked_at is not answer:
            output = self._means.masker.body(output_of(answer), ())
        return [self._means.recorder.shelf.whole(output)]

    def _stored_body(self, answer: Answer | None) -> Stored | None:
        content = self.capture.content()
        if not content:
            return None
        names = answer.names if answer is not None and not self.capture.truncated else None
        return self._means.recorder.shelf.whole(self._means.masker.body(content, names))

    def _since_start(self, moment: float) -> int:
        return max(0, round((moment - self._started) * 1000))


def _context_tokens(facts: AttemptFacts, usage: Usage) -> int | None:
    sent = facts.input_tokens if usage.input_tokens is None else usage.input_tokens
    return sent if facts.is_said else None


def _as_by(started_at: datetime.datetime, ended_at: datetime.datetime, measured_ms: int) -> int:
    """What was measured, rounded as the two moments are: a turn lasts as long as its only call."""
    between_ms = round((ended_at - started_at).total_seconds() * 1000)
    return max(0, between_ms) if abs(between_ms - measured_ms) <= 1 else measured_ms
