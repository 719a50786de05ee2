"""The filter language of sessions: what it finds, what it refuses, and what it costs."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from api_server import TEAM_KEY, ApiServer, Reply
from filled_store import FilledStore, at, selects
from xgw.cli import main
from xgw.queries import pages
from xgw.queries.language import Comparison, Sought, parse

PROMPT = "Please refund order 4711, 100% of it"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("language"))
    fill(running.filled)
    yield running
    running.stop()


def fill(store: FilledStore) -> None:
    """Sessions that differ in one thing each; their keys say in what."""
    plain: dict[str, Any] = {
        "model": "gpt-4o",
        "cost_usd": 0.01,
        "total_tokens": 100,
        "turn_count": 1,
    }
    differing: dict[str, dict[str, Any]] = {
        "done": {},
        "dear": {"cost_usd": 0.5, "total_tokens": 60_000},
        "unknown-cost": {"cost_usd": None, "total_tokens": None},
        "agent": {"agent_name": "support", "kind": "agent"},
        "mini": {"model": "gpt-4o-mini"},
        "other": {"model": "claude_3"},
        "titled": {"title": "About a Refund"},
        "archived": {"status": "archived"},
    }
    for number, (key, columns) in enumerate(differing.items()):
        session = store.session(key, number, request_count=1, **{**plain, **columns})
        turn(store, session, number)
    store.session("empty", 20, **{**plain, "turn_count": 0})
    for key, status, run in (
        ("running", "running", "running"),
        ("waiting", "running", "waiting_tool"),
        ("paused", "running", "paused"),
        ("error", "error", "error"),
        ("cancelled", "cancelled", "cancelled"),
    ):
        session = store.session(key, 21, request_count=1, **plain)
        kind = "upstream_timeout" if status == "error" else None
        turn(store, session, 21, status=status, run_status=run, error_type=kind)
    recovered = store.session("recovered", 22, request_count=2, **plain)
    turn(store, recovered, 22, status="error", error_type="upstream_rate_limit")
    turn(store, recovered, 23, index=1)
    retried = store.session("retried", 24, request_count=4, **plain)
    turn(store, retried, 24, tries=3, attempts=4, llm_calls=2)
    tools = store.session("tools", 25, request_count=1, **plain)
    id = turn(store, tools, 25)
    step = {"session_id": tools, "step_type": "tool_call", "step_index": 5, "tool_call_id": "c"}
    store.step(store.run(id, run_index=1), id, 25, name="order_status", **step)
    asked = store.session("asked", 26, request_count=1, **plain)
    turn(store, asked, 26, user_input=PROMPT)
    umlaut = store.session("größe", 27, request_count=1, **plain)
    turn(store, umlaut, 27, user_input="Die GRÖSSE der Größe")
    store.session("theirs", 28, project_id="team", title="ours alone", **plain)


def turn(
    store: FilledStore,
    session: str,
    start: float,
    *,
    index: int = 0,
    tries: int = 1,
    run_status: str = "success",
    **columns: Any,
) -> str:
    open_ended = {"ended_at": None} if columns.get("status") == "running" else {}
    counts = {"attempts": 1, "llm_calls": 1, **open_ended}
    id = store.turn(session, start, turn_index=index, **{**counts, **columns})
    run = store.run(id, start, status=run_status)
    for number in range(tries):
        store.step(run, id, start, session_id=session, step_index=number, attempt=number + 1)
    return id


def ask(server: ApiServer, query: str, **more: str) -> Reply:
    return server.get("/sessions?" + urlencode({"q": query, "limit": "500", **more}))


def keys(server: ApiServer, query: str, **more: str) -> set[str]:
    reply = ask(server, query, **more)
    assert reply.status == 200, reply.body
    return {row["session_key"] for row in reply.json["data"]}


# -- what it finds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state:running", {"running"}),
        ("state:stalled", {"running"}),
        ("state:waiting", {"waiting"}),
        ("state:paused", {"paused"}),
        ("State:Paused", {"paused"}),
        ("state:running state:waiting", {"running", "waiting"}),
        ("state:error", {"error"}),
        ("state:cancelled", {"cancelled"}),
        ("state:empty", {"empty"}),
        ("state:archived", {"archived"}),
        ("state:closed", set()),
        ("state:queued", set()),
        ("state:running state:error", {"running", "error"}),
        ("agent:support", {"agent"}),
        ("agent:SUPP*", {"agent"}),
        ("agent:upp", set()),
        ("model:gpt-4o-mini", {"mini"}),
        ("model:*mini", {"mini"}),
        ("model:claude*", {"other"}),
        ("model:claude_3", {"other"}),
        ("model:claude%", set()),
        ('model:"gpt-4o-mini"', {"mini"}),
        ("tool:order_*", {"tools"}),
        ("tool:order_status", {"tools"}),
        ("tool:order", set()),
        ("error:timeout", {"error"}),
        ("error:rate", {"recovered"}),
        ("error:upstream_*", {"error", "recovered"}),
        ("error:*", {"error", "recovered"}),
        ("error:*limit", {"recovered"}),
        ("cost>0.1", {"dear"}),
        ("cost>=0.5", {"dear"}),
        ("cost>0.5", set()),
        ("tokens>50000", {"dear"}),
        ("tokens=60000", {"dear"}),
        ("attempts>1", {"retried"}),
        ("attempts>2", {"retried"}),
        ("attempts>3", set()),
        ("attempts=3", {"retried"}),
        ("attempts>=3 attempts<4", {"retried"}),
        ("refund", {"titled", "asked"}),
        ("REFUND", {"titled", "asked"}),
        ('"refund order"', {"asked"}),
        ("refund order", {"asked"}),
        ("100%", {"asked"}),
        ("1%", set()),
        ("größe", {"größe"}),
        ("GRÖSSE", {"größe"}),
        ("tools", {"tools"}),
        ('error:timeout "error"', {"error"}),
        ("state:done error:rate", {"recovered"}),
        ("  cost>0.1\t model:gpt-*  ", {"dear"}),
        ("Cost>0.1 MODEL:gpt-*", {"dear"}),
        ('"state:running"', set()),
    ],
)
def test_what_is_found(server: ApiServer, query: str, found: set[str]) -> None:
    assert keys(server, query) == found


def test_the_rest_of_a_comparison(server: ApiServer) -> None:
    everything = {row["session_key"] for row in server.get("/sessions?limit=500").json["data"]}
    team = {"theirs"}
    known = everything - {"unknown-cost"}
    assert keys(server, "cost<0.1") == known - {"dear"}
    assert keys(server, "tokens<=100") == known - {"dear"}
    assert keys(server, "attempts<2") == everything - {"retried", "empty"} - team
    assert keys(server, "attempts<=1") == keys(server, "attempts<2")
    assert keys(server, "attempts=1") == keys(server, "attempts<2")
    assert keys(server, "attempts>0") == everything - {"empty"} - team
    assert "archived" in keys(server, "state:done state:archived")
    assert "archived" in keys(server, "state:Archived")
    assert "archived" not in keys(server, "state:done")


def test_it_goes_with_the_ordinary_filters(server: ApiServer) -> None:
    assert keys(server, "cost>0", model="gpt-4o-mini") == {"mini"}
    assert keys(server, "refund", status="archived") == set()
    assert keys(server, "refund", since=f"{at(25).isoformat()}Z") == {"asked"}
    assert keys(server, "error:*", has_error="false") == set()


def test_a_key_finds_what_its_project_has(server: ApiServer) -> None:
    theirs = server.get("/sessions?q=alone", TEAM_KEY).json["data"]
    assert [row["session_key"] for row in theirs] == ["theirs"]
    assert server.get("/sessions?q=4711", TEAM_KEY).json["data"] == []


def test_the_command_takes_the_same_words(server: ApiServer) -> None:
    """In one argument or in several."""

    def listed(*words: str) -> set[str]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            path = str(server.filled.store.path)
            main(["sessions", *words, "--json", "--db", path], standalone_mode=False)
        return {row["session_key"] for row in json.loads(printed.getvalue())["data"]}

    assert listed("error:timeout") == {"error"}
    assert listed("refund", "order") == {"asked"}
    assert listed('"refund order"', "cost>0", "--model", "gpt-4o") == {"asked"}


# -- what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "must"),
        ("   ", "must hold a word"),
        ("colour:blue", "there is no word 'colour'"),
        ("refund colour:blue", "character 8"),
        ("http://x", "put a text in quotes"),
        ("state:", "something must follow state: (character 7)"),
        ("state: running", "something must follow state:"),
        ("state:fine", "state must be one of running"),
        ("state>1", "state takes a colon"),
        ("model=gpt", "model takes a colon"),
        ("cost:1", "cost is compared, as in cost>1 (character 5)"),
        ("cost>much", "must be followed by a number, not 'much' (character 6)"),
        ("cost>-1", "must be followed by a number"),
        ("cost>1e9", "must be followed by a number"),
        ("cost>", "something must follow cost>"),
        ("tokens>1.5", "tokens is a whole number"),
        ("attempts>0.5", "attempts is a whole number"),
        ('x "refund', "the quote that begins here is not closed (character 3)"),
        ('agent:"x', "is not closed (character 7)"),
        ('""', "there is nothing in these quotes"),
        ("\0", "a NUL cannot be looked for (character 1)"),
        ('agent:"x\0y"', "a NUL cannot be looked for (character 9)"),
        ("x" * 1001, "1000 characters"),
        (" ".join("x" * 33), "more than 32 words"),
    ],
)
def test_mistakes_are_told_with_their_place(server: ApiServer, query: str, words: str) -> None:
    reply = server.get(f"/sessions?q={quote(query)}")
    error = reply.json["error"]
    assert (reply.status, error["param"], error["code"]) == (422, "q", "invalid_value")
    assert words in error["message"]


def test_it_is_given_once_and_to_sessions(server: ApiServer) -> None:
    for path in ("/sessions?q=a&q=b", "/turns?q=a", "/requests?q=a"):
        reply = server.get(path)
        assert (reply.status, reply.json["error"]["param"]) == (422, "q")


def test_what_a_query_is_read_as() -> None:
    found = parse('model:a cost>1 model:"b c" state:done cost<=2.5 x "y \\"z\\" \\\\"')
    assert found == (
        Sought("model", ("a", "b c")),
        Sought("state", ("done",)),
        Sought("cost", (Comparison(">", 1.0),)),
        Sought("cost", (Comparison("<=", 2.5),)),
        Sought("text", ("x",)),
        Sought("text", ('y "z" \\',)),
    )


# -- pages, and what they cost ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """More sessions than a page examines, of which a few fit."""
    running = ApiServer(tmp_path_factory.mktemp("many"))
    for number in range(2 * pages.EXAMINED + 100):
        title = "needle" if number % 2500 == 7 else None
        running.filled.session(f"s{number}", number, title=title)
    yield running
    running.stop()


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 500])
def test_pages_go_on_where_looking_stopped(many: ApiServer, order: str, limit: int) -> None:
    found, cursor, asked = list[str](), "", 0
    while True:
        query = {"q": "needle", "limit": str(limit), "order": order}
        page = many.get("/sessions?" + urlencode(query | ({"cursor": cursor} if cursor else {})))
        asked += 1
        found += [row["session_key"] for row in page.json["data"]]
        assert len(page.json["data"]) <= limit
        assert page.json["has_more"] == (page.json["next_cursor"] is not None)
        if not page.json["has_more"]:
            break
        cursor = page.json["next_cursor"]
    expected = [f"s{n}" for n in (7, 2507, 5007, 7507, 10007)]
    assert found == (expected if order == "asc" else expected[::-1])
    assert asked >= 3


@pytest.mark.parametrize("query", ["needle", "error:x tool:y attempts>1", "state:error cost>1"])
def test_no_statement_reads_more_than_it_may(many: ApiServer, query: str) -> None:
    """Both are bounded by the sort's index: where looking ends, and what is looked at."""
    with selects() as asked:
        assert ask(many, query).json["has_more"]
    about_sessions = [(text, values) for text, values in asked if 'FROM "sessions"' in text]
    assert len(about_sessions) == 2
    for text, values in about_sessions:
        plan = many.filled.store.sql(f"EXPLAIN QUERY PLAN {text}", tuple(values))
        steps = [row[3] for row in plan]
        assert not [step for step in steps if "TEMP B-TREE" in step], steps
        assert not [s for s in steps if s.startswith("SCAN") and "INDEX" not in s], steps
    _, last = about_sessions
    assert "sessions_activity (<expr>>?" in str(
        many.filled.store.sql(f"EXPLAIN QUERY PLAN {last[0]}", tuple(last[1]))
    )


def test_what_is_under_way_is_found_by_its_index(many: ApiServer) -> None:
    session = many.filled.session("old but running", -10)
    many.filled.run(many.filled.turn(session, -10, status="running", ended_at=None), -10)
    assert keys(many, "state:paused") == set()
    found = ask(many, "state:running")
    assert len(found.json["data"]) <= 1
    assert not found.json["has_more"]
