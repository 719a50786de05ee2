"""The commands that read the record: `sessions`, `show`, `requests`, `stats`."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pty
import re
import sqlite3
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cli_stores import HOSTILE, FixedStore, Recorded, recorded, run
from filled_store import FilledStore, selects
from servers import DEADLINE, ROOT, XGW, installed
from xgw import clock, ids, spelling
from xgw.cli import COMMANDS as TABLE
from xgw.cli import main, texts
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import Screen
from xgw.store import migrations
from xgw.store.database import Store

EXAMPLE = re.compile(r"^ +(xgw .+?)(?: \|.*)?$", re.MULTILINE)
COMMANDS = ("sessions", "show", "requests", "stats", "export", "tail")


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = FixedStore(tmp_path_factory.mktemp("fixed"))
    store.close()
    return store.path


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """What one would do in a first hour with xgw."""
    with recorded(tmp_path_factory.mktemp("real")) as record:
        record.ask("What can you do?", "checkout-42", stream=True)
        record.ask("And what else? demo:reason", "checkout-42", temperature=0.5)
        record.ask_with_tool("weather")
        record.ask("demo:flaky please", "flaky", model="flaky")
        record.ask("hello", "spare", model="spare", stream=True)
        record.ask("demo:cut now", "broken", stream=True)
        record.ask(HOSTILE, "שלום")
        record.ask("demo:length", model="demo", stream=True)
        record.ask("hello", model="no-such-model")
        yield record


def of(real: Recorded, session: str, index: int = 0) -> str:
    """The id of a turn."""
    turns = real.get(f"/sessions/{session}/turns?order=asc")["data"]
    return str(turns[index]["id"])


def without_ages(text: str) -> str:
    """How long ago something was is told in days, which are more each day."""
    return re.sub(r"\d+ d ago", "N d ago", text)


def cells(line: str) -> int:
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in line)
    return len(line) + wide - sum(unicodedata.category(char) == "Mn" for char in line)


def assert_harmless(text: str) -> None:
    """No character that does something to a terminal or cannot be seen."""
    allowed = {"\n", "\u200c", "\u200d"}
    found = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")}
    assert found <= allowed


# -- what it looks like ----------------------------------------------------------------------------


def test_sessions(fixed: Path) -> None:
    listed = run(fixed, "sessions")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert without_ages(listed.stdout) == (
        "state    session                                model   turns  tokens     cost"
        "   activity  title\n"
        "error    broken                                 llama       1     ~19        –"
        "  N d ago  Say something\n"
        "waiting  sess_00000000000000000000000000000002  gpt-4o      1       –        –"
        "  N d ago  Weather in Rome?\n"
        "done     checkout-42                            gpt-4o      1   1,244  $0.0022"
        "  N d ago  Where?\n"
    )


def test_requests(fixed: Path) -> None:
    assert without_ages(run(fixed, "requests").stdout) == (
        "  started  status    took     in  out  provider/model"
        "  request                               error\n"
        "N d ago  200     1.00 s  1,200   44  openai/gpt-4o"
        "   req_00000000000000000000000000000002\n"
        "N d ago  429     100 ms      –    –  openai/gpt-4o"
        "   req_00000000000000000000000000000001  upstream_rate_limit: Slow down\n"
    )


def test_stats(fixed: Path) -> None:
    assert run(fixed, "stats").stdout == (
        "day         requests  errors     in  out  cached  reasoning     cost  unpriced"
        "     p50     p90     p99\n"
        "2026-01-02         3       1  1,200   44   1,024          0  $0.0022         1"
        "  500 ms  1.00 s  1.00 s\n"
    )


def test_a_session(fixed: Path) -> None:
    assert (
        without_ages(run(fixed, "show", "checkout-42").stdout)
        == """\
session checkout-42                                                         done
id          sess_00000000000000000000000000000001
status      active
named by    metadata, project default
model       openai/gpt-4o
created     2026-01-02 12:00:00.000 +00:00, N d ago
last turn   2026-01-02 12:00:00.000 +00:00, N d ago
holds       1 turn, 2 messages, 2 requests
tokens      1,200 in (1,024 cached) → 44 out = 1,244, as reported
cost        $0.0022
context     1,244 of 128,000 tokens (1.0 %)

Turns
turn  state  tokens     cost    took    started  id                                     input
   1  done    1,244  $0.0022  2.00 s  N d ago  turn_00000000000000000000000000000001  Where?
"""
    )


def test_a_turn_with_attempts(fixed: Path) -> None:
    assert (
        without_ages(run(fixed, "show", "turn_" + "1".zfill(32)).stdout)
        == """\
turn turn_00000000000000000000000000000001                        success · stop
session     checkout-42 (sess_00000000000000000000000000000001), turn 1 of 1
answered by openai/gpt-4o, 2nd attempt
started     2026-01-02 12:00:00.000 +00:00, N d ago
took        2.00 s
first token after 1.40 s
tokens      1,200 in (1,024 cached) → 44 out = 1,244, as reported
cost        $0.0022
work        1 model call, 2 attempts, 0 tool calls
client      app/1 · from 127.0.0.1
trace       11111111111111111111111111111111

Input
  Where?

Output
  On its way.

Run 1  run_00000000000000000000000000000001 · first · success · 2.00 s
                                              0                           2.00 s
 1 openai/gpt-4o                429   100 ms  ██
   waited 900 ms, then retry                   ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈
 2 openai/gpt-4o #2              ok   1.00 s                   ░░░░░░░██████████

Steps
1 llm_call openai/gpt-4o                                    error · 429 · 100 ms
   step_00000000000000000000000000000001
   upstream_rate_limit: Slow down
   → retry after 900 ms: openai/gpt-4o #2
2 llm_call openai/gpt-4o #2                              success · stop · 1.00 s
   step_00000000000000000000000000000002
   1,200 in (1,024 cached) → 44 out · first token 400 ms · 73 tokens/s · $0.0022
"""
    )


def test_a_turn_that_waits_for_a_tool(fixed: Path) -> None:
    shown = run(fixed, "show", "turn_" + "2".zfill(32)).stdout
    assert shown.splitlines()[0].split() == ["turn", "turn_" + "2".zfill(32), "waiting"]
    assert shown.endswith("""\
                                              0                           800 ms
 1 openai/gpt-4o                 ok   500 ms  ░░░░░░░░░░░░░░░░░░░░░
 2 get_weather                   ok   300 ms                       █████████████

Steps
1 llm_call openai/gpt-4o                           success · tool_calls · 500 ms
   step_00000000000000000000000000000003
   first token 500 ms
   asks for get_weather {"city": "Rome"}
2 tool_call get_weather                                         success · 300 ms
   step_00000000000000000000000000000004 · call_1
   arguments {"city": "Rome"}
   result    {"temp":21}
""")


def test_a_step(fixed: Path) -> None:
    assert (
        without_ages(run(fixed, "show", "step_" + "2".zfill(32)).stdout)
        == """\
step step_00000000000000000000000000000002                        success · stop
model       openai/gpt-4o
asked for   gpt-4o
kind        llm_call
attempt     2, retry after a wait of 900 ms
session     sess_00000000000000000000000000000001
turn        turn_00000000000000000000000000000001
run         run_00000000000000000000000000000001, step 2
started     2026-01-02 12:00:01.000 +00:00, N d ago
took        1.00 s · first token 400 ms · 73 tokens/s
tokens      1,200 in (1,024 cached) → 44 out = 1,244, as reported
context     1,200 tokens sent
cost        $0.0022
finish      stop
HTTP        200
span        2222222222222222 of trace 11111111111111111111111111111111

Sent  2 messages
  temperature 0.2
  system
    Be brief.
  user
    Where?

Received
    On its way.

Request  req_00000000000000000000000000000002
  POST https://api.openai.com/v1/chat/completions → 200
  200 B sent · 2.0 kB received · in 3 pieces
"""
    )


def test_a_request(fixed: Path) -> None:
    assert (
        run(fixed, "show", "req_" + "2".zfill(32)).stdout
        == """\
request req_00000000000000000000000000000002                                 200
  POST https://api.openai.com/v1/chat/completions
model       openai/gpt-4o
endpoint    /chat/completions · streamed
session     sess_00000000000000000000000000000001
turn        turn_00000000000000000000000000000001
step        step_00000000000000000000000000000002
started     2026-01-02 12:01:00.000 +00:00
took        1.00 s · first token 400 ms
stream      3 reads from 400 ms to 990 ms, longest silence 580 ms
tokens      1,200 in → 44 out
bytes       200 B sent · 2.0 kB received · in 3 pieces
client      app/1 · from 127.0.0.1

Request headers
  content-type: application/json
  authorization: [masked]

Response headers
  x-request-id: abc

Response body
  {"choices": []}
"""
    )


# -- it is the record of a real server -------------------------------------------------------------


def test_json_is_what_the_api_answers(real: Recorded) -> None:
    turn = of(real, "weather")
    record = real.get(f"/turns/{turn}")
    step, run_id = record["runs"][0]["steps"][0]["id"], record["runs"][0]["id"]
    request = real.get("/requests")["data"][0]["id"]
    message = real.get("/sessions/weather/messages")["data"][0]
    full = f"/turns/{turn}?expand=payloads"
    assert real.json("sessions") == real.get("/sessions")
    assert real.json("sessions", "--limit", "2") == real.get("/sessions?limit=2")
    assert real.json("requests") == real.get("/requests")
    assert real.json("show", "weather") == real.get("/sessions/weather")
    assert real.json("show", turn) == record
    assert real.json("show", turn, "--full") == real.get(full)
    assert real.json("show", run_id) == real.get(f"/runs/{run_id}")
    assert real.json("show", step) == real.get(f"/steps/{step}")
    assert real.json("show", request) == real.get(f"/requests/{request}")
    assert real.json("show", message["id"]) == message
    for group in ("day", "model", "provider", "agent"):
        assert real.json("stats", "--by", group) == real.get(f"/stats?group={group}")


def test_show_tells_all_about_a_turn_with_tools(real: Recorded) -> None:
    turn = of(real, "weather")
    shown = real.show("show", turn)
    record = real.get(f"/turns/{turn}")
    calls = record["runs"][0]["steps"][0]["tool_calls"]
    for words in (
        f"turn {turn}",
        "weather (sess_",
        "turn 1 of 1",
        "answered by fast/gpt-4o",
        f"{record['input_tokens']:,} in (",
        f"{record['output_tokens']:,} out",
        "2 model calls, 2 attempts, 2 tool calls",
        "tools: get_weather",
        "app/1 · from 127.0.0.1",
        record["trace_id"],
        "What is the weather in Paris and Rome?",
        'asks for get_weather {"city":"Paris"}',
        'arguments {"city":"Rome"}',
        'result    {"temp": 21}',
        *(call["tool_call_id"] for call in calls),
        *(step["id"] for step in record["runs"][0]["steps"]),
    ):
        assert words in shown
    assert record["cost_usd"] > 0
    assert spelling.usd(record["cost_usd"]) in shown


def test_show_tells_of_attempts(real: Recorded) -> None:
    retried, spared = real.show("show", of(real, "flaky")), real.show("show", of(real, "spare"))
    assert "answered by fast/gpt-4o-mini, asked for flaky, 2nd attempt" in retried
    assert re.search(r"^ 1 fast/gpt-4o-mini +503 ", retried, re.MULTILINE)
    assert re.search(r"^   waited [\d.]+ m?s, then retry +┈+$", retried, re.MULTILINE)
    assert re.search(r"^   → retry after [\d.]+ m?s: fast/gpt-4o-mini #2$", retried, re.MULTILINE)
    assert "upstream_connection: connection to 127.0.0.1:" in spared
    assert "→ fallback at once: fast/gpt-4o-mini #2" in spared


def test_show_tells_why_a_turn_failed(real: Recorded) -> None:
    broken, refused = real.show("show", of(real, "broken")), real.show("show", "last")
    assert broken.splitlines()[0].endswith(" error")
    assert "ended by    provider: its answer failed" in broken
    assert "\nError\n  upstream_truncated: " in broken
    assert "\nOutput  what had arrived\n" in broken
    assert re.search(r"^tokens +~\d+ in → ~\d+ out = ~\d+, estimated$", broken, re.MULTILINE)
    assert "ended by    gateway: refused by xgw" in refused
    assert '"code":"model_not_found"' in refused
    assert "no-such-model" in refused


def test_the_demo_is_labelled(real: Recorded) -> None:
    step = real.get("/requests?provider=demo")["data"][0]
    for ref in (step["turn_id"], step["step_id"], step["id"]):
        assert "demo/demo (scripted, no model)" in real.show("show", ref)
    assert "demo/demo (scripted)" in real.show("requests", "--provider", "demo")
    assert "demo (scripted)" in real.show("stats", "--by", "provider")
    assert "(scripted)" not in real.show("requests", "--provider", "fast", "--status", "success")


def test_a_step_shows_what_changed_since_the_call_before(real: Recorded) -> None:
    steps = real.get(f"/turns/{of(real, 'weather')}")["runs"][0]["steps"]
    shown = real.show("show", steps[-1]["id"])
    assert f"since the call before ({steps[0]['id']}): the first 1 the" in shown
    assert "3 added" in shown
    assert "tool get_weather(city) · The weather of a city" in shown


def test_reasoning_is_shown(real: Recorded) -> None:
    step = real.get(f"/turns/{of(real, 'checkout-42', 1)}")["runs"][0]["steps"][0]
    shown = real.show("show", step["id"])
    assert "temperature 0.5" in shown
    assert re.search(r"^    reasoning: \w", shown, re.MULTILINE)
    assert re.search(r"out \(\d+ reasoning\)", shown)


# -- what ID can be --------------------------------------------------------------------------------


def test_anything_can_be_named(real: Recorded) -> None:
    turn = real.get(f"/turns/{of(real, 'weather')}")
    step = turn["runs"][0]["steps"][0]
    for ref in (
        turn["id"],
        turn["id"][:-4],
        turn["id"][-8:],
        f"turn_…{turn['id'][-8:]}",
        f"turn_...{turn['id'][-8:]}",
        turn["trace_id"],
    ):
        assert real.json("show", ref)["id"] == turn["id"]
    assert real.json("show", step["observation_id"])["id"] == step["id"]
    assert real.json("show", "שלום")["session_key"] == "שלום"
    assert real.json("show", "last") == real.get(f"/turns/{real.json('show', 'last')['id']}")
    event = real.json("show", "2")
    assert (event["seq"], event["type"]) == (2, "turn.started")
    assert real.show("show", "2").startswith("event 2 ")


def test_a_key_that_is_a_word_of_commands_is_not_what_to_call_a_session_by(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    called = {key: store.session(key) for key in ("none", "last", "plain")}
    store.close()
    listed = run(store.path, "sessions").stdout
    assert called["none"] in listed
    assert called["last"] in listed
    assert called["plain"] not in listed
    answer = run(store.path, "requests", "--json", "-s", called["none"]).stdout
    assert json.loads(answer)["data"] == []


@pytest.mark.parametrize("ref", ["nothing", "turn_0123456789", "99999999", "…", "\x1b[31m", ""])
def test_nothing_of_that_name(real: Recorded, ref: str) -> None:
    refused = real.run("show", ref)
    assert (refused.returncode, refused.stdout) == (1, "")
    [line] = refused.stderr.splitlines()
    assert str(real.installation.store) in line
    assert_harmless(line)


@pytest.mark.parametrize(
    ("ref", "is_start"), [("turn_019a3c", True), ("turn_0", True), ("turn_0123456789", False)]
)
def test_the_start_of_an_id_that_is_too_short(fixed: Path, ref: str, is_start: bool) -> None:
    refused = run(fixed, "cancel", ref)
    assert refused.returncode == 1
    assert ("needs 12 characters" in refused.stderr) is is_start


def test_more_than_one_thing_of_that_name(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    twins = [store.turn(id=f"turn_{start * 8}0a1b2c3d4e5f60718293a4b5") for start in "ab"]
    store.close()
    refused = run(store.path, "show", "18293a4b5")
    assert refused.returncode == 1
    assert all(twin in refused.stderr for twin in twins)


def test_kinds_that_do_not_fit(real: Recorded) -> None:
    refused = real.run("requests", "--turn", "weather")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "names a session, not a turn" in refused.stderr


# -- filters ---------------------------------------------------------------------------------------


def test_sessions_are_filtered(real: Recorded) -> None:
    def keys(*options: str) -> list[str]:
        return sorted(row["session_key"] for row in real.json("sessions", *options)["data"])

    assert keys("--has-error") == ["broken"]
    assert keys("--no-error", "--model", "gpt-4o-mini") == ["flaky", "spare"]
    assert keys("--session-key", "weather", "--session-key", "spare") == ["spare", "weather"]
    assert keys("--running") == keys("--since", "2999-01-01") == keys("--kind", "agent") == []
    everything = keys()
    assert keys("--since", "1h") == keys("--until", "2999-01-01") == everything
    assert keys("--since", "2w", "--status", "active") == everything
    newest, oldest = real.json("sessions"), real.json("sessions", "--order", "asc")
    assert newest["data"] == oldest["data"][::-1]


def test_requests_are_filtered(real: Recorded) -> None:
    def told(*options: str) -> set[tuple[str, int | None]]:
        rows = real.json("requests", *options)["data"]
        return {(row["provider_name"], row["status_code"]) for row in rows}

    assert told("--provider", "dead") == {("dead", None)}
    assert told("--status-code", "5xx") == {("fast", 503)}
    assert told("--status", "error", "-s", "flaky") == {("fast", 503)}
    assert told("--session", "none") == {("demo", 200)}
    assert told("--turn", of(real, "spare")) == {("dead", None), ("fast", 200)}


def test_pages_follow_each_other(real: Recorded) -> None:
    first = real.json("requests", "--limit", "2")
    rest = real.json("requests", "--cursor", first["next_cursor"])
    assert first["has_more"]
    assert [*first["data"], *rest["data"]] == real.get("/requests")["data"]
    listed = real.run("requests", "--limit", "2")
    assert first["next_cursor"] in listed.stderr
    assert len(listed.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "--status", "asleep"),
        ("sessions", "--since", "yesterday"),
        ("sessions", "--task-id", "a\nb"),
        ("sessions", "--cursor", "???"),
        ("requests", "--status-code", "9xx"),
        ("requests", "--cursor", "WyJ4Il0"),
        ("stats", "--since", "2026-13-01"),
        ("stats", "--since", "9999999w"),
    ],
)
def test_values_that_an_option_does_not_take(fixed: Path, arguments: tuple[str, ...]) -> None:
    refused = run(fixed, *arguments)
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert arguments[1] in line


def test_a_query_without_a_word(fixed: Path) -> None:
    for command, given in (("sessions", "the query"), ("export", "--filter")):
        arguments = ("--filter", " ") if command == "export" else (" ",)
        done = run(fixed, command, *arguments)
        assert (done.returncode, done.stderr) == (2, f"xgw: {given} must hold a word\n")


def test_unknown_options_and_missing_ids(fixed: Path) -> None:
    for arguments in (("sessions", "--colour"), ("show",), ("stats", "--by", "mood")):
        refused = run(fixed, *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")


# -- stores ----------------------------------------------------------------------------------------


def test_an_empty_store_says_what_to_do_next(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        server = installation.serve("--demo")
        listed = installation.run("sessions")
        assert (listed.returncode, listed.stdout) == (0, "")
        assert f"{server.url}/v1" in listed.stderr
        assert json.loads(installation.run("sessions", "--json").stdout)["data"] == []
        assert installation.run("show", "last").returncode == 1
        filtered = installation.run("requests", "--status", "error")
        assert (filtered.returncode, filtered.stdout) == (0, "")
        assert "filters" in filtered.stderr
        assert installation.run("stats").returncode == 0
        server.stop()
        assert "xgw serve" in installation.run("requests").stderr


def test_stores_that_cannot_be_read(tmp_path: Path) -> None:
    no_store, old, newer = (tmp_path / f"{name}.db" for name in ("no", "old", "newer"))
    no_store.write_bytes(b"no database at all" * 1000)
    sqlite3.connect(old).close()
    migrations.migrate(Store(newer))
    connection = sqlite3.connect(newer)
    with connection:
        connection.execute(
            "INSERT INTO schema_migrations (name, applied) VALUES ('9999_later', '2031-01-01')"
        )
    connection.close()
    for store, words in (
        (tmp_path / "missing.db", "xgw serve"),
        (tmp_path, "folder"),
        (no_store, "--db PATH"),
        (old, "--db PATH"),
        (newer, "newer"),
    ):
        refused = run(store, "sessions")
        assert (refused.returncode, refused.stdout) == (2, "")
        [line] = refused.stderr.splitlines()
        assert words in line
        assert str(store) in line


@pytest.mark.parametrize("command", ["show last", "requests", "stats", "tail"])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, command: str) -> None:
    refused = run(tmp_path / "missing.db", *command.split())
    assert (refused.returncode, refused.stdout) == (2, "")
    [line] = refused.stderr.splitlines()
    assert "xgw serve" in line
    assert list(tmp_path.iterdir()) == []


# -- hostile and long texts ------------------------------------------------------------------------


def test_recorded_text_does_nothing_to_the_terminal(real: Recorded) -> None:
    turn = real.get(f"/turns/{of(real, '%D7%A9%D7%9C%D7%95%D7%9D')}?expand=payloads")
    step = turn["runs"][0]["steps"][0]
    request = real.get(f"/requests?turn_id={turn['id']}")["data"][0]
    message = real.get("/sessions/%D7%A9%D7%9C%D7%95%D7%9D/messages?order=asc")["data"][0]
    assert turn["user_input"] == HOSTILE
    for ref in (turn["id"], step["id"], request["id"], message["id"], "שלום"):
        for options in ((), ("--full",), ("--json",), ("--json", "--full")):
            assert_harmless(real.show("show", ref, *options))
    shown = real.show("show", turn["id"])
    assert "␛]0;owned␇␛[2J␛[31mred␛[0m ␀nul \\u202eevil\\u202c \\u009b31m" in shown
    assert "שלום 你好 \\u200btail" in " ".join(shown.split())
    assert_harmless(real.show("sessions"))
    assert_harmless(real.show("sessions", "--json"))
    assert real.json("show", turn["id"], "--full") == turn


def test_pages_are_80_columns_wide(real: Recorded) -> None:
    turns = [row["id"] for row in real.get("/turns")["data"]]
    steps = [row["step_id"] for row in real.get("/requests")["data"]]
    for ref in (*turns, *steps):
        for line in real.show("show", ref).splitlines():
            assert cells(line) <= 80, line


def test_long_texts_are_cut_with_a_hint(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    many = "\n".join(f"line {number}" for number in range(500))
    turn = store.turn(user_input="wörd " * 20_000, final_output=many, llm_calls=1)
    messages = [{"role": "user", "content": f"message {n}"} for n in range(40)]
    call = store.call(input_payload=store.body({"messages": messages}))
    store.close()
    shown, full = (
        run(store.path, "show", turn).stdout,
        run(store.path, "show", turn, "--full").stdout,
    )
    assert len(shown.splitlines()) < 50
    assert shown.count("characters more (--full shows all)") == 2
    assert "line 11" in shown
    assert "line 12" not in shown
    assert full.count("wörd") == 20_000
    assert "line 499" in full
    shown, full = (
        run(store.path, "show", call).stdout,
        run(store.path, "show", call, "--full").stdout,
    )
    assert "… 28 earlier messages (--full shows all)" in shown
    assert "message 39" in shown
    assert all(f"message {n}\n" in full for n in range(40))


def test_a_long_session_shows_its_newest_turns(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    session = store.session("long", turn_count=30)
    for index in range(30):
        store.turn(session, index, turn_index=index, user_input=f"question {index}")
    store.close()
    shown, full = (
        run(store.path, "show", "long").stdout,
        run(store.path, "show", "long", "--full").stdout,
    )
    assert "the newest 20; 10 more with --full" in shown
    assert "question 9\n" not in shown
    assert shown.index("question 10\n") < shown.index("question 29\n")
    assert all(f"question {index}\n" in full for index in range(30))


def test_bodies_that_were_deleted(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    sent = store.body({"messages": [{"role": "user", "content": "x" * 300}]})
    call = store.call(input_payload=sent)
    log = store.request(request_payload=sent)
    store.forget(sent)
    store.close()
    for ref in (call, log):
        assert "not in the store any more" in run(store.path, "show", ref).stdout


# -- terminals and pipes ---------------------------------------------------------------------------


def on_terminal(columns: int, store: Path, *arguments: str, **env: str) -> str:
    """What a command prints on a terminal so many columns wide."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    # Tests that run beside others are told a width, which counts more than the terminal's own.
    without_width = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    process = subprocess.Popen(
        [*XGW, *arguments, "--db", str(store)],
        env={**without_width, "TZ": "UTC", "TERM": "xterm", **env},
        cwd=store.parent,
        stdin=subprocess.DEVNULL,
        stdout=child,
        stderr=subprocess.DEVNULL,
    )
    os.close(child)
    printed = b""
    while block := _read(parent):
        printed += block
    os.close(parent)
    assert process.wait(DEADLINE) == 0
    return printed.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # so Linux says that nobody has the other end any more
        return b""


COLOURS = re.compile(r"\x1b\[\d+m")


@pytest.mark.parametrize("columns", [40, 80, 100])
@pytest.mark.parametrize(
    "command", ["sessions", "requests", "stats", "show checkout-42", "show last"]
)
def test_tables_fit_the_terminal(fixed: Path, command: str, columns: int) -> None:
    printed = on_terminal(columns, fixed, *command.split())
    assert COLOURS.search(printed)
    plain = COLOURS.sub("", printed)
    assert "\x1b" not in plain
    assert all(cells(line) <= columns for line in plain.splitlines())


def test_a_narrow_terminal_gets_short_ids_and_titles_below(fixed: Path) -> None:
    printed = COLOURS.sub("", on_terminal(80, fixed, "sessions"))
    lines = [line.split() for line in printed.splitlines()]
    assert lines[0] == ["state", "session", "model", "turns", "tokens", "cost", "activity"]
    assert lines[3][:2] == ["waiting", "sess_…00000002"]
    assert lines[4] == ["Weather", "in", "Rome?"]


def test_a_terminal_that_is_too_narrow_is_told_so(fixed: Path) -> None:
    printed = COLOURS.sub("", on_terminal(40, fixed, "sessions"))
    lines = printed.splitlines()
    assert lines[0].split() == ["state", "session", "activity"]
    assert lines[-2:] == ["The terminal is too narrow for: model,", "turns, tokens, cost"]


def test_no_colour_where_it_is_not_wanted(fixed: Path) -> None:
    assert "\x1b" not in on_terminal(80, fixed, "sessions", NO_COLOR="1")
    assert "\x1b" not in on_terminal(80, fixed, "sessions", TERM="dumb")


def test_a_closed_pipe_ends_quietly(fixed: Path) -> None:
    for arguments in (("sessions",), ("sessions", "--json"), ("show", "checkout-42")):
        reader, writer = os.pipe()
        os.close(reader)
        command = [*XGW, *arguments, "--db", str(fixed)]
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=DEADLINE)
        os.close(writer)
        assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_work(fixed: Path, command: str) -> None:
    told = subprocess.run([*XGW, command, "--help"], capture_output=True, text=True, check=True)
    examples = EXAMPLE.findall(told.stdout)
    assert examples
    assert all(example.startswith(f"xgw {command}") for example in examples)


def test_the_documentation_names_every_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for command in COMMANDS:
        module, attribute, _ = TABLE[command]
        described = text.partition(f"\n## `xgw {command}")[2].partition("\n## ")[0]
        assert described, command
        for option in getattr(importlib.import_module(module), attribute).params:
            names = [name for name in (*option.opts, *option.secondary_opts) if name[:2] == "--"]
            assert all(f"`{name}" in text for name in names), names


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "spelled"),
    [
        (None, "–"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.00 s"),
        (59_949, "59.9 s"),
        (100_000, "1 min 40 s"),
        (3_599_000, "59 min 59 s"),
        (3_600_000, "1 h 00 min"),
        (360_000_000, "4 d 04 h"),
    ],
)
def test_durations(ms: int | None, spelled: str) -> None:
    assert spelling.duration(ms) == spelled


@pytest.mark.parametrize(
    ("cost", "spelled"),
    [
        (None, "–"),
        (0, "$0.0000"),
        (1e-9, "<$0.000001"),
        (0.000083, "$0.000083"),
        (0.0123, "$0.0123"),
        (12.345, "$12.35"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money(cost: float | None, spelled: str) -> None:
    assert spelling.usd(cost) == spelled


def test_unknown_estimated_and_partial_counts() -> None:
    counts = [
        spelling.count(n, s)
        for n, s in ((None, None), (0, "provider"), (1234, "estimated"), (5, "partial"))
    ]
    assert counts == ["–", "0", "~1,234", "≥5"]


def test_how_long_ago() -> None:
    now = datetime(2026, 1, 2)
    ages = {0: "now", 5: "5 s ago", 119: "1 min ago", 7200: "2 h ago", 90_000: "1 d ago"}
    for seconds, words in ages.items():
        assert spelling.ago(now - timedelta(seconds=seconds), now) == words
    assert spelling.ago(now + timedelta(seconds=59), now) == "now"
    assert spelling.ago(now + timedelta(seconds=150), now) == "in 2 min"
    assert spelling.ago(now + timedelta(days=3, seconds=1), now) == "in 3 d"
    assert spelling.ago(None, now) == "–"


def test_moments_that_people_name() -> None:
    assert spelling.since("2026-01-02") == datetime(2026, 1, 2)
    assert spelling.since("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5)
    before = clock.now() - timedelta(hours=2)
    assert abs(spelling.since("2h") - before) < timedelta(minutes=1)


@pytest.mark.parametrize("text", ["h", "2y", "-2h", "1.5h", "2 h ago", "soon", ""])
def test_moments_that_nobody_knows(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a time \(how long ago, such as 2h or 7d"):
        spelling.since(text)


@pytest.mark.parametrize(
    ("text", "most", "line"),
    [
        ("a\r\n\tb  c", None, "a b c"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("你好世界", 5, "你好…"),
        ("e" + "\u0301" * 1000 + "x", 4, None),
        ("👩\u200d💻 ok", None, "👩\u200d💻 ok"),
        ("x" * 100_000, 3, "xx…"),
        ("\x1b\x7f\x85\ufeff\U000e0041", None, "␛␡\\u0085\\ufeff\\U000e0041"),
    ],
)
def test_one_line(text: str, most: int | None, line: str | None) -> None:
    made = texts.one_line(text, most)
    if line is not None:
        assert made == line
    assert len(made) < 100
    assert most is None or texts.cells(made) <= most


def test_wrapping() -> None:
    assert texts.wrap("one two three", 7) == ["one two", "three"]
    assert texts.wrap("abcdefghij", 4) == ["abcd", "efgh", "ij"]
    assert texts.wrap("  indented text", 10) == ["  indented", "text"]
    assert texts.wrap("a\n\nb", 10) == ["a", "", "b"]
    assert texts.wrap("你好世界", 4) == ["你好", "世界"]
    assert texts.wrap("你", 1) == ["你"]
    assert len(texts.wrap("x" * 1_000_000, 76)) == 13_158


def test_an_excerpt_says_how_much_is_left_out() -> None:
    assert texts.excerpt("one\ntwo\n", 20, 5) == texts.Excerpt(["one", "two"], 0)
    assert texts.excerpt("a\nb\nc\n", 20, 2) == texts.Excerpt(["a", "b"], 1)
    assert texts.excerpt("x" * 1000, 10, 2).hidden == 980


def test_a_table_drops_what_it_can_spare() -> None:
    columns = (Column("first"), Column("spare", spare=1), Column("more", spare=2), Column("last"))
    row = [Cell("a" * 10) for _ in columns]
    assert render(Screen(100, False), columns, [row])[0].split() == [
        "first",
        "spare",
        "more",
        "last",
    ]
    assert render(Screen(40, False), columns, [row])[0].split() == ["first", "spare", "last"]
    assert render(Screen(10, False), columns, [row])[0].split() == ["first", "last"]


def test_ids_are_whole_where_they_are_not_on_a_terminal(real: Recorded) -> None:
    for line in real.show("requests").splitlines()[1:]:
        assert any(ids.is_id(word, "req") for word in line.split())


@pytest.mark.parametrize(("tool", "told"), [(False, ""), (True, ", 6 ms without waits for tools")])
def test_only_what_had_tools_is_told_to_have_waited(tmp_path: Path, tool: bool, told: str) -> None:
    filled = FilledStore(tmp_path)
    turn = filled.turn(latency_ms=7, busy_ms=6)
    kind = "tool_call" if tool else "llm_call"
    filled.step(filled.run(turn, latency_ms=7, busy_ms=6), turn, step_type=kind)
    filled.close()
    [took] = re.findall("took +(.*)", run(tmp_path / "xgw.db", "show", turn).stdout)
    assert took == f"7 ms{told and told + ' and people'}"


def test_a_session_that_is_deleted_while_it_is_listed_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FixedStore(tmp_path)

    def delete() -> None:
        with sqlite3.connect(store.path) as connection:
            connection.execute("DELETE FROM sessions WHERE session_key = 'broken'")
        connection.close()

    with selects(delete, number=3) as asked:
        main(["sessions", "--db", str(store.path)], standalone_mode=False)
    assert len(asked) == 3
    listed = capsys.readouterr().out
    assert "broken" not in listed
    assert "checkout-42" in listed
    store.close()
