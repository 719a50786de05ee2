"""Tool calls in streams: the repairs that a plain client needs, and the record of the calls."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from xgw.providers.dialects.chat import ChatStream, completion_of
from xgw.providers.sse import EventSplitter
from xgw.values import ToolCall

MINTED = re.compile(r"call_[0-9a-f]{24}")
HEAD = b'{"id":"c-1","created":1.70E9,"model":"m","choices":[{"index":0,'
TAIL = b'"finish_reason":null}],"x":1e-7}'


def delta(text: str) -> bytes:
    """A chunk whose delta is `text`, with odd number text around it."""
    return b"data: " + HEAD + b'"delta":' + text.encode() + b"," + TAIL + b"\n\n"


def calls(*elements: str) -> bytes:
    return delta('{"tool_calls":[' + ",".join(elements) + "]}")


def finish(reason: str = "tool_calls") -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"%s"}]}\n\n' % reason.encode()


def relay(body: bytes) -> tuple[list[bytes], ChatStream]:
    splitter, stream = EventSplitter(1 << 20), ChatStream(hide_usage=False)
    return [stream.read(event).out for event in splitter.feed(body)], stream


def as_a_client(body: bytes, choice: int = 0) -> list[list[Any]]:
    """[id, name, arguments] of each call as a plain client joins them by index.

    Like the plainest of clients it takes id and name from the first delta of a call.
    """
    found: dict[int, list[Any]] = {}
    for event in EventSplitter(1 << 20).feed(body):
        for part in orjson.loads(event.data or b"{}").get("choices") or []:
            for call in (part.get("delta") or {}).get("tool_calls") or []:
                if part.get("index", 0) == choice:
                    function = call.get("function") or call.get("custom") or {}
                    mine = found.setdefault(
                        call["index"], [call.get("id"), function.get("name"), ""]
                    )
                    mine[2] += function.get("arguments") or function.get("input") or ""
    return [found[index] for index in sorted(found)]


def recorded(stream: ChatStream) -> list[list[Any]]:
    return [[c.tool_call_id, c.name, c.arguments] for c in stream.answer().tool_calls]


ONE = [["x", "f", '{"a":1}']]
TWO = [["x", "f", '{"a":1}'], ["y", "g", '{"b":2}']]

# deltas of `tool_calls` → the calls that client and record must both see
REPAIRED: dict[str, tuple[list[str], list[list[Any]]]] = {
    "no index": (
        [
            '{"id":"x","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"function":{"arguments":":1}"}}',
            '{"id":"y","function":{"name":"g","arguments":"{\\"b\\":2}"}}',
        ],
        TWO,
    ),
    "a null index, the id on every delta": (
        [
            '{"index":null,"id":"x","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":null,"id":"y","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":null,"id":"x","function":{"arguments":":1}"}}',
            '{"index":null,"id":"y","function":{"arguments":":2}"}}',
        ],
        TWO,
    ),
    "index 0 for every call": (
        [
            '{"index":0,"id":"x","type":"function","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":0,"function":{"arguments":":1}"}}',
            '{"index":0,"id":"y","type":"function","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":0,"function":{"arguments":":2}"}}',
        ],
        TWO,
    ),
    "index 0 for every call, in one delta": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\":1}"}},'
            '{"index":0,"id":"y","function":{"name":"g","arguments":"{\\"b\\":2}"}}'
        ],
        TWO,
    ),
    "index 0 for every call, interleaved by id": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":0,"id":"y","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":0,"id":"x","function":{"name":"f","arguments":":1}"}}',
            '{"index":0,"id":"y","function":{"name":"g","arguments":":2}"}}',
        ],
        TWO,
    ),
    "index 0 for every call, another id on every delta": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":""}}',
            '{"index":0,"id":"x2","function":{"name":null,"arguments":"{\\"a\\""}}',
            '{"index":0,"id":"x3","function":{"arguments":":1}"}}',
            '{"index":0,"id":"y","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":0,"id":"y2","function":{"arguments":":2}"}}',
        ],
        TWO,
    ),
    "another id on every delta": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":1,"id":"y","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":0,"id":"x2","function":{"arguments":":1}"}}',
            '{"index":1,"id":"y2","function":{"arguments":":2}"}}',
        ],
        TWO,
    ),
    "a text for an index": (
        [
            '{"index":"0","id":"x","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":"0","function":{"arguments":":1}"}}',
        ],
        ONE,
    ),
    "the name comes after the first delta": (
        [
            '{"index":0,"id":"x","type":"function","function":{"name":"","arguments":""}}',
            '{"index":0,"function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":0,"function":{"name":"","arguments":":1}"}}',
        ],
        ONE,
    ),
    "the name comes after the arguments, another call between": (
        [
            '{"index":0,"id":"x","function":{"name":null,"arguments":"{\\"a\\":"}}',
            '{"index":1,"id":"y","function":{"name":"g","arguments":"{\\"b\\":2}"}}',
            '{"index":0,"function":{"arguments":"1"}}',
            '{"index":0,"function":{"name":"f","arguments":"}"}}',
        ],
        TWO,
    ),
    "the name comes in the middle of a delta": (
        [
            '{"index":0,"id":"x","function":{"arguments":"{\\"a"}},'
            '{"index":0,"id":"x","function":{"name":"f","arguments":"\\":"}},'
            '{"index":0,"function":{"arguments":"1}"}}'
        ],
        ONE,
    ),
    "the name comes with an object for arguments": (
        [
            '{"index":0,"id":"x","function":{"name":""}}',
            '{"index":0,"function":{"name":"f","arguments":{"a":1}}}',
        ],
        ONE,
    ),
    "the id comes with the name": (
        [
            '{"index":0,"function":{"arguments":"{\\"a\\""}}',
            '{"index":0,"id":"x","function":{"name":"f","arguments":":1}"}}',
        ],
        ONE,
    ),
    "index 0 and one id for every call": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\":1}"}}',
            '{"index":0,"id":"x","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":0,"id":"x","function":{"arguments":":2}"}}',
            '{"index":0,"id":"x","function":{"name":"g","arguments":"{\\"b\\":3}"}}',
        ],
        [["x", "f", '{"a":1}'], ["x", "g", '{"b":2}'], ["x", "g", '{"b":3}']],
    ),
    "an object for arguments": (
        ['{"index":0,"id":"x","function":{"name":"f","arguments":{"a":1}}}'],
        ONE,
    ),
}

# What a plain client reads as it is.
UNTOUCHED: dict[str, tuple[list[str], list[list[Any]]]] = {
    "two calls, interleaved by index": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":""}}',
            '{"index":1,"id":"y","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":0,"function":{"arguments":"{\\"a\\":1}"}}',
            '{"index":1,"function":{"arguments":":2}"}}',
        ],
        TWO,
    ),
    "id and name on every delta": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\""}}',
            '{"index":0,"id":"x","function":{"name":"f","arguments":":1}"}}',
            '{"index":0,"id":"x","function":{"name":"f","arguments":""}}',
        ],
        ONE,
    ),
    "empty id and name on later deltas": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":null}}',
            '{"index":0,"id":"","function":{"name":"","arguments":"{\\"a\\":1}"}}',
            '{"index":0,"id":null,"function":{"name":null}}',
            '{"index":0}',
        ],
        ONE,
    ),
    "indexes that begin at 1": (
        [
            '{"index":1,"id":"x","function":{"name":"f","arguments":"{\\"a\\":1}"}}',
            '{"index":2,"id":"y","function":{"name":"g","arguments":"{\\"b\\":2}"}}',
        ],
        TWO,
    ),
    "one id for two calls": (
        [
            '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\":1}"}}',
            '{"index":1,"id":"x","function":{"name":"g","arguments":"{\\"b\\""}}',
            '{"index":1,"id":"x","function":{"arguments":":2}"}}',
        ],
        [["x", "f", '{"a":1}'], ["x", "g", '{"b":2}']],
    ),
    "a custom tool": (
        [
            '{"index":0,"id":"x","type":"custom","custom":{"name":"f","input":"{\\"a\\""}}',
            '{"index":0,"custom":{"input":":1}"}}',
        ],
        ONE,
    ),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_calls_that_need_repair(name: str) -> None:
    elements, expected = REPAIRED[name]
    body = b"".join(calls(element) for element in elements)
    outs, stream = relay(body + finish())
    assert as_a_client(b"".join(outs)) == expected
    assert recorded(stream) == expected
    assert len(outs) == len(elements) + 1
    for out in outs[:-1]:
        assert out.startswith(b"data: " + HEAD)
        assert out.endswith(TAIL + b"\n\n")
    assert b"".join(outs) != body
    assert as_a_client(b"".join(relay(b"".join(outs))[0])) == expected


@pytest.mark.parametrize("name", UNTOUCHED)
def test_calls_that_go_through_as_they_are(name: str) -> None:
    elements, expected = UNTOUCHED[name]
    body = b"".join(calls(element) for element in elements) + finish()
    outs, stream = relay(body)
    assert b"".join(outs) == body
    assert as_a_client(body) == expected
    assert recorded(stream) == expected


def test_a_call_without_an_id_gets_one() -> None:
    body = calls('{"index":0,"function":{"name":"f","arguments":""}}') + calls(
        '{"index":0,"function":{"arguments":"{}"}}'
    )
    outs, stream = relay(body + finish())
    ((tool_call_id, name, arguments),) = as_a_client(b"".join(outs))
    assert MINTED.fullmatch(tool_call_id)
    assert (name, arguments) == ("f", "{}")
    assert recorded(stream) == [[tool_call_id, "f", "{}"]]
    assert outs[1:] == [calls('{"index":0,"function":{"arguments":"{}"}}'), finish()]


def test_an_id_that_comes_too_late_is_dropped() -> None:
    body = calls('{"index":0,"function":{"name":"f","arguments":"{"}}') + calls(
        '{"index":0,"id":"late","function":{"arguments":"}"}}'
    )
    outs, stream = relay(body + finish())
    ((tool_call_id, _, arguments),) = as_a_client(b"".join(outs))
    assert b"late" not in b"".join(outs)
    assert recorded(stream) == [[tool_call_id, "f", arguments]]


@pytest.mark.parametrize(
    "elements",
    [
        ['{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"g","arguments":"{}"}}'],
        [
            '{"index":0,"function":{"name":"f","arguments":"{}"}}',
            '{"index":0,"function":{"name":"f","arguments":""}}',
            '{"index":0,"function":{"name":"g","arguments":"{}"}}',
        ],
        ['{"function":{"name":"f","arguments":""}},{"function":{"name":"g","arguments":null}}'],
    ],
)
def test_calls_without_index_and_id_are_told_apart(elements: list[str]) -> None:
    outs, stream = relay(b"".join(calls(element) for element in elements) + finish())
    seen = as_a_client(b"".join(outs))
    assert [name for _, name, _ in seen] == ["f", "g"]
    assert recorded(stream) == seen
    assert all(MINTED.fullmatch(tool_call_id) for tool_call_id, _, _ in seen)
    assert all(call.arguments_json_valid for call in stream.answer().tool_calls)


def test_a_held_call_keeps_its_other_fields_and_number_text() -> None:
    body = (
        delta(
            '{"content":"hm","tool_calls":[{"index":0,"id":"x","type":"function","function":'
            '{"name":"","arguments":"{","z":1.50},"extra":{"sig":1e2}}]}'
        )
        + calls('{"index":0,"function":{"name":"f","arguments":"}","w":2.0}}')
        + finish()
    )
    outs, stream = relay(body)
    assert outs == [
        delta('{"content":"hm"}'),
        calls(
            '{"index":0,"id":"x","type":"function","extra":{"sig":1e2},"function":'
            '{"name":"f","arguments":"{}","z":1.50,"w":2.0}}'
        ),
        finish(),
    ]
    assert stream.answer().message()["tool_calls"] == [
        {
            "id": "x",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
            "extra": {"sig": 100.0},
        }
    ]


def test_a_call_that_never_gets_a_name_goes_out_at_the_end() -> None:
    body = calls('{"index":0,"id":"x","function":{"name":"","arguments":"{}"}}')
    outs, stream = relay(body + finish())
    assert outs[0] == delta("{}")
    assert as_a_client(outs[1]) == [["x", "", "{}"]]
    assert b'"finish_reason":"tool_calls"' in outs[1]
    assert recorded(stream) == [["x", None, "{}"]]


def test_a_call_without_a_name_in_the_last_chunk_goes_out_too() -> None:
    outs, stream = relay(
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","type":"custom",'
        b'"custom":{"input":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n'
    )
    assert as_a_client(b"".join(outs)) == [["x", "", "{}"]]
    assert recorded(stream) == [["x", None, "{}"]]


def test_a_name_in_pieces_is_relayed_as_it_is_and_recorded_whole() -> None:
    body = (
        calls('{"index":0,"id":"x","function":{"name":"get_","arguments":""}}')
        + calls('{"index":0,"function":{"name":"temp","arguments":""}}')
        + calls('{"index":0,"function":{"name":"get_temp","arguments":"{}"}}')
        + finish()
    )
    outs, stream = relay(body)
    assert b"".join(outs) == body
    assert recorded(stream) == [["x", "get_temp", "{}"]]


def test_each_choice_has_its_own_calls() -> None:
    def two(*parts: str) -> bytes:
        texts = (
            f'{{"index":{n},"delta":{{"tool_calls":[{part}]}}}}' for n, part in enumerate(parts)
        )
        return b'data: {"choices":[' + ",".join(texts).encode() + b"]}\n\n"

    opening = '{"id":"%s","function":{"name":"%s","arguments":"{"}}'
    body = two(opening % ("x", "f"), opening % ("y", "g"))
    body += two('{"function":{"arguments":"}"}}', '{"index":0,"function":{"arguments":"}"}}')
    outs, stream = relay(body)
    assert as_a_client(b"".join(outs), 0) == [["x", "f", "{}"]]
    assert as_a_client(b"".join(outs), 1) == [["y", "g", "{}"]]
    assert recorded(stream) == [["x", "f", "{}"], ["y", "g", "{}"]]
    assert stream.live_text("tool_arguments", 1) == "{}"


def test_repairs_beside_what_msgspec_cannot_read() -> None:
    """NaN and a lone surrogate in the chunk: the repair is made all the same, the rest stays."""
    held = calls('{"id":"x","function":{"name":"","arguments":""},"s":"\\ud83d"}')
    named = calls('{"function":{"name":"f","arguments":"{}"},"n":NaN,"\\udc00":"\\\\ud83d"}')
    outs, stream = relay(held + named + finish())
    assert outs[0] == delta("{}")
    assert outs[1] == calls(
        '{"index":0,"id":"x","type":"function","s":"\\ud83d","\\udc00":"\\\\ud83d",'
        '"function":{"name":"f","arguments":"{}"}}'
    )
    orjson.dumps(stream.answer().choices)
    orjson.loads(completion_of(stream))


def test_repaired_events_keep_their_other_fields() -> None:
    body = b": c\r\nid: 1\r\n" + calls('{"id":"x","function":{"name":"f"}}').replace(b"\n", b"\r\n")
    outs, _ = relay(body)
    assert outs == [
        b": c\r\nid: 1\r\n"
        + calls('{"index":0,"id":"x","function":{"name":"f"}}').replace(b"\n", b"\r\n")
    ]


@pytest.mark.parametrize("junk", ["7", "null", '"x"', "[]", "{}", '{"function":7}'])
def test_odd_elements_do_no_harm(junk: str) -> None:
    body = calls(junk) + calls('{"index":0,"id":"x","function":{"name":"f","arguments":"{}"}}')
    outs, stream = relay(body + finish())
    assert all(outs)
    assert ["x", "f", "{}"] in recorded(stream)


def test_the_same_call_once_more_is_no_second_one() -> None:
    """Nobody is to run it twice; its arguments are not valid any more, so nobody runs it at all."""
    again = '{"index":0,"id":"x","function":{"name":"f","arguments":"{\\"a\\":1}"}}'
    _, stream = relay(calls(again) + calls(again) + finish())
    (call,) = stream.answer().tool_calls
    assert not call.arguments_json_valid


def test_function_calls_of_old_with_an_object_for_arguments() -> None:
    _, stream = relay(delta('{"function_call":{"name":"f","arguments":{"a":1}}}') + finish())
    (call,) = stream.answer().tool_calls
    assert (call.name, call.arguments) == ("f", '{"a":1}')


def test_function_calls_of_old() -> None:
    body = (
        delta('{"function_call":{"name":"f","arguments":""}}')
        + delta('{"function_call":{"arguments":"{\\"a\\":1}"}}')
        + finish("function_call")
    )
    outs, stream = relay(body)
    answer = stream.answer()
    assert b"".join(outs) == body
    assert answer.tool_calls == (ToolCall(None, "f", '{"a":1}', True, False),)
    assert answer.message()["function_call"] == {"name": "f", "arguments": '{"a":1}'}
    assert "tool_calls" not in answer.message()
    assert answer.finish_reason == "function_call"
    assert stream.live_text("tool_arguments", 0) == '{"a":1}'


@pytest.mark.parametrize(
    ("arguments", "end", "broken", "valid", "incomplete"),
    [
        ('{"a":1}', "tool_calls", False, True, False),
        ('{"a":1}', "length", False, True, True),
        ('{"a":1}', "MAX_TOKENS", False, True, True),
        ('{"a":1}', None, True, True, True),
        ('{"a":1}', None, False, True, False),
        ('{"a":1}', "tool_calls", True, True, False),
        ('{"a":', None, True, False, True),
        ('{"a":1}{"a":2}', "stop", False, False, False),
        ('{"a":NaN}', "stop", False, False, False),
        ("[1]", "stop", False, False, False),
        ("", "tool_calls", False, True, False),
        (" ", "tool_calls", False, True, False),
        ("", "length", False, False, True),
    ],
)
def test_validity_of_arguments(
    arguments: str, end: str | None, broken: bool, valid: bool, incomplete: bool
) -> None:
    text = orjson.dumps(arguments).decode()
    body = calls(
        '{"index":0,"id":"w","function":{"name":"e","arguments":"{}"}}',
        '{"index":1,"id":"x","function":{"name":"f","arguments":' + text + "}}",
    )
    _, stream = relay(body + (finish(end) if end else b""))
    first, last = stream.answer(broken=broken).tool_calls
    assert (first.arguments_json_valid, first.incomplete) == (True, False)
    assert (last.arguments, last.arguments_json_valid, last.incomplete) == (
        arguments,
        valid,
        incomplete,
    )
