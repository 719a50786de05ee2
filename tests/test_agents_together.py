"""Several people in one session: answered one after the other, each with what is theirs."""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agents_fixtures import asks
from faults import Running
from gateway_fixtures import PROVIDER_KEY, Records
from scripted_model import DONE, Asked, Model, Row, delta, finish, stream, usage
from scripted_upstream import Peer
from servers import DEADLINE, Installation, eventually, installed
from visits import Visits
from xgw.store.database import Store

if TYPE_CHECKING:
    from playwright.sync_api import Page

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[[routes]]
model = "m"
targets = ["p1/m"]
[agents.a]
model = "m"
tools = ["calculator"]
"""
KEY = "shared"
WAITS = re.compile(r"xgw: turn_\w+ waits for another turn of the session to end\n")
COUNTS = ("input_tokens", "output_tokens", "total_tokens")


class Sums:
    """A model that multiplies, with a tool; the first answer waits until it is told to go on."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def __call__(self, peer: Peer, asked: Asked) -> None:
        assert self.goes_on.wait(DEADLINE)
        messages = asked.json["messages"]
        assert_valid(messages)
        number = int(next(m for m in messages[::-1] if m["role"] == "user")["content"])
        if messages[-1]["role"] == "user":
            asks((f"c{number}", "calculator", f'{{"expression": "{number} * 3"}}'))(peer, asked)
        else:
            text = f"{number} times 3 is {messages[-1]['content']}"
            ends = (finish(), usage(100 + number, number), DONE)
            stream(*(delta(f"{word} ") for word in text.split()), *ends)(peer, asked)


def assert_valid(messages: list[Row]) -> None:
    """Every call is followed by its result, and nothing stands between."""
    left: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == left.pop(0)
        else:
            assert left == []
            left = [call["id"] for call in message.get("tool_calls", ())]
    assert left == []


def is_made(gate: Records) -> bool:
    """Whether somebody has made the store."""
    return gate.store.path.exists() and bool(
        gate.store.sql("SELECT 1 FROM sqlite_master WHERE name = 'sessions'")
    )


def text_for(number: int) -> str:
    return f"{number} times 3 is {number * 3} "


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


@pytest.fixture
def installation(tmp_path: Path, model: Model) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG.format(url=model.url, key=PROVIDER_KEY)) as one:
        yield one


def check_turns(gate: Records, model: Model, numbers: set[int]) -> list[int]:
    """Every turn has its own text, usage and steps; the numbers in the order of the turns."""
    turns = gate.turns(KEY)
    order = [int(turn["user_input"]) for turn in turns]
    assert sorted(order) == sorted(numbers)
    for turn, number in zip(turns, order, strict=True):
        assert (turn["status"], turn["final_output"]) == ("success", text_for(number))
        assert [turn[name] for name in COUNTS] == [110 + number, 5 + number, 115 + 2 * number]
        kinds = [(step["step_type"], step["tool_call_id"]) for step in gate.steps(turn)]
        assert kinds == [("llm_call", None), ("tool_call", f"c{number}"), ("llm_call", None)]
        said = [(message["role"], message["content"]) for message in gate.messages(turn)]
        assert said == [
            ("user", str(number)),
            ("assistant", None),
            ("tool", str(number * 3)),
            ("assistant", text_for(number)),
        ]
    for before, after in itertools.pairwise(turns):
        assert after["started_at"] >= before["ended_at"]
    asked = [one.json["messages"] for one in model.asked]
    newest = [next(m["content"] for m in one[::-1] if m["role"] == "user") for one in asked]
    assert newest == [str(number) for number in order for _ in range(2)]
    session = gate.session(KEY)
    assert session["total_tokens"] == sum(turn["total_tokens"] for turn in turns)
    assert session["message_count"] == 4 * len(turns)
    return order


def say(page: Page, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


def shown(page: Page) -> list[tuple[str, str]]:
    """Of each turn from top to bottom: what was asked and what was answered."""
    blocks = page.locator(".turn-block").all()
    return [
        (
            " ".join(block.locator(".entry.is-user .text").all_inner_texts()).strip(),
            " ".join(block.locator(".entry.is-call .prose").all_inner_texts()).strip(),
        )
        for block in blocks
    ]


def test_two_browsers_and_a_shell_in_one_session(
    installation: Installation, model: Model, visit: Visits
) -> None:
    sums = Sums()
    model.always(sums)
    gate = Running(installation.serve(), model, installation.store)
    session = gate.post({"agent": "a", "session_key": KEY}, "/sessions").json["id"]
    pages = [visit(f"{gate.url}/ui/sessions/{session}") for _ in range(2)]
    for page in pages:
        page.locator("#connection", has_text="live").wait_for()
    shell = installation.start("chat", "-s", KEY, "13")
    for page, numbers in zip(pages, ("11", "12"), strict=True):
        say(page, numbers)
    for page, numbers in zip(pages, ("21", "22"), strict=True):
        eventually(lambda page=page: page.input_value("#message") == "")
        say(page, numbers)
    eventually(lambda: len(gate.turns(KEY)) == 5)
    assert [turn["status"] for turn in gate.turns(KEY)] == ["running", *["queued"] * 4]
    sums.goes_on.set()
    assert (shell.wait(), shell.stdout.wait_for_end()) == (0, f"{text_for(13)}\n")
    eventually(lambda: all(turn["ended_at"] for turn in gate.turns(KEY)))
    order = check_turns(gate, model, {11, 12, 13, 21, 22})
    assert (order.index(11) < order.index(21), order.index(12) < order.index(22)) == (True, True)
    told = [(str(number), text_for(number).strip()) for number in order]
    for page in pages:
        with contextlib.suppress(AssertionError):
            eventually(lambda page=page: shown(page) == told)
        assert shown(page) == told
        page.reload()
        assert shown(page) == told
    gate.store.close()


def test_three_shells_without_a_server_in_one_session(
    installation: Installation, model: Model
) -> None:
    """Each is a process of its own on the same store."""
    sums = Sums()
    model.always(sums)
    shells = {n: installation.start("chat", "-s", KEY, str(n)) for n in (11, 12, 13)}
    gate = Records(Store(installation.store))
    eventually(lambda: is_made(gate) and len(gate.turns(KEY)) == 3)
    sums.goes_on.set()
    for number, shell in shells.items():
        assert (shell.wait(), shell.stdout.wait_for_end()) == (0, f"{text_for(number)}\n")
        told = shell.stderr.wait_for_end()
        assert not told or WAITS.fullmatch(told), told
    check_turns(gate, model, set(shells))
    gate.store.close()
