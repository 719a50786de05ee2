"""Whole chat answers: understood, repaired, turned into a stream."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from xgw.providers.dialects.chat import (
    completion_of,
    looks_like_stream,
    parse_completion,
    read_stream,
    repair_completion,
    stream_from_completion,
)
from xgw.providers.sse import EventSplitter
from xgw.values import ToolCall, UpstreamFailure

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def completion(message: Any, finish: Any = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    head = {"id": "c-1", "object": "chat.completion", "created": 17, "model": "m-served"}
    return orjson.dumps(head | {"choices": [choice], "usage": USAGE} | more)


def test_an_answer() -> None:
    body = completion({"role": "assistant", "content": "ok", "x": 1}, "eos_token")
    answer = parse_completion(body)
    assert (answer.text(), answer.model) == ("ok", "m-served")
    assert (answer.finish_reason, answer.finish_reason_raw) == ("stop", "eos_token")
    assert answer.usage is not None
    assert answer.usage.total_tokens == 5
    assert answer.choices == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "ok",
                "refusal": None,
                "reasoning_content": None,
                "x": 1,
            },
            "finish_reason": "eos_token",
            "logprobs": None,
        }
    ]


@pytest.mark.parametrize("content", [None, "", [{"type": "text", "text": "a"}]])
def test_content_is_recorded_as_sent(content: Any) -> None:
    assert parse_completion(completion({"content": content})).message()["content"] == content


def test_reasoning_and_refusal() -> None:
    message = parse_completion(completion({"reasoning": "why", "refusal": "No."})).message()
    assert (message["reasoning_content"], message["refusal"]) == ("why", "No.")


def test_tool_calls() -> None:
    message = {
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "function": {"name": "g", "arguments": {"y": 9007199254740993}}},
            {"type": "custom", "custom": {"name": "h", "input": "free"}},
            None,
        ],
        "function_call": {"name": "i", "arguments": "{"},
    }
    assert parse_completion(completion(message, "length")).tool_calls == (
        ToolCall("a", "f", '{"x":1}', True, False),
        ToolCall("b", "g", '{"y":9007199254740993}', True, False),
        ToolCall(None, "h", "free", False, False),
        ToolCall(None, "i", "{", False, True),
    )
    assert "tool_calls" not in parse_completion(completion({"tool_calls": []})).message()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b"{}",
        b'{"choices":null}',
        b'{"choices":{}}',
        b'{"choices":[7]}',
        b"[" * 5000,
        b'{"a":' * 3000,
    ],
)
def test_what_cannot_be_understood(body: bytes) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        parse_completion(body)
    assert failure.value.error_type == "upstream_protocol_error"
    assert (failure.value.http_status, failure.value.body) == (200, body)


@pytest.mark.parametrize(
    ("body", "error_type", "status", "message"),
    [
        (b'{"error":{"code":502,"message":"pool unreachable"}}', "upstream_error", 502, "pool"),
        (b'{"error":{"code":"429","message":"slow"}}', "upstream_rate_limit", 429, "slow"),
        (b'{"error":{"code":null,"message":"x","type":"y"}}', "upstream_error", 502, "x"),
        (b'{"error":"text","choices":[]}', "upstream_error", 502, "text"),
        (b'{"object":"error","message":"old","code":400}', "upstream_error", 400, "old"),
        (
            b'{"error":{"code":"context_length_exceeded","message":"x"}}',
            "context_overflow",
            502,
            "x",
        ),
    ],
)
def test_an_error_that_came_with_status_200(
    body: bytes, error_type: str, status: int, message: str
) -> None:
    with pytest.raises(UpstreamFailure, match=message) as failure:
        parse_completion(body)
    assert (failure.value.error_type, failure.value.http_status) == (error_type, status)


def test_a_null_error_is_none() -> None:
    assert parse_completion(completion({"content": "a"}, error=None)).text() == "a"


def test_odd_parts_of_an_answer_are_recorded_as_well_as_can_be() -> None:
    body = b'{"choices":[{"message":null},{"message":{"content":"\\ud83d","n":NaN}}],"usage":7}'
    answer = parse_completion(body)
    assert [c["index"] for c in answer.choices] == [0, 1]
    assert answer.choices[1]["message"]["content"] == "\ufffd"
    assert answer.choices[1]["message"]["n"] is None
    assert (answer.usage, answer.model, answer.finish_reason) == (None, None, None)
    assert orjson.dumps(answer.choices)
    deep = completion({"content": "a", "x": 0}).replace(b'"x":0', b'"x":' + b"[" * 500 + b"]" * 500)
    assert parse_completion(deep).text() == "a"
    assert orjson.dumps(parse_completion(deep).choices)


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (b'{"a": NaN, "b":[-Infinity,1.0]}', b'{"a": null, "b":[null,1.0]}'),
        (b'{"a":"NaN \\"Infinity","b":NaN}', b'{"a":"NaN \\"Infinity","b":null}'),
        (b'{"a":"\\ud83d","b":NaN}', b'{"a":"\\ud83d","b":null}'),
    ],
)
def test_numbers_that_are_not_json_become_null(sent: bytes, got: bytes) -> None:
    assert repair_completion(sent) == got


@pytest.mark.parametrize("body", [b'{"a":1.0}', b'{"a":"NaN"}', b'{"a":NaN', b"", b"NaN of HTML"])
def test_a_body_without_them_stays_the_same_object(body: bytes) -> None:
    assert repair_completion(body) is body


def test_strings_full_of_escapes_are_no_trouble() -> None:
    text = b'\\"x\\\\' * 300_000
    assert repair_completion(b'{"a":"' + text + b'","b":NaN}') == b'{"a":"' + text + b'","b":null}'


def stream(body: bytes, **options: Any) -> list[bytes]:
    return stream_from_completion(body, **({"include_usage": False} | options))


def test_an_answer_as_a_stream_keeps_the_values_as_sent() -> None:
    body = (
        b'{"id":"c-1","object":"chat.completion","created":1.70E9, "x":{"n" : 1e-7},"choices":[{'
        b'"index":0,"message":{"content":"a\\u00e9","role":"assistant","tool_calls":['
        b'{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},'
        b'"logprobs":null,"finish_reason":"tool_calls"}],"usage":{"total_tokens":5}}'
    )
    head = (
        b'data: {"id":"c-1","object":"chat.completion.chunk","created":1.70E9,"x":{"n" : 1e-7},'
        b'"choices":['
    )
    events = [
        head + b'{"index":0,"delta":{"role":"assistant","content":"a\\u00e9","tool_calls":[{"index"'
        b':0,"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},'
        b'"finish_reason":null,"logprobs":null}]}\n\n',
        head + b'{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n',
        head + b'],"usage":{"total_tokens":5}}\n\n',
        b"data: [DONE]\n\n",
    ]
    assert stream(body, include_usage=True) == events
    assert stream(body) == events[:2] + events[3:]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "Hi", "reasoning_content": "hm", "x": [1]},
        {"role": "assistant", "content": None, "refusal": "No."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": n, "type": "function", "function": {"name": n, "arguments": "{}"}}
                for n in ("a", "b")
            ],
        },
    ],
)
def test_an_answer_survives_being_a_stream(message: dict[str, Any]) -> None:
    body = completion(message, usage=None)
    events = EventSplitter(1 << 20).feed(b"".join(stream(body)))
    back = orjson.loads(completion_of(read_stream(events)))
    assert back["choices"][0]["message"] == {"refusal": None} | message
    assert (back["choices"][0]["finish_reason"], back["model"]) == ("stop", "m-served")


def test_odd_answers_as_a_stream() -> None:
    pretty = orjson.dumps(orjson.loads(completion({"content": "a"})), option=orjson.OPT_INDENT_2)
    body = pretty.replace(b'"a"', b'"\\ud83d"').replace(b"17,", b"NaN,\r\n")
    first = stream(body)[0]
    assert first.count(b"\n") == 2
    assert b'"content":"\\ud83d"' in first
    assert b'"created":null' in first
    assert stream(b'{"choices":[{"message":null}]}')[0] == (
        b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":'
        b'{"role":"assistant"},"finish_reason":null}]}\n\n'
    )
    marked = b"\xef\xbb\xbf" + completion({"content": "a"})
    assert stream(marked) == stream(marked[3:])
    assert parse_completion(marked).text() == "a"
    for wrong in (b"", b"[]", b"{}", b'{"choices":7}', b'{"choices":[7]}'):
        with pytest.raises(UpstreamFailure):
            stream(wrong)


@pytest.mark.parametrize(
    ("head", "label", "expected"),
    [
        (b"data: {", "application/json", True),
        (b"data:", None, True),
        (b"\xef\xbb\xbf\r\n\n: hi\n", "text/plain", True),
        (b"event: x", None, True),
        (b"id: 1", None, True),
        (b"retry: 1", None, True),
        (b"da", "application/json", True),
        (b"data\n\ndata: {", None, True),
        (b"data\r\n", None, True),
        (b"data is missing", "text/event-stream", False),
        (b'{"data:":1}', "text/event-stream", False),
        (b" \n[", "text/event-stream", False),
        (b"<html>", "text/event-stream", False),
        (b"", "text/event-stream; charset=utf-8", True),
        (b" \n", "Text/Event-Stream", True),
        (b"", "application/json", False),
        (b"", None, False),
    ],
)
def test_streams_are_told_by_their_body(head: bytes, label: str | None, expected: bool) -> None:
    assert looks_like_stream(head, label) is expected
