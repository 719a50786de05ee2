"""Reading the store: pages, filters, lookups, comparisons and sums, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from filled_store import FilledStore, at, selects
from xgw.errors import ApiError, WorkError
from xgw.queries import (
    events,
    filters,
    lines,
    lookup,
    messages,
    pages,
    payloads,
    requests,
    runs,
    sessions,
    stats,
    steps,
    turns,
)
from xgw.queries.filters import Filters
from xgw.queries.pages import Page, Slice

ALL = Filters()
List = Callable[..., Slice]
World = tuple[FilledStore, dict[str, str]]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def parsed(noun: str, **given: str) -> Filters:
    return filters.parse(noun, given.items())


def ids_of(found: Slice) -> list[str]:
    return [row["id"] for row in found.rows]


def walk(list_page: Callable[[Page], Slice], limit: int, order: pages.Order) -> list[str]:
    """All ids, page by page."""
    seen: list[str] = []
    page = Page(limit, None, order)
    while True:
        found = list_page(page)
        assert len(found.rows) <= limit
        assert found.has_more == (found.next_cursor is not None)
        seen += ids_of(found)
        if found.next_cursor is None:
            return seen
        page = Page(limit, found.next_cursor, order)


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_cover_a_list_once_in_both_orders(filled: FilledStore, limit: int) -> None:
    same_time = [filled.turn(start=5, started_at=None, created_at=at(5)) for _ in range(4)]
    others = [filled.turn(start=minute) for minute in (1, 9)]
    expected = [others[0], *sorted(same_time), others[1]]

    def list_page(page: Page) -> Slice:
        return turns.list_turns(filled.store, ALL, page)

    assert walk(list_page, limit, "asc") == expected
    assert walk(list_page, limit, "desc") == expected[::-1]


def test_a_row_that_comes_in_between_two_pages_shifts_nothing(filled: FilledStore) -> None:
    old = [filled.session(start=minute) for minute in range(4)]
    first = sessions.list_sessions(filled.store, ALL, Page(2))
    filled.session(start=60)
    second = sessions.list_sessions(filled.store, ALL, Page(2, first.next_cursor))
    assert ids_of(first) + ids_of(second) == old[::-1]


def test_sessions_come_by_last_activity_and_else_by_creation(filled: FilledStore) -> None:
    revived = filled.session(start=0, last_turn_at=at(30))
    fresh = filled.session(start=20, last_turn_at=None)
    quiet = filled.session(start=10)
    assert ids_of(sessions.list_sessions(filled.store, ALL, Page())) == [revived, fresh, quiet]


def test_the_lists_inside_a_session_come_by_their_index(filled: FilledStore) -> None:
    session = filled.session("mine")
    later = filled.turn(session, start=1, turn_index=1)
    earlier = filled.turn(session, start=1, turn_index=0)
    said = [filled.message(session, later, index) for index in (2, 0, 1)]
    found = turns.list_turns(filled.store, parsed("turns", session_id="mine"), Page(order="asc"))
    assert ids_of(found) == [earlier, later]

    def list_page(page: Page) -> Slice:
        return messages.list_messages(filled.store, session, page)

    assert walk(list_page, 2, "asc") == [said[1], said[2], said[0]]
    assert [row["id"] for row in messages.of_turn(filled.store, later)] == [
        said[1],
        said[2],
        said[0],
    ]


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "!!!",
        "é",
        "bm90IGpzb24",
        "WzEsMl0",
        "W10",
        "WyJzdGFydCIsMTg0NDY3NDQwNzM3MDk1NTE2MTUsIngiXQ",
    ],
)
def test_a_cursor_of_anyones_making_is_refused(filled: FilledStore, cursor: str) -> None:
    with pytest.raises(ApiError) as refused:
        turns.list_turns(filled.store, ALL, Page(cursor=cursor))
    assert (refused.value.status, refused.value.code) == (400, "invalid_cursor")


def test_a_cursor_of_a_list_sorted_otherwise_is_refused(filled: FilledStore) -> None:
    for minute in range(3):
        filled.session(start=minute)
    cursor = sessions.list_sessions(filled.store, ALL, Page(1)).next_cursor
    with pytest.raises(ApiError, match="cursor"):
        turns.list_turns(filled.store, ALL, Page(1, cursor))


@pytest.mark.parametrize("limit", ["0", "501", "-1", "x", "", "1.0", "٣", "99999999999"])
def test_a_limit_out_of_range_is_refused(limit: str) -> None:
    with pytest.raises(ApiError) as refused:
        pages.parse(limit, None, None)
    assert (refused.value.status, refused.value.param) == (422, "limit")


# -- filters ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Named rows, only read: sessions s…, turns t…, requests r…."""
    filled = FilledStore(tmp_path_factory.mktemp("world"))
    yield filled, _name_rows(filled)
    filled.close()


def _name_rows(filled: FilledStore) -> dict[str, str]:
    named: dict[str, str] = {}
    asked: dict[str, dict[str, Any]] = {
        "s_plain": {"model": "gpt", "task_id": "build"},
        "s_agent": {"kind": "agent", "agent_name": "support", "end_user_id": "ann", "start": 60},
        "s_archived": {"status": "archived"},
        "s_team": {"project_id": "team", "key": "shared"},
        "s_own": {"key": "shared", "last_turn_at": None},
    }
    for name, columns in asked.items():
        named[name] = filled.session(**{"key": name, **columns})
    for name, session, columns in (
        ("t_good", "s_plain", {"final_model": "gpt", "task_id": "build"}),
        ("t_bad", "s_plain", {"status": "error", "turn_index": 1, "start": 10}),
        (
            "t_open",
            "s_agent",
            {"status": "running", "ended_at": None, "endpoint": None, "start": 5},
        ),
        ("t_alone", None, {"start": 100}),
        ("t_team", "s_team", {"project_id": "team", "start": 200}),
    ):
        columns = {"agent_name": "support"} | columns if name == "t_open" else columns
        named[name] = filled.turn(named[session] if session else None, **columns)
    for name, turn, columns in (
        ("r_good", "t_good", {"provider_name": "p1", "model": "gpt"}),
        ("r_limited", "t_bad", {"status_code": 429, "start": 10}),
        ("r_broken", "t_bad", {"status_code": None, "error_type": "upstream_timeout", "start": 11}),
        ("r_open", "t_open", {"status_code": None, "ended_at": None, "start": 5}),
        ("r_team", "t_team", {"project_id": "team", "start": 200}),
    ):
        session = {"t_good": "s_plain", "t_bad": "s_plain", "t_open": "s_agent"}.get(turn)
        named[name] = filled.request(
            named[turn], session_id=named[session] if session else None, **columns
        )
    return named


LISTS: dict[str, List] = {
    "sessions": sessions.list_sessions,
    "turns": turns.list_turns,
    "requests": requests.list_requests,
}

FILTERED = [
    ("sessions", "", "s_plain s_agent s_team s_own"),
    ("sessions", "status=active", "s_plain s_agent s_team s_own"),
    ("sessions", "status=archived", "s_archived"),
    ("sessions", "status=archived status=active", "s_plain s_agent s_archived s_team s_own"),
    ("sessions", "session_key=s_archived", "s_archived"),
    ("sessions", "session_key=shared", "s_team s_own"),
    ("sessions", "kind=agent", "s_agent"),
    ("sessions", "kind=agent kind=chat", "s_plain s_agent s_team s_own"),
    ("sessions", "agent=support", "s_agent"),
    ("sessions", "model=gpt", "s_plain"),
    ("sessions", "model=gpt kind=agent", ""),
    ("sessions", "task_id=build", "s_plain"),
    ("sessions", "end_user_id=ann", "s_agent"),
    ("sessions", "has_error=true", "s_plain"),
    ("sessions", "has_error=false", "s_agent s_team s_own"),
    ("sessions", "running=true", "s_agent"),
    ("sessions", "running=false", "s_plain s_team s_own"),
    ("sessions", "since=2026-01-02T12:30:00Z", "s_agent"),
    ("sessions", "until=2026-01-02T12:30:00Z", "s_plain s_team s_own"),
    ("sessions", "since=2026-02-01", "s_agent"),
    ("turns", "", "t_good t_bad t_open t_alone t_team"),
    ("turns", "status=error", "t_bad"),
    ("turns", "status=error status=running", "t_bad t_open"),
    ("turns", "kind=agent", "t_open"),
    ("turns", "kind=chat", "t_good t_bad t_alone t_team"),
    ("turns", "agent=support", "t_open"),
    ("turns", "model=gpt", "t_good"),
    ("turns", "task_id=build", "t_good"),
    ("turns", "end_user_id=ann", "t_open"),
    ("turns", "session_key=shared", "t_team"),
    ("turns", "session_id=s_plain", "t_good t_bad"),
    ("turns", "session_id=nobody", ""),
    ("turns", "session_id=none", "t_alone"),
    ("turns", "has_error=true", "t_bad"),
    ("turns", "running=true", "t_open"),
    ("turns", "running=false", "t_good t_bad t_alone t_team"),
    ("turns", "since=2026-01-02T12:10:30Z until=2026-01-02T12:30:00Z", "t_bad t_open"),
    ("turns", "until=2026-01-02T12:00:00Z", "t_good"),
    ("turns", "since=2026-01-02T12:00:30Z until=2026-01-02T12:04:59Z", "t_good"),
    ("requests", "", "r_good r_limited r_broken r_open r_team"),
    ("requests", "status=success", "r_good r_team"),
    ("requests", "status=error", "r_limited r_broken"),
    ("requests", "status=running", "r_open"),
    ("requests", "has_error=true", "r_limited r_broken"),
    ("requests", "has_error=false", "r_good r_open r_team"),
    ("requests", "running=true", "r_open"),
    ("requests", "status_code=429", "r_limited"),
    ("requests", "status_code=4xx status_code=2xx", "r_good r_limited r_team"),
    ("requests", "status_code=5xx", ""),
    ("requests", "provider=p1", "r_good"),
    ("requests", "model=gpt", "r_good"),
    ("requests", "kind=agent", "r_open"),
    ("requests", "kind=chat", "r_good r_limited r_broken r_team"),
    ("requests", "agent=support", "r_open"),
    ("requests", "task_id=build", "r_good"),
    ("requests", "end_user_id=ann", "r_open"),
    ("requests", "session_key=s_plain", "r_good r_limited r_broken"),
    ("requests", "session_id=s_agent", "r_open"),
    ("requests", "since=2026-01-02T12:11:30Z until=2026-01-02T12:30:00Z", "r_broken r_open"),
]


@pytest.mark.parametrize(("noun", "asked", "expected"), FILTERED)
def test_a_filter_finds_what_fits(world: World, noun: str, asked: str, expected: str) -> None:
    filled, named = world
    pairs = [(part.split("=")[0], part.split("=")[1]) for part in asked.split()]
    found = LISTS[noun](filled.store, filters.parse(noun, pairs), Page(500))
    assert set(ids_of(found)) == {named[name] for name in expected.split()}


@pytest.mark.parametrize("noun", LISTS)
def test_a_project_bounds_every_list(world: World, noun: str) -> None:
    filled, named = world
    found = LISTS[noun](filled.store, ALL, Page(500), "team")
    assert ids_of(found) == [named[f"{noun[0]}_team"]]


def test_a_turns_own_id_filters_requests(world: World) -> None:
    filled, named = world
    asked = parsed("requests", turn_id=named["t_bad"])
    found = requests.list_requests(filled.store, asked, Page(order="asc"))
    assert ids_of(found) == [named["r_limited"], named["r_broken"]]


@pytest.mark.parametrize(
    ("noun", "name", "text"),
    [
        ("sessions", "status", "running"),
        ("sessions", "kind", "robot"),
        ("sessions", "has_error", "yes"),
        ("sessions", "running", ""),
        ("sessions", "since", "yesterday"),
        ("sessions", "agent", ""),
        ("sessions", "session_key", "a\nb"),
        ("sessions", "session_id", "x"),
        ("sessions", "colour", "blue"),
        ("turns", "status", "active"),
        ("turns", "status_code", "500"),
        ("turns", "until", "2026-13-01"),
        ("requests", "status", "cancelled"),
        ("requests", "status_code", "5x"),
        ("requests", "status_code", "600"),
        ("requests", "status_code", "²00"),
    ],
)
def test_a_value_that_a_filter_does_not_know_is_refused(noun: str, name: str, text: str) -> None:
    with pytest.raises(ApiError) as refused:
        filters.parse(noun, [(name, text)])
    assert (refused.value.status, refused.value.param) == (422, name)


def test_what_can_be_given_once_is_refused_twice() -> None:
    with pytest.raises(ApiError) as refused:
        filters.parse("turns", [("since", "2026-01-01"), ("since", "2026-01-02")])
    assert (refused.value.status, refused.value.param) == (422, "since")


# -- what reading costs ----------------------------------------------------------------------------

BY_INDEX = [
    ("sessions", ""),
    ("sessions", "status=active"),
    ("sessions", "running=false"),
    ("sessions", "has_error=true"),
    ("sessions", "since=2026-01-01"),
    ("turns", ""),
    ("turns", "status=error"),
    ("turns", "session_id=key"),
    ("turns", "session_id=none"),
    ("turns", "since=2026-01-01 until=2026-01-02"),
    ("requests", ""),
    ("requests", "status=error"),
    ("requests", "status_code=5xx"),
    ("requests", "session_id=key"),
    ("requests", "since=2026-01-01 until=2026-01-02"),
]


@pytest.mark.parametrize("asked", [("has_error", "true"), ("q", "error:timeout")])
def test_errors_of_a_session_are_found_by_the_session(world: World, asked: tuple[str, str]) -> None:
    """And not by going through everybody's errors, once for each session."""
    filled, _ = world
    with selects() as statements:
        LISTS["sessions"](filled.store, filters.parse("sessions", [asked]), Page(10))
    assert any("turns_failed (session_id=?)" in filled.explain(one) for one in statements)
    assert not any("turns_failed_end" in filled.explain(one) for one in statements)


@pytest.mark.parametrize("project", [None, "team"])
@pytest.mark.parametrize(("noun", "asked"), BY_INDEX)
def test_a_page_is_one_statement_that_walks_an_index(
    world: World, noun: str, asked: str, project: str | None
) -> None:
    filled, _ = world
    pairs = [(part.split("=")[0], part.split("=")[1]) for part in asked.split()]
    first = LISTS[noun](filled.store, ALL, Page(1))
    for cursor in (None, first.next_cursor if not asked else None):
        with selects() as statements:
            LISTS[noun](filled.store, filters.parse(noun, pairs), Page(1, cursor), project)
        plan = filled.explain(statements[0])
        assert len(statements) == 1
        assert "USE TEMP B-TREE FOR ORDER BY" not in plan, plan
        assert all("INDEX" in line for line in plan.splitlines() if "t1" in line), plan


@pytest.mark.parametrize("list_page", [turns.list_turns, lines.list_lines])
def test_turns_on_their_own_are_found_by_an_index_of_these(
    filled: FilledStore, list_page: List
) -> None:
    session = filled.session()
    filled.turn(session)
    alone = [filled.turn(start=start, status=status) for start, status in ((1, "error"), (2, "ok"))]
    asked = parsed("turns", session_id="none")
    with selects() as statements:
        assert ids_of(list_page(filled.store, asked, Page())) == alone[::-1]
    assert len(statements) == 1
    assert "turns_alone" in filled.explain(statements[0])
    more = asked.and_also("status", "error")
    assert ids_of(list_page(filled.store, more, Page())) == alone[:1]


def test_lines_are_turns_in_the_order_of_their_list(world: World) -> None:
    filled, named = world
    found = lines.list_lines(filled.store, parsed("turns", session_id="s_plain"), Page())
    assert ids_of(found) == [named["t_bad"], named["t_good"]]
    listed = ids_of(lines.list_lines(filled.store, ALL, Page()))
    assert listed == ids_of(turns.list_turns(filled.store, ALL, Page()))
    [line] = lines.list_lines(filled.store, ALL, Page(), "team").rows
    assert (line["id"], line["state"]) == (named["t_team"], "done")


def test_a_turn_with_its_runs_is_three_statements(filled: FilledStore) -> None:
    turn = filled.turn()
    made = []
    for index in range(3):
        run = filled.run(turn, run_index=index)
        made.append((run, [filled.step(run, turn, step_index=n) for n in range(4)]))
    with selects() as statements:
        row = turns.find_turn_with_runs(filled.store, turn)
    assert row is not None
    assert [(r["id"], [s["id"] for s in r["steps"]]) for r in row["runs"]] == made
    assert len(statements) == 3
    assert all("SCAN" not in filled.explain(statement) for statement in statements)


def test_sizes_of_a_whole_page_are_one_statement(filled: FilledStore) -> None:
    hashes = [filled.body({"n": n}) for n in range(1200)]
    with selects() as statements:
        found = payloads.sizes(filled.store, hashes)
    assert len(statements) == 1
    assert found == {hash: len(f'{{"n":{n}}}') for n, hash in enumerate(hashes)}


# -- one thing -------------------------------------------------------------------------------------


def test_a_session_is_found_by_id_and_by_key_in_the_own_project(filled: FilledStore) -> None:
    mine = filled.session("chat-1")
    theirs = filled.session("chat-1", project_id="team")
    store = filled.store

    def found(ref: str, project: str | None) -> str | None:
        row = sessions.find_session(store, ref, project)
        return row["id"] if row else None

    assert found("chat-1", None) == mine
    assert found("chat-1", "team") == theirs
    assert found(theirs, None) == theirs
    assert found(mine, "team") is None
    assert found("chat-1", "other") is None
    assert found("no\x00such", None) is None


def test_a_session_key_is_compared_in_its_normal_form(filled: FilledStore) -> None:
    session = filled.session("caf\u00e9")
    row = sessions.find_session(filled.store, "cafe\u0301")
    assert row is not None
    assert row["id"] == session


def test_a_session_id_wins_over_a_key_that_looks_like_it(filled: FilledStore) -> None:
    session = filled.session("first")
    filled.session(session)
    row = sessions.find_session(filled.store, session)
    assert row is not None
    assert row["session_key"] == "first"


def test_everything_below_a_turn_belongs_to_its_project(filled: FilledStore) -> None:
    turn = filled.turn(project_id="team")
    run = filled.run(turn)
    step = filled.step(run, turn)
    request = filled.request(turn, project_id="team", step_id=step)
    finds: list[tuple[Callable[..., Any], str]] = [
        (turns.find_turn_with_runs, turn),
        (runs.find_run, run),
        (steps.find_step, step),
        (requests.find_request, request),
    ]
    for find, id in finds:
        for project, seen in ((None, True), ("team", True), ("default", False)):
            row = find(filled.store, id, project)
            assert (row is not None and row["id"] == id) is seen
    logged = requests.of_step(filled.store, step)
    assert logged is not None
    assert logged["id"] == request


@pytest.mark.parametrize("kind", ["session", "turn", "run", "step", "message", "request"])
def test_anything_is_found_by_its_id_or_the_start_of_it(filled: FilledStore, kind: str) -> None:
    session = filled.session("by-key")
    turn = filled.turn(session)
    run = filled.run(turn)
    named = {
        "session": session,
        "turn": turn,
        "run": run,
        "step": filled.step(run, turn),
        "message": filled.message(session, turn, 0),
        "request": filled.request(turn),
    }
    id = named[kind]
    for ref in (id, id[:-1], id[:20]):
        found = lookup.find(filled.store, ref)
        assert found is not None
        assert (found.kind, found.row["id"]) == (kind, id)
    assert lookup.find(filled.store, id[:11]) is None
    assert lookup.find(filled.store, id[:20] + ("0" if id[20] != "0" else "1")) is None


def test_keys_and_trace_ids_find_too(filled: FilledStore) -> None:
    session = filled.session("support/42", project_id="team")
    turn = filled.turn(session, trace_id="0af7651916cd43dd8448eb211c80319c")
    by_key = lookup.find(filled.store, "support/42")
    by_trace = lookup.find(filled.store, "0af7651916cd43dd8448eb211c80319c")
    assert by_key is not None
    assert by_key.row["id"] == session
    assert by_trace is not None
    assert by_trace.row["id"] == turn
    assert lookup.find(filled.store, "support/43") is None


def test_what_fits_more_than_one_thing_names_them(filled: FilledStore) -> None:
    one, two = filled.session("same"), filled.session("same", project_id="team")
    with pytest.raises(WorkError, match="more than one session") as refused:
        lookup.find(filled.store, "same")
    assert one in str(refused.value)
    assert two in str(refused.value)


# -- changes between two calls ---------------------------------------------------------------------


def sent(*texts: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}


def test_a_call_is_compared_with_the_previous_one_of_its_session(filled: FilledStore) -> None:
    session, other = filled.session(), filled.session()

    def call(start: float, *texts: str, where: str | None = session) -> dict[str, Any]:
        id = filled.call(where, start, input_payload=filled.body(sent(*texts)))
        row = steps.find_step(filled.store, id)
        assert row is not None
        return row

    first = call(1, "a", "b", "c")
    call(2, "x", where=other)
    grown = call(3, "a", "b", "c", "d", "e")
    edited = call(4, "a", "B", "c", "e")
    alone = call(5, "a", where=None)
    assert steps.find_changes(filled.store, first) is None
    assert steps.find_changes(filled.store, alone) is None
    assert steps.find_changes(filled.store, grown) == steps.Changes(
        first["id"], common_prefix=3, added=(3, 4), changed=(), dropped=()
    )
    assert steps.find_changes(filled.store, edited) == steps.Changes(
        grown["id"], common_prefix=1, added=(), changed=((1, 1),), dropped=(3,)
    )


def test_attempts_are_compared_with_the_call_before_and_not_with_one_another(
    filled: FilledStore,
) -> None:
    session = filled.session()
    before = filled.call(session, 1, input_payload=filled.body(sent("a")))
    turn = filled.turn(session, 2, turn_index=9)
    run = filled.run(turn)
    again = [
        filled.step(
            run,
            turn,
            2 + attempt,
            session_id=session,
            step_index=attempt,
            attempt=attempt,
            input_payload=filled.body(sent("a", "b")),
        )
        for attempt in (1, 2, 3)
    ]
    for id in again:
        row = steps.find_step(filled.store, id)
        assert row is not None
        changes = steps.find_changes(filled.store, row)
        assert changes is not None
        assert (changes.previous_step_id, changes.added) == (before, (1,))


def test_bodies_that_were_pruned_leave_nothing_to_compare(filled: FilledStore) -> None:
    session = filled.session()
    old = filled.body(sent("a"))
    filled.call(session, 1, input_payload=old)
    row = steps.find_step(
        filled.store, filled.call(session, 2, input_payload=filled.body(sent("b")))
    )
    filled.forget(old)
    assert row is not None
    assert steps.find_changes(filled.store, row) is None


@pytest.mark.parametrize("count", [1, 15, 16, 300])
def test_comparing_reads_the_lists_and_none_of_the_messages(
    filled: FilledStore, count: int
) -> None:
    session = filled.session()
    texts = [f"message {n}" for n in range(count)]
    for start in (1, 2):
        last = filled.call(session, start, input_payload=filled.body(sent(*texts, str(start))))
    row = steps.find_step(filled.store, last)
    assert row is not None
    for said in filled.store.sql("SELECT hash FROM payloads WHERE codec NOT IN ('parts', 'list')"):
        filled.forget(said[0])
    with selects() as statements:
        changes = steps.find_changes(filled.store, row)
    assert changes is not None
    assert (changes.common_prefix, changes.changed) == (count, ((count, count),))
    assert len(statements) == 2


@pytest.mark.parametrize(
    ("before", "now", "prefix", "added", "changed", "dropped"),
    [
        ("abc", "abc", 3, "", "", ""),
        ("abc", "abcd", 3, "3", "", ""),
        ("abcd", "abc", 3, "", "", "3"),
        ("abcd", "acd", 1, "", "", "1"),
        ("acd", "abcd", 1, "1", "", ""),
        ("abcd", "axcd", 1, "", "11", ""),
        ("abcd", "axycd", 1, "2", "11", ""),
        ("aaa", "aaaa", 3, "3", "", ""),
        ("abc", "xyz", 0, "", "00 11 22", ""),
        ("", "ab", 0, "0 1", "", ""),
    ],
)
def test_lists_of_messages_are_compared_by_hash(
    before: str, now: str, prefix: int, added: str, changed: str, dropped: str
) -> None:
    found = steps.compare("step_before", list(before), list(now))
    assert found == steps.Changes(
        "step_before",
        prefix,
        tuple(map(int, added.split())),
        tuple((int(pair[0]), int(pair[1])) for pair in changed.split()),
        tuple(map(int, dropped.split())),
    )


def test_long_lists_of_one_message_are_compared_too() -> None:
    before, now = ["x"] + ["a"] * 5000 + ["y"], ["a"] * 5000 + ["z"]
    found = steps.compare("step_before", before, now)
    assert found.common_prefix == 0
    assert len(found.changed) + len(found.dropped) == 5002


# -- payloads --------------------------------------------------------------------------------------


def test_bodies_are_json_or_text_and_missing_ones_are_left_out(filled: FilledStore) -> None:
    known = {
        filled.body(sent("hello")): sent("hello"),
        filled.body(b"data: [DONE]\n\n"): "data: [DONE]\n\n",
        filled.body(b'{"n": NaN}'): '{"n": NaN}',
        filled.body(b"\xff\xfe"): "\ufffd\ufffd",
        filled.body(b"null"): None,
    }
    assert payloads.bodies(filled.store, known) == known
    gone = filled.body(b"gone")
    filled.forget(gone)
    assert payloads.bodies(filled.store, [*known, gone]) == known
    assert payloads.find_body(filled.store, gone) is None


def test_the_tools_of_a_session_are_those_of_its_newest_call(filled: FilledStore) -> None:
    session = filled.session()
    assert sessions.find_tools(filled.store, session) == []
    for start, names in ((1, ["old"]), (2, ["new", "other"])):
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        body = filled.body(sent("a") | {"tools": tools})
        filled.call(session, start, input_payload=body)
    filled.call(session, 3)
    found = sessions.find_tools(filled.store, session)
    assert [tool["function"]["name"] for tool in found] == ["new", "other"]


# -- events ----------------------------------------------------------------------------------------


def test_events_come_after_a_cursor_and_within_bounds(filled: FilledStore) -> None:
    session = filled.session()
    assert events.newest(filled.store) == 0
    seqs = [filled.event("turn.started", session, n=1), filled.event("turn.completed", session)]
    seqs.append(filled.event("turn.started"))
    store = filled.store

    def found(after: int, **bounds: Any) -> list[int | None]:
        return [e.seq for e in events.list_events(store, after, **bounds)]

    assert events.newest(store) == seqs[-1]
    assert found(0) == seqs
    assert found(seqs[0]) == seqs[1:]
    assert found(0, limit=2) == seqs[:2]
    assert found(0, session_id=session) == seqs[:2]
    assert found(0, types=["turn.started"]) == [seqs[0], seqs[2]]
    assert found(0, types=[]) == []
    assert found(0, project="team") == []
    assert events.list_events(store, 0)[0].payload == {"n": 1}


# -- statistics ------------------------------------------------------------------------------------


def test_sums_are_of_what_is_known_and_null_where_nothing_is(filled: FilledStore) -> None:
    empty = stats.collect(filled.store)
    assert empty.totals == {
        "requests": 0,
        "errors": 0,
        "input_tokens": None,
        "output_tokens": None,
        "cached_tokens": None,
        "reasoning_tokens": None,
        "cost_usd": None,
        "unpriced": 0,
    }
    assert empty.rows == []
    filled.call(input_tokens=1_500_000_000, output_tokens=1, cost_usd=0.5, latency_ms=100)
    filled.call(input_tokens=1_500_000_000, output_tokens=1, latency_ms=300)
    filled.call(status="error", latency_ms=5)
    filled.call(status="running", ended_at=None)
    totals = stats.collect(filled.store).totals
    assert totals["input_tokens"] == 3_000_000_000
    assert (totals["requests"], totals["errors"], totals["unpriced"]) == (4, 1, 1)
    assert totals["cost_usd"] == 0.5
    assert totals["cached_tokens"] is None


def test_statistics_come_by_day_model_provider_and_agent(filled: FilledStore) -> None:
    day = 24 * 60
    filled.call(start=0, model="big", provider_name="p1", agent_name="support", output_tokens=1)
    filled.call(start=day, model="big", provider_name="p2", output_tokens=2)
    filled.call(start=day, model="small", provider_name="p1", output_tokens=4)
    filled.call(start=day, model="small", provider_name="p1", output_tokens=8, project_id="team")

    def tokens(group: stats.Group, **bounds: Any) -> dict[Any, int]:
        found = stats.collect(filled.store, group, **bounds)
        assert found.totals["output_tokens"] == sum(row["output_tokens"] for row in found.rows)
        return {row[group]: row["output_tokens"] for row in found.rows}

    assert tokens("day") == {"2026-01-02": 1, "2026-01-03": 14}
    assert tokens("model") == {"big": 3, "small": 12}
    assert tokens("provider") == {"p1": 13, "p2": 2}
    assert tokens("agent") == {"support": 1, None: 14}
    assert tokens("model", since=at(day)) == {"big": 2, "small": 12}
    assert tokens("model", until=at(day)) == {"big": 1}
    assert tokens("model", project="team") == {"small": 8}
    assert tokens("agent", project="default") == {"support": 1, None: 6}


def test_latencies_are_nearest_rank_percentiles_of_what_succeeded(filled: FilledStore) -> None:
    for ms in range(1, 201):
        filled.call(model="many", latency_ms=ms)
    filled.call(model="many", latency_ms=9999, status="error")
    filled.call(model="one", latency_ms=7)
    filled.call(model="none", latency_ms=7, status="error")
    with selects() as statements:
        found = stats.collect(filled.store, "model")
    latencies = {row["model"]: row["latency_ms"] for row in found.rows}
    assert latencies == {
        "many": {"p50": 100, "p90": 180, "p99": 198},
        "one": {"p50": 7, "p90": 7, "p99": 7},
        "none": None,
    }
    assert len(statements) == 2
