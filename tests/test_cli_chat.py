"""`xgw chat`: one message, a pipe, a conversation; through a server, alone, and without a store."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bundles
from agents_fixtures import asks
from cli_stores import HOSTILE
from scripted_model import CUT, DONE, HANG, Answer, Model, delta, finish, stream, usage, whole
from servers import DEADLINE, Installation, Output, eventually, installed

CONFIG = """
[[providers]]
name = "p"
kind = "openai"
base_url = "{url}"
api_key = "sk-0123456789abcdef"
[[routes]]
model = "m"
targets = ["p/m"]
retry = {{ max_attempts = 2, base_delay_ms = 20 }}
[[routes]]
model = "other"
targets = ["p/other"]
[agents.helper]
model = "m"
tools = ["calculator"]
limits = {{ max_iterations = 2 }}
"""
SUM = ("call_1", "calculator", '{"expression": "17*23"}')


def says(*texts: str) -> Answer:
    """A whole answer, piece by piece."""
    return stream(*map(delta, texts), finish(), usage(10, 5), DONE)


class Chat:
    """An installation with one agent, and the model behind it."""

    def __init__(self, installation: Installation, model: Model) -> None:
        self.installation = installation
        self.model = model

    def run(self, *arguments: str, piped: str = "") -> subprocess.CompletedProcess[str]:
        """`xgw chat`, to its end."""
        return self.installation.run("chat", *arguments, piped=piped.encode())

    def asked(self, number: int = -1) -> list[str]:
        """The texts of the messages that the model was sent."""
        return [message["content"] for message in self.model.asked[number].json["messages"]]

    def show(self) -> dict[str, Any]:
        """The newest turn, as the store has it."""
        shown = self.installation.run("show", "last", "--json")
        turn: dict[str, Any] = json.loads(shown.stdout)
        return turn


@contextlib.contextmanager
def chatting(folder: Path) -> Iterator[Chat]:
    model = Model()
    try:
        with installed(folder, CONFIG.format(url=model.url)) as installation:
            yield Chat(installation, model)
        model.check()
    finally:
        model.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Chat]:
    with chatting(tmp_path) as alone:
        yield alone


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chat]:
    """The same with a server, which starts but once."""
    with chatting(tmp_path_factory.mktemp("served")) as served:
        served.installation.serve()
        yield served


@pytest.fixture(params=["alone", "served"])
def chat(request: pytest.FixtureRequest) -> Iterator[Chat]:
    """Without a server, and with one."""
    chat: Chat = request.getfixturevalue(request.param)
    chat.model.start_over()
    yield chat
    chat.model.check()


# -- one message -----------------------------------------------------------------------------------


def test_the_answer_and_nothing_else(chat: Chat) -> None:
    chat.model.will(says("Hello ", "you"))
    done = chat.run("hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello you\n", "")
    assert chat.asked() == ["hi"]
    assert chat.show()["final_output"] == "Hello you"


def test_the_text_comes_as_the_model_says_it(alone: Chat) -> None:
    more = threading.Event()
    alone.model.will(stream(delta("first"), more, delta(" second"), finish(), usage(1, 1), DONE))
    under_way = alone.installation.start("chat", "hi")
    under_way.stdout.wait_for("first")
    more.set()
    assert under_way.wait() == 0
    assert under_way.stdout.wait_for_end() == "first second\n"


def test_details_tell_what_happens(chat: Chat) -> None:
    busy = whole({"error": {"message": "slow down"}}, status="429 Too Many Requests")
    chat.model.will(busy, asks(SUM, text="Let me see"))
    cached = usage(10, 5, prompt_tokens_details={"cached_tokens": 4})
    chat.model.will(stream(delta("It is 391"), finish(), cached, DONE))
    done = chat.run("17*23?", "--details")
    assert done.stdout == "Let me see\nIt is 391\n"
    for words in (
        "step.started       p/m · ~",
        "attempt 1 · HTTP 429 · upstream_rate_limit: slow down · retry with p/m after ",
        'tool.requested     calculator {"expression": "17*23"}',
        'step.started       tool_call calculator · {"expression": "17*23"}',
        "tool_call calculator · success · ",
        "1 result to the model",
        "success · stop · 10 (4 cached) → 5 tokens · first token ",
        "20 (4 cached) → 10 tokens",
    ):
        assert words in done.stderr


def test_a_limit_is_told_and_ends_in_error(alone: Chat) -> None:
    alone.model.will(asks(SUM), asks(("call_2", *SUM[1:])))
    done = alone.run("17*23?", "--details")
    assert (done.returncode, done.stdout) == (1, "")
    assert "limit.reached" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("xgw: limit_iterations: ")


def test_json_is_the_published_answer(alone: Chat) -> None:
    alone.model.will(says("Hello"))
    done = alone.run("hi", "--json")
    answer = json.loads(done.stdout)
    assert answer["message"] == {"role": "assistant", "content": "Hello"}
    assert answer["tokenUsage"]["input"] == 10
    assert (done.returncode, done.stderr) == (0, "")


def test_a_turn_that_fails(chat: Chat) -> None:
    refusal = whole({"error": {"message": "bad credentials"}}, status="401 Unauthorized")
    chat.model.will(refusal, refusal)
    said, told = chat.run("hi"), chat.run("hi", "--json")
    assert (said.returncode, said.stdout) == (1, "")
    assert "bad credentials" in said.stderr
    assert told.returncode == 1
    assert "bad credentials" in json.loads(told.stdout)["error"]["message"]


def test_what_arrived_before_it_broke_off_is_kept(alone: Chat) -> None:
    alone.model.will(stream(delta("half of"), CUT))
    done = alone.run("hi")
    assert (done.returncode, done.stdout) == (1, "half of\n")
    assert "upstream_truncated" in done.stderr


# -- pipes -----------------------------------------------------------------------------------------


def test_a_pipe_is_the_message_or_follows_it(alone: Chat) -> None:
    alone.model.will(says("one"), says("two"))
    assert alone.run(piped="a log\n").stdout == "one\n"
    assert alone.asked() == ["a log\n"]
    assert alone.run("explain", piped="a log\n").stdout == "two\n"
    assert alone.asked() == ["explain\n\na log\n"]


def test_what_a_model_says_goes_into_a_pipe_unchanged(alone: Chat) -> None:
    alone.model.will(says(HOSTILE))
    assert alone.run("hi").stdout == f"{HOSTILE}\n"


def test_a_closed_pipe_ends_quietly(chat: Chat) -> None:
    more = threading.Event()
    chat.model.will(stream(delta("first"), more, delta(" second"), finish(), usage(1, 1), DONE))
    reader, writer = os.pipe()
    command = chat.installation.command("chat", "hi")
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert os.read(reader, 100) == b"first"
    os.close(reader)
    more.set()
    _, said = process.communicate(timeout=DEADLINE)
    assert (process.returncode, said) == (0, b"")


# -- Ctrl-C ----------------------------------------------------------------------------------------


def test_ctrl_c_cancels_the_turn(chat: Chat) -> None:
    chat.model.will(stream(delta("as far as"), HANG))
    under_way = chat.installation.start("chat", "hi")
    under_way.stdout.wait_for("as far as")
    under_way.send_all(signal.SIGINT)
    assert under_way.wait() == 130
    assert under_way.stdout.wait_for_end() == "as far as\n"
    assert "was cancelled" in under_way.stderr.wait_for_end()
    turn = chat.show()
    assert (turn["status"], turn["ended_by"]) == ("cancelled", "user_cancel")
    assert turn["final_output"] == "as far as"


# -- whom it is with -------------------------------------------------------------------------------


def test_a_session_goes_on(chat: Chat) -> None:
    chat.model.will(says("one"), says("two"), says("three"), says("four"))
    chat.run("first")
    chat.run("second", "-c")
    assert chat.asked() == ["first", "one", "second"]
    chat.run("other", "-s", "named 1")
    assert chat.asked() == ["other"]
    chat.run("more", "-s", "named 1")
    assert chat.asked() == ["other", "three", "more"]


def test_a_model_alone(chat: Chat) -> None:
    chat.model.will(says("one"), says("two"), says("three"))
    assert chat.run("hi", "-m", "other").stdout == "one\n"
    asked = chat.model.asked[-1].json
    assert (asked["model"], asked.get("tools")) == ("other", None)
    chat.run("and", "-c")
    assert chat.model.asked[-1].json["model"] == "other"
    assert chat.asked() == ["hi", "one", "and"]
    chat.run("hi", "-a", "helper", "-m", "other")
    asked = chat.model.asked[-1].json
    assert (asked["model"], len(asked["tools"])) == ("other", 1)


def test_without_agents_the_first_route_answers(alone: Chat) -> None:
    config = alone.installation.config
    config.write_text(config.read_text().partition("[agents.helper]")[0])
    alone.model.will(says("one"))
    assert alone.run("hi").stdout == "one\n"
    assert alone.model.asked[-1].json["model"] == "m"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("hi", "-a", "nobody"), 1, "there is no agent 'nobody' (there are: helper)"),
        (("hi", "-m", "unknown"), 1, "unknown"),
        (("hi", "-s", f"sess_{7:032x}"), 1, f"sess_{7:032x}"),
        (("hi", "-c"), 1, "no session with an agent yet"),
        (("hi", "-c", "-s", "x"), 2, "-c and -s"),
        ((), 2, "there is no message"),
        ((" ",), 2, "there is no message"),
        (("hi", "--mode", "fast"), 2, "--mode"),
    ],
)
def test_mistakes(alone: Chat, arguments: tuple[str, ...], code: int, words: str) -> None:
    alone.model.always(whole({"object": "list", "data": []}))  # the models that it has
    done = alone.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_written_is_done_without(alone: Chat) -> None:
    alone.installation.store.parent.write_text("no folder")
    alone.model.will(says("unlogged"))
    done = alone.run("hi")
    assert (done.returncode, done.stdout) == (0, "unlogged\n")
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be written" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(alone: Chat, closed: str) -> None:
    alone.model.will(says("Hello ", "you"))
    command = shlex.join(alone.installation.command("chat", "hi", "--details"))
    done = subprocess.run(
        ["sh", "-c", f"exec {command} {closed}"],
        cwd=alone.installation.folder,
        capture_output=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0
    assert done.stdout == (b"" if ">&-" in closed.split() else b"Hello you\n")
    assert (done.stderr == b"") == ("2>&-" in closed)
    assert alone.show()["status"] == "success"


# -- on a terminal ---------------------------------------------------------------------------------


class Terminal:
    """`xgw chat` on a terminal."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._master, slave = pty.openpty()
        env = {**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            cwd=folder,
            start_new_session=True,
        )
        os.close(slave)
        reader, self._writer = os.pipe()
        self._pipe = os.fdopen(reader, "rb")
        self.out = Output(self._pipe)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        # Linux says EIO once nobody has the terminal open any more.
        with contextlib.suppress(OSError):
            while block := os.read(self._master, 65536):
                os.write(self._writer, block)
        os.close(self._writer)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait(self) -> int:
        return self.process.wait(DEADLINE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE)
        self._reading.join(DEADLINE)
        self.out.wait_for_end()
        self._pipe.close()
        os.close(self._master)


@pytest.fixture
def terminal(alone: Chat) -> Iterator[Terminal]:
    terminal = Terminal(alone.installation.command("chat"), alone.installation.folder)
    terminal.out.wait_for("helper>")
    yield terminal
    terminal.close()


def test_details_leave_no_empty_lines(alone: Chat) -> None:
    alone.model.will(says("Hello ", "you"))
    terminal = Terminal(alone.installation.command("chat", "hi"), alone.installation.folder)
    try:
        told = terminal.out.wait_for_end().replace("\r\n", "\n")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    assert "Hello you\n" in told
    assert all(told.splitlines())


def test_a_conversation(alone: Chat, terminal: Terminal) -> None:
    alone.model.will(says("the first answer"), says("the \x1b[31msecond"))
    terminal.type("line one\x1b\rline two\r")
    terminal.out.wait_for("the first answer")
    terminal.out.wait_for("(?s)the first answer.*helper>")
    assert alone.asked() == ["line one\nline two"]
    terminal.type("/usage\r")
    terminal.out.wait_for(r"1 turn · 10 \(.+ cached\) → 5 tokens")
    terminal.type("/context\r")
    terminal.out.wait_for(r"(?s)context: ~\d+ tokens.*turn +~\d+ tokens +2 messages.*1 tool")
    terminal.type("/compact\r")
    terminal.out.wait_for("there is nothing to compact")
    terminal.type("again\r")
    terminal.out.wait_for("the ␛\\[31msecond")
    assert alone.asked() == ["line one\nline two", "the first answer", "again"]
    terminal.type("/tools\r")
    terminal.out.wait_for("calculator +Calculate an arithmetic")
    terminal.type("/export report.json\r")
    terminal.out.wait_for(r"Wrote report.json")
    report = bundles.read((alone.installation.folder / "report.json").read_bytes())
    assert next(turn["final_output"] for turn in report["turns"]) == "the first answer"
    assert report["agents"][0]["definition"]["model"] == "m"
    terminal.type("/session new\r")
    terminal.out.wait_for("session new")
    terminal.type("/nonsense\r")
    # Until the line is read again, the terminal itself would take the end for its own.
    terminal.out.wait_for("(?s)there is no /nonsense.*helper>")
    terminal.type("\x04")
    assert terminal.wait() == 0


@pytest.mark.parametrize("where", ["served", "in memory"])
def test_a_report_is_written_wherever_the_session_is_kept(
    request: pytest.FixtureRequest, where: str
) -> None:
    chat: Chat = request.getfixturevalue("served" if where == "served" else "alone")
    folder = chat.installation.folder
    if where == "in memory":
        chat.installation.store.parent.write_text("no folder")
    chat.model.will(says("an answer"))
    terminal = Terminal(chat.installation.command("chat"), folder)
    try:
        terminal.out.wait_for("helper>")
        terminal.type("/export\r")
        terminal.out.wait_for("(?s)the session begins with the first message.*helper>")
        terminal.type("hi\r")
        terminal.out.wait_for("(?s)an answer.*helper>")
        terminal.type("/export\r")
        name = terminal.out.wait_for(r"Wrote (sess_\w+\.json)")[1]
        terminal.out.wait_for("(?s)Wrote .*helper>")
        terminal.type("\x04")
        assert terminal.wait() == 0
    finally:
        terminal.close()
    report = bundles.read((folder / name).read_bytes())
    assert [row["content"] for row in report["messages"]][-2:] == ["hi", "an answer"]
    assert name == f"{report['sessions'][0]['id']}.json"


def test_ctrl_c_leads_back_to_the_line(alone: Chat, terminal: Terminal) -> None:
    alone.model.will(stream(delta("as far as"), HANG), says("still here"))
    terminal.type("hi\r")
    terminal.out.wait_for("as far as")
    os.killpg(terminal.process.pid, signal.SIGINT)
    terminal.out.wait_for("(?s)was cancelled.*helper>")
    terminal.type("and now?\r")
    terminal.out.wait_for("still here")
    terminal.out.wait_for("(?s)still here.*helper>")
    terminal.type("/quit\r")
    assert terminal.wait() == 0


def test_what_was_written_is_kept_for_oneself(alone: Chat, terminal: Terminal) -> None:
    alone.model.will(says("one"))
    terminal.type("remember me\r")
    terminal.out.wait_for("(?s)one.*helper>")
    terminal.type("\x04")
    assert terminal.wait() == 0
    kept = alone.installation.store.with_name("xgw.db.chat-history")
    eventually(lambda: "remember me" in kept.read_text())
    assert kept.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("option", "is_told"), [((), True), (("--no-details",), False)])
def test_one_message_on_a_terminal_shows_what_happens(
    alone: Chat, option: tuple[str, ...], is_told: bool
) -> None:
    alone.model.will(asks(SUM), says("It is 391"))
    command = alone.installation.command("chat", "17*23?", *option)
    terminal = Terminal(command, alone.installation.folder)
    try:
        terminal.out.wait_for("It is 391")
        assert terminal.wait() == 0
        told = terminal.out.wait_for_end()
    finally:
        terminal.close()
    assert ("tool.requested" in told) is ("turn.completed" in told) is is_told
