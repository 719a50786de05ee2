"""The reading side of the JSON API, over HTTP, as clients see it."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api_server import TEAM_KEY, TOKEN, ApiServer, Reply
from filled_store import FilledStore, selects, tell
from xgw import clock, ids
from xgw.store import migrations
from xgw.store.models import RequestLog, Run, Session, Step, Turn

TOTALS = (
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "total_tokens",
    "cost_usd",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def filled(server: ApiServer) -> FilledStore:
    return server.filled


def refusal(reply: Reply) -> tuple[int, str, str | None]:
    """Status, code and param of an answer in the error shape."""
    error = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    return reply.status, error["code"], error["param"]


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": t} for t in texts], **more}


# -- nouns -----------------------------------------------------------------------------------------


def test_a_session_is_its_columns_with_usage_context_and_budget(
    server: ApiServer, filled: FilledStore
) -> None:
    id = filled.session(
        "support/42",
        model="gpt-4o",
        provider_name="openai",
        metadata={"team": "blue"},
        turn_count=3,
        input_tokens=100,
        output_tokens=20,
        total_tokens=120,
        cost_usd=0.25,
        usage_source="provider",
        context_tokens=12800,
        budget={"tokens": 1000, "cost_usd": 0.2},
    )
    session = server.get(f"/sessions/{id}").json
    expected = {field.name for field in Session._meta.sorted_fields}
    expected -= {*TOTALS, "context_tokens"}
    assert set(session) == expected | {"object", "usage", "context", "tools"}
    assert session["object"] == "session"
    assert (session["id"], session["session_key"]) == (id, "support/42")
    assert session["metadata"] == {"team": "blue"}
    assert session["usage"] == dict(zip(TOTALS, (100, 20, None, None, 120, 0.25), strict=True))
    assert session["context"] == {
        "window": 128000,
        "used": 12800,
        "remaining": 115200,
        "percent": 10.0,
        "source": "provider",
    }
    assert session["budget"] == {
        "tokens": {"limit": 1000, "used": 120, "remaining": 880},
        "cost_usd": {"limit": 0.2, "used": 0.25, "remaining": 0},
    }
    assert session["tools"] == []
    assert session["created_at"] == "2026-01-02T12:00:00.000000Z"


def test_what_is_not_known_of_a_session_is_null(server: ApiServer, filled: FilledStore) -> None:
    session = server.get(f"/sessions/{filled.session(model='nobody-knows')}").json
    assert set(session["usage"].values()) == {None}
    assert set(session["context"].values()) == {None}
    unlimited = {"limit": None, "used": None, "remaining": None}
    assert session["budget"] == {"tokens": unlimited, "cost_usd": unlimited}


def test_a_session_shows_the_tools_of_its_newest_call(
    server: ApiServer, filled: FilledStore
) -> None:
    session = filled.session("s")
    schema = {"type": "object", "properties": {}}
    tools = [
        {"type": "function", "function": {"name": "a", "description": "A", "parameters": schema}},
        {"type": "function", "name": "b", "parameters": schema},
        {"name": "c", "input_schema": schema},
    ]
    filled.call(session, input_payload=filled.body(chat("hi", tools=tools)))
    assert server.get("/sessions/s").json["tools"] == [
        {"name": "a", "description": "A", "parameters": schema, "approval": None},
        {"name": "b", "description": None, "parameters": schema, "approval": None},
        {"name": "c", "description": None, "parameters": schema, "approval": None},
    ]


def test_a_turn_holds_its_runs_and_their_steps_in_four_statements(
    server: ApiServer, filled: FilledStore
) -> None:
    asked, answered = filled.body(chat("hello")), filled.body({"choices": []})
    turn = filled.turn(
        user_input="hello",
        final_output="hi",
        input_payload=asked,
        config_snapshot=filled.body({"model": "m"}),
        status="error",
        error_type="upstream_timeout",
        error_message="nothing came",
    )
    run = filled.run(turn)
    steps = [
        filled.step(run, turn, step_index=n, input_payload=asked, output_payload=answered)
        for n in range(2)
    ]
    with selects() as statements:
        shown = server.get(f"/turns/{turn}").json
    assert len(statements) <= 4
    columns = {field.name for field in Turn._meta.sorted_fields}
    assert set(shown) == columns | {"object", "completed_at", "error", "runs"}
    assert shown["object"] == "turn"
    assert shown["completed_at"] == shown["ended_at"] == "2026-01-02T12:01:00.000000Z"
    assert shown["error"] == {"type": "upstream_timeout", "message": "nothing came"}
    assert shown["input_payload"] == {"hash": asked, "size": len(filled_json(chat("hello")))}
    (shown_run,) = shown["runs"]
    assert set(shown_run) == {f.name for f in Run._meta.sorted_fields} | {
        "object",
        "error",
        "steps",
    }
    assert [step["id"] for step in shown_run["steps"]] == steps
    for step in shown_run["steps"]:
        assert set(step) == {f.name for f in Step._meta.sorted_fields} | {"object", "error"}
        assert step["error"] is None
        assert step["output_payload"]["hash"] == answered


def filled_json(value: Any) -> bytes:
    import orjson

    return orjson.dumps(value)


def test_bodies_come_on_demand(server: ApiServer, filled: FilledStore) -> None:
    asked = filled.body(chat("hello"))
    gone = filled.body({"model": "gone"})
    filled.forget(gone)
    turn = filled.turn(input_payload=asked, config_snapshot=gone)
    run = filled.run(turn)
    filled.step(run, turn, input_payload=asked)
    shown = server.get(f"/turns/{turn}?expand=payloads").json
    assert shown["input_payload"] == chat("hello")
    assert shown["runs"][0]["steps"][0]["input_payload"] == chat("hello")
    assert shown["config_snapshot"] == {"hash": gone, "size": None}
    assert server.get("/turns?expand=payloads").json["data"][0]["input_payload"] == chat("hello")
    assert server.get(f"/runs/{run}?expand=payloads").json["steps"][0]["input_payload"] == chat(
        "hello"
    )
    for path in (f"/turns/{turn}", "/turns", "/sessions", "/requests"):
        assert refusal(server.get(f"{path}?expand=all")) == (422, "invalid_value", "expand")


@pytest.mark.parametrize("levels", [200, 201, 1000, 3000])
def test_a_body_of_many_levels_is_shown_as_text(
    server: ApiServer, filled: FilledStore, levels: int
) -> None:
    text = "[" * levels + "]" * levels
    log = filled.request(response_body=filled.body(text.encode()))
    shown = server.get(f"/requests/{log}?expand=payloads")
    assert (shown.status, isinstance(shown.json["response_body"], str)) == (200, levels > 200)
    assert str(shown.json["response_body"]) == text


def test_health_says_that_the_store_was_taken_away(server: ApiServer, filled: FilledStore) -> None:
    path, aside = filled.store.path, filled.store.path.with_suffix(".aside")
    assert server.get("/health").json["status"] == "ok"
    path.rename(aside)
    try:
        health = server.get("/health").json
        assert health["status"] == "degraded"
        assert any("was deleted or replaced" in reason for reason in health["reasons"])
    finally:
        aside.rename(path)
    assert server.get("/health").json["status"] == "ok"


def test_a_step_has_its_bodies_and_what_changed(server: ApiServer, filled: FilledStore) -> None:
    session = filled.session()
    first = filled.call(session, 1, input_payload=filled.body(chat("a", "b")))
    second = filled.call(
        session,
        2,
        input_payload=filled.body(chat("a", "B", "c")),
        output_payload=filled.body({"choices": [{"index": 0}]}),
    )
    shown = server.get(f"/steps/{second}").json
    assert shown["input_payload"] == chat("a", "B", "c")
    assert shown["output_payload"] == {"choices": [{"index": 0}]}
    assert shown["changes"] == {
        "previous_step_id": first,
        "common_prefix": 1,
        "added": [2],
        "changed": [{"previous_index": 1, "index": 1}],
        "dropped": [],
    }
    assert server.get(f"/steps/{first}").json["changes"] is None


def test_a_request_is_the_exchange_as_it_was(server: ApiServer, filled: FilledStore) -> None:
    sent, came = filled.body(chat("hello")), filled.body(b"data: [DONE]\n\n")
    id = filled.request(
        filled.turn(),
        request_payload=sent,
        response_body=came,
        stream=1,
        truncated=0,
        frames=[[0, 12]],
        request_headers=[["accept", "*/*"]],
    )
    shown = server.get(f"/requests/{id}").json
    assert set(shown) == {f.name for f in RequestLog._meta.sorted_fields} | {"object", "error"}
    assert (shown["stream"], shown["truncated"], shown["frames"]) == (True, False, [[0, 12]])
    assert shown["response_body"] == {"hash": came, "size": 14}
    whole = server.get(f"/requests/{id}?expand=payloads").json
    assert (whole["request_payload"], whole["response_body"]) == (
        chat("hello"),
        "data: [DONE]\n\n",
    )
    (listed,) = server.get("/requests").json["data"]
    assert listed == {name: value for name, value in shown.items() if name != "frames"}


# -- lists -----------------------------------------------------------------------------------------


def test_lists_are_paged_and_say_whether_there_is_more(
    server: ApiServer, filled: FilledStore
) -> None:
    turns = [filled.turn(start=minute) for minute in range(5)]
    first = server.get("/turns?limit=3&order=asc").json
    assert (first["object"], first["has_more"]) == ("list", True)
    rest = server.get(f"/turns?limit=3&order=asc&cursor={first['next_cursor']}").json
    assert (rest["has_more"], rest["next_cursor"]) == (False, None)
    assert [row["id"] for row in first["data"] + rest["data"]] == turns
    newest = server.get("/turns?limit=1").json
    assert newest["data"][0]["id"] == turns[-1]


def test_the_lists_inside_a_session_hold_only_what_is_its_own(
    server: ApiServer, filled: FilledStore
) -> None:
    mine, other = filled.session("mine"), filled.session("other")
    turns, messages, requests = [], [], []
    for index in range(2):
        for session in (mine, other):
            turn = filled.turn(session, start=index, turn_index=index, user_input=f"q{index}")
            if session == mine:
                turns.append(turn)
                messages.append(filled.message(mine, turn, index, content=f"q{index}"))
                requests.append(filled.request(turn, index, session_id=mine, model=f"m{index}"))
            else:
                filled.request(turn, index, session_id=other)
    step = filled.step(filled.run(turns[0]), turns[0], session_id=mine)

    def listed(path: str) -> list[str]:
        return [row["id"] for row in server.get(f"/sessions/mine/{path}").json["data"]]

    assert listed("turns?order=asc") == turns
    assert listed("turns") == turns[::-1]
    assert listed("messages?order=asc") == messages
    assert listed("requests?order=asc") == requests
    assert listed("requests?model=m1") == requests[1:]
    assert listed("steps") == [step]
    shown = server.get("/sessions/mine/messages").json["data"][0]
    assert (shown["object"], shown["content"], shown["message_index"]) == ("message", "q1", 1)


def test_lists_take_filters(server: ApiServer, filled: FilledStore) -> None:
    session = filled.session("a/b?c", task_id="build")
    bad = filled.turn(session, status="error")
    alone = filled.turn()

    def listed(path: str) -> list[str]:
        return [row["id"] for row in server.get(path).json["data"]]

    assert listed("/sessions?session_key=a/b%3Fc") == [session]
    assert listed("/sessions?has_error=true&task_id=build") == [session]
    assert listed("/sessions?has_error=false") == []
    assert listed("/turns?status=error&status=running") == [bad]
    called_none = filled.turn(filled.session("none"))
    assert listed("/turns?session_id=none") == [alone]
    assert listed("/turns?session_key=none") == [called_none]
    assert listed(f"/turns?session_id={session}") == [bad]
    assert listed("/turns?since=2026-01-03") == []


def test_what_is_said_twice_is_said_once(server: ApiServer, filled: FilledStore) -> None:
    first, _ = filled.turn(), filled.turn(start=1)
    once = "order=asc&limit=1&since=2026-01-01&expand=payloads"
    for path in (f"/turns?{once}", f"/turns?{once}&{once}"):
        assert [turn["id"] for turn in server.get(path).json["data"]] == [first]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/sessions?limit=0", (422, "invalid_value", "limit")),
        ("/sessions?limit=501", (422, "invalid_value", "limit")),
        ("/turns?order=up", (422, "invalid_value", "order")),
        ("/turns?cursor=nonsense", (400, "invalid_cursor", "cursor")),
        ("/turns?status=odd", (422, "invalid_value", "status")),
        ("/turns?since=now", (422, "invalid_value", "since")),
        ("/requests?colour=blue", (422, "invalid_value", "colour")),
        ("/turns?q=error", (422, "invalid_value", "q")),
        ("/sessions?q=colour:blue", (422, "invalid_value", "q")),
        ("/stats?group=hour", (422, "invalid_value", "group")),
        ("/events?session_id=one", (422, "invalid_value", "session_id")),
        ("/stats?until=later", (422, "invalid_value", "until")),
        ("/sessions?expand=payloads", (422, "invalid_value", "expand")),
        ("/sessions?limit=5&limit=7", (422, "invalid_value", "limit")),
        ("/turns?cursor=a&cursor=b", (422, "invalid_value", "cursor")),
        ("/requests?order=asc&status=error&order=desc", (422, "invalid_value", "order")),
        ("/turns?expand=payloads&expand=", (422, "invalid_value", "expand")),
        ("/events?after=0&after=1", (422, "invalid_value", "after")),
        ("/events?types=turn.*&types=run.*", (422, "invalid_value", "types")),
        ("/stats?group=day&group=model", (422, "invalid_value", "group")),
        ("/stats?since=2026-01-01&since=2026-01-02", (422, "invalid_value", "since")),
        ("/sessions?since=2026-01-01&since=2026-01-02", (422, "invalid_value", "since")),
        ("/export?format=json&format=jsonl", (422, "invalid_value", "format")),
        ("/export?redact=true&redact=false", (422, "invalid_value", "redact")),
        ("/sessions/nobody", (404, "session_not_found", None)),
        ("/sessions/nobody/turns", (404, "session_not_found", None)),
        ("/turns/turn_0", (404, "turn_not_found", None)),
        ("/runs/run_0", (404, "run_not_found", None)),
        ("/steps/step_0", (404, "step_not_found", None)),
        ("/requests/%FF", (404, "request_not_found", None)),
        ("/requests/req_0/curl", (404, "request_not_found", None)),
        ("/nowhere", (404, "not_found", None)),
    ],
)
def test_refusals_have_one_shape(
    server: ApiServer, path: str, expected: tuple[int, str, str | None]
) -> None:
    assert refusal(server.get(path)) == expected


def test_a_session_in_the_path_is_not_filtered_for_again(
    server: ApiServer, filled: FilledStore
) -> None:
    filled.session("mine")
    reply = server.get("/sessions/mine/turns?session_id=other")
    assert refusal(reply) == (422, "invalid_value", "session_id")


def test_every_list_takes_three_statements_at_most(server: ApiServer, filled: FilledStore) -> None:
    session = filled.session("s")
    for index in range(20):
        turn = filled.turn(
            session, turn_index=index, input_payload=filled.body(chat(f"question {index}"))
        )
        filled.request(turn, session_id=session, request_payload=filled.body(chat(str(index))))
        filled.step(filled.run(turn), turn, session_id=session)
        filled.message(session, turn, index)
    for path in (
        "/sessions",
        "/turns",
        "/requests",
        "/sessions/s/turns",
        "/sessions/s/requests",
        "/sessions/s/steps",
        "/sessions/s/messages",
    ):
        with selects() as statements:
            assert server.get(f"{path}?limit=500").status == 200
        assert len(statements) <= 3, path


# -- who may read ----------------------------------------------------------------------------------


def test_a_client_key_reads_its_own_project_alone(server: ApiServer, filled: FilledStore) -> None:
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for named, project in ((ours, "team"), (theirs, "default")):
        session = filled.session("same-key", project_id=project)
        turn = filled.turn(session, project_id=project)
        run = filled.run(turn)
        named |= {
            "sessions": session,
            "turns": turn,
            "runs": run,
            "steps": filled.step(run, turn, session_id=session, output_tokens=1),
            "requests": filled.request(turn, project_id=project, session_id=session),
        }
    for noun, id in ours.items():
        assert server.get(f"/{noun}/{id}", TEAM_KEY).status == 200
    for noun, id in theirs.items():
        assert server.get(f"/{noun}/{id}", TEAM_KEY).status == 404
        assert server.get(f"/{noun}/{id}", TOKEN).status == 200
    for noun in ("sessions", "turns", "requests"):
        assert [row["id"] for row in server.get(f"/{noun}", TEAM_KEY).json["data"]] == [ours[noun]]
        assert len(server.get(f"/{noun}", TOKEN).json["data"]) == 2
    assert server.get("/sessions/same-key", TEAM_KEY).json["id"] == ours["sessions"]
    assert server.get("/sessions/same-key", TOKEN).json["id"] == theirs["sessions"]
    assert server.get("/stats", TEAM_KEY).json["totals"]["output_tokens"] == 1
    assert server.get("/stats", TOKEN).json["totals"]["output_tokens"] == 2


@pytest.mark.parametrize("path", ["/sessions", "/turns", "/requests", "/stats", "/events"])
def test_nobody_reads_without_a_key(server: ApiServer, path: str) -> None:
    assert refusal(server.get(path, None))[0] == 401


# -- the rest --------------------------------------------------------------------------------------


def test_answers_are_json_that_nobody_keeps_and_head_works(
    server: ApiServer, filled: FilledStore
) -> None:
    session, turn = filled.session("s"), filled.turn()
    for path in ("/sessions", "/sessions/s", f"/turns/{turn}", "/stats", "/health"):
        whole, head = server.get(path), server.get(path, method="HEAD")
        for reply in (whole, head):
            assert reply.status == 200
            assert reply.headers["Content-Type"] == "application/json"
            assert reply.headers["Cache-Control"] == "no-store"
        assert head.body == b""
        assert head.headers["Content-Length"] == str(len(whole.body)) or path == "/health"
    assert server.get(f"/sessions/{session}/turns", method="DELETE").status == 405
    for path in ("/sessions/none", "/nowhere", "/sessions?limit=x", "/v1/models/none"):
        assert server.get(path).status >= 400
        assert server.get(path).headers["Cache-Control"] == "no-store"
    assert server.get("/sessions", None).headers["Cache-Control"] == "no-store"


def test_statistics_sum_over_all_turns(server: ApiServer, filled: FilledStore) -> None:
    for model in ("big", "big", "small"):
        filled.call(
            model=model, input_tokens=1_500_000_000, output_tokens=1, cost_usd=0.5, latency_ms=40
        )
    found = server.get("/stats?group=model").json
    assert found["object"] == "stats"
    assert found["group"] == "model"
    assert found["totals"] == {
        "requests": 3,
        "errors": 0,
        "input_tokens": 4_500_000_000,
        "output_tokens": 3,
        "cached_tokens": None,
        "reasoning_tokens": None,
        "cost_usd": 1.5,
        "unpriced": 0,
    }
    assert [(row["model"], row["requests"]) for row in found["data"]] == [("big", 2), ("small", 1)]
    assert found["data"][0]["latency_ms"] == {"p50": 40, "p90": 40, "p99": 40}
    assert server.get("/stats").json["data"][0]["day"] == "2026-01-02"
    assert server.get("/stats?since=2026-01-03").json["totals"]["requests"] == 0


def test_health_tells_the_token_what_it_runs_on_and_others_the_status(
    server: ApiServer, filled: FilledStore
) -> None:
    assert server.get("/health?probe=17").status == 200
    health = server.get("/health").json
    assert (health["status"], health["reasons"]) == ("ok", [])
    assert health["store"]["path"] == str(filled.store.path)
    assert health["store"]["size_bytes"] > 0
    assert health["store"]["schema"] == migrations.schema_version(filled.store)
    assert health["writer"]["queue_depth"] == 0
    assert health["writer"]["down"] is False
    assert health["threads"] > 0
    assert [p["name"] for p in health["providers"]] == ["openai"]
    assert "secret" not in str(health)
    for key in (TEAM_KEY, None):
        assert server.get("/health", key).json == {"object": "health", "status": "ok"}


def test_health_says_that_the_store_cannot_be_written(
    server: ApiServer, filled: FilledStore
) -> None:
    with filled.locked():
        ticket = server.writer.submit(lambda tx: tell(tx, filled.envelope("session.updated")))
        deadline = clock.monotonic() + 30
        while server.writer.down_reason is None and clock.monotonic() < deadline:
            assert not ticket.wait(0.01)
        health = server.get("/health").json
        assert health["status"] == "degraded"
        assert "locked" in health["reasons"][0]
        assert health["writer"]["queue_depth"] == 1
        assert server.get("/health", TEAM_KEY).json["status"] == "degraded"
        assert server.get("/turns").status == 200
    assert ticket.wait(30)
    assert server.get("/health").json["status"] == "ok"


# -- curl ------------------------------------------------------------------------------------------


def shell_words(command: str, **variables: str) -> list[str]:
    """The words that bash makes of a command, without running it."""
    script = 'curl() { printf "%s\\0" "$@"; }\n' + command
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **variables}
    ran = subprocess.run(
        ["bash", "-c", script], env=environment, capture_output=True, check=True, timeout=60
    )
    assert ran.stderr == b""
    return [word.decode("latin-1") for word in ran.stdout.split(b"\0")[:-1]]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "m", "messages": [{"role": "user", "content": "it\'s $HOME `now` \\"!\\""}]}',
        '{"text": "Grüße, 世界 🎉"}'.encode(),
        b"@not-a-file\nsecond line\t!",
        b"control \x01 and \x7f and \x1b[0m, a quote ' and a backslash \\",
        b"not UTF-8: \xff\xfe\x80",
    ],
)
def test_a_request_comes_as_a_command_that_sends_the_same(
    server: ApiServer, filled: FilledStore, body: bytes
) -> None:
    id = filled.request(
        url="https://api.example.com/v1/chat/completions?key=[masked]&v=1",
        stream=1,
        request_payload=filled.body(body),
        request_headers=[
            ["Authorization", "[masked]"],
            ["X-Note", 'say "hi" $USER'],
            ["X-Api-Key", "[masked]"],
            ["X-Empty", ""],
            ["Content-Length", "12"],
            ["Host", "api.example.com"],
        ],
    )
    reply = server.get(f"/requests/{id}/curl")
    assert reply.headers["Content-Type"].startswith("text/plain")
    assert shell_words(reply.body.decode(), API_KEY="k1") == [
        "https://api.example.com/v1/chat/completions?key=k1&v=1",
        "--no-buffer",
        "-H",
        "Authorization: Bearer k1",
        "-H",
        'X-Note: say "hi" $USER',
        "-H",
        "X-Api-Key: k1",
        "-H",
        "X-Empty;",
        "--data-raw",
        body.decode("latin-1"),
    ]


def test_a_command_for_a_request_without_a_body(server: ApiServer, filled: FilledStore) -> None:
    id = filled.request(method="GET", url="https://api.example.com/v1/models")
    command = server.get(f"/requests/{id}/curl").body.decode()
    assert shlex.split(command) == ["curl", "https://api.example.com/v1/models"]
    assert ids.is_id(id, "req")
