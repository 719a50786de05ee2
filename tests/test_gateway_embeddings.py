"""`/v1/embeddings` and `/v1/models`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_fixtures import PROVIDER_KEY, Gate, a_test_of, gate_and_model
from scripted_model import chat, completion, whole


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("embeddings")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def test_embeddings(gate: Gate) -> None:
    usage = b'{"prompt_tokens":4,"total_tokens":4}'
    body = b'{"object":"list","data":[{"embedding":[1.50]}],"model":"e","usage":%s}' % usage
    gate.model.will(whole(body), whole({"error": {"message": "no"}}, status="400 Bad"))
    sent = {"model": "m", "input": ["a", "b"], "metadata": {"session_id": "vectors"}}
    reply = gate.post(sent, "/v1/embeddings")
    assert reply.body == body
    assert gate.model.asked[-1].json == {"model": "m", "input": ["a", "b"]}
    turn = gate.turn(reply)
    assert (turn["user_input"], turn["input_tokens"], turn["output_tokens"]) == ("a\nb", 4, None)
    assert (turn["status"], turn["final_output"], turn["finish_reason"]) == ("success", None, None)
    assert gate.messages(turn) == []
    assert gate.story(turn)[1:] == [
        *["turn.started", "run.started", "step.started llm_call", "step.completed success"],
        *["run.completed success", "turn.completed success finished"],
    ]
    assert gate.post(sent, "/v1/embeddings").status == 400


def test_numbers_that_are_none_become_null(gate: Gate) -> None:
    body = b'{"data":[{"embedding":[1.50,NaN,-Infinity]}],"x":"NaN","usage":{"prompt_tokens":4}}'
    gate.model.will(whole(body))
    reply = gate.post({"model": "m", "input": "a"}, "/v1/embeddings")
    assert reply.body == body.replace(b",NaN,-Infinity", b",null,null")
    turn = gate.turn(reply)
    assert (turn["status"], turn["input_tokens"]) == ("success", 4)
    assert gate.payload(gate.requests(turn)[0]["response_body"]) == body


def test_embeddings_are_no_conversation(gate: Gate) -> None:
    """Neither has one a first token, nor does it change what a session's context is."""
    usage = b'{"prompt_tokens":4,"total_tokens":4}'
    body = b'{"object":"list","data":[{"embedding":[1.50]}],"model":"e","usage":%s}' % usage
    gate.model.will(whole(body), whole(completion("hello", model="c")), whole(body))
    sent = {"model": "m", "input": "ab", "metadata": {"session_id": "both"}}
    said = {**chat("hi"), "metadata": sent["metadata"]}
    contexts = []
    for path, asked in (("embeddings", sent), ("chat/completions", said), ("embeddings", sent)):
        reply = gate.post(asked, f"/v1/{path}")
        (step,) = gate.steps(gate.turn(reply))
        assert (step["ttft_ms"] is None) == (path == "embeddings")
        assert (step["context_tokens"] is None) == (path == "embeddings")
        session = gate.session("both")
        contexts.append((session["context_tokens"], session["model"]))
    first, then, last = contexts
    assert first == (None, "m")
    assert last == then
    assert then[0] > 0


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"error":{"message":"x"}}'])
def test_embeddings_that_are_none(gate: Gate, answer: bytes) -> None:
    gate.model.will(whole(answer))
    reply = gate.post({"model": "m", "input": "a"}, "/v1/embeddings")
    turn = gate.turn(reply)
    assert (reply.status, turn["status"]) == (502, "error")
    kind = "upstream_error" if b"error" in answer else "upstream_protocol_error"
    assert (reply.error["type"], turn["error_type"]) == (kind, kind)
    assert gate.requests(turn)[0]["status_code"] == 200


def test_the_models_are_those_of_routes_and_providers(tmp_path: Path) -> None:
    listed = {"object": "list", "data": [{"id": "org/mödel", "object": "model", "x": 1}]}
    with gate_and_model(tmp_path) as gate:
        gate.model.will(whole(listed))
        reply = gate.get("/v1/models")
        assert [m["id"] for m in reply.json["data"]] == ["m", "org/mödel"]
        assert gate.get("/v1/models/org/m%C3%B6del").json == listed["data"][0]
        assert gate.get("/s/x/v1/models/m").json["owned_by"] == "xgw"
        missing = gate.get("/v1/models/none")
        assert (missing.status, missing.error["code"]) == (404, "model_not_found")
        head = gate.get("/v1/models", "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert "x-turn-id" not in reply.headers
        assert gate.services.calls.count == 0
        assert dict(gate.model.asked[0].headers)["authorization"] == f"Bearer {PROVIDER_KEY}"
        gate.model.check()
