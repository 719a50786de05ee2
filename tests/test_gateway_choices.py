"""Answers with several choices that ask for tools: a client goes on with one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model, gateway
from scripted_model import (
    DONE,
    Answer,
    Model,
    Row,
    call,
    chat,
    chunk,
    completion,
    finish,
    named,
    result,
    said,
    says,
    stream,
    user,
    whole,
)

UNAWAITED = ("cancelled", "no_result")
ANSWERED = ("success", None)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("choices")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def chooses(*messages: Row) -> Answer:
    """An answer with a choice for each of these messages."""
    choices = [
        {
            "index": index,
            "message": message,
            "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
        }
        for index, message in enumerate(messages)
    ]
    return whole(completion() | {"choices": choices})


def streams_choices(*messages: Row) -> Answer:
    """The same as a stream."""
    deltas = []
    for index, message in enumerate(messages):
        calls = [{"index": n} | one for n, one in enumerate(message.get("tool_calls", ()))]
        choice = {"index": index, "delta": message | {"tool_calls": calls}, "finish_reason": None}
        deltas += [chunk(choice), finish("tool_calls" if calls else "stop", index)]
    return stream(*deltas, DONE)


def ends(gate: Gate, turn: Row) -> dict[str, tuple[str, str | None]]:
    """How the tool steps of a turn ended, by the arguments of their calls."""
    steps = gate.steps(turn, "tool_call")
    return {s["metadata"]["arguments"]: (s["status"], s["error_type"]) for s in steps}


def asking(*calls: Row) -> Row:
    return said(None, *calls)


X0, X1 = call("x0", arguments='{"at": 0}'), call("x1", arguments='{"at": 1}')


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("chosen", [0, 1])
def test_the_calls_of_other_choices_are_not_awaited(
    gate: Gate, streamed: bool, chosen: int
) -> None:
    place = named(f"one of two: {streamed} {chosen}")
    choices = asking(X0), asking(X1)
    gate.model.will(
        (streams_choices if streamed else chooses)(*choices), says("done"), says("late")
    )
    gate.post(chat("look", n=2, stream=streamed, **place))
    history = [user("look"), choices[chosen], result(f"x{chosen}")]
    turn = gate.turn(gate.post(chat(*history, **place)))
    assert (turn["status"], turn["ended_by"], turn["final_output"]) == (
        "success",
        "finished",
        "done",
    )
    other = 1 - chosen
    assert ends(gate, turn) == {f'{{"at": {chosen}}}': ANSWERED, f'{{"at": {other}}}': UNAWAITED}
    assert gate.story(turn)[-10:-5] == [
        "run.updated running",
        "step.completed success",
        "message.added tool",
        "step.completed cancelled",
        "tool.results_sent",
    ]
    late = gate.turn(gate.post(chat(user("look"), choices[other], result(f"x{other}"), **place)))
    assert late["id"] == turn["id"]


def test_calls_of_several_choices_with_the_same_id_are_told_apart(gate: Gate) -> None:
    choices = [asking(call("call_0", arguments=f'{{"at": {n}}}')) for n in range(3)]
    gate.model.will(chooses(*choices), says("done"))
    gate.post(chat("look", n=3, **named("same ids")))
    history = [user("look"), choices[1], result("call_0")]
    turn = gate.turn(gate.post(chat(*history, **named("same ids"))))
    assert turn["status"] == "success"
    assert ends(gate, turn) == {
        '{"at": 0}': UNAWAITED,
        '{"at": 1}': ANSWERED,
        '{"at": 2}': UNAWAITED,
    }


def test_of_several_choices_that_are_the_same_one_is_awaited(gate: Gate) -> None:
    gate.model.will(chooses(asking(X0), asking(X0)), says("done"))
    gate.post(chat("look", n=2, **named("the same")))
    turn = gate.turn(gate.post(chat("look", asking(X0), result("x0"), **named("the same"))))
    steps = gate.steps(turn, "tool_call")
    assert [(s["status"], s["error_type"]) for s in steps] == [ANSWERED, UNAWAITED]
    assert turn["status"] == "success"


def test_a_client_that_goes_on_with_all_choices_has_all_their_results(gate: Gate) -> None:
    gate.model.will(chooses(asking(X0), asking(X1)), says("done"))
    gate.post(chat("look", n=2, **named("both")))
    history = [user("look"), asking(X0), result("x0"), asking(X1), result("x1")]
    turn = gate.turn(gate.post(chat(*history, **named("both"))))
    assert (turn["status"], ends(gate, turn)) == (
        "success",
        {'{"at": 0}': ANSWERED, '{"at": 1}': ANSWERED},
    )


def test_calls_of_the_choice_that_have_no_result_yet_stay_open(gate: Gate) -> None:
    y0 = call("y0", arguments='{"at": 2}')
    gate.model.will(chooses(asking(X0, y0), asking(X1)), says("and?"), says("done"))
    gate.post(chat("look", n=2, **named("in turn")))
    history = [user("look"), asking(X0, y0), result("x0")]
    turn = gate.turn(gate.post(chat(*history, **named("in turn"))))
    assert (turn["status"], gate.run(turn)["status"]) == ("running", "waiting_tool")
    assert ends(gate, turn)['{"at": 2}'] == ("running", None)
    turn = gate.turn(gate.post(chat(*history, result("y0"), **named("in turn"))))
    assert (turn["status"], ends(gate, turn)['{"at": 1}']) == ("success", UNAWAITED)


def test_a_client_that_chose_an_answer_without_calls_has_its_end(gate: Gate) -> None:
    gate.model.will(chooses(said("no need"), asking(X1)), says("next"))
    gate.post(chat("look", n=2, **named("none")))
    gate.post(chat("look", said("no need"), "thanks", **named("none")))
    first, second = gate.turns("none")
    assert (first["status"], first["ended_by"], first["finish_reason"]) == (
        "success",
        "finished",
        "stop",
    )
    assert (first["final_output"], second["final_output"]) == ("no need", "next")
    assert ends(gate, first) == {'{"at": 1}': UNAWAITED}


def test_a_user_message_instead_of_the_results_of_a_choice_supersedes(gate: Gate) -> None:
    gate.model.will(chooses(asking(X0), asking(X1)), says("well"))
    gate.post(chat("look", n=2, **named("instead")))
    gate.post(chat("look", asking(X0), "never mind", **named("instead")))
    first = gate.turns("instead")[0]
    assert (first["status"], first["ended_by"]) == ("cancelled", "superseded")
    assert ends(gate, first) == {'{"at": 0}': UNAWAITED, '{"at": 1}': UNAWAITED}


def test_choices_are_known_after_a_restart(tmp_path: Path) -> None:
    model = Model()
    model.will(chooses(asking(X0), asking(X1)), says("done"))
    with gateway(tmp_path, model) as gate:
        gate.post(chat("look", n=2, **named("s")))
    with gateway(tmp_path, model) as gate:
        history = [user("look"), asking(X1), result("x1")]
        turn = gate.turn(gate.post(chat(*history, **named("s"))))
        assert (turn["status"], turn["finish_reason"]) == ("success", "stop")
        assert ends(gate, turn) == {'{"at": 0}': UNAWAITED, '{"at": 1}': ANSWERED}
    model.close()
