"""All that someone who writes an app has to see of an agent: by SSE, by websocket, on pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

import chromium
import flow_details
import flow_items
import flow_pages
from agents_fixtures import AgentGate, a_test_with, agents, told
from api_socket import ApiSocket
from flow_script import BUDGET, FIRST, KEY, MESSAGES, NAME, Message, Script, Seen, tables
from gateway_fixtures import Reading
from scripted_model import Row
from visits import Visits

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def open_session(gate: AgentGate) -> Row:
    """A session with the agent, in which nothing was said yet."""
    asked = {"agent": NAME, "session_key": KEY, "budget": {"tokens": BUDGET}}
    session: Row = gate.post("/sessions", asked).json
    return session


def now(gate: AgentGate, session: Row) -> Row:
    shown: Row = gate.gate.get(f"/sessions/{session['id']}").json
    return shown


# -- by server-sent events -------------------------------------------------------------------------


def arriving(reading: Reading) -> Iterator[tuple[str, Row]]:
    """The events of a stream, name and data of each, as they come."""
    count = 0
    while True:
        whole = reading.body[: reading.body.rfind(b"\n\n") + 2]
        events = told(whole)
        yield from events[count:]
        count = len(events)
        if not reading.more():
            return


def chat(gate: AgentGate, script: Script, message: Message) -> tuple[list[Row], Row]:
    """The envelopes of a turn, and its published answer."""
    asked = {"message": message.text, "sessionId": KEY, "mode": message.mode}
    reading = gate.gate.open(asked, f"/agents/{NAME}/chat/stream")
    heard: list[Row] = []
    for name, data in arriving(reading):
        if name == "chat.response":
            reading.close()
            return heard, data
        heard.append(data)
        script.hear(data)
    raise AssertionError("the stream ended without the answer")


def see_by_sse(gate: AgentGate) -> Seen:
    """The whole script: `chat/stream` for the turns, the session's events for all else."""
    script = Script(gate)
    before = between = open_session(gate)
    heard: list[Row] = []
    replies: list[Row] = []
    for number, message in enumerate(MESSAGES):
        events, reply = chat(gate, script, message)
        heard += events
        replies.append(reply)
        between = now(gate, before) if number == FIRST else between
    ids = [reply["turnId"] for reply in replies]
    whole = session_events(gate, ids[-1])
    assert [e for e in whole if e["turn_id"]] == [e for e in heard if e["seq"] is not None]
    for event in whole:
        if event["turn_id"] is None:
            later = (n for n, e in enumerate(heard) if (e["seq"] or 0) > event["seq"])
            heard.insert(next(later, len(heard)), event)
    return Seen(gate, before["id"], before, between, heard, ids, replies)


def session_events(gate: AgentGate, last_turn: str) -> list[Row]:
    """The stored events of the session, to the end of this turn."""
    reading = Reading(gate.gate.send(None, f"/sessions/{KEY}/events?after=0", "GET"))
    found = []
    for _, event in arriving(reading):
        found.append(event)
        if (event["type"], event["turn_id"]) == ("turn.completed", last_turn):
            reading.close()
            return found
    raise AssertionError("the stream ended before the turn")


# -- by websocket ----------------------------------------------------------------------------------


def see_by_websocket(gate: AgentGate) -> Seen:
    """The whole script, by one socket that subscribed before the first message."""
    script = Script(gate)
    before = between = open_session(gate)
    ids: list[str] = []
    with ApiSocket(gate.gate) as client:
        shown = client.ask("session.subscribe", session_id=before["id"], after=0)["session"]
        assert shown == before
        for number, message in enumerate(MESSAGES):
            asked = {"agent": NAME, "message": message.text, "mode": message.mode}
            answer = client.ask("session.message.send", session_id=before["id"], **asked)
            ids.append(answer["turn_id"])
            hear_turn(client, script, answer["turn_id"])
            between = now(gate, before) if number == FIRST else between
    heard = [frame["payload"] for frame in client.told]
    return Seen(gate, before["id"], before, between, heard, ids, [])


def hear_turn(client: ApiSocket, script: Script, turn_id: str) -> None:
    """Read to the end of a turn."""
    at = 0
    while True:
        for frame in client.told[at:]:
            told = frame["payload"]
            script.hear(told)
            if (told["type"], told["turn_id"]) == ("turn.completed", turn_id):
                return
        at = len(client.told)
        client.read()


# -- item by item ----------------------------------------------------------------------------------

READERS = {"sse": see_by_sse, "websocket": see_by_websocket}


@pytest.fixture(scope="module", params=READERS)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seen]:
    with (
        agents(tmp_path_factory.mktemp(request.param), **tables()) as served,
        a_test_with(served) as gate,
    ):
        yield READERS[request.param](gate)


@pytest.fixture(scope="module")
def texts(
    driver: chromium.Driver, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """What stood on the pages while a person went through it all."""
    with (
        agents(tmp_path_factory.mktemp("pages"), **tables()) as served,
        a_test_with(served) as gate,
        driver.driving(),
    ):
        visits = Visits(browser)
        try:
            found = flow_pages.walk(gate, visits, open_session(gate))
            visits.check()
            return found
        finally:
            visits.close()


@pytest.mark.parametrize("number", flow_items.ITEMS)
def test_it_is_told(seen: Seen, number: str) -> None:
    flow_items.CHECKS[number](seen)


@pytest.mark.parametrize("number", flow_details.TOLD)
def test_it_is_told_on_a_terminal(
    seen: Seen, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = flow_details.told_by_details(seen, capsys)
    flow_details.check(out, err, number)


@pytest.mark.parametrize("number", flow_items.ITEMS)
def test_it_is_shown(texts: Mapping[str, str], number: str) -> None:
    flow_pages.check(texts, number)
