"""A chat answer that comes as one JSON body: read it, repair it, turn it into a stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from xgw.providers.dialects.chat_calls import build_tool_call
from xgw.providers.dialects.chat_errors import build_protocol_failure, find_failure
from xgw.providers.dialects.chat_usage import (
    find_usage,
    finish_reason_as_given,
    normalise_finish_reason,
    parse_usage,
)
from xgw.providers.dialects.loose_json import (
    Members,
    elements,
    hide_lone_surrogates,
    json_text,
    members,
    null_constants,
    parse_and_judge,
    parse_loose,
    raw,
    show_lone_surrogates,
)
from xgw.providers.sse import BYTE_ORDER_MARK, build_event
from xgw.values import Answer, ToolCall

_NULL = b"null"
_FIELDS = (b"data:", b"data\n", b"data\r", b"event:", b"id:", b"retry:", b":")


def looks_like_stream(head: bytes, content_type: str | None) -> bool:
    """Whether a body beginning with `head` is an event stream; the label decides if it is empty.

    So it does where an error comes first that some servers write as a field of its own.
    """
    text = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if text.startswith(b"{"):
        return False
    if any(text.startswith(field) or field.startswith(text) for field in _FIELDS if text):
        return True
    if text and not text.startswith(b"error:"):
        return False
    return (content_type or "").lstrip().lower().startswith("text/event-stream")


def parse_completion(body: bytes, *, status: int = 200) -> Answer:
    """The answer in a whole `chat.completion` body, which came with `status`.

    Raises UpstreamFailure: what an error body says (as the status in its `code`, else as 502), or
    upstream_protocol_error for a body that is not understood.
    """
    try:
        completion, strict = parse_and_judge(body)
    except ValueError:
        raise build_protocol_failure("the answer is not JSON", body, status=status) from None
    failure = find_failure(completion, body)
    if failure is not None:
        raise failure
    choices = completion.get("choices") if isinstance(completion, dict) else None
    if not isinstance(choices, list):
        raise build_protocol_failure("the answer has no choices", body, status=status)
    if not all(isinstance(choice, dict) for choice in choices):
        reason = "a choice of the answer is no object"
        raise build_protocol_failure(reason, body, status=status)
    described = [_describe(choice, place) for place, choice in enumerate(choices)]
    first = min(described, key=lambda choice: choice["index"], default={"finish_reason": None})
    finish_raw = first["finish_reason"]
    model = completion.get("model")
    return Answer(
        choices=described,
        tool_calls=tuple([call for choice in described for call in _tool_calls(choice)]),
        finish_reason=normalise_finish_reason(finish_raw),
        finish_reason_raw=finish_raw,
        usage=parse_usage(completion.get("usage"))
        or parse_usage(find_usage(described, completion)),
        model=model if isinstance(model, str) and model else None,
        names=tuple(completion) if strict else None,
    )


def repair_completion(body: bytes) -> bytes:
    """`body` with NaN and infinities as null; the very same bytes if it holds none."""
    if b"NaN" not in body and b"Infinity" not in body:
        return body
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            parse_loose(body)
        except ValueError:
            return body
        return null_constants(body)
    return body


def stream_from_completion(body: bytes, *, include_usage: bool) -> list[bytes]:
    """The events in which a client that asked for a stream gets a `chat.completion` body.

    Values are the bytes that the upstream sent. Raises UpstreamFailure (upstream_protocol_error)
    for a body that `parse_completion` would not take either.
    """
    text = repair_completion(body).removeprefix(BYTE_ORDER_MARK)
    try:
        chunks = _chunks(text, include_usage)
    except msgspec.DecodeError:
        try:
            chunks = _chunks(hide_lone_surrogates(text), include_usage)
        except (msgspec.DecodeError, KeyError, RecursionError):
            raise build_protocol_failure("the answer is not JSON", body, status=200) from None
    except (KeyError, RecursionError):
        raise build_protocol_failure("the answer has no choices", body, status=200) from None
    events = [build_event(show_lone_surrogates(_one_line(chunk))) for chunk in chunks]
    return [*events, build_event(b"[DONE]")]


def _describe(choice: dict[str, Any], place: int) -> dict[str, Any]:
    """The choice as it is recorded: as sent, its documented fields completed."""
    index, finish = choice.get("index"), choice.get("finish_reason")
    sent = choice.get("message")
    if not isinstance(sent, dict):
        sent = {} if sent is None else {"content": sent}
    message = {
        "role": sent.get("role") or "assistant",
        "content": sent.get("content"),
        "refusal": sent.get("refusal"),
        "reasoning_content": _reasoning(sent),
    }
    if not sent.keys() <= message.keys():
        for name, value in sent.items():
            message.setdefault(name, value)
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)
    known = {
        "index": index if isinstance(index, int) else place,
        "message": message,
        "finish_reason": finish_reason_as_given(finish),
        "logprobs": choice.get("logprobs"),
    }
    if not choice.keys() <= known.keys():
        for name, value in choice.items():
            known.setdefault(name, value)
    return known


def _reasoning(sent: dict[str, Any]) -> str | None:
    """What a message says of the model's reasoning: servers differ in what they call it."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        if name in sent and isinstance(text := sent[name], str):
            return text
    return None


def _tool_calls(choice: dict[str, Any]) -> list[ToolCall]:
    message = choice["message"]
    sent = message.get("tool_calls")
    calls = [c for c in sent if isinstance(c, dict)] if isinstance(sent, list) else []
    if isinstance(message.get("function_call"), dict):
        calls.append({"function": message["function_call"]})
    if not calls:
        return []
    cut = normalise_finish_reason(choice["finish_reason"]) == "length"
    return [
        _tool_call(call, incomplete=cut and call is calls[-1], choice=choice["index"])
        for call in calls
    ]


def _tool_call(call: dict[str, Any], *, incomplete: bool, choice: int) -> ToolCall:
    function, custom = call.get("function"), call.get("custom")
    body = function if isinstance(function, dict) else custom if isinstance(custom, dict) else {}
    sent = body.get("arguments") if body is function else body.get("input")
    arguments = sent if isinstance(sent, str) else "" if sent is None else json_text(sent)
    tool_call_id, name = call.get("id"), body.get("name")
    return build_tool_call(
        tool_call_id if isinstance(tool_call_id, str) and tool_call_id else None,
        name if isinstance(name, str) and name else None,
        arguments,
        incomplete=incomplete,
        choice=choice,
    )


def _chunks(text: bytes, include_usage: bool) -> list[Members]:
    top = members(text)
    choices = [members(choice) for choice in elements(top.pop("choices"))]
    usage = top.pop("usage", None)
    base = top | {"object": raw("chat.completion.chunk")}
    chunks = []
    for place, choice in enumerate(choices):
        index = choice.pop("index", raw(place))
        finish = choice.pop("finish_reason", raw(None))
        delta = _delta(choice.pop("message", raw({})))
        first = {"index": index, "delta": raw(delta), "finish_reason": raw(None)} | choice
        last = {"index": index, "delta": raw({}), "finish_reason": finish}
        chunks += [base | {"choices": raw([raw(c)])} for c in (first, last)]
    if include_usage and usage is not None and bytes(usage) != _NULL:
        chunks.append(base | {"choices": raw([]), "usage": usage})
    return chunks


def _delta(message: msgspec.Raw) -> Members:
    """The message as a delta; one that is no object is what was said."""
    role: Members = {"role": raw("assistant")}
    if not _begins(message, b"{"):
        return role if bytes(message) == _NULL else role | {"content": message}
    delta = role | members(message)
    calls = delta.get("tool_calls")
    if calls is not None and _begins(calls, b"["):
        numbers = itertools.count()
        delta["tool_calls"] = raw([_indexed(numbers, call) for call in elements(calls)])
    return delta


def _indexed(numbers: Iterator[int], call: msgspec.Raw) -> msgspec.Raw:
    """A call with its index; what is no object can have none."""
    if not _begins(call, b"{"):
        return call
    named = {key: value for key, value in members(call).items() if key != "index"}
    return raw({"index": raw(next(numbers))} | named)


def _begins(value: msgspec.Raw, bracket: bytes) -> bool:
    return bytes(value).lstrip().startswith(bracket)


def _one_line(chunk: Members) -> bytes:
    """JSON without line ends: between the tokens of a value that was sent they mean nothing."""
    return msgspec.json.encode(chunk).replace(b"\r", b" ").replace(b"\n", b" ")
