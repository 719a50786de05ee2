"""Token counts: known figures of OpenAI's documentation, odd content, large texts, the cache."""

from __future__ import annotations

import random
import string
from typing import Any

import pytest

from servers import DEADLINE, eventually
from xgw.accounting.tokens import EXACT_CHARS, TokenCounter, encoding_of

JARGON: list[dict[str, Any]] = [
    {
        "role": "system",
        "content": "You are a helpful, pattern-following assistant that translates corporate"
        " jargon into plain English.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "New synergies will help drive top-line growth.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Things working well together will increase revenue.",
    },
    {
        "role": "system",
        "name": "example_user",
        "content": "Let's circle back when we have more bandwidth to touch base on opportunities"
        " for increased leverage.",
    },
    {
        "role": "system",
        "name": "example_assistant",
        "content": "Let's talk later when we're less busy about how to do better.",
    },
    {
        "role": "user",
        "content": "This late pivot means we don't have time to boil the ocean for the client"
        " deliverable.",
    },
]

WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {
                    "type": "string",
                    "description": "The city and state, e.g. San Francisco, CA",
                },
                "unit": {
                    "type": "string",
                    "description": "The unit of temperature to return",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location"],
        },
    },
}

WEATHER_MESSAGES: list[dict[str, Any]] = [
    {
        "role": "system",
        "content": "You are a helpful assistant that can answer to questions about the weather.",
    },
    {"role": "user", "content": "What's the weather like in San Francisco?"},
]


@pytest.fixture(scope="module")
def counter() -> TokenCounter:
    loaded = TokenCounter()
    loaded.load()
    return loaded


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
    ],
)
def test_counts_texts_as_openai_documents_them(
    counter: TokenCounter, text: str, o200k: int, cl100k: int
) -> None:
    assert counter.count_text(text, "gpt-4o") == o200k
    assert counter.count_text(text, "gpt-4") == cl100k


@pytest.mark.parametrize(
    ("model", "tokens"), [("gpt-3.5-turbo", 129), ("gpt-4", 129), ("gpt-4o", 124)]
)
def test_request_weighs_what_the_api_charged_for_it(
    counter: TokenCounter, model: str, tokens: int
) -> None:
    assert counter.estimate_request(JARGON, None, model) == tokens


@pytest.mark.parametrize(
    ("model", "tokens"), [("gpt-3.5-turbo", 105), ("gpt-4", 105), ("gpt-4o", 101)]
)
def test_tools_weigh_what_the_api_charged_for_them(
    counter: TokenCounter, model: str, tokens: int
) -> None:
    assert counter.estimate_request(WEATHER_MESSAGES, [WEATHER_TOOL], model) == tokens
    alone = counter.estimate_request(WEATHER_MESSAGES, None, model)
    assert alone is not None
    assert counter.count_tools([WEATHER_TOOL], model) == tokens - alone
    assert counter.count_tools([], model) == 0


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo-2024-04-09", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("openai/gpt-3.5-turbo", "cl100k_base"),
        ("ft:gpt-3.5-turbo:acme::1", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-4.5-preview", "o200k_base"),
        ("gpt-5", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("llama3.2", "o200k_base"),
        (None, "o200k_base"),
    ],
)
def test_vocabulary_of_a_model(model: str | None, encoding: str) -> None:
    assert encoding_of(model) == encoding


def test_special_tokens_are_ordinary_text(counter: TokenCounter) -> None:
    assert counter.count_text("<|endoftext|>", "gpt-4o") == 7
    assert counter.count_text("a<|im_start|>b<|endoftext|>c", "gpt-4") == 16


def test_images_cost_their_constant_not_their_data(counter: TokenCounter) -> None:
    def image(detail: str | None) -> dict[str, Any]:
        url = {"url": "data:image/png;base64," + "A" * 100_000, "detail": detail}
        return {"role": "user", "content": [{"type": "image_url", "image_url": url}]}

    empty = counter.count_message({"role": "user", "content": []})
    assert empty is not None
    assert counter.count_message(image("low")) == empty + 85
    assert counter.count_message(image("auto")) == empty + 765
    assert counter.count_message(image(None)) == empty + 765


def test_parts_count_as_the_text_that_they_hold(counter: TokenCounter) -> None:
    parts = [
        {"type": "text", "text": "hello world"},
        {"type": "file", "file": {"file_data": "x" * 999}},
    ]
    whole = counter.count_message({"role": "user", "content": "hello world"})
    assert counter.count_message({"role": "user", "content": parts}) == whole


def test_tool_calls_weigh_their_name_and_arguments(counter: TokenCounter) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    plain = counter.count_message({"role": "assistant", "content": None})
    asking = counter.count_message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert plain is not None
    assert asking is not None
    assert asking > plain + 3


DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "message",
    [
        None,
        17,
        "text",
        [],
        {},
        {"role": None, "content": None},
        {"role": 5, "content": 3.5, "name": 7},
        {"role": "user", "content": {"odd": float("nan")}},
        {"role": "user", "content": [None, 1, "text", [], {"type": ["x"]}, {"type": "text"}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "https://x/y.png"}]},
        {"role": "user", "content": "lone \ud800 surrogate", "name": "\udfff"},
        {"role": "user", "content": {"nested": "\ud800"}},
        {"role": "user", "content": 10**40},
        {"role": "user", "content": DEEP},
        {"role": "user", "content": b"bytes"},
        {
            "role": "assistant",
            "tool_calls": [None, 1, {"function": None}, {"function": {"name": 1}}],
        },
        {"role": "assistant", "tool_calls": {"0": 1}, "function_call": {"name": None}},
    ],
)
def test_odd_messages_are_counted_somehow(counter: TokenCounter, message: Any) -> None:
    tokens = counter.count_message(message, "gpt-4o")
    assert tokens is not None
    assert tokens >= 3
    assert counter.estimate_request([message], None, "gpt-4o") == tokens + 3


@pytest.mark.parametrize(
    "tools",
    [
        [None],
        [{"type": "web_search"}],
        [{"function": {"name": None, "description": None, "parameters": None}}],
        [{"function": {"name": "f", "parameters": {"properties": [1]}}}],
        [{"function": {"name": "f", "parameters": {"properties": {"a": True, "b": {"enum": 5}}}}}],
        [
            {
                "function": {
                    "name": "f",
                    "parameters": {"properties": {"a": {"enum": [1, None, "x"]}}},
                }
            }
        ],
        [{"function": {"name": "f", "parameters": {"anyOf": [{"$ref": "#"}, 3], "$defs": 9}}}],
    ],
)
def test_odd_tools_are_counted_somehow(counter: TokenCounter, tools: list[Any]) -> None:
    bare = counter.estimate_request([], None)
    tokens = counter.estimate_request([], tools)
    assert bare == 3
    assert tokens is not None
    assert tokens > bare + 12


def test_nested_schemas_weigh_more_than_flat_ones(counter: TokenCounter) -> None:
    def tool(schema: dict[str, Any]) -> list[Any]:
        return [{"type": "function", "function": {"name": "f", "parameters": schema}}]

    inner = {"type": "object", "properties": {"street": {"type": "string"}}}
    flat = {"type": "object", "properties": {"address": {"type": "object"}}}
    nested = {"type": "object", "properties": {"address": inner}}
    few = counter.estimate_request([], tool(flat))
    more = counter.estimate_request([], tool(nested))
    assert few is not None
    assert more is not None
    assert more > few


@pytest.mark.parametrize("piece", ["a", " ", "\n", "=", "\U0001f600", "\u6f22", "\ud800"])
def test_megabytes_of_one_character(counter: TokenCounter, piece: str) -> None:
    tokens = counter.count_text(piece * 1_500_000, "gpt-4o")
    assert tokens is not None
    assert 0 < tokens <= 3_000_000


def test_beyond_the_bound_the_count_is_close(counter: TokenCounter) -> None:
    words = random.Random(7)
    unit = " ".join(
        "".join(words.choices(string.ascii_lowercase, k=words.randint(2, 9))) for _ in range(20_000)
    )
    exact = counter.count_text(unit)
    copies = 3 * EXACT_CHARS // len(unit)
    extrapolated = counter.count_text(unit * copies)
    assert exact is not None
    assert extrapolated is not None
    assert extrapolated == pytest.approx(exact * copies, rel=0.02)


def test_the_first_text_brings_the_vocabulary() -> None:
    counter = TokenCounter(patience=DEADLINE)
    assert counter.count_message({"role": "user", "content": "hello"}) == 5
    assert counter.estimate_request([{"role": "user", "content": "hello"}]) == 8
    assert counter.count_text("hello", "gpt-4") == 1


def test_who_does_not_wait_knows_once_it_is_there() -> None:
    counter = TokenCounter(patience=0)
    assert counter.count_text("hello", "gpt-4o") in (None, 1)
    eventually(lambda: counter.count_text("hello", "gpt-4o") == 1)


def test_who_has_to_know_can_wait_for_it() -> None:
    counter = TokenCounter(patience=0)
    counter.wait("gpt-4o", DEADLINE)
    assert counter.count_text("hello", "gpt-4o") == 1


def test_a_digest_stands_for_the_content(counter: TokenCounter) -> None:
    first = counter.count_message({"role": "user", "content": "one"}, digest="d1")
    assert (
        counter.count_message({"role": "user", "content": "not looked at " * 9}, digest="d1")
        == first
    )
    assert counter.count_message({"role": "user", "content": "one two three"}, digest="d2") != first
    by_digest = counter.estimate_request([{}, {}], digests=["d1", "d1"])
    assert first is not None
    assert by_digest == 2 * first + 3


def test_forgotten_counts_are_found_again() -> None:
    counter = TokenCounter(cache_size=2)
    counter.load()
    messages = [{"role": "user", "content": "word " * n} for n in range(1, 9)]
    counts = [counter.count_message(message, "gpt-4o") for message in messages]
    assert counts == [6, 7, 8, 9, 10, 11, 12, 13]
    assert [counter.count_message(message, "gpt-4o") for message in messages] == counts
