"""Turns of sub-agents: the client names the turn that started them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_fixtures import CHAT, Gate, a_test_of, gate_and_model
from scripted_model import HANG, chat, delta, named, says, stream
from servers import eventually
from xgw.config import ClientKey, Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("subagents")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def test_a_turn_is_named_by_id_or_key_in_header_or_metadata(gate: Gate) -> None:
    gate.model.will(*[says()] * 4)
    parent = gate.turn(gate.post(chat(**named("main", "plan"))))
    by_id = gate.post(chat(**named("helper-1")), x_parent_turn_id=parent["id"])
    by_key = gate.post(chat(**named("helper-2")), x_parent_turn_id="plan")
    by_metadata = gate.post(chat(**named("helper-3", parent_turn_id="plan", kept="x")))
    for reply in (by_id, by_key, by_metadata):
        turn = gate.turn(reply)
        assert turn["parent_turn_id"] == parent["id"]
        assert "parent_turn_id" not in (turn["metadata"] or {})
        assert turn["session_id"] != parent["session_id"]
    assert gate.get(f"/turns/{gate.turn(by_id)['id']}").json["parent_turn_id"] == parent["id"]


def test_it_is_not_told_upstream(gate: Gate) -> None:
    gate.model.will(says())
    metadata = {"parent_turn_id": "nothing", "kept": "x"}
    gate.post(chat(metadata=metadata), x_parent_turn_id="nothing")
    (asked,) = gate.model.asked
    assert asked.json["metadata"] == {"kept": "x"}
    assert "x-parent-turn-id" not in dict(asked.headers)


def test_a_parent_that_is_still_under_way(gate: Gate) -> None:
    gate.model.will(stream(delta("thinking"), HANG), says())
    parent = gate.open(chat(stream=True, **named("busy", "outer")))
    parent.until(b"thinking")
    child = gate.turn(gate.post(chat(), x_parent_turn_id="outer"))
    assert child["parent_turn_id"] == gate.turn(parent)["id"]
    assert child["session_id"] is None
    parent.leave()
    eventually(lambda: gate.turn(parent)["ended_at"])


def test_of_several_with_one_key_the_one_in_the_session_counts(gate: Gate) -> None:
    gate.model.will(*[says()] * 4)
    gate.post(chat(**named("s1", "step")))
    here = gate.turn(gate.post(chat(**named("s2", "step"))))
    child = gate.turn(gate.post(chat(**named("s2")), x_parent_turn_id="step"))
    assert child["parent_turn_id"] == here["id"]
    elsewhere = gate.turn(gate.post(chat(**named("s3")), x_parent_turn_id="step"))
    assert elsewhere["parent_turn_id"] is None
    assert elsewhere["metadata"] == {"parent_turn_id": "step"}


def test_what_names_no_turn_is_kept_as_it_is(gate: Gate) -> None:
    gate.model.will(says(), says())
    for ref in ("nobody", "turn_" + "0" * 32):
        turn = gate.turn(gate.post(chat(), x_parent_turn_id=ref))
        assert turn["parent_turn_id"] is None
        assert turn["metadata"]["parent_turn_id"] == ref


def test_where_two_places_disagree_the_body_counts(gate: Gate) -> None:
    gate.model.will(says(), says())
    parent = gate.turn(gate.post(chat(**named("two", "first"))))
    reply = gate.post(chat(**named(parent_turn_id="first")), x_parent_turn_id="other")
    turn = gate.turn(reply)
    assert turn["parent_turn_id"] == parent["id"]
    assert turn["metadata"]["identifiers"] == {"header:parent_turn_id": "other"}


@pytest.mark.parametrize("value", ["", "x" * 257, "a\u0007b", 5])
def test_what_cannot_be_an_identifier(gate: Gate, value: object) -> None:
    reply = gate.post(chat(metadata={"parent_turn_id": value}))
    assert (reply.status, reply.error["param"]) == (400, "parent_turn_id")


def test_turns_of_other_projects_are_not_named(tmp_path: Path) -> None:
    keys = tuple(ClientKey(key=f"key-of-{name}", project=name) for name in ("a", "b"))
    with gate_and_model(tmp_path, server=Server(token="the-token"), keys=keys) as gate:
        gate.model.will(says(), says(), says())
        own, other = "Bearer key-of-a", "Bearer key-of-b"
        parent = gate.turn(gate.post(chat(**named("s", "k")), CHAT, authorization=own))
        for ref in ("k", parent["id"]):
            reply = gate.post(chat(), CHAT, authorization=other, x_parent_turn_id=ref)
            turn = gate.turn(reply)
            assert (turn["parent_turn_id"], turn["metadata"]) == (None, {"parent_turn_id": ref})
