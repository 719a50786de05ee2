"""`xgw tail`: every event once and in order, through the server or without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli_stores import HOSTILE, FixedStore, Recorded, recorded
from servers import DEADLINE, XGW, Installation, Process, eventually, installed
from xgw.cli.event_lines import EventLines
from xgw.cli.following import Follower, Wanted
from xgw.cli.terminal import Screen
from xgw.events import TYPES
from xgw.queries import events
from xgw.store.database import Store

LINE = re.compile(r"^\d\d:\d\d:\d\d\.\d{3}  [0-9a-f ]{8}  \S+ ")
READY = "turn.completed"


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Recorded]:
    with recorded(tmp_path) as one:
        yield one


def stored(record: Recorded, types: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What the store has, in order."""
    store = Store(record.installation.store)
    try:
        found = events.list_events(store, 0, 10_000, types=types or None)
        return [envelope.to_json() for envelope in found]
    finally:
        store.close()


def seqs(tail: Process) -> list[int]:
    """The cursors of what a `tail --json` has printed."""
    whole = tail.stdout.text.rpartition("\n")[0].splitlines()
    return [seq for line in whole if (seq := json.loads(line)["seq"]) is not None]


def has_all(record: Recorded, tail: Process, types: tuple[str, ...] = ()) -> Callable[[], bool]:
    def check() -> bool:
        return len(seqs(tail)) >= len(stored(record, types))

    return check


def following(record: Recorded, *options: str) -> Process:
    """A tail that has begun to follow: it has printed what there was."""
    if not stored(record):
        record.ask("the first", "first")
    tail = record.installation.start("tail", "--after", "0", *options)
    tail.stdout.wait_for(READY)
    return tail


# -- through the server ----------------------------------------------------------------------------


def test_events_come_as_they_happen(record: Recorded) -> None:
    tail = following(record)
    record.ask("What can you do?", "checkout-42", stream=True)
    record.ask_with_tool("weather")
    record.ask("demo:flaky", "flaky", model="flaky")
    record.ask("demo:500")
    for words in (
        r"session.created +checkout-42 · gpt-4o · named by metadata\n",
        r"turn.started +checkout-42 turn 1 · “What can you do\?”\n",
        r"message.added +user · (~\d+ tokens · )?“What can you do\?”\n",
        r"step.started +fast/gpt-4o( · ~\d+ tokens in)?\n",
        r"step.completed +fast/gpt-4o · success · stop · 10 \(0 cached\) → 129 tokens · first",
        r"turn.completed +checkout-42 turn 1 · success · stop · fast/gpt-4o · 10 \(0 cached\) → 1",
        r'tool.requested +get_weather {"city":"Paris"} \(call_\w+\) · get_weather {"city":"Rome"} ',
        r'step.started +tool_call get_weather · {"city":"Rome"} · call_\w+\n',
        r"run.updated +run 1 · waiting_tool · tool_calls\n",
        r'step.completed +tool_call get_weather · success · [\d.]+ m?s · “{"temp": 21}”\n',
        r"tool.results_sent +2 results to the model",
        r"llm.error +attempt 1 · HTTP 503 · \w+: .* · retry with fast/gpt-4o-mini after ",
        r"step.started +fast/gpt-4o-mini · attempt 2, retry after [\d.]+ m?s",
        r"turn.completed +flaky turn 1 · success · .* · 2 attempts · session 45 tokens · “",
        r"turn.completed +no session · error · provider · fast/gpt-4o · .* · upstream_error: ",
    ):
        tail.stdout.wait_for(words)
    lines = tail.stdout.text.splitlines()
    assert all(LINE.match(line) for line in lines)
    assert tail.stderr.text == ""


def test_only_new_events_where_nothing_else_is_asked_for(record: Recorded) -> None:
    record.ask("an old one", "old")
    tail = record.installation.start("tail", "--json")
    # It cannot be seen from outside when it began: what comes is new until something has come.
    for number in range(1000):
        record.ask(f"new {number}", "new")
        if tail.stdout.text:
            break
    tail.stdout.wait_for(READY)
    assert "an old one" not in tail.stdout.text
    begun = seqs(tail)
    assert begun == list(range(begun[0], begun[0] + len(begun)))


def test_text_and_progress_of_steps_under_way(record: Recorded) -> None:
    plain, whole = following(record), following(record, "--deltas", "--json")
    record.ask("What can you do?", model="demo", stream=True)
    plain.stdout.wait_for(r"step.progress +demo/demo \(scripted\) · [\d.]+ m?s · .*tokens out")
    plain.stdout.wait_for(r"step.completed +demo/demo \(scripted\) · success · stop")
    assert "step.delta" not in plain.stdout.text
    eventually(has_all(record, whole))
    frames = [json.loads(line) for line in whole.stdout.text.splitlines()]
    deltas = [frame for frame in frames if frame["type"] == "step.delta"]
    said = "".join(frame["payload"]["text"] for frame in deltas)
    ended = record.get("/turns")["data"][0]
    assert said.endswith(ended["final_output"])
    assert {frame["seq"] for frame in deltas} == {None}


def test_types_and_sessions_are_chosen(record: Recorded) -> None:
    record.ask("hello", "one")
    tail = record.installation.start(
        "tail", "--after", "0", "-s", "one", "--types", "turn.*, run.completed", "--json"
    )
    tail.stdout.wait_for(READY)
    record.ask("hello", "two")
    record.ask("again", "one")
    tail.stdout.wait_for("(?s)turn.completed.*turn.completed")
    frames = [json.loads(line) for line in tail.stdout.text.splitlines()]
    assert [frame["type"] for frame in frames] == 2 * [
        "turn.started",
        "run.completed",
        "turn.completed",
    ]
    assert len({frame["session_id"] for frame in frames}) == 1


def test_json_is_the_envelope(record: Recorded) -> None:
    record.ask(HOSTILE, "one")
    tail = following(record, "--json")
    eventually(has_all(record, tail))
    assert [json.loads(line) for line in tail.stdout.text.splitlines()] == stored(record)


def test_the_token_opens(tmp_path: Path) -> None:
    with installed(tmp_path) as installation:
        token = "secret-token-0123456789"
        server = installation.serve("--demo", env={"XGW_TOKEN": token})
        hide_the_servers_key(installation)
        opened = installation.start("tail", env={"XGW_TOKEN": token})
        eventually(lambda: watchers(server.url, token) == 1)
        shut = installation.start("tail")
        shut.stderr.wait_for("wants its token.*\n")
        for tail in (opened, shut):
            tail.send(signal.SIGINT)
            assert tail.wait() == 130
        assert opened.stderr.text == ""
        assert len(shut.stderr.text.splitlines()) == 1


def hide_the_servers_key(installation: Installation) -> None:
    """As it is to another user."""
    (announcement,) = installation.store.parent.glob("*.server.json")
    told = json.loads(announcement.read_bytes())
    announcement.write_text(json.dumps({name: told[name] for name in told if name != "key"}))


def test_the_servers_own_user_needs_no_token_when_keys_come(record: Recorded) -> None:
    tail = following(record, "--json", "--deltas")
    key = record.installation.run("keys", "create", "first").stdout.strip()
    eventually(lambda: is_shut(record.server.url))
    record.ask("hello", "one", stream=True, key=key)
    eventually(has_all(record, tail))
    eventually(lambda: '"type":"step.delta"' in tail.stdout.text)
    assert tail.stderr.text == ""


def is_shut(url: str) -> bool:
    """Whether requests need a key by now."""
    try:
        urllib.request.urlopen(f"{url}/sessions", timeout=DEADLINE).close()
    except urllib.error.HTTPError as refused:
        refused.close()
        return refused.code == 401
    return False


def watchers(url: str, token: str) -> int:
    asked = urllib.request.Request(f"{url}/health", headers={"x-api-key": token})
    with urllib.request.urlopen(asked, timeout=DEADLINE) as answer:
        return int(json.load(answer)["watchers"])


# -- without the server, and while it restarts -----------------------------------------------------


def test_a_store_without_a_server_is_followed(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    store.event("turn.completed", turn_index=0, status="success")
    tail = Process([*XGW, "tail", "--after", "0", "--json", "--db", str(store.path)], cwd=tmp_path)
    try:
        tail.stdout.wait_for(READY)
        for number in range(3):
            seq = store.event("session.updated", title=f"title {number}")
            tail.stdout.wait_for(f'"seq":{seq},')
        assert seqs(tail) == [1, 2, 3, 4]
    finally:
        tail.close()
        store.close()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarting_server_loses_and_doubles_nothing(
    record: Recorded, how: signal.Signals
) -> None:
    tail = following(record, "--json")
    for _ in range(3):
        record.ask("before", "one")
        record.server.send_all(how)
        record.server.wait()
        record.restart()
        record.ask("after", "one", stream=True)
    eventually(has_all(record, tail))
    assert seqs(tail) == [event["seq"] for event in stored(record)]
    assert tail.stderr.text == ""


def test_requests_in_parallel_come_in_one_order(record: Recorded) -> None:
    tail = following(record, "--json", "--types", "turn.*,step.*")
    threads = [
        threading.Thread(target=record.ask, args=(f"{n}", f"session {n}"), kwargs={"stream": True})
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    types = tuple(type for type in TYPES if type.startswith(("turn.", "step.")))
    eventually(has_all(record, tail, types))
    assert seqs(tail) == [event["seq"] for event in stored(record, types)]


def test_what_a_page_of_the_table_leaves_out_comes_next(tmp_path: Path) -> None:
    store = FixedStore(tmp_path)
    for number in range(1203):
        store.event("session.updated" if number % 2 else "run.updated", number=number)
    wanted = Wanted(frozenset({"session.updated"}), 0)
    batches = Follower(store.store, wanted, "", 15, pytest.fail).batches()
    got = [next(batches), next(batches)]
    assert [len(batch) for batch in got] == [500, 101]
    assert [e["payload"]["number"] for batch in got for e in batch] == list(range(1, 1203, 2))
    store.event("session.updated", number="new")
    assert [event["payload"]["number"] for event in next(batches)] == ["new"]
    batches.close()  # type: ignore[attr-defined]
    store.close()


# -- how it ends, and mistakes ---------------------------------------------------------------------


def test_ctrl_c_ends_quietly(record: Recorded) -> None:
    served = following(record)
    served.send(signal.SIGINT)
    assert served.wait() == 130
    record.server.stop()
    alone = following(record)
    alone.send(signal.SIGINT)
    assert alone.wait() == 130
    assert (served.stderr.text, alone.stderr.text) == ("", "")


def test_a_closed_pipe_ends_quietly(record: Recorded) -> None:
    record.ask("hello", "one")
    reader, writer = os.pipe()
    command = record.installation.command("tail", "--after", "0")
    tail = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert os.read(reader, 20)
    os.close(reader)
    record.ask("hello again", "one")
    _, said = tail.communicate(timeout=DEADLINE)
    assert (tail.returncode, said) == (0, b"")


@pytest.mark.parametrize("is_served", [True, False])
def test_a_closed_pipe_ends_it_where_nothing_happens_any_more(
    record: Recorded, is_served: bool
) -> None:
    record.ask("hello", "one")
    if not is_served:
        record.server.stop()
    reader, writer = os.pipe()
    command = record.installation.command("tail", "--after", "0")
    tail = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    said = b""
    while b"turn.completed" not in said:
        said += os.read(reader, 65536)
    os.close(reader)
    _, told = tail.communicate(timeout=DEADLINE)
    assert (tail.returncode, told) == (0, b"")


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--types", "turn.finished"), 2, "turn.finished"),
        (("--types", ""), 2, "--types"),
        (("--after", "1000000"), 2, "ahead of the newest event"),
        (("--after", "-1"), 2, "--after"),
        (("-s", "nobody"), 1, "nobody"),
    ],
)
def test_mistakes(tmp_path: Path, options: tuple[str, ...], code: int, words: str) -> None:
    store = FixedStore(tmp_path)
    store.close()
    command = [*XGW, "tail", *options, "--db", str(store.path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert words in refused.stderr


# -- lines -----------------------------------------------------------------------------------------

AT = "2026-01-02T03:04:05.678901Z"


def line(type: str, width: int | None = None, **payload: Any) -> str:
    """The words of an event's line."""
    event = {
        "seq": 1,
        "type": type,
        "at": AT,
        "session_id": None,
        "turn_id": f"turn_{7:032x}",
        "run_id": None,
        "step_id": "step_1",
        "payload": payload,
    }
    spelled = EventLines(Screen(width, False), frozenset(), lambda id: None).spell(event)
    head, _, words = spelled.partition(type)
    assert re.fullmatch(r"\d\d:\d\d:05\.678  00000007  ", head)
    return words.strip()


RUN = {"run_index": 1, "kind": "resume", "status": "running"}
CALL = {"step_type": "llm_call", "provider_name": "p", "model": "m", "context_tokens": 9}
FAILED = {"status": "error", "http_status": 429, "error": {"type": "t", "message": "m"}}
GIVEN_UP = {"attempt": 2, "error_type": "t", "message": "m", "next": "give_up"}
ESTIMATED = {"token_count": 1200, "token_source": "estimated"}
BROKEN_CALL = {"name": "f", "arguments": "{", "arguments_json_valid": False}
APPROVED = {"name": "f", "arguments": {"a": 1}, "decision": "approve", "by": "ui"}
RESULTS = {"tool_call_ids": ["a"], "context_tokens": 5}
COMPACTED = {"before_tokens": 9000, "after_tokens": 10, "compacted_message_ids": ["a"]}


@pytest.mark.parametrize(
    ("type", "payload", "words"),
    [
        ("session.updated", {"title": "New", "status": "active"}, "title New · status active"),
        ("session.deleted", {}, ""),
        ("turn.updated", {"cause": "tool_result"}, "no session · reopened by tool_result"),
        ("run.started", RUN, "run 2 · resume · running"),
        ("step.delta", {"kind": "text", "index": 0, "text": " a\nb"}, "text “ a⏎b”"),
        ("step.delta", {"kind": "x", "index": 1, "text": "{", "replace": True}, "x 1 so far “{”"),
        ("step.started", CALL, "p/m · context ~9 tokens"),
        ("step.started", CALL | {"context_window": 1000}, "p/m · context ~9 of 1,000 tokens"),
        ("step.completed", FAILED, "error · HTTP 429 · t: m"),
        ("llm.error", GIVEN_UP, "attempt 2 · t: m · gives up"),
        ("tool.requested", {"calls": [BROKEN_CALL]}, "f { (no valid JSON)"),
        ("tool.approval_requested", {"name": "f", "arguments": "{}"}, "f {}"),
        ("tool.approval_decided", APPROVED, 'f {"a":1} · approve · by ui'),
        ("tool.results_sent", RESULTS, "1 result to the model · context ~5 tokens"),
        ("message.added", {"role": "tool", "tool_call_id": "c"}, "tool · answers c"),
        ("message.added", {"role": "user", **ESTIMATED}, "user · ~1,200 tokens"),
        ("message.added", {"role": "assistant", "token_count": 3}, "assistant · 3 tokens"),
        ("context.compacted", COMPACTED, "1 message summarised, context 9,000 → 10 tokens"),
        ("limit.reached", {"limit": "cost", "value": 2, "max": 1}, "cost: 2 of 1"),
        ("stream.lagged", {"resume_after": 7}, "too slow; going on after 7"),
        ("turn.backfilled", {"a": [1]}, '{"a":[1]}'),
        ("of.tomorrow", {"x": None}, '{"x":null}'),
    ],
)
def test_words_of_events(type: str, payload: dict[str, Any], words: str) -> None:
    assert line(type, **payload) == words


def test_every_type_has_words() -> None:
    for type in TYPES:
        assert "\n" not in line(type, turn_index=0)


def test_lines_do_no_harm_and_fit_the_terminal() -> None:
    told = line("message.added", role="user", text=HOSTILE)
    assert "\x1b" not in told
    assert "␛[31mred" in told
    cut = line("message.added", 60, role="user", text="long " * 100)
    assert len(cut) < 30
    assert cut.endswith("…")


def test_words_stand_below_where_there_is_no_room_beside_them() -> None:
    event = {
        "type": "tool.approval_requested",
        "at": AT,
        "session_id": None,
        "turn_id": f"turn_{7:032x}",
        "step_id": "step_1",
        "payload": {"name": "order_status", "tool_call_id": "call_1", "arguments": {"a": "x" * 80}},
    }
    spelled = EventLines(Screen(40, False), frozenset(), lambda id: None).spell(event)
    head, words = spelled.splitlines()
    assert head.split()[2] == "tool.approval_r…"
    assert words.startswith("    order_status")
    assert (len(head), len(words)) == (40, 40)
