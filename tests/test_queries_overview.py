"""What lists say at a glance: states and causes, the step under way, waste, fallbacks, counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from filled_store import FilledStore, at, selects, tell
from xgw import ids
from xgw.events import Envelope
from xgw.queries import overview, sessions, standing, turns
from xgw.queries.filters import Filters
from xgw.queries.overview import Overview, Strip, TurnOverview
from xgw.queries.pages import Page
from xgw.queries.quiet import STALLED_AFTER
from xgw.store.transaction import Transaction

ALL = Filters()
NOW = at(600)
OPEN: dict[str, Any] = {"status": "running", "ended_at": None}


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def of_session(filled: FilledStore, session: str) -> Overview:
    row = sessions.find_session(filled.store, session)
    assert row is not None
    return overview.of_sessions(filled.store, [row])[session]


def of_turn(filled: FilledStore, turn: str) -> TurnOverview:
    row = turns.find_turn(filled.store, turn)
    assert row is not None
    return overview.of_turns(filled.store, [row])[turn]


# -- states and causes -----------------------------------------------------------------------------

STANDS: list[tuple[dict[str, Any], str | None, tuple[str, str | None, str | None]]] = [
    ({"status": "queued", "ended_at": None}, None, ("queued", None, None)),
    (OPEN, None, ("running", None, None)),
    (OPEN, "running", ("running", None, None)),
    (OPEN, "waiting_tool", ("waiting", None, "tool")),
    (OPEN | {"endpoint": None}, "waiting_tool", ("waiting", None, "approval")),
    (OPEN | {"endpoint": None}, "paused", ("paused", None, None)),
    ({"ended_by": "finished"}, "success", ("done", None, None)),
    (
        {"status": "error", "ended_by": "provider", "error_type": "upstream_timeout"},
        "error",
        ("error", "upstream_timeout", None),
    ),
    ({"status": "error", "ended_by": "crash"}, "error", ("error", "crash", None)),
    (
        {"status": "cancelled", "ended_by": "user_cancel", "error_type": "cancelled"},
        "cancelled",
        ("cancelled", "user_cancel", None),
    ),
]


@pytest.mark.parametrize(("turn", "run", "expected"), STANDS)
def test_a_turn_and_its_session_stand_alike(
    filled: FilledStore,
    turn: dict[str, Any],
    run: str | None,
    expected: tuple[str, str | None, str | None],
) -> None:
    session = filled.session()
    id = filled.turn(session, **turn)
    if run is not None:
        filled.run(id, status=run)
    for found in (of_session(filled, session), of_turn(filled, id)):
        assert (found.state, found.cause, found.waits_for) == expected
    assert of_session(filled, session).turn_id == id


def test_the_newest_run_counts(filled: FilledStore) -> None:
    turn = filled.turn(**OPEN)
    filled.run(turn, run_index=0, status="paused")
    filled.run(turn, run_index=1, status="running")
    assert of_turn(filled, turn).state == "running"


def test_the_active_turn_counts_before_the_newest(filled: FilledStore) -> None:
    active = ids.mint("turn")
    session = filled.session(active_turn_id=active)
    filled.turn(session, id=active, turn_index=0, **OPEN)
    newest = filled.turn(session, turn_index=1, status="error", error_type="upstream_error")
    assert (of_session(filled, session).state, of_session(filled, session).turn_id) == (
        "running",
        active,
    )
    other = filled.session()
    filled.turn(other, turn_index=0)
    newest = filled.turn(other, turn_index=1, status="error", error_type="upstream_error")
    found = of_session(filled, other)
    assert (found.state, found.cause, found.turn_id) == ("error", "upstream_error", newest)


@pytest.mark.parametrize("status", ["archived", "closed"])
def test_a_session_that_is_put_away_says_so_once_nothing_goes_on(
    filled: FilledStore, status: str
) -> None:
    failed, open, bare = (filled.session(status=status) for _ in range(3))
    filled.turn(failed, status="error", error_type="upstream_error")
    filled.turn(open, **OPEN)
    assert (of_session(filled, failed).state, of_session(filled, failed).cause) == (status, None)
    assert of_session(filled, open).state == "running"
    assert of_session(filled, bare).state == status


def test_a_session_without_turns_is_empty(filled: FilledStore) -> None:
    assert of_session(filled, filled.session()) == Overview("empty")


# -- titles ----------------------------------------------------------------------------------------


def test_a_session_is_called_by_its_title_else_by_its_first_input(filled: FilledStore) -> None:
    titled, asked, silent = filled.session(title="Mine"), filled.session(), filled.session()
    for session in (titled, asked):
        filled.turn(session, turn_index=0, user_input=None)
        filled.turn(session, turn_index=1, user_input="Where?" + " word" * 200)
        filled.turn(session, turn_index=2, user_input="And then?")
    found = {id: of_session(filled, id).title for id in (titled, asked, silent)}
    assert found[titled] == "Mine"
    assert found[asked].startswith("Where? word")
    assert len(found[asked]) == standing.TITLE_CHARACTERS
    assert found[silent] == ""


# -- now -------------------------------------------------------------------------------------------


def test_now_is_the_step_under_way_that_began_last(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session, **OPEN)
    run = filled.run(turn, status="running")
    filled.step(run, turn, 1, step_index=0, name="gpt-4o")
    tool: dict[str, Any] = {"step_type": "tool_call", "attempt": None, **OPEN}
    called = {"arguments": '{"order":' + "1" * 300 + "}"}
    filled.step(run, turn, 2, step_index=1, name="docs", tool_call_id="call_1", **tool)
    last = filled.step(
        run, turn, 2, step_index=2, name="order", tool_call_id="call_2", metadata=called, **tool
    )
    for found in (of_session(filled, session), of_turn(filled, turn)):
        assert found.now == overview.Now(
            id=last,
            step_type="tool_call",
            step_index=2,
            name="order",
            provider_name=None,
            model=None,
            attempt=None,
            started_at=at(2),
            tool_call_id="call_2",
            arguments=called["arguments"][: overview.ARGUMENTS_CHARACTERS],
            running=2,
        )


def test_now_tells_a_model_call_and_its_attempt(filled: FilledStore) -> None:
    turn = filled.turn(**OPEN, attempts=1, llm_calls=1)
    run = filled.run(turn, status="running")
    filled.step(run, turn, 1, step_index=0, status="error")
    calling = {"name": "gpt-4o", "model": "gpt-4o", "provider_name": "openai", "attempt": 2}
    filled.step(run, turn, 2, step_index=1, **calling, **OPEN)
    now = of_turn(filled, turn).now
    assert now is not None
    assert (now.model, now.provider_name, now.attempt, now.running) == ("gpt-4o", "openai", 2, 1)


def test_nothing_is_under_way_where_the_turn_has_ended(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session, attempts=2, llm_calls=1)
    filled.step(filled.run(turn), turn, step_index=0, **OPEN)
    assert of_session(filled, session).now is None
    assert of_turn(filled, turn).now is None


# -- waste and fallbacks ---------------------------------------------------------------------------


def test_wasted_attempts_are_summed_over_a_sessions_turns(filled: FilledStore) -> None:
    session = filled.session(request_count=9)
    made = ((1, 1), (3, 1), (4, 2), (0, 0))
    tried = [
        filled.turn(session, turn_index=n, attempts=attempts, llm_calls=calls)
        for n, (attempts, calls) in enumerate(made)
    ]
    assert of_session(filled, session).wasted == 4
    assert [of_turn(filled, turn).wasted for turn in tried] == [0, 2, 2, None]


def test_no_waste_is_not_the_same_as_nothing_known(filled: FilledStore) -> None:
    asked, unasked = filled.session(request_count=1), filled.session(request_count=0)
    filled.turn(asked, attempts=1, llm_calls=1)
    filled.turn(unasked)
    assert of_session(filled, asked).wasted == 0
    assert of_session(filled, unasked).wasted is None


def attempts(filled: FilledStore, turn: str, *made: tuple[int, str, str, str]) -> None:
    """Model calls of one run: attempt, reason, provider, status."""
    run = filled.run(turn)
    for index, (attempt, reason, provider, status) in enumerate(made):
        filled.step(
            run,
            turn,
            step_index=index,
            attempt=attempt,
            attempt_reason=reason,
            provider_name=provider,
            model="mini" if provider == "spare" else "gpt",
            model_requested="gpt",
            status=status,
        )


FIRST = (1, "initial", "main", "error")
FELL_BACK = [FIRST, (2, "fallback", "spare", "error"), (3, "retry", "spare", "success")]


@pytest.mark.parametrize(
    ("made", "served_by"),
    [
        (FELL_BACK[:1], None),
        (FELL_BACK, "gpt → spare/mini"),
        ([FIRST, (2, "retry", "main", "success")], None),
        ([*FELL_BACK, (1, "initial", "main", "success")], None),
        ([*FELL_BACK, (1, "initial", "main", "error")], "gpt → spare/mini"),
        ([*FELL_BACK, FIRST, (2, "retry", "main", "success")], None),
    ],
)
def test_the_last_answer_tells_whether_it_came_from_a_fallback(
    filled: FilledStore, made: list[tuple[int, str, str, str]], served_by: str | None
) -> None:
    session = filled.session()
    calls = sum(attempt == 1 for attempt, *_ in made)
    turn = filled.turn(session, attempts=len(made), llm_calls=calls)
    attempts(filled, turn, *made)
    assert of_session(filled, session).served_by == served_by
    assert of_turn(filled, turn).served_by == served_by


# -- the strip -------------------------------------------------------------------------------------


def happened(filled: FilledStore, turn: str, minutes: float) -> None:
    """An event of a turn."""
    writer = filled.store.open_writer()
    transaction = Transaction(writer)
    event = Envelope(None, "x", at(minutes), "default", None, turn, None, None, {})
    tell(transaction, event)
    transaction.write()
    writer.close()


def test_the_strip_counts_what_is_open_by_its_run(filled: FilledStore) -> None:
    for status, count in (("running", 3), ("waiting_tool", 2), ("paused", 1), ("queued", 1)):
        for _ in range(count):
            turn = filled.turn(start=599.9, **OPEN)
            filled.run(turn, start=599.9, status=status)
    filled.run(filled.turn(), status="success")
    assert overview.strip(filled.store, None, NOW) == Strip(running=3, waiting=2)


def test_a_turn_of_which_nothing_came_for_a_while_is_stalled(filled: FilledStore) -> None:
    quiet, told, saved, fresh = (
        filled.turn(start=start, **OPEN) for start in (590, 590, 590, 599.9)
    )
    filled.run(quiet, 590, status="running", heartbeat_at=at(590))
    filled.run(told, 590, status="running", heartbeat_at=at(590))
    filled.run(saved, 590, status="running", heartbeat_at=at(599.9))
    filled.run(fresh, 599.9, status="running")
    for turn in (quiet, told, saved):
        happened(filled, turn, 590)
    happened(filled, told, 599.9)
    assert overview.strip(filled.store, None, NOW) == Strip(running=4, stalled=1)
    later = NOW + STALLED_AFTER
    assert overview.strip(filled.store, None, later) == Strip(running=4, stalled=4)


def test_errors_count_by_when_they_ended(filled: FilledStore) -> None:
    hour = NOW - timedelta(hours=1)
    for start, ended in ((0, hour - timedelta(seconds=1)), (0, hour), (599, NOW)):
        filled.turn(start=start, status="error", ended_at=ended)
    filled.turn(start=599, status="cancelled", ended_at=NOW)
    assert overview.strip(filled.store, None, NOW).errors == 2


def test_the_strip_of_a_project_is_its_own(filled: FilledStore) -> None:
    for project, count in (("team", 1), ("default", 2)):
        for _ in range(count):
            filled.run(filled.turn(start=599.9, project_id=project, **OPEN), status="running")
            filled.turn(start=599, status="error", ended_at=NOW, project_id=project)
    found = {p: overview.strip(filled.store, p, NOW) for p in (None, "team", "default", "other")}
    assert {p: (s.running, s.errors) for p, s in found.items()} == {
        None: (3, 3),
        "team": (1, 1),
        "default": (2, 2),
        "other": (0, 0),
    }


# -- what it costs ---------------------------------------------------------------------------------


def test_a_page_of_sessions_or_turns_takes_one_statement_more(filled: FilledStore) -> None:
    for number in range(20):
        session = filled.session(start=number)
        for index in range(3):
            turn = filled.turn(session, number, turn_index=index, attempts=3, llm_calls=1, **OPEN)
            attempts(filled, turn, *FELL_BACK)
    lists = (
        (sessions.list_sessions(filled.store, ALL, Page()).rows, overview.of_sessions, 20),
        (turns.list_turns(filled.store, ALL, Page()).rows, overview.of_turns, 50),
    )
    for rows, of, count in lists:
        with selects() as statements:
            assert len(of(filled.store, rows)) == count
        assert len(statements) == 1
        assert_no_scan(filled, statements)


def test_turns_that_ended_at_the_first_try_take_no_statement_more(filled: FilledStore) -> None:
    filled.turn(attempts=1, llm_calls=1)
    rows = turns.list_turns(filled.store, ALL, Page()).rows
    with selects() as statements:
        assert [found.state for found in overview.of_turns(filled.store, rows).values()] == ["done"]
        assert overview.of_turns(filled.store, []) == {}
        assert overview.of_sessions(filled.store, []) == {}
    assert statements == []


def test_waste_is_summed_from_an_index_of_what_was_tried_again(filled: FilledStore) -> None:
    rows = [sessions.find_session(filled.store, filled.session())]
    with selects() as statements:
        overview.of_sessions(filled.store, [row for row in rows if row])
    assert "COVERING INDEX turns_tried_again" in filled.explain(statements[0])


@pytest.mark.parametrize("project", [None, "team"])
def test_the_strip_is_one_statement_over_what_is_open_and_what_failed(
    filled: FilledStore, project: str | None
) -> None:
    with selects() as statements:
        assert overview.strip(filled.store, project, NOW) == Strip()
    assert len(statements) == 1
    plan = assert_no_scan(filled, statements)
    assert "turns_failed_end (status=? AND ended_at>?" in plan


def assert_no_scan(filled: FilledStore, statements: list[tuple[str, list[Any]]]) -> str:
    plan = "\n".join(filled.explain(statement) for statement in statements)
    assert "SCAN" not in plan.replace("SCAN CONSTANT ROW", ""), plan
    return plan
