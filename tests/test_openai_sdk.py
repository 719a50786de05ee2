"""The OpenAI SDK against a real server: what it gets, and that the record is what was counted."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from servers import installed
from xgw.providers.demo import DemoServer

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
QUESTIONS = ("What is the weather in Oslo?", "Thank you. And what did I ask first?")


class Record:
    """What the API tells of a server's record."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=60) as answer:
            return json.load(answer)

    def turns(self, key: str) -> list[Any]:
        """A session's turns, each with its runs and steps."""
        listed = self.get(f"/sessions/{key}/turns?order=asc")["data"]
        return [self.get(f"/turns/{turn['id']}") for turn in listed]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server whose one provider is the demo's script, as fast as it goes."""
    demo = DemoServer(pace=0)
    config = f'[[providers]]\nname = "up"\nbase_url = "{demo.start()}"\n'
    folder: Path = tmp_path_factory.mktemp("sdk")
    with installed(folder, config) as here:
        yield here.serve().url
    demo.stop()


def _converse(url: str, key: str, *, stream: bool, turn_keys: bool) -> list[str]:
    """Two questions, the first of which needs a tool; what the model said to each."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    messages: list[Any] = []
    said: list[str] = []
    for number, question in enumerate(QUESTIONS, 1):
        messages.append({"role": "user", "content": question})
        headers = {"X-Session-Id": key} | ({"X-Turn-Id": f"{key}.t{number}"} if turn_keys else {})
        while True:
            answer = _ask(client, messages, headers, stream=stream)
            messages.append(answer)
            if not answer.get("tool_calls"):
                said.append(answer["content"])
                break
            for call in answer["tool_calls"]:
                city = json.loads(call["function"]["arguments"])["city"]
                result = {"role": "tool", "tool_call_id": call["id"], "content": f"sunny in {city}"}
                messages.append(result)
    client.close()
    return said


def _ask(client: openai.OpenAI, messages: list[Any], headers: Any, *, stream: bool) -> Any:
    asked: Any = {
        "model": "any-model",
        "messages": messages,
        "tools": TOOLS,
        "extra_headers": headers,
    }
    if not stream:
        answer = client.chat.completions.create(**asked)
        return answer.choices[0].message.model_dump(exclude_none=True)
    with client.chat.completions.stream(**asked) as events:
        for _ in events:
            pass
        final = events.get_final_completion().choices[0].message
    return final.model_dump(exclude_none=True, exclude={"parsed"}, include=_KEPT)


_KEPT = {"role": True, "content": True, "tool_calls": {"__all__": {"id", "type", "function"}}}


@pytest.mark.parametrize("turn_keys", [True, False], ids=["turn-keys", "session-only"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_conversation_with_a_tool_is_two_turns(url: str, stream: bool, turn_keys: bool) -> None:
    key = f"sdk-{stream}-{turn_keys}"
    said = _converse(url, key, stream=stream, turn_keys=turn_keys)
    record = Record(url)
    assert "sunny in Oslo" in said[0]

    session = record.get(f"/sessions/{key}")
    assert (session["turn_count"], session["request_count"]) == (2, 3)
    assert session["message_count"] == 6  # two questions, the call, its result, two answers
    turns = record.turns(key)
    assert [turn["user_input"] for turn in turns] == list(QUESTIONS)
    assert [turn["final_output"] for turn in turns] == said
    assert [turn["status"] for turn in turns] == ["success", "success"]
    assert [(t["llm_calls"], t["tool_calls"], t["attempts"]) for t in turns] == [
        (2, 1, 2),
        (1, 0, 1),
    ]
    assert [turn["turn_key"] for turn in turns] == (
        [f"{key}.t1", f"{key}.t2"] if turn_keys else [None, None]
    )
    steps = [[step["step_type"] for step in turn["runs"][0]["steps"]] for turn in turns]
    assert steps == [["llm_call", "tool_call", "llm_call"], ["llm_call"]]
    tokens = sum(turn["total_tokens"] for turn in turns)
    assert session["usage"]["total_tokens"] == tokens > 0


def test_messages_tell_the_whole_conversation_once(url: str) -> None:
    said = _converse(url, "sdk-messages", stream=True, turn_keys=False)
    listed = Record(url).get("/sessions/sdk-messages/messages?order=asc")["data"]
    assert [message["role"] for message in listed] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [listed[n]["content"] for n in (0, 2, 3, 4, 5)] == [
        QUESTIONS[0],
        "sunny in Oslo",
        said[0],
        QUESTIONS[1],
        said[1],
    ]
    assert listed[2]["tool_call_id"] == listed[1]["tool_calls"][0]["id"]
    assert all(message["token_count"] for message in listed)


def test_typed_answers_embeddings_and_models(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    vectors = client.embeddings.create(model="text-embedding-3-small", input=["a", "b"])
    assert len(vectors.data) == 2
    assert isinstance(vectors.data[0].embedding[0], float)
    assert "demo" in [model.id for model in client.models.list()]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="m", messages=[])
    assert refused.value.status_code == 400
    client.close()


def test_headers_name_the_record(url: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/s/by-url/v1", api_key="unused", max_retries=0)
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
    raw = client.chat.completions.with_raw_response.create(**asked)
    assert raw.headers["x-session-id"] == "by-url"
    turn = Record(url).get(f"/turns/{raw.headers['x-turn-id']}")
    assert turn["runs"][0]["id"] == raw.headers["x-run-id"]
    assert turn["trace_id"] == raw.headers["x-trace-id"]
    assert turn["final_output"] == raw.parse().choices[0].message.content
    client.close()
