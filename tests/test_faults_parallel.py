"""Requests at the same time against a real server: each client gets its own answer, each step too.

What is decided about sessions and turns then is in test_gateway_parallel.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson
import pytest

from faults import Running, running
from gateway_fixtures import Reply
from scripted_model import Row, chat, counts, named
from test_gateway_parallel import at_once, echo

ROUNDS = 100


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("parallel")) as gate:
        gate.model.always(echo)
        yield gate


def ask(gate: Running, number: int, session: str, turn: str | None) -> Callable[[], Reply]:
    """A question with its own number, every second one streamed."""
    body = chat(f"q-{number}", **named(session, turn))
    if number % 2:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return lambda: gate.post(body)


def check_reply(reply: Reply, number: int) -> None:
    """It answers this question, with its figures."""
    assert reply.status == 200
    if number % 2:
        chunks = [orjson.loads(data) for data in reply.events[:-1]]
        said = [c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]]
        text, usage = "".join(said), chunks[-1]["usage"]
    else:
        text, usage = reply.text, reply.json["usage"]
    assert text == f"echo q-{number}"
    assert usage == counts(number, number + 1)


def check_steps(gate: Running, turns: list[Row], numbers: range) -> None:
    """Each step has its own question, answer and figures, and no number is there twice."""
    steps = [step for turn in turns for step in gate.steps(turn)]
    assert sorted(step["input_tokens"] for step in steps) == list(numbers)
    for step in steps:
        number = step["input_tokens"]
        assert (step["status"], step["output_tokens"]) == ("success", number + 1)
        assert f'"q-{number}"'.encode() in gate.payload(step["input_payload"])
        assert f'"echo q-{number}"'.encode() in gate.payload(step["output_payload"])


@pytest.mark.parametrize("in_one_turn", [False, True])
def test_two_at_once_in_one_session(gate: Running, in_one_turn: bool) -> None:
    session, numbers = f"two-{in_one_turn}", range(2 * ROUNDS)
    for first in numbers[::2]:
        turn = f"turn-{first}" if in_one_turn else None
        replies = at_once([ask(gate, n, session, turn) for n in (first, first + 1)])
        for number, reply in enumerate(replies, first):
            check_reply(reply, number)
        runs = {reply.headers["x-run-id"] for reply in replies}
        assert len(runs) == (1 if in_one_turn else 2)
    turns = gate.turns(session)
    assert [turn["turn_index"] for turn in turns] == list(range(ROUNDS * (2 - in_one_turn)))
    assert {turn["status"] for turn in turns} == {"success"}
    check_steps(gate, turns, numbers)
    assert gate.session(session)["input_tokens"] == sum(numbers)


def test_eight_first_requests_at_once(gate: Running) -> None:
    for number in range(ROUNDS):
        session, numbers = f"new-{number}", range(8)
        replies = at_once([ask(gate, n, session, None) for n in numbers])
        for n, reply in enumerate(replies):
            check_reply(reply, n)
        turns = gate.turns(session)
        assert [turn["turn_index"] for turn in turns] == list(numbers)
        check_steps(gate, turns, numbers)
        assert gate.session(session)["turn_count"] == 8
