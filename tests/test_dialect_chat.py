"""Streamed chat answers: what each event means, what the client gets, what is put together."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from xgw.errors import ERROR_TYPES
from xgw.providers.dialects.chat import (
    ChatStream,
    Piece,
    completion_from_stream,
    completion_of,
    parse_completion,
    read_stream,
)
from xgw.providers.sse import EventSplitter, SseEvent
from xgw.values import Delta, UpstreamFailure

LIMIT = 1 << 22


def events_of(body: bytes, size: int | None = None) -> list[SseEvent]:
    splitter = EventSplitter(LIMIT)
    size = size or len(body)
    blocks = [body[start : start + size] for start in range(0, len(body), size)]
    return [event for block in blocks for event in splitter.feed(block)] + splitter.end()


def read(body: bytes, *, hide_usage: bool = False) -> tuple[list[Piece], ChatStream]:
    stream = ChatStream(hide_usage=hide_usage)
    return [stream.read(event) for event in events_of(body)], stream


def choice(delta: Any, finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish} | more


def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
    head = {"id": "c-1", "object": "chat.completion.chunk", "created": 17, "model": "m"}
    return b"data: " + orjson.dumps(head | {"choices": list(choices)} | more) + b"\n\n"


def say(**delta: Any) -> bytes:
    return chunk(choice(delta))


STOP = chunk(choice({}, "stop"))
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}

# Streams that any client can read: every byte of every event goes through.
VERBATIM = {
    "plain": say(role="assistant", content="") + say(content="Hi") + STOP + DONE,
    "odd numbers, spaces and order": (
        b'data: { "x":1.0, "choices" : [ {"delta":{"content":"a","y":1E-7},"index":0} ],'
        b' "seed":18446744073709551616}\n\n' + STOP
    ),
    "CRLF": (say(content="Hi") + STOP + DONE).replace(b"\n", b"\r\n"),
    "CR": (say(content="Hi") + STOP + DONE).replace(b"\n", b"\r"),
    "comments and fields": (
        b": QUEUED\n\n:\n" + say(content="Hi") + b"id: 1\nevent: message\n" + STOP + DONE
    ),
    "several data lines": b'data: {"choices":[{"delta":\ndata: {"content":"a"}}]}\n\n' + STOP,
    "nulls": say(content=None, tool_calls=None, refusal=None) + chunk(usage=None) + STOP,
    "missing parts": (
        b'data: {}\n\ndata: {"choices":null}\n\ndata: {"choices":[{}]}\n\n'
        b'data: {"choices":[{"delta":null}]}\n\ndata: 7\n\ndata: null\n\n' + STOP
    ),
    "lone surrogates": b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n' + STOP,
    "a number beyond a double": b'data: {"choices":[],"x":1e999}\n\n' + STOP,
    "bytes that are not UTF-8": b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n' + STOP,
    "NaN in a text": say(content="NaN and -Infinity") + STOP,
    "nested deeply": (
        b'data: {"choices":[{"delta":{"x":' + b"[" * 900 + b"]" * 900 + b"}}]}\n\n" + STOP
    ),
    "DONE with spaces": say(content="Hi") + STOP + b"data:  [DONE] \n\n",
    "usage without choices": say(content="Hi") + STOP + chunk(usage=USAGE) + DONE,
    "null arguments, later deltas without an id": (
        say(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": None}}])
        + say(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])
        + chunk(choice({}, "tool_calls"))
    ),
}


@pytest.mark.parametrize("name", VERBATIM)
def test_what_a_client_can_read_goes_through_as_it_is(name: str) -> None:
    body = VERBATIM[name]
    pieces, stream = read(body)
    assert b"".join(piece.out for piece in pieces) == body
    assert stream.finished
    assert orjson.loads(completion_of(stream))["object"] == "chat.completion"
    assert orjson.dumps(stream.answer().choices)


@pytest.mark.parametrize("name", VERBATIM)
def test_the_answer_does_not_depend_on_blocks(name: str) -> None:
    body = VERBATIM[name]
    _, whole = read(body)
    for size in (1, 2, 5, random.Random(name).randint(6, 99)):
        stream = ChatStream(hide_usage=False)
        for event in events_of(body, size):
            stream.read(event)
        assert stream.answer() == whole.answer()


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (b": hello\n\n", "comment"),
        (b"data:\n\n", "empty"),
        (b"event: ping\ndata: \n\n", "empty"),
        (b"id: 7\n\n", "empty"),
        (say(role="assistant", content=""), "role"),
        (say(role="assistant", content=None, tool_calls=[], refusal=None), "role"),
        (chunk(choice({})), "role"),
        (say(content="x"), "content"),
        (say(reasoning_content="x"), "content"),
        (say(refusal="x"), "content"),
        (say(tool_calls=[{"index": 0}]), "content"),
        (say(content="", x_vendor={"k": [1, None]}), "content"),
        (chunk(choice({}), choice({"content": "x"}, index=1)), "content"),
        (STOP, "finish"),
        (chunk(choice({"content": "x"}, "stop"), usage=USAGE), "finish"),
        (chunk(choice({}, "eos_token"), choice({"content": "x"}, index=1)), "finish"),
        (chunk(choice({"content": "x"}, "")), "content"),
        (chunk(usage=USAGE), "usage"),
        (chunk(), "other"),
        (b'data: {"prompt_filter_results":[]}\n\n', "other"),
        (DONE, "done"),
        (b"data: [DONE]", "done"),
        (b'data: {"error":{"message":"no"}}\n\n', "error"),
        (b"data: {half\n\n", "error"),
    ],
)
def test_kinds_of_events(event: bytes, kind: str) -> None:
    (piece,), _ = read(event)
    assert piece.kind == kind
    if kind in ("empty", "error"):
        assert piece.out == b""


def test_deltas_and_live_texts() -> None:
    body = (
        say(reasoning="hm")
        + say(content="Hel")
        + chunk(choice({"content": "lo"}), choice({"refusal": "no"}, index=1))
        + say(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}])
    )
    pieces, stream = read(body)
    assert [delta for piece in pieces for delta in piece.deltas] == [
        Delta("reasoning", 0, "hm"),
        Delta("text", 0, "Hel"),
        Delta("text", 0, "lo"),
        Delta("refusal", 1, "no"),
        Delta("tool_arguments", 0, "{}"),
    ]
    assert stream.text() == stream.live_text("text", 0) == "Hello"
    assert stream.live_text("refusal", 1) == "no"
    assert stream.live_text("reasoning", 0) == "hm"
    assert stream.live_text("tool_arguments", 0) == "{}"
    assert stream.live_text("tool_arguments", 3) == stream.live_text("text", 3) == ""
    assert stream.output_characters == len("hmHellono{}")
    assert not stream.finished


def test_an_answer_of_several_choices() -> None:
    body = (
        say(role="assistant", content="red")
        + chunk(choice({"content": "gre"}, index=1))
        + STOP
        + chunk(choice({"content": "en"}, index=1))
    )
    assert not read(body)[1].finished
    _, stream = read(body + chunk(choice({}, "MAX_TOKENS", index=1)))
    assert stream.finished
    answer = stream.answer()
    assert [c["message"]["content"] for c in answer.choices] == ["red", "green"]
    assert [c["finish_reason"] for c in answer.choices] == ["stop", "MAX_TOKENS"]
    assert (answer.finish_reason, answer.model, answer.text()) == ("stop", "m", "red")


def test_everything_of_a_message_is_kept() -> None:
    body = (
        say(role="assistant", content="", reasoning="a", reasoning_content="a", x={"n": 1})
        + say(content="Hi", reasoning="b", reasoning_content="b", x={"t": "p", "n": 2})
        + say(audio={"id": "au", "data": "QUJD", "transcript": "He"}, x={"t": "q"})
        + say(audio={"id": "au", "data": "REVG", "transcript": "y"}, flag=True)
        + say(details=[{"index": 0, "type": "t", "text": "x"}], refusal="")
        + say(details=[{"index": 1, "text": "z"}, {"index": 0, "type": "t", "text": "y"}])
        + chunk(choice({}, "stop", native_finish_reason="end"), system_fingerprint="fp", x_tail=1)
    )
    _, stream = read(body)
    (described,) = stream.answer().choices
    assert described["native_finish_reason"] == "end"
    assert described["message"] == {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "reasoning_content": "ab",
        "x": {"n": 2, "t": "pq"},
        "audio": {"id": "au", "data": "QUJDREVG", "transcript": "Hey"},
        "flag": True,
        "details": [{"index": 0, "type": "t", "text": "xy"}, {"index": 1, "text": "z"}],
    }
    completion = orjson.loads(completion_of(stream))
    assert completion["choices"][0]["message"]["reasoning"] == "ab"
    assert (completion["system_fingerprint"], completion["x_tail"]) == ("fp", 1)
    assert [d.text for d in read(body)[0][0].deltas] == ["a"]


def test_content_in_parts() -> None:
    def thinks(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    body = (
        say(content=[thinks("a")])
        + say(content=[thinks("b"), {"type": "text", "text": "H"}])
        + say(content="i")
        + say(content=[{"type": "text", "text": "!"}, {"type": "image_url", "image_url": {}}])
    )
    _, stream = read(body)
    answer = stream.answer()
    assert answer.message()["content"] == [
        thinks("ab"),
        {"type": "text", "text": "Hi!"},
        {"type": "image_url", "image_url": {}},
    ]
    assert (answer.text(), answer.message()["reasoning_content"]) == ("Hi!", "ab")
    assert stream.live_text("reasoning", 0) == "ab"
    message = orjson.loads(completion_of(stream))["choices"][0]["message"]
    assert message.keys() == {"role", "content", "refusal"}
    _, stream = read(say(content="a") + say(content=[{"type": "text", "text": "b"}]))
    assert stream.answer().message()["content"] == "ab"


def test_no_text_is_null() -> None:
    _, stream = read(say(role="assistant", content="", refusal="") + say(refusal="No.") + STOP)
    message = stream.answer().message()
    assert (message["content"], message["refusal"]) == (None, "No.")
    assert stream.answer().text() is None


def test_logprobs_are_appended() -> None:
    def token(name: str, **more: Any) -> dict[str, Any]:
        return {"logprobs": {"content": [{"token": name}], "refusal": None} | more}

    body = (
        chunk(choice({"content": "al"}, **token("al")))
        + chunk(choice({"content": "be"}, logprobs=None))
        + chunk(choice({"content": "ga"}, "stop", **token("ga", refusal=[{"token": "r"}])))
    )
    (described,) = read(body)[1].answer().choices
    assert described["logprobs"] == {
        "content": [{"token": "al"}, {"token": "ga"}],
        "refusal": [{"token": "r"}],
    }


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("x\\ud83d", "\\ude00y", "x😀y"),
        ("x\\ud83d", "y", "x\ufffdy"),
        ("\\ud83d\\ud83d", "\\ude00", "\ufffd😀"),
        ("\\ude00", "\\ud83d", "\ufffd\ufffd"),
        ("\\ud83d\\ude00", "\\u00e9", "😀é"),
    ],
)
def test_surrogates_cut_in_half(first: str, second: str, text: str) -> None:
    body = b"".join(
        b'data: {"choices":[{"delta":{"content":"%s"}}],"x":"\\ud800"}\n\n' % half.encode()
        for half in (first, second)
    )
    pieces, stream = read(body)
    assert b"".join(piece.out for piece in pieces) == body
    for piece in pieces:
        for delta in piece.deltas:
            delta.text.encode()
    assert stream.text() == stream.answer().text() == text
    assert orjson.loads(completion_of(stream))["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        (
            b'{"choices":[{"delta":{"content":"inf"},"logprobs":{"content":[{"logprob":-Infinity,'
            b'"x":1.0}]}}],"a":NaN , "b":Infinity}',
            b'{"choices":[{"delta":{"content":"inf"},"logprobs":{"content":[{"logprob":null,'
            b'"x":1.0}]}}],"a":null , "b":null}',
        ),
        (
            b'{"choices":[{"delta":{"content":"\\"NaN\\\\"},"logprob":NaN}],"NaN":"\\ud800"}',
            b'{"choices":[{"delta":{"content":"\\"NaN\\\\"},"logprob":null}],"NaN":"\\ud800"}',
        ),
    ],
)
def test_numbers_that_are_not_json_become_null(sent: bytes, got: bytes) -> None:
    (piece,), stream = read(b"id: 1\ndata: " + sent + b"\n\n")
    assert piece.out == b"id: 1\ndata: " + got + b"\n\n"
    assert piece.kind == "content"
    orjson.dumps(stream.answer().choices)


USAGES = [
    ([USAGE, None], USAGE),
    ([USAGE, {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}], 7),
    ([{"prompt_tokens": 3, "total_tokens": 3}, USAGE], 5),
    ([{"prompt_tokens": 3, "total_tokens": 3}, {"completion_tokens": 4}], 7),
    ([{"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}, {"prompt_tokens": 9}], 10),
    ([USAGE, {}], 5),
    ([USAGE | {"total_tokens": 9}, {}], 9),
    ([USAGE | {"total_tokens": 9}, {"prompt_tokens": None, "total_tokens": None}], 9),
]


@pytest.mark.parametrize(("usages", "total"), USAGES)
def test_the_last_usage_counts(usages: list[Any], total: Any) -> None:
    body = b"".join(chunk(choice({"content": "x"}), usage=usage) for usage in usages)
    usage = read(body + STOP)[1].answer().usage
    assert usage is not None
    assert usage.total_tokens == (total["total_tokens"] if isinstance(total, dict) else total)


@pytest.mark.parametrize(
    ("end", "total"),
    [
        (chunk(choice({}, "stop") | {"usage": USAGE}), 5),
        (chunk(choice({}, "stop"), x_groq={"id": "r", "usage": USAGE}), 5),
        (chunk(choice({}, "stop") | {"usage": USAGE}, usage=USAGE | {"total_tokens": 9}), 9),
        (chunk(choice({}, "stop"), x_groq={"usage": "none"}), None),
        (chunk(choice({}, "stop"), x_groq=7), None),
        (
            chunk(choice({}, "stop", index=1) | {"usage": USAGE})
            + chunk(choice({}, "stop") | {"usage": USAGE}),
            None,
        ),
    ],
)
def test_usage_is_found_where_some_servers_put_it(end: bytes, total: int | None) -> None:
    usage = read(say(content="x") + end + DONE)[1].answer().usage
    assert (usage and usage.total_tokens) == total


def test_usage_that_the_client_did_not_ask_for_is_kept_from_it() -> None:
    inside = chunk(choice({}, "stop"), usage=USAGE)
    body = say(content="x") + inside + chunk(usage=USAGE) + DONE
    pieces, stream = read(body, hide_usage=True)
    assert [piece.kind for piece in pieces] == ["content", "finish", "usage", "done"]
    assert b"".join(piece.out for piece in pieces) == say(content="x") + inside + DONE
    assert stream.answer().usage is not None


@pytest.mark.parametrize(
    ("event", "error_type", "status", "message"),
    [
        (b'data: {"error":{"message":"full","code":"capacity"}}', "upstream_error", 502, "full"),
        (b'data: {"error":{"message":"slow","code":429}}', "upstream_rate_limit", 429, "slow"),
        (b'data: {"error":{"message":"gone","code":"503"}}', "upstream_error", 503, "gone"),
        (b'data: {"error":{"message":"x","code":null},"choices":[]}', "upstream_error", 502, "x"),
        (b'data: {"error":"just text"}', "upstream_error", 502, "just text"),
        (b'data: {"error":true,"message":"odd"}', "upstream_error", 502, "odd"),
        (b'data: [{"error":{"message":"in a list"}}]', "upstream_error", 502, "in a list"),
        (b'event: error\ndata: {"message":"typed"}', "upstream_error", 502, "typed"),
        (b'event: error\ndata: {"error":{"message":"typed"}}', "upstream_error", 502, "typed"),
        (b"event: error\ndata: no JSON", "upstream_error", 502, "no JSON"),
        (b'data: {"object":"error","message":"old","code":400}', "upstream_error", 400, "old"),
        (b'data: {"error":{"message":"a\\ud83d"}}', "upstream_error", 502, "a\ufffd"),
        (b'{"error":{"message":"bare","code":503}}', "upstream_error", 503, "bare"),
        (b'[{"error":{"message":"bare","code":429}}]', "upstream_rate_limit", 429, "bare"),
        (b"data: <html>", "upstream_protocol_error", None, "not JSON"),
        (b'data: {"a":NaN', "upstream_protocol_error", None, "not JSON"),
    ],
)
def test_errors_in_the_stream(
    event: bytes, error_type: str, status: int | None, message: str
) -> None:
    pieces, stream = read(say(content="Half") + event + b"\n\n")
    failure = pieces[1].error
    assert failure is not None
    assert (failure.error_type, failure.http_status) == (error_type, status)
    assert message in failure.message
    failure.message.encode()
    assert failure.error_type in ERROR_TYPES
    assert failure.body == event.rpartition(b"data: ")[2]
    assert stream.text() == "Half"
    assert not stream.finished


@pytest.mark.parametrize("bare", [b"{", b'{"error":null}', b'{"a":1}', b"[1]", b"error: x"])
def test_other_lines_between_events_are_nothing(bare: bytes) -> None:
    pieces, stream = read(say(content="a") + bare + b"\n\n" + STOP)
    assert [piece.kind for piece in pieces] == ["content", "empty", "finish"]
    assert stream.finished


def test_a_finish_reason_that_is_no_text_is_kept_as_its_json() -> None:
    for reason in ({"type": "stop"}, 5, ["é"]):
        _, stream = read(chunk(choice({"content": "a"}) | {"finish_reason": reason}) + DONE)
        assert stream.finished
        assert stream.answer().finish_reason_raw == orjson.dumps(reason).decode()
        whole = {"choices": [{"index": 0, "message": {}, "finish_reason": reason}]}
        assert parse_completion(orjson.dumps(whole)).finish_reason_raw == (
            stream.answer().finish_reason_raw
        )


def test_unknown_fields_that_are_false_or_zero_are_kept() -> None:
    body = say(content="a", sure=False, score=0, none=None, at=0.0) + say(sure=False, seen=1) + STOP
    message = read_stream(events_of(body + DONE)).completion()["choices"][0]["message"]
    assert (message["sure"], message["score"], message["at"]) == (False, 0, 0.0)
    assert "none" not in message


def test_an_error_of_the_only_choice() -> None:
    failed = choice({"content": ""}, "error")
    error = {"code": 503, "message": "it went away"}
    pieces, stream = read(say(content="Half") + chunk(failed | {"error": error}) + DONE)
    failure = pieces[1].error
    assert failure is not None
    assert (failure.error_type, failure.http_status) == ("upstream_error", 503)
    assert failure.message == "it went away"
    assert orjson.loads(failure.body or b"") == {"error": error}
    assert (stream.text(), stream.finished) == ("Half", False)
    pieces, stream = read(chunk(failed | {"error": None}))
    assert (pieces[0].kind, stream.answer().finish_reason) == ("finish", "error")


def test_an_error_of_one_choice_leaves_the_others() -> None:
    failed = choice({}, "error", 1, error={"message": "no"})
    body = say(content="a") + chunk(choice({"content": "b"}, index=1)) + chunk(failed) + STOP + DONE
    pieces, stream = read(body)
    assert b"".join(piece.out for piece in pieces) == body
    assert stream.finished


def test_a_stream_that_ends_inside_an_event() -> None:
    pieces, stream = read(say(content="a") + b'data: {"choices":[{"delta":{"content":"b')
    assert pieces[1].error is not None
    assert pieces[1].error.error_type == "upstream_truncated"
    pieces, stream = read(say(content="a") + STOP + b"data: [DO")
    assert [piece.kind for piece in pieces] == ["content", "finish", "empty"]
    pieces, stream = read(say(content="a") + STOP + b"data: [DONE]")
    assert (pieces[-1].out, stream.done, stream.finished) == (DONE, True, True)


def test_a_stream_as_one_completion() -> None:
    body = b"\xef\xbb\xbf" + say(content="pee") + say(content="ked") + STOP + chunk(usage=USAGE)
    assert orjson.loads(completion_from_stream(events_of(body + DONE))) == {
        "id": "c-1",
        "object": "chat.completion",
        "created": 17,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "peeked", "refusal": None},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
        "usage": USAGE,
    }


@pytest.mark.parametrize(
    ("body", "error_type"),
    [
        (say(content="Half"), "upstream_truncated"),
        (b"", "upstream_truncated"),
        (say(content="a") + b'data: {"error":"no"}\n\n' + STOP, "upstream_error"),
    ],
)
def test_a_stream_that_fails_is_no_completion(body: bytes, error_type: str) -> None:
    with pytest.raises(UpstreamFailure) as failure:
        read_stream(events_of(body) if body else [])
    assert failure.value.error_type == error_type
