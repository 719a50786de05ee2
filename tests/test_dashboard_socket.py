"""WS /ui/socket: what an open page is told, in which order, and how its socket ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from live_pages import PageSocket, open_page, socket_path, watching
from scripted_model import (
    DONE,
    asks_for,
    call,
    chat,
    delta,
    finish,
    named,
    result,
    said,
    says,
    stream,
    streams,
    usage,
    user,
)
from servers import eventually
from xgw.store.models import Turn


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("pages")) as gate:
        yield gate
        # Sockets that were left are noticed within a second: waited for once, not by each test.
        eventually(lambda: gate.services.watchers.count == 0)


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def new_session(gate: Gate, key: str) -> str:
    return str(gate.post({"session_key": key}, path="/sessions").json["id"])


def stream_of(gate: Gate, turn_id: str, kind: str = "text", index: int = 0) -> str:
    step = gate.steps(gate.all(Turn, Turn.id == turn_id)[0])[-1]
    return f"stream-{step['id']}-{kind}-{index}"


def test_a_streamed_answer_grows_piece_by_piece_and_then_stands_there(gate: Gate) -> None:
    session_id = new_session(gate, "grows")
    half, whole = threading.Event(), threading.Event()
    gate.model.will(
        stream(
            delta(role="assistant"),
            delta("Once upon "),
            half,
            delta("a time\n<b>é😀</b>"),
            whole,
            finish(),
            usage(7, 9),
            DONE,
        )
    )
    page = open_page(gate, f"/ui/sessions/{session_id}")
    assert "Nothing was said yet" in page.text
    with watching(gate, page) as socket:
        reading = gate.open(chat("tell", stream=True, **named("grows")))
        block = socket.until_swap("tell", "conversation")
        [turn] = gate.turns("grows")
        text = stream_of(gate, turn["id"])
        assert block.one(id=f"entries-{turn['id']}").text.startswith("user")
        assert [e.attributes["aria-busy"] for e in block.all("article", class_="is-running")] == [
            "true"
        ]
        assert len(block.all(id=text)) == 1
        socket.until(lambda: socket.texts.get(text) == "Once upon ")
        half.set()
        socket.until(lambda: socket.texts[text] == "Once upon a time\n<b>é😀</b>")
        whole.set()
        reading.rest()
        step = gate.steps(turn)[0]
        final = socket.until_swap("a time", f"step-{step['id']}")
        assert final.one(class_="prose").text == "Once upon a time <b>é😀</b>"
        assert not final.all(id=text)
        socket.until_swap("Done in", f"turn-{turn['id']}")
        # What was shown live is what stands there on opening the page anew.
        again = open_page(gate, f"/ui/sessions/{session_id}")
        assert again.one(id=f"step-{step['id']}").text == final.text
        assert socket.cursor == int(again.one(id="connection").attributes["data-cursor"])


def test_a_page_that_comes_back_misses_nothing_and_gets_nothing_twice(gate: Gate) -> None:
    new_session(gate, "returns")
    first, second, third = threading.Event(), threading.Event(), threading.Event()
    gate.model.will(
        stream(delta("one "), first, delta("two "), second, delta("three"), third, finish(), DONE)
    )
    page = open_page(gate, "/ui/sessions/returns")
    with watching(gate, page) as socket:
        reading = gate.open(chat("go on", stream=True, **named("returns")))
        socket.until(lambda: "one " in socket.texts.values())
        cursor, known = socket.cursor, dict(socket.texts)
    first.set()
    [text] = known
    with watching(gate, page, after=cursor) as socket:
        socket.texts = known
        second.set()
        socket.until(lambda: socket.texts[text] == "one two three")
        # The block is on the page already.
        assert not socket.placed("conversation", "beforeend")
        third.set()
        reading.rest()
        [turn] = gate.turns("returns")
        socket.until_swap("Done in", f"turn-{turn['id']}")


def test_tools_of_a_client_come_as_entries_and_change_in_place(gate: Gate) -> None:
    new_session(gate, "tools")
    page = open_page(gate, "/ui/sessions/tools")
    gate.model.will(asks_for("call_1", "call_2"), says("both found"))
    asked = [user("look twice")]
    with watching(gate, page) as socket:
        gate.post(chat(*asked, **named("tools")))
        [turn] = gate.turns("tools")
        waiting = socket.until_swap("Waiting", "side", f"turn-{turn['id']}")
        assert "for the results of look, look" in waiting.text
        answered = [said(None, call("call_1"), call("call_2")), result("call_1"), result("call_2")]
        gate.post(chat(*asked, *answered, **named("tools")))
        panel = socket.until_swap("Done in", f"turn-{turn['id']}")
        kinds = [s["step_type"] for s in gate.steps(turn)]
        assert kinds == ["llm_call", "tool_call", "tool_call", "llm_call"]
        bars = panel.one(class_="waterfall").all("li")
        assert [bar.one("a").text for bar in bars] == [
            "llm_call m-served",
            "tool_call look",
            "tool_call look",
            "llm_call m-served",
        ]
        for step in gate.steps(turn, "tool_call"):
            socket.until_swap("found", f"step-{step['id']}")
    page = open_page(gate, "/ui/sessions/tools")
    entries = page.one(id=f"entries-{turn['id']}").all("article")
    assert [e.attributes["id"] for e in entries] == [
        f"message-{gate.messages(turn)[0]['id']}",
        *(f"step-{step['id']}" for step in gate.steps(turn)),
    ]
    assert "{} → found" in entries[2].text


def test_a_place_for_reasoning_and_arguments_comes_before_their_first_piece(gate: Gate) -> None:
    new_session(gate, "places")
    page = open_page(gate, "/ui/sessions/places")
    wait = threading.Event()
    gate.model.will(
        stream(
            delta(reasoning_content="hmm"),
            delta("so"),
            delta(tool_calls=[{"index": 0, **call("c1", arguments='{"a"')}]),
            wait,
            finish("tool_calls"),
            DONE,
        )
    )
    with watching(gate, page) as socket:
        reading = gate.open(chat(stream=True, **named("places")))
        socket.until(lambda: len(socket.texts) == 3)
        [turn] = gate.turns("places")
        step = gate.steps(turn)[0]
        texts = {
            id.removeprefix(f"stream-{step['id']}-"): text for id, text in socket.texts.items()
        }
        assert texts == {"reasoning-0": "hmm", "text-0": "so", "tool_arguments-0": '{"a"'}
        places = {
            e.attributes["id"] for _, _, root in socket.swaps for e in root.all(class_="stream")
        }
        assert places == set(socket.texts)
        wait.set()
        reading.rest()


def test_each_page_of_a_turn_is_told_of_that_turn_alone(gate: Gate) -> None:
    gate.model.will(says("first"))
    first = gate.turn(gate.post(chat("one")))
    page = open_page(gate, f"/ui/turns/{first['id']}")
    with watching(gate, page) as socket:
        gate.model.will(says("other"))
        gate.ended(gate.post(chat("two")))
        gate.model.will(says("third"))
        gate.post(chat("three"))
    assert socket.swaps == []


def test_a_browser_that_stands_still_holds_up_nobody_and_is_caught_up(gate: Gate) -> None:
    new_session(gate, "stands-still")
    page = open_page(gate, "/ui/sessions/stands-still")
    pieces = [f"{number:>8} " + "x" * 4087 for number in range(2500)]
    gate.model.will(streams(*pieces))
    with watching(gate, page) as still, watching(gate, page) as other:
        still.pause()
        # The client gets all of it, and the other page too, while one takes nothing.
        reply = gate.post(chat(stream=True, **named("stands-still")))
        assert reply.body.endswith(DONE)
        [turn] = gate.turns("stands-still")
        [step] = gate.steps(turn)
        whole = other.until_swap("Cut: there are 10.2 MB in all", f"step-{step['id']}")
        still.resume()
        assert still.until_swap("Cut: there are", f"step-{step['id']}").text == whole.text
        panels = (f"turn-{turn['id']}", "side")
        assert (
            still.until_swap("Done in", *panels).text == other.until_swap("Done in", *panels).text
        )
    # These 10 MB need not be exported and compared as well, as all is that tests record.
    assert gate.get("/sessions/stands-still", "DELETE").status == 204


@pytest.mark.parametrize(
    "query", ["page=nothing&after=0", "page=turn&after=0", "page=session&after=0"]
)
def test_a_socket_for_no_page_is_closed_for_good(gate: Gate, query: str) -> None:
    socket = PageSocket(gate, f"/ui/socket?{query}")
    assert socket.end() == 1008
    socket.close()


def test_a_cursor_from_another_store_has_the_page_opened_anew(gate: Gate) -> None:
    gate.model.will(says())
    turn = gate.turn(gate.post(chat()))
    page = open_page(gate, f"/ui/turns/{turn['id']}")
    socket = PageSocket(gate, socket_path(page, after=10**9))
    assert socket.read() == {"reload": True}
    assert socket.end() == 1000
    socket.close()


def test_a_plain_request_for_the_socket_is_refused_as_a_page(gate: Gate) -> None:
    reply = gate.get("/ui/socket?page=turn&after=0")
    assert reply.status == 400
