"""One turn looked at closely: runs, steps, messages, exchanges, and what reading it costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filled_store import FilledStore, selects
from xgw.queries import cuts, history, overview, runs, turn_closeup
from xgw.queries.turn_closeup import TurnCloseup

OPEN: dict[str, Any] = {"status": "running", "ended_at": None}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def find(filled: FilledStore, turn: str) -> TurnCloseup:
    found = turn_closeup.find(filled.store, turn)
    assert found is not None
    return found


def test_a_turn_comes_with_all_that_is_in_it(filled: FilledStore) -> None:
    session = filled.session()
    turn, other = filled.turn(session, **OPEN), filled.turn(session, turn_index=1)
    made = []
    for index, status in enumerate(("error", "waiting_tool")):
        run = filled.run(turn, run_index=index, status=status)
        # Steps that are begun at the same moment stand by their number.
        made.append((run, [filled.step(run, turn, 5, step_index=n) for n in range(3)]))
    filled.step(filled.run(other), other)
    said = [filled.message(session, turn, n, content=f"message {n}") for n in range(2)]
    filled.message(session, other, 2)
    sent = [filled.request(turn, start) for start in (2, 1)]
    filled.request(other)
    found = find(filled, turn)
    assert [(r["id"], [s["id"] for s in r["steps"]]) for r in found.turn["runs"]] == made
    assert [row["id"] for row in found.messages] == said
    assert [row["id"] for row in found.requests] == sent[::-1]
    assert (found.turn["state"], found.left_out) == ("waiting", False)
    assert overview.of_turns(filled.store, [found.turn])[turn].waits_for == "tool"


def test_rows_of_a_turn_are_light(filled: FilledStore) -> None:
    turn = filled.turn(**OPEN)
    run = filled.run(turn)
    filled.step(run, turn, partial_output="Your order", usage_raw={}, **OPEN)
    filled.request(turn, error_body="x", frames=[[0, 1]])
    found = find(filled, turn)
    [step] = found.turn["runs"][0]["steps"]
    assert not {"input_payload", "output_payload", "usage_raw", "metadata"} & step.keys()
    assert step["partial_output"] == "Your order"
    assert not {"error_body", "frames", "request_headers"} & found.requests[0].keys()


def test_texts_and_configuration_are_brought_back_and_cut(filled: FilledStore) -> None:
    asked = "asked at length " * 100
    config = {"model": "m", "temperature": 0.5}
    turn = filled.turn(
        user_input=filled.text(asked),
        final_output=filled.text("x" * 300_000),
        config_snapshot=filled.body(config),
    )
    found = find(filled, turn).turn
    assert (found["user_input"], found["config"]) == (asked, config)
    assert found["final_output"] == "x" * cuts.MOST
    assert found["cut"] == {"final_output": 300_000}


def test_what_is_gone_from_the_store_is_none(filled: FilledStore) -> None:
    text, config = filled.text("long " * 200), filled.body({"model": "m"})
    assert text is not None
    turn = filled.turn(user_input=text, final_output="short", config_snapshot=config)
    filled.forget(text[1:])
    filled.forget(config)
    found = find(filled, turn).turn
    assert (found["user_input"], found["final_output"], found["config"]) == (None, "short", None)


def test_a_turn_without_a_run_or_a_session_is_whole(filled: FilledStore) -> None:
    turn = filled.turn(status="error", ended_by="limit", error_type="limit_cost")
    found = find(filled, turn)
    assert found.turn["runs"] == []
    assert (found.turn["state"], found.turn["limit"]) == ("error", "cost")
    assert found == TurnCloseup(found.turn)


def test_a_turn_is_found_in_its_own_project_alone(filled: FilledStore) -> None:
    turn = filled.turn(project_id="team")
    assert turn_closeup.find(filled.store, turn, "team") is not None
    assert turn_closeup.find(filled.store, turn, "default") is None
    assert turn_closeup.find(filled.store, "turn_x") is None


@pytest.mark.parametrize("most", ["MOST_MESSAGES", "MOST_STEPS", "MOST_REQUESTS"])
def test_of_very_many_rows_the_newest_are_there(
    filled: FilledStore, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    session = filled.session()
    turn = filled.turn(session)
    run = filled.run(turn)
    rows = {
        "MOST_MESSAGES": [filled.message(session, turn, n) for n in range(3)],
        "MOST_STEPS": [filled.step(run, turn, n, step_index=n) for n in range(3)],
        "MOST_REQUESTS": [filled.request(turn, n) for n in range(3)],
    }
    module = {"MOST_MESSAGES": history, "MOST_STEPS": runs, "MOST_REQUESTS": turn_closeup}[most]
    monkeypatch.setattr(module, most, 2)
    found = find(filled, turn)
    there = {
        "MOST_MESSAGES": found.messages,
        "MOST_STEPS": found.turn["runs"][0]["steps"],
        "MOST_REQUESTS": found.requests,
    }
    for name, listed in there.items():
        expected = rows[name][1:] if name == most else rows[name]
        assert [row["id"] for row in listed] == expected
    assert found.left_out


def test_a_turn_takes_a_few_statements_whatever_is_in_it(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(
        session,
        user_input=filled.text("asked at length " * 100),
        config_snapshot=filled.body({"model": "m"}),
    )
    for index in range(3):
        run = filled.run(turn, run_index=index)
        for n in range(20):
            filled.request(turn, n, step_id=filled.step(run, turn, n, step_index=n))
            filled.message(session, turn, 20 * index + n, content=filled.text(f"{n} " * 400))
    with selects() as statements:
        find(filled, turn)
    assert len(statements) == 6
    plan = "\n".join(filled.explain(statement) for statement in statements)
    # What follows references scans what it has found, and no table.
    assert not re.search(r"SCAN (t\d|p)\b", plan), plan
