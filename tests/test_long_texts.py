"""Long texts: kept once, and everywhere shown as if they had been kept where they are shown."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import string
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model
from recorded import Recorded, message, recorded, result, tool
from scripted_model import Row, chat, completion, named, said, says, streams, user, whole
from scripted_model import result as tool_result
from servers import DEADLINE, eventually
from xgw import clock
from xgw.events import TEXT_LIMIT
from xgw.queries import events
from xgw.store import migrations, payloads
from xgw.store.database import Store
from xgw.store.emitted import MOST_IN_EVENTS
from xgw.store.models import Payload
from xgw.store.payloads import Shelf
from xgw.store.transaction import Transaction
from xgw.store.writer import Writer
from xgw.upkeep.marks import Marks
from xgw.upkeep.sweep import DELETE, Sweep, Swept

LENGTHS = (511, 512, 1024, TEXT_LIMIT, TEXT_LIMIT + 1, MOST_IN_EVENTS, MOST_IN_EVENTS + 1)


class Texts:
    """Texts of made-up words, which pack as badly as texts do."""

    def __init__(self, seed: int = 1) -> None:
        self._chance = random.Random(seed)
        letters = string.ascii_lowercase
        self._words = [
            "".join(self._chance.choices(letters, k=self._chance.randint(2, 10)))
            for _ in range(5000)
        ]

    def next(self, size: int) -> str:
        return " ".join(self._chance.choices(self._words, k=size // 3))[:size]


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as gate, a_test_of(gate):
        yield gate


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Recorded]:
    with recorded(tmp_path / "xgw.db") as one:
        yield one


# -- what they cost --------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
def test_a_session_that_resends_its_history_costs_its_distinct_content(
    tmp_path: Path, streamed: bool
) -> None:
    texts = Texts()
    history: list[Row] = [{"role": "system", "content": texts.next(600)}]
    with gate_and_model(tmp_path) as gate, a_test_of(gate):
        for _ in range(80):
            history.append(user(texts.next(4000)))
            answer = texts.next(4000)
            pieces = [answer[at : at + 40] for at in range(0, len(answer), 40)]
            gate.model.will(streams(*pieces) if streamed else says(answer))
            gate.post(chat(*history, **named("long"), stream=streamed))
            history.append(said(answer))
        path = gate.store.path
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    distinct = sum(len(element["content"]) for element in history)
    assert path.stat().st_size < 3 * distinct


# -- what is shown ---------------------------------------------------------------------------------


@pytest.mark.parametrize("length", LENGTHS)
def test_stored_events_are_those_that_were_published(scene: Recorded, length: int) -> None:
    for text in ("a" * length, "ü" * length, '"\x01\x1f' * (length // 3)):
        request = scene.turn(messages=(message("user", text),), said=text)
        asked = tool(1)
        request.ask_for_tools(asked)
        back = result(asked, text)
        scene.again(request, results=(back,), resumed="tool_result").succeed(text)
    told = [envelope for envelope in scene.publications() if envelope.seq is not None]
    stored = scene.events()
    assert [orjson.dumps(e.to_json()) for e in stored] == [orjson.dumps(e.to_json()) for e in told]
    cut = [e for e in stored if e.payload.get("truncated")]
    assert bool(cut) is (length > TEXT_LIMIT // 2)


def test_long_texts_are_shown_everywhere(gate: Gate) -> None:
    texts = Texts()
    first, second, answers = texts.next(3000), texts.next(3000), [texts.next(3000)] * 2
    gate.model.will(says(answers[0]), streams(answers[1]))
    gate.post(chat(first, **named("s")))
    turn = gate.turn(gate.post(chat(first, said(answers[0]), second, stream=True, **named("s"))))
    listed = gate.get("/sessions/s/turns?order=asc").json["data"]
    assert [(t["user_input"], t["final_output"]) for t in listed] == [
        (first, answers[0]),
        (second, answers[1]),
    ]
    shown = gate.get(f"/turns/{turn['id']}").json
    assert (shown["user_input"], shown["final_output"]) == (second, answers[1])
    messages = gate.get("/sessions/s/messages?order=asc").json["data"]
    assert [m["content"] for m in messages] == [first, answers[0], second, answers[1]]
    assert [m["parts"] for m in messages] == [None] * 4
    last = gate.events(turn)[-1]["payload"]
    assert (last["user_input"], last["final_output"]) == (second, answers[1])
    assert len(gate.get("/sessions?q=" + first[-20:].replace(" ", "%20")).json["data"]) == 1
    # None of it lies where it is shown, but for the first input, which is searched.
    columns = gate.store.sql("SELECT length(content) FROM messages")
    columns += gate.store.sql("SELECT length(final_output) FROM turns")
    columns += gate.store.sql("SELECT length(payload) / 30 FROM events")
    assert max(length for (length,) in columns) < 100


def test_parts_with_long_texts_are_shown_as_they_came(gate: Gate) -> None:
    texts = Texts()
    text, picture = texts.next(3000), "data:image/png;base64," + "A" * 70_000
    content = [
        {"type": "text", "text": text},
        {"type": "text", "text": "short"},
        {"type": "image_url", "image_url": {"url": picture}},
    ]
    reasoning = texts.next(2000)
    answer = completion("brief")
    answer["choices"][0]["message"]["reasoning_content"] = reasoning
    gate.model.will(whole(answer))
    turn = gate.turn(gate.post(chat(user(content), **named("s"))))
    asked, answered = gate.messages(turn)
    assert asked["content"] == f"{text}\nshort"
    assert asked["parts"][:2] == content[:2]
    reference = asked["parts"][2]["image_url"]["url"]
    assert gate.payload(reference["payload"]) == picture.encode()
    assert reference["size"] == len(picture)
    assert (answered["content"], answered["parts"]) == ("brief", {"reasoning_content": reasoning})
    assert gate.services.sweep.sweep() == Swept()
    assert gate.payload(reference["payload"]) == picture.encode()


def test_a_text_that_looks_like_a_name_is_a_text(gate: Gate) -> None:
    text = "\x1f" + "0" * 32
    gate.model.always(says(text))
    for _ in range(2):
        turn = gate.turn(gate.post(chat(text, **named("s"))))
        assert (turn["user_input"], turn["final_output"]) == (text, text)
        assert [m["content"] for m in gate.messages(turn)] == [text, text]


# -- what a sweep leaves ---------------------------------------------------------------------------


def test_a_sweep_keeps_what_is_still_shown_and_nothing_else(gate: Gate) -> None:
    texts = Texts()
    shared, answer, alone = texts.next(3000), texts.next(3000), texts.next(3000)
    output = texts.next(3000)
    gate.model.always(says(answer))
    history = [user("begin"), said("go on"), user(shared), tool_result("unknown", output)]
    for session in ("gone", "stays"):
        gate.post(chat(*history, **named(session)))
        gate.post(chat(*history, said(answer), user("and"), **named(session)))
    gate.post(chat(alone, **named("gone")))
    turns = gate.turns("stays")
    before = [(turn, gate.messages(turn), gate.events(turn)) for turn in turns]
    gate.get("/sessions/gone", "DELETE")
    eventually(lambda: gate.store.sql("PRAGMA user_version") == [(0,)])
    now = [(turn, gate.messages(turn), gate.events(turn)) for turn in gate.turns("stays")]
    assert now == before
    assert shared in str(now)
    kept = gate.store.sql("SELECT size FROM payloads WHERE size BETWEEN 3000 AND 3100")
    gate.get("/sessions/stays", "DELETE")
    assert len(kept) > 2
    gate.services.sweep.sweep()
    assert gate.all(Payload) == []


def test_a_text_that_is_told_of_while_it_is_about_to_go(tmp_path: Path) -> None:
    """It was marked as needed by nobody, and then an event has it."""
    store = Store(tmp_path / "xgw.db")
    migrations.migrate(store)
    writer = Writer(store, lambda events: None)
    shelf = Shelf()
    sweep = Sweep(store, writer, shelf)
    writer.start()
    text = Texts().next(3000)
    stored = shelf.whole(orjson.dumps({"content": text}))

    def put(tx: Transaction) -> None:
        tx.insert_payloads(stored.rows)

    def tell(tx: Transaction) -> None:
        tx.emit("message.added", clock.now(), "default", {"text": text})

    assert writer.submit(put).wait(DEADLINE)
    doomed = [row["hash"] for row in store.fetch(Payload.select(Payload.hash))]
    shelf.begin_sweep()
    writer.kept.begin()
    assert writer.submit(tell).wait(DEADLINE)
    with Marks(store, lambda: None) as marks:
        taken = sweep._take(marks, DELETE, [(key, 1) for key in doomed])
    assert taken.count == 1  # the body, not the text in it
    writer.kept.end()
    shelf.end_sweep()
    [event] = events.list_events(store, 0)
    assert event.payload == {"text": text}
    assert sweep.sweep() == Swept()
    writer.stop()
    with pytest.raises(LookupError):
        payloads.load(store, stored.hash)
    store.close()


def test_a_text_that_was_never_brought_as_a_body(scene: Recorded) -> None:
    """Bodies may be dropped for want of memory; what was said is not."""
    text = Texts().next(2000)
    request = scene.turn(messages=(message("user", text),), said=text)
    request.succeed(text)
    assert [row["content"] for row in scene.rows("messages")] == [text, text]
    assert scene.events()[-1].payload["final_output"] == text
