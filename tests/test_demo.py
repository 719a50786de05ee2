"""The built-in demo over real sockets: plain HTTP, and the openai SDK."""

from __future__ import annotations

import base64
import http.client
import math
import socket
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import openai
import orjson
import pytest
from pydantic import BaseModel

from xgw.agents.functions import read_function
from xgw.agents.planner import Plan
from xgw.providers.demo import DemoServer

TEXT = {"type": "string"}


def function(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


WEATHER = function("get_weather", "Get the weather for a city", city=TEXT)
CALCULATOR = function("calculator", "Evaluates an arithmetic expression", expression=TEXT)
CLOCK = function("get_current_time", "Tells the current time", timezone=TEXT)
TOOLS = [WEATHER, CALCULATOR, CLOCK]


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    server = DemoServer(pace=0)
    yield server.start()
    server.stop()


@pytest.fixture(scope="module")
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="any", max_retries=0, timeout=60) as sdk:
        yield sdk


class Wire:
    """One kept-alive connection."""

    def __init__(self, base_url: str) -> None:
        where = urlsplit(base_url)
        self.http = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)

    def send(self, method: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
        raw = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        self.http.request(method, path, raw, {"Content-Type": "application/json"})
        response = self.http.getresponse()
        content = response.read()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, orjson.loads(content), headers

    def stream(self, body: dict[str, Any]) -> list[str]:
        self.http.request("POST", "/v1/chat/completions", orjson.dumps({**body, "stream": True}))
        response = self.http.getresponse()
        assert response.status == 200
        assert response.getheader("Content-Type", "").startswith("text/event-stream")
        events = response.read().decode().split("\n\n")
        assert events.pop() == ""
        return [event.removeprefix("data: ") for event in events]


@pytest.fixture
def wire(base_url: str) -> Iterator[Wire]:
    connection = Wire(base_url)
    yield connection
    connection.http.close()


def ask(*texts: str, **more: Any) -> dict[str, Any]:
    """A request whose user messages are these, each but the last one answered."""
    messages: list[dict[str, Any]] = []
    for text in texts:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": "Fine."}]
    return {"model": "demo", "messages": messages[:-1], **more}


def answer(wire: Wire, *texts: str, **more: Any) -> str:
    status, body, _ = wire.send("POST", "/v1/chat/completions", ask(*texts, **more))
    assert status == 200
    return str(body["choices"][0]["message"]["content"])


def calls_of(wire: Wire, text: str, **more: Any) -> list[tuple[str, dict[str, Any]]]:
    request = ask(text, **{"tools": TOOLS, **more})
    _, body, _ = wire.send("POST", "/v1/chat/completions", request)
    calls = body["choices"][0]["message"].get("tool_calls") or []
    assert body["choices"][0]["finish_reason"] == ("tool_calls" if calls else "stop")
    return [(c["function"]["name"], orjson.loads(c["function"]["arguments"])) for c in calls]


# Chat


def test_answers_under_the_name_that_was_asked_for(wire: Wire) -> None:
    request = {**ask("Hi"), "model": "gpt-4o"}
    status, body, headers = wire.send("POST", "/v1/chat/completions", request)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert body["object"] == "chat.completion"
    assert body["model"] == "gpt-4o"
    assert body["system_fingerprint"] == "demo-scripted"
    assert "scripted demo" in body["choices"][0]["message"]["content"]
    assert headers["x-request-id"]


@pytest.mark.parametrize(
    "text", ["Hello!", "what can you do?", "Why is the sky blue?", "Write some code", "thanks"]
)
def test_every_answer_says_that_it_is_scripted_and_stays_the_same(wire: Wire, text: str) -> None:
    first = answer(wire, text)
    assert "scripted demo" in first
    assert answer(wire, text) == first


def test_the_question_is_quoted_and_turns_are_counted(wire: Wire) -> None:
    assert "> Why is the sky blue?" in answer(wire, "Why is the sky blue?")
    assert "first turn" in answer(wire, "How many turns was that?")
    assert "turn 3" in answer(wire, "One", "Two", "How many turns was that?")
    assert "> Two" in answer(wire, "One", "Two", "What did I say before?")
    assert "Ada" in answer(wire, "My name is Ada", "What is my name?")
    assert answer(wire, "Please count to 5").startswith("1, 2, 3, 4, 5")


def test_a_stream_adds_up_to_the_whole_answer(wire: Wire) -> None:
    whole = answer(wire, "What can you do?")
    *events, done = wire.stream(ask("What can you do?"))
    chunks = [orjson.loads(event) for event in events]
    assert done == "[DONE]"
    assert len(chunks) > 20
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == whole
    assert [c["choices"][0]["finish_reason"] for c in chunks[-2:]] == [None, "stop"]
    assert not any("usage" in chunk for chunk in chunks)


def test_usage_in_a_stream_only_on_request(wire: Wire) -> None:
    *events, _ = wire.stream(ask("Hi", stream_options={"include_usage": True}))
    chunks = [orjson.loads(event) for event in events]
    assert all(chunk["usage"] is None for chunk in chunks[:-1])
    assert chunks[-1]["choices"] == []
    usage = chunks[-1]["usage"]
    assert usage["completion_tokens"] == len(chunks) - 3
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0
    *without, _ = wire.stream(ask("Hi", stream_options={"include_usage": False}))
    assert not any("usage" in orjson.loads(event) for event in without)


def test_a_resent_prefix_is_a_cache_hit(wire: Wire) -> None:
    def cached(*texts: str) -> tuple[int, int]:
        _, body, _ = wire.send("POST", "/v1/chat/completions", ask(*texts))
        usage = body["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    story = "A prompt that nobody has sent before. " * 40
    sent, hits = cached(story)
    assert hits == 0
    assert sent >= 380
    sent, hits = cached(story, "And then?")
    assert hits == 256
    assert sent > hits
    assert cached("Other beginning. " + story)[1] == 0


def test_several_choices(wire: Wire) -> None:
    _, body, _ = wire.send("POST", "/v1/chat/completions", ask("Why?", n=3))
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    *events, _ = wire.stream(ask("Why?", n=3))
    streamed = {0: "", 1: "", 2: ""}
    for event in events:
        for choice in orjson.loads(event)["choices"]:
            streamed[choice["index"]] += choice["delta"].get("content") or ""
    assert streamed == {c["index"]: c["message"]["content"] for c in body["choices"]}


def test_stop_and_length(wire: Wire) -> None:
    assert answer(wire, "Count to 9", stop=", 4") == "1, 2, 3"
    assert answer(wire, "Count to 9", stop=["8", "3"]) == "1, 2, "
    for param in ("max_tokens", "max_completion_tokens"):
        request = ask("Count to 9", **{param: 4})
        _, body, _ = wire.send("POST", "/v1/chat/completions", request)
        assert body["choices"][0]["finish_reason"] == "length"
        assert body["usage"]["completion_tokens"] == 4


def test_images_and_odd_content_are_accepted(wire: Wire) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9999}}
    content = [{"type": "text", "text": "What is this?"}, picture]
    request = {"model": "m", "messages": [{"role": "user", "content": content}]}
    _, body, _ = wire.send("POST", "/v1/chat/completions", request)
    assert "1 image that I cannot look at" in body["choices"][0]["message"]["content"]
    assert body["usage"]["prompt_tokens"] < 900
    for odd in (None, [], 5, {"a": 1}, [1, None, "x"], ""):
        request = {"model": "m", "messages": [{"role": "user", "content": odd}]}
        status, body, _ = wire.send("POST", "/v1/chat/completions", request)
        assert status == 200
        assert "scripted demo" in body["choices"][0]["message"]["content"]


# Tools


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("What's the weather in Oslo?", [("get_weather", {"city": "Oslo"})]),
        ("weather in new york please", [("get_weather", {"city": "New York"})]),
        ("Will it rain in São Paulo?", [("get_weather", {"city": "São Paulo"})]),
        ("What is 17*23?", [("calculator", {"expression": "17*23"})]),
        ("What time is it?", [("get_current_time", {"timezone": "UTC"})]),
        (
            "Compare the weather in Berlin and San Francisco, CA",
            [("get_weather", {"city": "Berlin"}), ("get_weather", {"city": "San Francisco, CA"})],
        ),
        ("Hello, who are you?", []),
        ("How was your day?", []),
        ("My name is Ada", []),
    ],
)
def test_asks_for_the_tool_that_the_prompt_calls_for(
    wire: Wire, text: str, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    assert calls_of(wire, text) == calls


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (
            "Plan this: tell me the weather in Oslo and calculate 17 * 23. Then say hello!",
            ["Plan this: tell me the weather in Oslo", "calculate 17 * 23", "Then say hello"],
        ),
        ("plan", ["plan"]),
        ("Update the plan", ["Update the plan"]),
        ("plan " + "x" * 900, ["plan " + "x" * 195]),
    ],
)
def test_a_plan_has_what_the_prompt_asks_for(wire: Wire, text: str, items: list[str]) -> None:
    plan = Plan()
    planner = read_function(plan.plan)
    told = {"description": planner.description, "parameters": planner.parameters}
    tool = {"type": "function", "function": {"name": "plan", **told}}
    [(_, arguments)] = [
        call for call in calls_of(wire, text, tools=[*TOOLS, tool]) if call[0] == "plan"
    ]
    plan.plan(**planner.check(arguments))
    assert plan.kept["items"] == [{"text": item, "state": "pending"} for item in items]


def test_asks_for_several_tools_in_parallel_or_one_after_another(wire: Wire) -> None:
    text = "Tell me the weather in Oslo and calculate 17 * 23."
    both = {"get_weather": {"city": "Oslo"}, "calculator": {"expression": "17 * 23"}}
    assert dict(calls_of(wire, text)) == both
    [(first, arguments)] = calls_of(wire, text, parallel_tool_calls=False)
    called = {"name": first, "arguments": orjson.dumps(arguments).decode()}
    made = {"id": "c1", "type": "function", "function": called}
    tail = [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    request = ask(text, tools=TOOLS, parallel_tool_calls=False)
    request["messages"] += tail
    _, body, _ = wire.send("POST", "/v1/chat/completions", request)
    [call] = body["choices"][0]["message"]["tool_calls"]
    assert {first, call["function"]["name"]} == set(both)


def test_tool_choice_is_obeyed(wire: Wire) -> None:
    weather = "What's the weather in Oslo?"
    named = {"type": "function", "function": {"name": "calculator"}}
    assert calls_of(wire, weather, tool_choice="none") == []
    assert [name for name, _ in calls_of(wire, "Hi", tool_choice="required")] == ["get_weather"]
    assert [name for name, _ in calls_of(wire, weather, tool_choice=named)] == ["calculator"]
    unknown = {"type": "function", "function": {"name": "other"}}
    for choice in (unknown, "sometimes", 5):
        request = ask(weather, tools=TOOLS, tool_choice=choice)
        status, body, _ = wire.send("POST", "/v1/chat/completions", request)
        assert (status, body["error"]["param"]) == (400, "tool_choice")


def test_arguments_fit_the_schema(wire: Wire) -> None:
    parameters = {
        "type": "object",
        "properties": {
            "order_id": TEXT,
            "urgent": {"type": "boolean"},
            "amount": {"type": "integer", "minimum": 10, "maximum": 50},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "level": {"anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}]},
            "note": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        },
        "required": ["order_id", "urgent", "amount", "level", "tags"],
        "$defs": {"Level": {"type": "string", "enum": ["low", "high"]}},
    }
    tool = {"type": "function", "function": {"name": "order_status", "parameters": parameters}}
    [(_, made)] = calls_of(wire, "Status of order A-4711 in fahrenheit, high level", tools=[tool])
    assert made["order_id"] == "A-4711"
    assert made["unit"] == "fahrenheit"
    assert made["level"] == "high"
    assert made["urgent"] is True
    assert 10 <= made["amount"] <= 50
    assert len(made["tags"]) == 2
    assert "note" not in made
    [(_, made)] = calls_of(wire, "order status", tools=[tool])
    assert made["level"] is None


def test_a_tool_stream_brings_arguments_in_pieces(wire: Wire) -> None:
    *events, done = wire.stream(ask("weather in Oslo and 17 * 23", tools=TOOLS))
    calls: dict[int, dict[str, str]] = {}
    pieces = 0
    for event in events:
        for call in orjson.loads(event)["choices"][0]["delta"].get("tool_calls", []):
            if "id" in call:
                calls[call["index"]] = {"id": call["id"], "name": call["function"]["name"], "a": ""}
            pieces += bool(call["function"]["arguments"])
            calls[call["index"]]["a"] += call["function"]["arguments"]
    assert done == "[DONE]"
    assert {call["name"] for call in calls.values()} == {"get_weather", "calculator"}
    assert len({call["id"] for call in calls.values()}) == 2
    assert all(orjson.loads(call["a"]) for call in calls.values())
    assert pieces > 4


def test_the_sdk_runs_a_whole_tool_conversation(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "What's the weather in Oslo?"}]
    tools: list[Any] = [WEATHER]
    with client.chat.completions.stream(
        model="demo", messages=messages, tools=tools, stream_options={"include_usage": True}
    ) as stream:
        asked = stream.get_final_completion()
    [call] = asked.choices[0].message.tool_calls or []
    assert asked.usage is not None
    assert call.function.arguments == '{"city":"Oslo"}'
    result = {"role": "tool", "tool_call_id": call.id, "content": "21 degrees and sunny"}
    messages += [asked.choices[0].message.model_dump(exclude_none=True), result]
    final = client.chat.completions.create(model="demo", messages=messages, tools=tools)
    said = final.choices[0].message.content or ""
    assert final.choices[0].finish_reason == "stop"
    assert "get_weather" in said
    assert "21 degrees and sunny" in said


# Structured answers


class Address(BaseModel):
    street: str
    zip_code: str


class Person(BaseModel):
    name: str
    age: int
    email: str | None
    friends: list[str]
    address: Address


def test_a_schema_is_filled(client: openai.OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="demo",
        messages=[{"role": "user", "content": "Make up a person who is 42"}],
        response_format=Person,
    )
    person = completion.choices[0].message.parsed
    assert person is not None
    assert person.age == 42
    assert person.address.street


def test_any_json(wire: Wire) -> None:
    text = answer(wire, "Say something", response_format={"type": "json_object"})
    assert "scripted demo" in orjson.loads(text)["answer"]


# Embeddings and models


def test_embeddings_are_unit_vectors_in_both_encodings(wire: Wire, client: openai.OpenAI) -> None:
    inputs = ["how do I reset my password", "reset the password", "a recipe for apple pie"]
    request = {"model": "e", "input": inputs}
    _, body, _ = wire.send("POST", "/v1/embeddings", request)
    vectors = [entry["embedding"] for entry in body["data"]]
    assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1, 1, 1], abs=1e-5)
    near, far = (sum(a * b for a, b in zip(vectors[0], v, strict=True)) for v in vectors[1:])
    assert near > far
    assert body["usage"]["prompt_tokens"] > 10
    _, packed, _ = wire.send("POST", "/v1/embeddings", {**request, "encoding_format": "base64"})
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack(f"<{len(raw) // 4}f", raw)) == vectors[0]
    by_sdk = client.embeddings.create(model="e", input=inputs[0], dimensions=64)
    assert len(by_sdk.data[0].embedding) == 64


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"input": []},
        {"input": ""},
        {"input": [None]},
        {"input": "x", "dimensions": 0},
        {"input": "x", "encoding_format": "hex"},
    ],
)
def test_wrong_embedding_requests(wire: Wire, wrong: dict[str, Any]) -> None:
    status, body, _ = wire.send("POST", "/v1/embeddings", {"model": "e", **wrong})
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"


def test_models(wire: Wire, client: openai.OpenAI) -> None:
    _, body, _ = wire.send("GET", "/v1/models")
    assert [model["id"] for model in body["data"]] == ["demo"]
    assert client.models.retrieve("any/name").id == "any/name"


# Errors and faults


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'{"model": NaN}', None),
        (b"", None),
        ({"messages": []}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": [1]}, "messages[0]"),
        (ask("Hi", n=0), "n"),
        (ask("Hi", max_tokens="9"), "max_tokens"),
        (ask("Hi", stop=[1]), "stop"),
        (ask("Hi", stream="yes"), "stream"),
        (ask("Hi", tools=5), "tools"),
        (ask("Hi", tool_choice="required"), "tool_choice"),
        (ask("Hi", response_format={"type": "xml"}), "response_format"),
        (ask("Hi", stream_options={}), "stream_options"),
    ],
)
def test_wrong_requests_get_the_error_shape(wire: Wire, body: Any, param: str | None) -> None:
    status, answered, _ = wire.send("POST", "/v1/chat/completions", body)
    assert status == 400
    assert set(answered["error"]) == {"message", "type", "param", "code"}
    assert answered["error"]["type"] == "invalid_request_error"
    assert answered["error"]["param"] == param
    assert wire.send("GET", "/v1/models")[0] == 200


def test_unknown_paths_and_methods(wire: Wire) -> None:
    assert wire.send("POST", "/v1/other", b"{}")[1]["error"]["code"] == "unknown_url"
    assert wire.send("GET", "/v1/chat/completions")[0] == 404
    status, body, _ = wire.send("DELETE", "/v1/models")
    assert status == 501
    assert body["error"]["type"] == "invalid_request_error"


def test_chunked_bodies_are_read(wire: Wire) -> None:
    raw = orjson.dumps(ask("Hi"))
    pieces = iter([raw[:7], raw[7:]])
    wire.http.request("POST", "/v1/chat/completions", pieces, encode_chunked=True)
    response = wire.http.getresponse()
    assert response.status == 200
    assert response.read()


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503, 529])
def test_error_responses_on_request(wire: Wire, status: int) -> None:
    got, body, headers = wire.send("POST", "/v1/chat/completions", ask(f"Please demo:{status}!"))
    assert got == status
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert headers.get("retry-after") == ("1" if status in (429, 503, 529) else None)


def test_the_context_overflow(wire: Wire) -> None:
    status, body, _ = wire.send("POST", "/v1/chat/completions", ask("demo:context"))
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")


def test_a_flaky_answer_works_the_second_time(wire: Wire) -> None:
    request = ask("demo:flaky, just once")
    statuses = [wire.send("POST", "/v1/chat/completions", request)[0] for _ in range(3)]
    assert statuses == [503, 200, 503]


@pytest.mark.parametrize(
    ("word", "reason"), [("length", "length"), ("filter", "content_filter"), ("empty", "stop")]
)
def test_unusual_ends(wire: Wire, word: str, reason: str) -> None:
    _, body, _ = wire.send("POST", "/v1/chat/completions", ask(f"demo:{word}"))
    assert body["choices"][0]["finish_reason"] == reason


def test_reasoning_refusal_and_length(wire: Wire) -> None:
    _, body, _ = wire.send("POST", "/v1/chat/completions", ask("demo:reason why"))
    assert body["choices"][0]["message"]["reasoning_content"]
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 5
    _, body, _ = wire.send("POST", "/v1/chat/completions", ask("demo:refuse"))
    message = body["choices"][0]["message"]
    assert message["content"] is None
    assert "refuse" in message["refusal"]
    _, body, _ = wire.send("POST", "/v1/chat/completions", ask("demo:long"))
    assert body["usage"]["completion_tokens"] > 300


def test_a_cut_stream_breaks_off(wire: Wire) -> None:
    with pytest.raises(http.client.IncompleteRead) as broken:
        wire.stream(ask("demo:cut"))
    assert b"data: " in broken.value.partial
    assert b"[DONE]" not in broken.value.partial
    wire.http.close()
    with pytest.raises(http.client.IncompleteRead):
        wire.send("POST", "/v1/chat/completions", ask("demo:cut"))


def test_an_error_in_mid_stream(wire: Wire) -> None:
    *events, last = wire.stream(ask("demo:error"))
    assert "choices" in orjson.loads(events[-1])
    assert orjson.loads(last)["error"]["type"] == "server_error"
    assert wire.send("POST", "/v1/chat/completions", ask("demo:error"))[0] == 500


def test_garbage_in_mid_stream(wire: Wire) -> None:
    *events, done = wire.stream(ask("demo:garbage"))
    broken = [event for event in events if not event.endswith("}")]
    assert len(broken) == 1
    assert done == "[DONE]"


@pytest.mark.parametrize("word", ["hang", "stall"])
def test_silence_lasts_until_the_server_stops(word: str) -> None:
    server = DemoServer(pace=0)
    wire = Wire(server.start())
    request = orjson.dumps({**ask(f"demo:{word}"), "stream": True})
    wire.http.request("POST", "/v1/chat/completions", request)
    plain = wire.http.sock
    assert isinstance(plain, socket.socket)
    plain.settimeout(0.3)
    got: list[bytes] = []
    with pytest.raises(TimeoutError):
        got.extend(iter(lambda: plain.recv(65536), b""))
    assert b"".join(got).count(b'"content":"') == (9 if word == "stall" else 0)
    plain.settimeout(30)
    server.stop()
    assert plain.recv(1) == b""
    wire.http.close()


# The server


def test_stopping_closes_the_port_and_ends_streams() -> None:
    server = DemoServer(pace=50)
    wire = Wire(server.start())
    port = wire.http.port
    wire.http.request("POST", "/v1/chat/completions", orjson.dumps({**ask("Hi"), "stream": True}))
    server.stop()
    server.stop()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        wire.http.getresponse()
    wire.http.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60).close()


def test_at_a_pace_the_answers_are_the_same(wire: Wire) -> None:
    server = DemoServer(pace=0.05)
    paced = Wire(server.start())
    assert len(paced.stream(ask("Hi"))) == len(wire.stream(ask("Hi")))
    assert answer(paced, "Hi") == answer(wire, "Hi")
    paced.http.close()
    server.stop()


def test_nothing_is_written_to_stderr(wire: Wire, capfd: pytest.CaptureFixture[str]) -> None:
    answer(wire, "Hi")
    wire.send("POST", "/v1/other", b"{}")
    assert capfd.readouterr().err == ""


def test_http_1_0_and_malformed_requests(base_url: str) -> None:
    where = urlsplit(base_url)
    body = orjson.dumps({**ask("Hi"), "stream": True})

    def exchange(raw: bytes) -> bytes:
        with socket.create_connection((where.hostname, where.port), timeout=60) as plain:
            plain.sendall(raw)
            return b"".join(iter(lambda: plain.recv(65536), b""))

    head = b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert exchange(head + body).endswith(b"\n\ndata: [DONE]\n\n")
    assert b'"invalid_request_error"' in exchange(b"nonsense\r\n\r\n")
    wrong = b"POST /v1/embeddings HTTP/1.1\r\nContent-Length: many\r\n\r\n"
    assert exchange(wrong).startswith(b"HTTP/1.1 400 ")
    wrong = b"POST /v1/embeddings HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
    assert exchange(wrong).startswith(b"HTTP/1.1 400 ")
