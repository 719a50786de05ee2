"""`xgw export`: one document that holds all that was recorded of something."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

import bundles
from cli_stores import Recorded, first_hour
from filled_store import FilledStore
from servers import DEADLINE
from xgw.cli import main
from xgw.portable.rows import COLUMNS
from xgw.portable.source import Asked, moment, reading
from xgw.portable.writing import FORMATS

Row = dict[str, Any]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with first_hour(tmp_path_factory.mktemp("real")) as record:
        yield record


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def exported(real: Recorded, *arguments: str) -> Row:
    """What the command writes, run in this very process."""
    file = real.installation.folder / "exported.json"
    real.show("export", *arguments, "-o", str(file))
    return bundles.read(file.read_bytes())


# -- what is in it ---------------------------------------------------------------------------------


def test_a_session_is_one_document_with_everything_in_it(real: Recorded) -> None:
    document = exported(real, "checkout-42")
    (session,) = document["sessions"]
    assert session["session_key"] == "checkout-42"
    assert document["asked_for"] == [session["id"]]
    assert document["filter"] is None
    assert [turn["user_input"] for turn in document["turns"]] == [
        "What can you do?",
        "And what else? demo:reason",
    ]
    for table in ("turns", "steps", "messages", "request_logs", "events"):
        assert document[table]
        assert {row["session_id"] for row in document[table]} == {session["id"]}
    assert document["events"][0]["type"] == "session.created"
    assert document["events"][-1]["type"] == "turn.completed"
    assert bundles.named(document) <= bundles.contents(document).keys()
    streamed = document["request_logs"][0]
    assert bundles.contents(document)[streamed["response_body"]].endswith(b"data: [DONE]\n\n")
    assert document["redaction"]["bodies"]
    assert document["imported"] is None
    assert list(document)[:5] == ["xgw_bundle", "exported_at", "xgw", "asked_for", "filter"]


def test_without_ids_it_is_the_whole_store(real: Recorded) -> None:
    document = exported(real)
    with contextlib.closing(sqlite3.connect(real.installation.store)) as store:
        for table in bundles.TABLES:
            (count,) = store.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert len(document[table]) == count
    assert document["asked_for"] == []


def test_each_kind_brings_what_it_stands_in_and_what_is_under_it(real: Recorded) -> None:
    whole = exported(real, "weather")
    call = next(step for step in whole["steps"] if step["step_type"] == "llm_call")
    step = exported(real, call["id"])
    first, *tools = step["steps"]
    assert first["id"] == call["id"]
    assert {tool["parent_step_id"] for tool in tools} == {call["id"]}
    assert [row["id"] for row in step["sessions"]] == [call["session_id"]]
    assert [row["id"] for row in step["turns"]] == [call["turn_id"]]
    assert {row["step_id"] for row in step["events"]} == {row["id"] for row in step["steps"]}
    request = exported(real, step["request_logs"][0]["id"])
    assert [row["step_id"] for row in request["request_logs"]] == [call["id"]]
    assert [row["id"] for row in request["steps"]] == [call["id"]]
    assert [len(request[t]) for t in bundles.TABLES] == [1, 1, 1, 1, 0, 1, 0]
    ran = exported(real, call["run_id"])
    assert {row["run_id"] for row in ran["steps"]} == {call["run_id"]}
    message = whole["messages"][0]
    alone = exported(real, message["id"])
    assert alone["messages"] == [message]


def test_several_ids_are_one_document_each_row_once(real: Recorded) -> None:
    session = exported(real, "checkout-42")
    turn = session["turns"][0]["id"]
    both = exported(real, turn, "checkout-42", "flaky")
    assert both["asked_for"][0] == turn
    assert len(both["asked_for"]) == 3
    assert [row["session_key"] for row in both["sessions"]] == ["checkout-42", "flaky"]


def test_a_filter_takes_the_sessions_that_fit(real: Recorded) -> None:
    document = exported(real, "--filter", "state:error")
    assert [row["session_key"] for row in document["sessions"]] == ["broken"]
    assert document["filter"] == {"q": "state:error"}
    assert document["asked_for"] == []


def test_lines_hold_the_same_rows(real: Recorded) -> None:
    document = exported(real, "checkout-42")
    done = real.run("export", "checkout-42", "--format", "jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    head, *rows, tail = map(json.loads, done.stdout.splitlines())
    assert head["xgw_bundle"] == 1
    assert head["asked_for"] == document["asked_for"]
    for table in (*bundles.TABLES, "agents", "payloads"):
        assert [row["row"] for row in rows if row["table"] == table] == document[table]
    assert tail == {name: document[name] for name in ("redaction", "imported")}


def test_without_bodies_only_lengths_and_hashes_of_what_was_said_leave(real: Recorded) -> None:
    document = exported(real, "checkout-42", "weather", "--no-bodies")
    text = json.dumps(document)
    for said in ("What can you do", "And what else", "Oslo"):
        assert said not in text
    assert document["turns"][0]["user_input"] == {
        "length": len("What can you do?"),
        "hash": bundles.blake2b(b"What can you do?", digest_size=16).hexdigest(),
    }
    assert all(payload.keys() == {"hash", "size"} for payload in document["payloads"])
    assert bundles.named(document) <= {payload["hash"] for payload in document["payloads"]}
    assert document["redaction"]["bodies"] is False


def test_the_schema_names_the_columns_that_there_are() -> None:
    defined = bundles.schema()["$defs"]
    names = ("Session", "Turn", "Run", "Step", "Message", "RequestLog", "Event")
    for table, name in zip(bundles.TABLES, names, strict=True):
        assert tuple(defined[name]["properties"]) == COLUMNS[table]
        assert tuple(defined[name]["required"]) == COLUMNS[table]


# -- bodies ----------------------------------------------------------------------------------------


def messages_of(turns: int) -> list[Row]:
    return [
        {"role": "assistant" if n % 2 else "user", "content": f"message {n} " + "text " * 40}
        for n in range(2 * turns + 1)
    ]


def test_a_conversation_that_resends_its_history_is_there_once(filled: FilledStore) -> None:
    session = filled.session()
    sent = [{"model": "m", "messages": messages_of(turn), "n": 1} for turn in range(60)]
    for turn, body in enumerate(sent):
        filled.call(session, turn, input_payload=filled.body(body))
    text = bundles.export(filled.store, ("session", session))
    document = bundles.read(text)
    found = bundles.contents(document)
    assert [found[row["input_payload"]] for row in document["steps"]] == [
        orjson.dumps(body) for body in sent
    ]
    said = len(orjson.dumps(sent[-1]))
    assert sum(len(json.dumps(payload)) for payload in document["payloads"]) < 4 * said


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":"half \\ud83d done"}]}',
        b"\xff\xfe\x00 no text",
        b'{"messages": [ {"role": "user"},\n\n {"role":"user"} ], "pad": "%b"}' % (b"x" * 5000),
        b'{"input":["%b"],"tools":[{"description":"%b"}]}' % (b"a" * 3000, b"b" * 3000),
        b"",
    ],
    ids=("half an emoji", "no text", "uneven", "tools", "nothing"),
)
def test_bodies_are_the_very_same_bytes(filled: FilledStore, body: bytes) -> None:
    session = filled.session()
    filled.call(session, input_payload=filled.body(body))
    document = bundles.read(bundles.export(filled.store))
    (step,) = document["steps"]
    assert bundles.contents(document)[step["input_payload"]] == body


def test_a_body_that_is_gone_is_named_and_not_there(filled: FilledStore) -> None:
    first = {"messages": messages_of(20)}
    key = filled.body(first)
    filled.call(filled.session(), input_payload=key)
    filled.forget(filled.body(orjson.dumps(first["messages"][3])))
    document = bundles.read(bundles.export(filled.store))
    assert document["steps"][0]["input_payload"] == key
    assert key not in bundles.contents(document)


def test_half_of_a_surrogate_pair_in_an_old_row_does_not_stop_it(filled: FilledStore) -> None:
    session = filled.session(metadata={"a": 1})
    turn = filled.turn(session)
    filled.message(session, turn, 0, content="whole")
    writer = filled.store.open_writer()
    half = b"half \xed\xa0\xbd done"
    writer.execute("UPDATE messages SET content = CAST(? AS TEXT)", (half,))
    writer.execute("UPDATE sessions SET metadata = ?", ('{"name": "\\ud83d"}',))
    writer.execute("UPDATE turns SET error_message = CAST(? AS TEXT)", (b"no \xff utf-8",))
    writer.close()
    text = bundles.export(filled.store, ("session", session))
    document = bundles.read(text.decode())
    assert document["messages"][0]["content"] == "half \ud83d done"
    assert document["sessions"][0]["metadata"] == {"name": "\ud83d"}
    assert document["turns"][0]["error_message"] == "no \ufffd utf-8"


@pytest.mark.parametrize("format", FORMATS)
def test_calls_that_are_none_stop_no_format(filled: FilledStore, format: str) -> None:
    session = filled.session()
    turn = filled.turn(session)
    odd = [7, "x", None, {"function": 3, "id": 4}, {"function": {"name": [], "arguments": {}}}]
    filled.message(session, turn, 0, role="assistant", content="odd", tool_calls=odd)
    said = bundles.export(filled.store, ("session", session), format=format)
    if format in ("json", "jsonl", "markdown", "html", "openai"):
        assert b"odd" in said


def test_what_is_recorded_meanwhile_is_not_in_it(filled: FilledStore) -> None:
    session = filled.session()
    filled.turn(session)
    asked = Asked(None, lambda name: None)
    with moment(filled.store), reading(filled.store, asked) as source:
        assert len(list(source.rows("sessions"))) == 1
        filled.session()
        filled.turn(session, turn_index=1)
        assert len(list(source.rows("turns"))) == 1
    assert len(bundles.read(bundles.export(filled.store))["turns"]) == 2


# -- where it goes ---------------------------------------------------------------------------------


def test_a_file_is_there_whole_or_not_at_all(real: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "reports" / "one.json"
    done = real.run("export", "checkout-42", "-o", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    assert str(file) in done.stderr
    bundles.read(file.read_bytes())
    file.write_text("before")
    assert real.run("export", "nobody", "-o", str(file)).returncode == 1
    assert file.read_text() == "before"
    assert [path.name for path in file.parent.iterdir()] == ["one.json"]


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_pipe_gets_the_very_same_document(real: Recorded, tmp_path: Path, format: str) -> None:
    asked = ("checkout-42", "--no-redact", "--format", format)
    file, pipe = tmp_path / "file", tmp_path / "pipe"
    real.show("export", *asked, "-o", str(file))
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    real.show("export", *asked, "-o", str(pipe))
    told, _ = reader.communicate(timeout=DEADLINE)
    assert _timeless(told) == _timeless(file.read_bytes())
    assert pipe.is_fifo()


def _timeless(document: bytes) -> bytes:
    """Without the time at which it was exported."""
    return re.sub(rb"\d{4}-\d\d-\d\d[T ][\d:.]+", b"", document)


def test_a_pipe_of_the_shell_is_a_place_too(real: Recorded) -> None:
    ours, theirs = os.pipe()
    with open(ours, "rb") as reading, open(theirs, "wb") as writing:
        command = subprocess.Popen(
            real.installation.command("export", "flaky", "-o", f"/dev/fd/{theirs}"),
            pass_fds=[theirs],
            stderr=subprocess.PIPE,
            text=True,
        )
        writing.close()
        document = bundles.read(reading.read())
    _, told = command.communicate(timeout=DEADLINE)
    assert (command.returncode, told) == (0, f"Wrote /dev/fd/{theirs}\n")
    assert document["sessions"][0]["session_key"] == "flaky"


def test_a_full_device_is_one_sentence(real: Recorded) -> None:
    done = real.run("export", "checkout-42", "-o", "/dev/full")
    said = "xgw: /dev/full cannot be written: No space left on device\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_folder_gets_a_file_for_each(real: Recorded, tmp_path: Path) -> None:
    done = real.run("export", "checkout-42", "flaky", "-o", f"{tmp_path}/out/")
    assert done.returncode == 0
    files = sorted((tmp_path / "out").iterdir())
    documents = [bundles.read(file.read_bytes()) for file in files]
    assert [file.stem for file in files] == [d["sessions"][0]["id"] for d in documents]
    assert [d["sessions"][0]["session_key"] for d in documents] == ["checkout-42", "flaky"]


def test_from_a_terminal_it_goes_into_a_file_of_the_ids_name(
    real: Recorded, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    for _ in range(2):
        subprocess.run(
            real.installation.command("export", "checkout-42"),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            check=True,
            timeout=DEADLINE,
        )
    os.close(theirs)
    os.close(ours)
    first, second = sorted(tmp_path.iterdir(), key=lambda path: len(path.name))
    session = bundles.read(first.read_bytes())["sessions"][0]["id"]
    assert [first.name, second.name] == [f"{session}.json", f"{session}-2.json"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("sess_0000",), 1, "there is nothing that 'sess_0000' names in"),
        (("checkout-42", "nobody"), 1, "there is nothing that 'nobody' names in"),
        (("--filter", "state:nonsense"), 2, "state must be one of"),
        (("--filter", "nothing-has-this"), 1, "no session fits 'nothing-has-this'"),
        (("checkout-42", "--filter", "x"), 2, "give ids or --filter, not both"),
        (("--filter", "colour:blue"), 2, "--filter: there is no word 'colour'"),
        (("checkout-42", "-o", ""), 2, "-o names no file"),
        (("checkout-42", "--format", "xml"), 2, "'xml' is not one of json, jsonl"),
        (("checkout-42", "-o", "/proc/none/x.json"), 1, "/proc/none/x.json cannot be written"),
    ],
)
def test_mistakes_are_one_sentence(
    real: Recorded,
    arguments: tuple[str, ...],
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with pytest.raises(SystemExit) as ended:
        main(["export", *arguments, "--db", str(real.installation.store)])
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (code, "")
    assert words in printed.err


def test_a_reader_that_leaves_ends_it_quietly(real: Recorded) -> None:
    command = subprocess.Popen(
        real.installation.command("export"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert command.stdout is not None
    assert command.stderr is not None
    assert command.stdout.read(2) == b"{\n"
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(DEADLINE) == 0
    command.stderr.close()
