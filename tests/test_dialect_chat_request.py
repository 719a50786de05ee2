"""Chat requests: what is understood, what is refused, and the few changes on their way."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from xgw.errors import ApiError
from xgw.providers.dialects.chat_request import parse_request, rewrite

SENT = (
    b'{ "model" : "m\\u002dmain","temperature":1.0, "seed":9007199254740993,"x":1e-7,\n'
    b'"messages":[{"role":"user","content":"a\\u0000b\\ud83d \xc3\xa9"}],"stop":null,'
    b'"tools":[{"max":18446744073709551615}],"parallel_tool_calls":false,"extra_body":{"a":{}}}'
)
ASKED = b'"stream_options":{"include_usage":true}'


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": []} | fields)


def test_a_request() -> None:
    sent = body(
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant"}],
        stream=True,
        stream_options={"include_usage": True},
        tools=[{"type": "function"}],
        metadata={"session_id": "s"},
        user="u",
        x=[1],
    )
    request = parse_request(sent)
    assert (request.model, request.stream, request.include_usage) == ("m", True, True)
    assert request.messages == [{"role": "user", "content": "hi"}, {"role": "assistant"}]
    assert (request.tools, request.metadata) == ([{"type": "function"}], {"session_id": "s"})
    assert (request.user, request.fields["x"]) == ("u", [1])
    assert request.body is sent


@pytest.mark.parametrize(
    "fields",
    [
        {},
        dict.fromkeys(("stream", "stream_options", "metadata", "user", "tools")),
        {"stream": False, "stream_options": {"include_usage": False}, "tools": 7, "user": 7},
        {"stream_options": 7, "tools": [7]},
        {"stream_options": {"include_usage": 1}},
    ],
)
def test_what_is_absent_or_left_to_the_upstream(fields: dict[str, Any]) -> None:
    request = parse_request(body(**fields))
    assert (request.stream, request.include_usage, request.tools) == (False, False, None)
    assert (request.metadata, request.user) == (None, None)


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        (b"", None),
        (b"{", None),
        (b'{"model":"m"} x', None),
        (b"\xff", None),
        (b'\xef\xbb\xbf{"model":"m","messages":[]}', None),
        (b'{"model":"m","messages":[],"a":"\xff"}', None),
        (b'{"model":"m","messages":[],"temperature":NaN}', None),
        (b'{"model":"m","messages":[],"a":"\\ud83d","b":Infinity}', None),
        (b'{"model":"m","messages":[],"a":"\n"}', None),
        (b"[]", None),
        (b"null", None),
        (b'{"messages":[]}', "model"),
        (body(model=None), "model"),
        (body(model=7), "model"),
        (body(model=""), "model"),
        (b'{"model":"m"}', "messages"),
        (body(messages=None), "messages"),
        (body(messages={}), "messages"),
        (body(messages="hi"), "messages"),
        (body(messages=[{}, "hi"]), "messages[1]"),
        (body(stream="yes"), "stream"),
        (body(stream=1), "stream"),
        (body(metadata="s"), "metadata"),
        (body(metadata=[]), "metadata"),
    ],
)
def test_refusals(sent: bytes, param: str | None) -> None:
    with pytest.raises(ApiError) as refusal:
        parse_request(sent)
    assert (refusal.value.status, refusal.value.type) == (400, "invalid_request_error")
    assert refusal.value.param == param
    assert refusal.value.code is not None
    assert param is None or param in refusal.value.message


@pytest.mark.parametrize("more", ["", ',"s":"\\ud83d"'])
def test_depth(more: str) -> None:
    def nested(levels: int) -> bytes:
        deep = "[" * levels + "]" * levels
        return f'{{"model":"m","messages":[],"x":{deep}{more}}}'.encode()

    assert parse_request(nested(199)).model == "m"
    for levels in (200, 1500, 100_000):
        with pytest.raises(ApiError, match="deeper than 200 levels"):
            parse_request(nested(levels))
    with pytest.raises(ApiError, match="deeper than 3 levels"):
        parse_request(nested(3), max_depth=3)
    wide = b'{"model":"m","messages":[' + b"{}," * 500 + b"{}]}"
    assert len(parse_request(wide).messages) == 501


def test_lone_surrogates_and_odd_numbers_are_no_reason_to_refuse() -> None:
    sent = (
        b'{"model":"m","messages":[{"content":"a\\ud83d"},{"content":"\\ud83d\\ude00"}],'
        b'"\\udc00":1e999,"n":123456789012345678901234567890}'
    )
    request = parse_request(sent)
    assert [m["content"] for m in request.messages] == ["a\ufffd", "😀"]
    assert request.body is sent
    orjson.dumps(request.fields)
    assert rewrite(sent, model="m") is sent
    assert rewrite(sent, model="other") == sent.replace(b'"m"', b'"other"')


def test_of_a_repeated_name_the_last_counts() -> None:
    sent = b'{"model":"a","messages":[],"x":1,"model":"b","x":2}'
    assert parse_request(sent).model == "b"
    assert rewrite(sent, model="c") == b'{"model":"c","messages":[],"x":2}'


def test_changes_leave_all_other_values_as_sent() -> None:
    sent = SENT.replace(b"\\ud83d", b"\\ud83d\\ude00")
    expected = sent.replace(b'{ "model" : ', b'{"model":').replace(b', "seed"', b',"seed"')
    expected = expected.replace(b",\n", b",")
    assert rewrite(sent, model="n") == expected.replace(b'"m\\u002dmain"', b'"n"')
    asked = rewrite(sent, include_usage=True)
    assert asked == expected[:-1] + b"," + ASKED + b"}"


def test_a_lone_surrogate_anywhere_stays() -> None:
    expected = SENT.replace(b'{ "model" : ', b'{"model":').replace(b', "seed"', b',"seed"')
    expected = expected.replace(b",\n", b",")
    assert rewrite(SENT, model="n") == expected.replace(b'"m\\u002dmain"', b'"n"')


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": "m-main"},
        {"metadata_without": ("session_id",)},
        {"drop_stream_options": True},
        {"model": "m-main", "metadata_without": ("x",), "drop_stream_options": True},
    ],
)
def test_nothing_to_change(options: dict[str, Any]) -> None:
    assert rewrite(SENT, **options) is SENT
    plain = body(model="m-main", metadata={"a": 1})
    assert rewrite(plain, **options) is plain


@pytest.mark.parametrize(
    ("metadata", "left"),
    [
        (b'{"session_id":"s","a":1.0,"Turn_ID":"t"}', b'{"a":1.0}'),
        (b'{"SESSION_ID":"s"}', None),
        (b'{"session_id":null,"turn_id":"\\ud83d"}', None),
        (b"{}", b"{}"),
        (b"null", b"null"),
        (b'{"session":1}', b'{"session":1}'),
        (b"7", b"7"),
    ],
)
def test_identifiers_are_taken_out_of_metadata(metadata: bytes, left: bytes | None) -> None:
    sent = b'{"model":"m","metadata":' + metadata + b',"messages":[]}'
    kept = b"" if left is None else b'"metadata":' + left + b","
    rewritten = rewrite(sent, metadata_without={"session_id", "turn_id"})
    assert rewritten == b'{"model":"m",' + kept + b'"messages":[]}'


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (None, ASKED),
        (b"null", ASKED),
        (b"{}", ASKED),
        (b'{"x":1.0}', b'"stream_options":{"x":1.0,"include_usage":true}'),
        (b'{"include_usage":false,"x":1}', b'"stream_options":{"include_usage":true,"x":1}'),
        (b'{"include_usage":true}', ASKED),
        (b"7", b'"stream_options":7'),
    ],
)
def test_asking_for_usage(options: bytes | None, expected: bytes) -> None:
    sent = b'{"model":"m","messages":[]'
    sent += b"}" if options is None else b',"stream_options":' + options + b"}"
    assert rewrite(sent, include_usage=True) == b'{"model":"m","messages":[],' + expected + b"}"
    assert rewrite(sent, drop_stream_options=True) == b'{"model":"m","messages":[]}'


def test_large_values_pass_unchanged() -> None:
    image = b'"data:image/png;base64,' + b"iVBORw0K" * 500_000 + b'"'
    sent = b'{"model":"m","messages":[{"content":' + image + b"}]}"
    assert rewrite(sent, model="n") == sent.replace(b'"m"', b'"n"', 1)


def test_a_body_of_escapes_takes_little_memory_and_time() -> None:
    text = b"\\n\\\\\\ud83d\\ude00" * 100_000
    sent = b'{"model":"m","messages":[],"a":"' + text + b'\\\\\\ud83d"}'
    assert rewrite(sent, model="n") == sent.replace(b'"m"', b'"n"', 1)
