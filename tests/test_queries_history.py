"""The turns of a session with what was said: windows, long texts, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_store import FilledStore, selects
from xgw.errors import ApiError
from xgw.queries import cuts, history, lines, overview, runs
from xgw.queries.history import Window
from xgw.queries.pages import Page

OPEN: dict[str, Any] = {"status": "running", "ended_at": None}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def conversation(filled: FilledStore, count: int) -> tuple[str, list[str]]:
    """A session of turns with a question, a call and an answer each."""
    session = filled.session()
    turns = []
    for index in range(count):
        turn = filled.turn(session, index, turn_index=index, user_input=f"question {index}")
        run = filled.run(turn, index)
        step = filled.step(run, turn, index, session_id=session)
        filled.message(session, turn, 2 * index, content=f"question {index}")
        said = {"role": "assistant", "content": f"answer {index}", "step_id": step}
        filled.message(session, turn, 2 * index + 1, **said)
        turns.append(turn)
    return session, turns


def indexes(window: Window) -> list[int]:
    return [row["turn_index"] for row in window.turns]


def said(window: Window) -> list[str]:
    return [row["content"] for row in window.messages]


# -- windows ---------------------------------------------------------------------------------------


def test_windows_lead_from_the_newest_turn_to_the_first_and_back(filled: FilledStore) -> None:
    session, _ = conversation(filled, 7)
    newest = history.read(filled.store, session, Page(3))
    assert indexes(newest) == [6, 5, 4]
    assert said(newest)[0], said(newest)[-1] == ("question 4", "answer 6")
    assert newest.newer is None
    middle = history.read(filled.store, session, Page(3, newest.older))
    assert indexes(middle) == [3, 2, 1]
    first = history.read(filled.store, session, Page(3, middle.older))
    assert (indexes(first), first.older) == ([0], None)
    back = history.read(filled.store, session, Page(3, first.newer, "asc"))
    assert (indexes(back), back.messages) == ([3, 2, 1], middle.messages)
    again = history.read(filled.store, session, Page(3, back.newer, "asc"))
    assert again == newest


def test_a_window_is_what_was_said_and_done_in_its_turns(filled: FilledStore) -> None:
    session, turns = conversation(filled, 3)
    other, _ = conversation(filled, 1)
    window = history.read(filled.store, session, Page(2))
    assert said(window) == ["question 1", "answer 1", "question 2", "answer 2"]
    assert [row["turn_id"] for row in window.steps] == turns[1:]
    answers = [row["step_id"] for row in window.messages if row["role"] == "assistant"]
    assert answers == [row["id"] for row in window.steps]
    assert not {"input_payload", "output_payload", "metadata"} & window.steps[0].keys()
    assert said(history.read(filled.store, other, Page(2))) == ["question 0", "answer 0"]


@pytest.mark.parametrize(
    ("at", "limit", "expected"),
    [(4, 3, [5, 4, 3]), (4, 1, [4]), (8, 4, [8, 7, 6, 5]), (0, 5, [2, 1, 0]), (1, 2, [2, 1])],
)
def test_a_window_can_be_opened_around_a_turn(
    filled: FilledStore, at: int, limit: int, expected: list[int]
) -> None:
    session, turns = conversation(filled, 9)
    window = history.read_around(filled.store, session, turns[at], limit)
    assert indexes(window) == expected
    assert (window.newer is None) == (expected[0] == 8)
    assert (window.older is None) == (expected[-1] == 0)
    if window.newer is not None:
        later = history.read(filled.store, session, Page(1, window.newer, "asc"))
        assert indexes(later) == [expected[0] + 1]


def test_a_turn_of_elsewhere_opens_the_newest_ones(filled: FilledStore) -> None:
    session, _ = conversation(filled, 3)
    _, others = conversation(filled, 9)
    for turn in (others[4], "turn_x"):
        assert indexes(history.read_around(filled.store, session, turn, 2)) == [2, 1]


def test_a_session_without_turns_has_an_empty_window(filled: FilledStore) -> None:
    session = filled.session()
    assert history.read(filled.store, session, Page()) == Window()
    assert history.read_around(filled.store, session, "turn_x", 5) == Window()


def test_a_cursor_of_anyones_making_is_refused(filled: FilledStore) -> None:
    with pytest.raises(ApiError, match="cursor"):
        history.read(filled.store, filled.session(), Page(3, "x"))


# -- lines -----------------------------------------------------------------------------------------


def test_a_line_has_the_newest_run_and_the_state(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session, tool_calls=2, attempts=3, llm_calls=2, latency_ms=40, **OPEN)
    filled.run(turn, run_index=0, status="error")
    newest = filled.run(turn, run_index=1, status="waiting_tool", kind="rerun")
    [line] = history.list_lines(filled.store, session, Page()).rows
    assert (line["run_id"], line["run_index"], line["run_kind"]) == (newest, 1, "rerun")
    assert (line["state"], line["limit"], line["latency_ms"]) == ("waiting", None, 40)
    assert (line["tool_calls"], line["attempts"]) == (2, 3)
    assert overview.of_turns(filled.store, [line])[turn].waits_for == "tool"


def test_a_line_names_the_limit_that_ended_it(filled: FilledStore) -> None:
    session = filled.session()
    filled.turn(session, status="error", ended_by="limit", error_type="limit_iterations")
    filled.turn(session, turn_index=1, status="error", ended_by="provider", error_type="x")
    found = history.list_lines(filled.store, session, Page(order="asc")).rows
    assert [(row["state"], row["limit"]) for row in found] == [
        ("error", "iterations"),
        ("error", None),
    ]


@pytest.mark.parametrize("length", [3, 200, 201, 600, 300_000])
def test_a_lines_input_is_cut_wherever_it_is_kept(filled: FilledStore, length: int) -> None:
    session = filled.session()
    filled.turn(session, turn_index=0, user_input="x" * length)
    filled.turn(session, turn_index=1, user_input=filled.text("y" * length))
    found = history.list_lines(filled.store, session, Page(order="asc")).rows
    shown = min(length, lines.CHARACTERS)
    assert [row["user_input"] for row in found] == ["x" * shown, "y" * shown]


# -- what was said ---------------------------------------------------------------------------------


def test_long_messages_are_brought_back_and_cut_with_their_size_told(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session)
    texts = ["short", "long " * 200, "ü" * cuts.MOST]
    for index, text in enumerate(texts):
        filled.message(session, turn, index, content=filled.text(text))
    window = history.read(filled.store, session, Page())
    assert said(window) == [*texts[:2], "ü" * (cuts.MOST // 2)]
    assert [row["cut"] for row in window.messages] == [{}, {}, {"content": 2 * cuts.MOST}]


def test_parts_and_tool_calls_are_brought_back_and_cut(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session)
    reasoning = {"reasoning_content": "because " * 200}
    called = [{"id": "call_1", "function": {"name": "write", "arguments": "x" * 300_000}}]
    filled.message(session, turn, 0, parts=filled.json(reasoning), tool_calls=called)
    [message] = history.read(filled.store, session, Page()).messages
    assert message["parts"] == reasoning
    function = message["tool_calls"][0]["function"]
    assert (function["name"], function["arguments"][:3]) == ("write", "xxx")
    assert cuts.MOST - 200 < len(function["arguments"]) <= cuts.MOST
    assert message["cut"] == {"tool_calls": len(orjson.dumps(called))}


def test_a_text_that_is_gone_from_the_store_is_none(filled: FilledStore) -> None:
    session = filled.session()
    named = filled.text("long " * 200)
    assert named is not None
    filled.turn(session, user_input=named)
    filled.message(session, filled.turn(session, turn_index=1), 0, content=named)
    filled.forget(named[1:])
    window = history.read(filled.store, session, Page())
    assert window.turns[1]["user_input"] is None
    assert said(window) == [None]


def test_a_step_under_way_has_what_has_arrived(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session, **OPEN)
    run = filled.run(turn, status="running")
    filled.step(run, turn, 0, step_index=0, status="error", partial_output="broken")
    filled.step(run, turn, 1, step_index=1, partial_output="Your order", **OPEN)
    window = history.read(filled.store, session, Page())
    assert [step["partial_output"] for step in window.steps] == [None, "Your order"]


def test_of_very_many_messages_and_steps_the_newest_are_there(
    filled: FilledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MOST_MESSAGES", 4)
    session, _ = conversation(filled, 3)
    window = history.read(filled.store, session, Page())
    assert said(window) == ["question 1", "answer 1", "question 2", "answer 2"]
    assert window.left_out
    monkeypatch.setattr(history, "MOST_MESSAGES", 6)
    assert not history.read(filled.store, session, Page()).left_out
    monkeypatch.setattr(runs, "MOST_STEPS", 2)
    window = history.read(filled.store, session, Page())
    assert ([row["turn_id"] for row in window.steps], window.left_out) == (
        [row["id"] for row in window.turns[1::-1]],
        True,
    )


# -- what it costs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 30])
def test_a_window_takes_three_statements_whatever_is_in_it(filled: FilledStore, count: int) -> None:
    session, turns = conversation(filled, count)
    for index, turn in enumerate(turns):
        filled.message(session, turn, 100 + index, content=filled.text(f"long {index} " * 100))
    filled.turn(session, turn_index=count, user_input=filled.text("asked at length " * 100))
    windows = (
        lambda: history.read(filled.store, session, Page(20)),
        lambda: history.read_around(filled.store, session, turns[0], 20),
    )
    for read in windows:
        with selects() as statements:
            assert read().turns
        assert len(statements) == 3
        plan = "\n".join(filled.explain(statement) for statement in statements)
        # Only the turns that were found are scanned; open ones are few, whatever the session.
        assert not re.search(r"SCAN t\d", plan), plan
        assert "turns_status_start (status=?)" in plan


def test_a_page_of_lines_is_one_statement_that_walks_an_index(filled: FilledStore) -> None:
    session, _ = conversation(filled, 3)
    with selects() as statements:
        history.list_lines(filled.store, session, Page(2))
    assert len(statements) == 1
    plan = filled.explain(statements[0])
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan
