"""Steps under way: what is said goes out in frames, all of it once, to whoever joins when."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from servers import DEADLINE
from xgw import clock, ids
from xgw.events import Envelope
from xgw.hub import Hub
from xgw.recording.facts import Scope
from xgw.recording.live import FRAME_CHARACTERS, PROGRESS_SECONDS, SAVE_SECONDS, LiveStep, LiveSteps
from xgw.values import Delta, DeltaKind

Key = tuple[str, int]


def scope() -> Scope:
    turn = ids.mint("turn")
    return Scope("default", None, turn, ids.mint("run"), ids.trace_id_of(turn))


def told(seq: int, type: str, step_id: str) -> Envelope:
    now = clock.now()
    return Envelope(seq, type, now, "default", None, None, None, step_id, {})


def text(*pieces: str) -> list[Delta]:
    return [Delta("text", 0, piece) for piece in pieces]


class Reader:
    """What a client shows: the text of each part, put together from the frames that it gets."""

    def __init__(self) -> None:
        self.texts: dict[Key, str] = {}

    def take(self, frames: Sequence[Envelope]) -> None:
        for frame in frames:
            if frame.type == "step.delta":
                self._add(frame.payload)

    def _add(self, payload: dict[str, object]) -> None:
        key = str(payload["kind"]), int(str(payload["index"]))
        piece, length = str(payload["text"]), int(str(payload["text_length"]))
        known = "" if payload.get("replace") else self.texts.get(key, "")
        if length <= len(self.texts.get(key, "")):
            return
        assert len(known) + len(piece) == length, f"a gap before {piece!r} of {key}"
        self.texts[key] = known + piece


@pytest.fixture
def sent() -> list[Envelope]:
    return []


@pytest.fixture
def live(sent: list[Envelope]) -> LiveSteps:
    return LiveSteps(sent.extend)


# -- frames ----------------------------------------------------------------------------------------


def test_what_came_since_the_last_frame_is_one_frame(live: LiveSteps, sent: list[Envelope]) -> None:
    where = scope()
    step = live.start(where, "step_1")
    step.add(text("Hel", "lo"))
    step.add(text(", ", "", "wörld 🙂"))
    live.pulse()
    live.pulse()
    step.add(text("!"))
    live.pulse()
    first, second = sent
    assert first.payload == {
        "kind": "text",
        "index": 0,
        "text": "Hello, wörld 🙂",
        "text_length": 14,
    }
    assert second.payload == {"kind": "text", "index": 0, "text": "!", "text_length": 15}
    assert (first.seq, first.type, first.step_id) == (None, "step.delta", "step_1")
    assert (first.turn_id, first.run_id) == (where.turn_id, where.run_id)
    assert step.text() == "Hello, wörld 🙂!"


def test_parts_of_an_answer_keep_their_order(live: LiveSteps, sent: list[Envelope]) -> None:
    step = live.start(scope(), "step_1")
    step.add([Delta("reasoning", 0, "Hm"), Delta("reasoning", 0, "."), *text("Yes", ".")])
    step.add([Delta("tool_arguments", 0, "{"), Delta("tool_arguments", 1, "[")])
    step.add([Delta("tool_arguments", 0, "}"), Delta("text", 1, "No"), Delta("refusal", 0, "!")])
    live.pulse()
    shown = [tuple(frame.payload.values()) for frame in sent]
    assert shown == [
        ("reasoning", 0, "Hm.", 3),
        ("text", 0, "Yes.", 4),
        ("tool_arguments", 0, "{", 1),
        ("tool_arguments", 1, "[", 1),
        ("tool_arguments", 0, "}", 2),
        ("text", 1, "No", 2),
        ("refusal", 0, "!", 1),
    ]


def test_a_frame_is_never_large(live: LiveSteps, sent: list[Envelope]) -> None:
    step = live.start(scope(), "step_1")
    said = "🙂" * (3 * FRAME_CHARACTERS + 7)
    step.add(text(said))
    live.pulse()
    assert all(len(frame.payload["text"].encode()) <= 16 << 10 for frame in sent)
    reader = Reader()
    reader.take(sent)
    assert reader.texts == {("text", 0): said}


def test_the_whole_text_so_far_replaces_what_was_there(
    live: LiveSteps, sent: list[Envelope]
) -> None:
    step, other = live.start(scope(), "step_1"), live.start(scope(), "step_2")
    assert live.snapshot(lambda _: True) == []
    step.add(text("Hello"))
    other.add([Delta("reasoning", 0, "Hm")])
    assert live.snapshot(lambda _: True) == []
    live.pulse()
    step.add(text(" again"))
    found = {frame.step_id: frame.payload for frame in live.snapshot(lambda _: True)}
    whole = {"kind": "text", "index": 0, "text": "Hello", "text_length": 5, "replace": True}
    assert found["step_1"] == whole
    assert found["step_2"]["text"] == "Hm"
    assert [f.step_id for f in live.snapshot(lambda e: e.step_id == "step_2")] == ["step_2"]
    live.tell([told(1, "message.added", "step_1"), told(2, "step.completed", "step_1")])
    assert [frame.step_id for frame in live.snapshot(lambda _: True)] == ["step_2"]
    assert [e.payload.get("text") for e in sent[-3:]] == [" again", None, None]


def test_a_step_that_is_over_is_forgotten(live: LiveSteps, sent: list[Envelope]) -> None:
    step = live.start(scope(), "step_1")
    assert len(live) == 1
    live.drop("step_1")
    live.drop("step_1")
    assert len(live) == 0
    step.add(text("late"))
    end = told(1, "step.completed", "step_1")
    live.tell([end])
    live.pulse()
    assert sent == [end]


def test_nothing_is_told_before_the_start(live: LiveSteps, sent: list[Envelope]) -> None:
    live.expect("step_1")
    step = live.start(scope(), "step_1")
    step.add(text("early"))
    live.pulse()
    assert sent == []
    start = told(1, "step.started", "step_1")
    live.tell([start])
    assert sent == [start]
    step.add(text(" on"))
    live.pulse()
    assert [frame.payload["text"] for frame in sent[1:]] == ["early on"]


def test_start_and_end_may_be_told_together(live: LiveSteps, sent: list[Envelope]) -> None:
    for name in ("step_1", "step_2"):
        live.expect(name)
        live.start(scope(), name).add(text(name))
    types = ("step.started", "step.completed")
    ends = [told(n, type, name) for n, type in enumerate(types) for name in ("step_1", "step_2")]
    live.tell(ends)
    assert [(e.step_id, e.type) for e in sent] == [
        ("step_1", "step.started"),
        ("step_2", "step.started"),
        ("step_1", "step.delta"),
        ("step_1", "step.completed"),
        ("step_2", "step.delta"),
        ("step_2", "step.completed"),
    ]
    assert len(live) == 0


def test_all_steps_are_told_of_together() -> None:
    """However many there are: whoever watches is woken once for all of them."""
    publications: list[Sequence[Envelope]] = []
    live = LiveSteps(publications.append)
    steps = [live.start(scope(), f"step_{number}") for number in range(50)]
    for step in steps:
        step.add(text("word"))
    live.pulse()
    live.pulse()
    assert [[e.step_id for e in one] for one in publications] == [[s.step_id for s in steps]]


# -- progress, and what is saved -------------------------------------------------------------------


def test_progress_is_told_twice_a_second() -> None:
    step = LiveStep(scope(), "step_1")
    step.input_tokens = 12
    told = [step.progress(step.started + n / 100) is not None for n in range(500)]
    assert sum(told) == int(5 / PROGRESS_SECONDS) - 1
    step.ttft_ms = 1000
    step.add(text("x" * 400))
    frame = step.progress(step.started + 11)
    assert frame is not None
    assert frame.payload == {
        "input_tokens": 12,
        "usage_source": "estimated",
        "elapsed_ms": 11000,
        "output_tokens": 100,
        "tokens_per_second": 10.0,
        "ttft_ms": 1000,
    }


def test_progress_knows_nothing_before_anything_came() -> None:
    step = LiveStep(scope(), "step_1")
    frame = step.progress(step.started + PROGRESS_SECONDS)
    assert frame is not None
    del frame.payload["elapsed_ms"]
    assert set(frame.payload.values()) == {None}


def test_a_text_is_saved_again_when_much_is_new_or_after_a_second() -> None:
    step = LiveStep(scope(), "step_1")
    now = step.started
    assert step.unsaved_text(now) is None
    step.add([Delta("reasoning", 0, "Hm")])
    assert step.unsaved_text(now + 9) is None
    step.add(text("x" * 1600))
    assert step.unsaved_text(now) == "x" * 1600
    assert step.unsaved_text(now + 9) is None
    step.add(text("y" * 50))
    assert step.unsaved_text(now + SAVE_SECONDS / 2) is None
    assert step.unsaved_text(now + SAVE_SECONDS) == "x" * 1600 + "y" * 50
    step.add(text("z" * 200))
    assert step.unsaved_text(now + SAVE_SECONDS) == "x" * 1600 + "y" * 50 + "z" * 200


# -- many threads ----------------------------------------------------------------------------------


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns far more often than they do by themselves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def said_at_random(seed: int, count: int) -> Iterator[list[Delta]]:
    chance = random.Random(seed)
    kinds: tuple[DeltaKind, ...] = ("text", "text", "text", "reasoning", "tool_arguments")
    for number in range(count):
        yield [
            Delta(chance.choice(kinds), chance.randrange(2), f"{number}ü🙂"[: chance.randrange(9)])
            for _ in range(chance.randrange(4))
        ]


def together(deltas: list[Delta]) -> dict[Key, str]:
    texts: dict[Key, str] = {}
    for delta in deltas:
        key = delta.kind, delta.index
        texts[key] = texts.get(key, "") + delta.text
    return {key: whole for key, whole in texts.items() if whole}


class Pulsing:
    """A thread that pulses, and now and then flushes, as fast as it can."""

    def __init__(self, live: LiveSteps, *steps: str) -> None:
        self._live, self._steps = live, steps
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        for number in itertools.count():
            self._live.pulse()
            self._live.unsaved()
            if number % 3 == 0:
                self._live.tell([told(number, "message.added", step) for step in self._steps])
            if self._over.is_set():
                return


@pytest.mark.usefixtures("restless")
def test_no_piece_is_lost_or_doubled_while_it_is_said() -> None:
    names = [f"step_{n}" for n in range(3)]
    readers = {name: Reader() for name in names}

    def publish(frames: Sequence[Envelope]) -> None:
        for frame in frames:
            readers[str(frame.step_id)].take([frame])

    live = LiveSteps(publish)
    steps = {name: live.start(scope(), name) for name in names}
    said = {name: list(said_at_random(seed, 4000)) for seed, name in enumerate(names)}

    def say(name: str) -> None:
        for deltas in said[name]:
            steps[name].add(deltas)

    threads = [threading.Thread(target=say, args=(name,)) for name in names]
    with Pulsing(live, *names):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    for name in names:
        live.tell([told(0, "step.completed", name)])
        assert readers[name].texts == together([d for deltas in said[name] for d in deltas])


class Watcher:
    """Joins when it is told to, and reads until the step's end."""

    def __init__(self, hub: Hub, live: LiveSteps) -> None:
        self._hub, self._live = hub, live
        self.reader = Reader()
        self.may_join, self.joined = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self) -> None:
        """As every watcher does it: subscribe, take the whole texts, then what comes."""
        assert self.may_join.wait(DEADLINE)
        with self._hub.subscribe(lambda _: True) as mailbox:
            self.reader.take(self._live.snapshot(lambda _: True))
            self.joined.set()
            arrived: list[Envelope] = []
            while not any(e.type == "step.completed" for e in arrived):
                arrived = mailbox.get(DEADLINE)
                assert arrived, "the end never came"
                assert not mailbox.take_starved()
                self.reader.take(arrived)


@pytest.mark.usefixtures("restless")
def test_whoever_joins_late_gets_all_of_it_once() -> None:
    """Joining at any moment, and as the first one, for whom frames begin to be of use."""
    hub = Hub()
    live = LiveSteps(hub.publish)
    chance = random.Random(3)
    for number in range(60):
        step = live.start(scope(), f"step_{number}")
        said = list(said_at_random(number, 300))
        watchers = {moment: Watcher(hub, live) for moment in chance.sample(range(300), 4)}
        with Pulsing(live):
            for moment, deltas in enumerate(said):
                if moment in watchers:
                    watchers[moment].may_join.set()
                step.add(deltas)
        for watcher in watchers.values():
            assert watcher.joined.wait(DEADLINE)
        live.tell([told(number + 1, "step.completed", step.step_id)])
        expected = together([d for deltas in said for d in deltas])
        for watcher in watchers.values():
            watcher.thread.join(DEADLINE)
            assert watcher.reader.texts == expected
