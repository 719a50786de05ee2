"""One step looked at closely: its neighbours, the attempts of its call, exchanges and bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_store import FilledStore, at, selects
from xgw.queries import attempts, cuts, payloads, requests, step_closeup
from xgw.queries.step_closeup import Bodies, Body, Measure, SentMessage, StepCloseup

OPEN: dict[str, Any] = {"status": "running", "ended_at": None}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def find(filled: FilledStore, step: str) -> StepCloseup:
    found = step_closeup.find(filled.store, step)
    assert found is not None
    return found


def bodies_of(filled: FilledStore, sent: Any = None, received: Any = None) -> Bodies:
    """The bodies of a step that sent and received these."""
    named = [None if body is None else filled.body(body) for body in (sent, received)]
    step = {"input_payload": named[0], "output_payload": named[1]}
    return read_bodies(filled, step, len_of)


def read_bodies(filled: FilledStore, step: dict[str, Any], *how: Any) -> Bodies:
    keys = [key for key in step.values() if key]
    return step_closeup.bodies_of(step, payloads.find_listed(filled.store, keys), *how)


def len_of(message: Any) -> int | None:
    return len(message["content"]) if isinstance(message, dict) else None


# -- where it stands -------------------------------------------------------------------------------


def test_a_step_comes_with_its_turn(filled: FilledStore) -> None:
    session = filled.session()
    asked = "asked at length " * 100
    turn = filled.turn(session, turn_index=4, user_input=filled.text(asked))
    run = filled.run(turn, run_index=2)
    step = filled.step(run, turn, session_id=session, metadata={"x": 1})
    found = find(filled, step)
    assert (found.step["id"], found.step["session_id"]) == (step, session)
    assert found.step["metadata"] == {"x": 1}
    assert (found.step["turn_index"], found.step["run_index"]) == (4, 2)
    assert found.step["user_input"] == asked[:200]


def test_the_exchanges_of_a_step(filled: FilledStore) -> None:
    turn = filled.turn()
    run = filled.run(turn)
    step, other = (filled.step(run, turn, step_index=number) for number in range(2))
    later, earlier = (
        filled.request(turn, start, step_id=step, frames=[[0, 1]], status_code=code)
        for start, code in ((2, 200), (1, 503))
    )
    assert requests.exchanges_of_step(filled.store, step) == [
        {"id": earlier, "method": "POST", "status_code": 503},
        {"id": later, "method": "POST", "status_code": 200},
    ]
    last = requests.last_of_step(filled.store, step)
    assert last is not None
    assert (last["id"], last["exchanges"], last["frames"]) == (later, 2, [[0, 1]])
    assert requests.last_of_step(filled.store, other) is None


def test_a_step_is_found_in_its_own_project_alone(filled: FilledStore) -> None:
    turn = filled.turn(project_id="team")
    step = filled.step(filled.run(turn), turn)
    assert step_closeup.find(filled.store, step, "team") is not None
    assert step_closeup.find(filled.store, step, "default") is None
    assert step_closeup.find(filled.store, "step_x") is None


def test_neighbours_lead_through_all_runs_of_the_turn(filled: FilledStore) -> None:
    turn = filled.turn()
    made: list[str] = []
    for run_index, statuses in enumerate((["success", "error"], [], ["success", "success"])):
        run = filled.run(turn, run_index=run_index)
        for index, status in enumerate(statuses):
            made.append(filled.step(run, turn, step_index=index, status=status))
    failed = made[1]
    filled.step(filled.run(filled.turn()), turn)
    around = [
        (s.previous_id, s.next_id, s.previous_failed_id, s.next_failed_id)
        for s in (find(filled, step) for step in made)
    ]
    assert around == [
        (None, made[1], None, failed),
        (made[0], made[2], None, None),
        (made[1], made[3], failed, None),
        (made[2], None, failed, None),
    ]


# -- attempts --------------------------------------------------------------------------------------


def call(number: int, attempt: int, start: float, end: float | None, asked: str = "m") -> Any:
    return {
        "id": f"step_{number}",
        "run_id": "run",
        "step_index": number,
        "attempt": attempt,
        "model_requested": asked,
        "started_at": at(start),
        "ended_at": None if end is None else at(end),
    }


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], []),
        ([call(0, 1, 0, 1), call(1, 2, 2, 3), call(2, 1, 4, 5)], [[0, 1], [2]]),
        # Two calls side by side: each goes on with its own.
        (
            [call(0, 1, 0, 1), call(1, 1, 0, 2), call(2, 2, 1.5, 3), call(3, 2, 2.5, None)],
            [[0, 2], [1, 3]],
        ),
        ([call(0, 1, 0, 1, "a"), call(1, 1, 0, 1, "b"), call(2, 2, 2, 3, "a")], [[0, 2], [1]]),
        # The first attempt is not there, or has not ended.
        ([call(7, 2, 2, 3), call(8, 3, 4, 5)], [[7, 8]]),
        ([call(0, 1, 0, None), call(1, 2, 2, 3)], [[0], [1]]),
    ],
)
def test_attempts_are_put_together_by_call(steps: list[Any], expected: list[list[int]]) -> None:
    calls = attempts.grouped(reversed(steps))
    assert [[row["step_index"] for row in call] for call in calls] == expected
    for group in calls:
        for row in group:
            assert attempts.of_same_call(row["id"], steps) == group
    assert attempts.of_same_call("step_x", steps) == []


def test_a_model_call_has_the_attempts_of_its_call(filled: FilledStore) -> None:
    turn = filled.turn()
    run = filled.run(turn)

    def tried(index: int, attempt: int, **columns: Any) -> str:
        columns = {"step_index": index, "attempt": attempt, "model_requested": "m", **columns}
        return filled.step(run, turn, 2 * index, **columns)

    before = tried(0, 1)
    tool = filled.step(run, turn, 2, step_index=1, step_type="tool_call", attempt=None)
    mine = [tried(2, 1, status="error"), tried(3, 2, status="error"), tried(4, 3, **OPEN)]
    for step in mine:
        assert [row["id"] for row in find(filled, step).attempts] == mine
    assert [row["id"] for row in find(filled, before).attempts] == [before]
    assert find(filled, tool).attempts == []


# -- bodies ----------------------------------------------------------------------------------------


def test_a_request_is_taken_apart(filled: FilledStore) -> None:
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    tools = [{"type": "function", "function": {"name": "look"}}]
    sent = {"model": "m", "messages": said, "temperature": 0.5, "tools": tools}
    found = bodies_of(filled, sent).sent
    assert found is not None
    assert found.size == len(orjson.dumps(sent))
    assert [message.value for message in found.messages] == said
    assert found.measures == [Measure("system", 9), Measure("user", 5)]
    assert [message.size for message in found.messages] == [len(orjson.dumps(m)) for m in said]
    assert (found.tools and found.tools.value, found.other) == (tools, None)
    assert (found.parameters and found.parameters.value) == {"model": "m", "temperature": 0.5}


@pytest.mark.parametrize(
    ("sent", "values"),
    [
        ({"model": "e", "input": "one text"}, ["one text"]),
        ({"model": "e", "input": ["one", "two"]}, ["one", "two"]),
        ({"model": "m", "messages": "no list"}, ["no list"]),
        ({"model": "m", "messages": [{"role": ["odd"]}, 7, None]}, [{"role": ["odd"]}, 7, None]),
        ({"model": "m"}, []),
    ],
)
def test_odd_requests_are_shown_as_they_are(
    filled: FilledStore, sent: Any, values: list[Any]
) -> None:
    found = read_bodies(filled, {"input_payload": filled.body(sent), "output_payload": None}).sent
    assert found is not None
    assert [message.value for message in found.messages] == values
    assert found.measures == [Measure(None, None)] * len(values)


def test_a_request_that_is_no_object_is_shown_whole(filled: FilledStore) -> None:
    for content in (b"not json", b"[1, 2]"):
        found = bodies_of(filled, content).sent
        assert found is not None
        assert found.messages == []
        assert found.other is not None
        assert found.other.value in ("not json", [1, 2])


def test_of_a_long_request_the_first_message_and_the_last_ones_are_shown(
    filled: FilledStore,
) -> None:
    said = [{"role": "user", "content": f"{n} " + "x" * 50_000} for n in range(20)]
    found = bodies_of(filled, {"model": "m", "messages": said}).sent
    assert found is not None
    shown = [message.index for message in found.messages if message.value is not None]
    whole = [message.index for message in found.messages if not message.is_cut]
    assert shown == [0, 15, 16, 17, 18, 19]
    assert whole == [0, 16, 17, 18, 19]
    assert found.measures == [Measure("user", len(m["content"])) for m in said]
    left_out = found.messages[7]
    size = len(orjson.dumps(said[7]))
    assert left_out == SentMessage(7, None, size, is_cut=True)


def test_of_a_request_the_messages_that_are_asked_for_are_brought(filled: FilledStore) -> None:
    said = [{"role": "user", "content": str(n)} for n in range(40)]
    step = {"input_payload": filled.body({"messages": said}), "output_payload": None}
    part = read_bodies(filled, step, len_of, lambda count: range(30, count))
    assert part.sent is not None
    assert [message.value for message in part.sent.messages] == said[30:]
    assert [message.index for message in part.sent.messages] == list(range(30, 40))
    assert len(part.sent.measures) == 40


def test_what_was_received_is_shown_cut_with_its_size(filled: FilledStore) -> None:
    answer = {"choices": [{"index": 0, "message": {"content": "Hi"}}], "usage": None}
    assert bodies_of(filled, received=answer).received == Body(answer, len(orjson.dumps(answer)))
    assert bodies_of(filled, received=b"plain \xc3\xbc").received == Body("plain ü", 8)
    long = bodies_of(filled, received=b"x" * 300_000).received
    assert long == Body("x" * cuts.MOST, 300_000, is_cut=True)


def test_bodies_that_are_gone_or_never_were_are_none(filled: FilledStore) -> None:
    gone = filled.body({"model": "m", "messages": [{"role": "user", "content": "a"}]})
    filled.forget(gone)
    step = {"input_payload": gone, "output_payload": None}
    assert read_bodies(filled, step) == Bodies()


# -- what it costs ---------------------------------------------------------------------------------


def test_a_step_takes_two_statements_however_long_its_run(filled: FilledStore) -> None:
    turn = filled.turn(user_input=filled.text("asked at length " * 100))
    run = filled.run(turn)
    made = [filled.step(run, turn, n, step_index=n, status="error") for n in range(120)]
    filled.request(turn, step_id=made[60])
    with selects() as statements:
        found = find(filled, made[60])
    assert (found.previous_failed_id, found.next_failed_id) == (made[59], made[61])
    assert len(statements) == 2
    plan = "\n".join(filled.explain(statement) for statement in statements)
    assert not re.search(r"SCAN (?!CONSTANT ROW|found|needed|json_each|led)", plan), plan


@pytest.mark.parametrize("count", [1, 16, 2000])
def test_bodies_take_one_statement_whatever_their_size(filled: FilledStore, count: int) -> None:
    said = [{"role": "user", "content": f"{n} " + "long " * 200} for n in range(count)]
    sent = filled.body({"model": "m", "messages": said})
    step = {"input_payload": sent, "output_payload": filled.body({"choices": []})}
    with selects() as statements:
        found = read_bodies(filled, step).sent
    assert found is not None
    assert len(found.messages) == count
    assert len(statements) == 1
    assert not re.search(r"SCAN p\b", filled.explain(statements[0]))
