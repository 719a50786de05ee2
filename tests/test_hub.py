"""The hub: everyone gets what they asked for, in order, once; a slow reader is its own trouble."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from filled_store import at
from servers import DEADLINE
from xgw.events import Envelope
from xgw.frozen import changed
from xgw.hub import CHARACTERS, LIGHT, LIVE_ROOM, MAILBOX, Hub, Subscription

MIB = 1 << 20


def stored(seq: int, type: str = "turn.updated", **payload: object) -> Envelope:
    return Envelope(seq, type, at(0), "default", "sess_1", None, None, None, payload)


def delta(text: str, step: str = "step_1", index: int = 0) -> Envelope:
    payload: dict[str, object] = {"kind": "text", "index": index, "text": text}
    return Envelope(None, "step.delta", at(0), "default", "sess_1", None, None, step, payload)


def progress() -> Envelope:
    return Envelope(None, "step.progress", at(0), "default", None, None, None, "step_1", {})


def everything(_: Envelope) -> bool:
    return True


@dataclass(frozen=True)
class Asked:
    """Wants all of a type, and counts how often it was asked."""

    type: str
    times: list[int] = field(default_factory=list, compare=False)

    def __call__(self, envelope: Envelope) -> bool:
        self.times.append(1)
        return envelope.type == self.type


def seqs(envelopes: list[Envelope]) -> list[int | None]:
    return [envelope.seq for envelope in envelopes]


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns far more often than they do by themselves."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


# -- who gets what ---------------------------------------------------------------------------------


def test_a_reader_gets_what_it_wants_in_order() -> None:
    hub = Hub()
    hub.publish([stored(1)])
    every = hub.subscribe(everything)
    turns = hub.subscribe(lambda e: e.type.startswith("turn."))
    facts = hub.subscribe(everything, live=False)
    first = [stored(2), delta("a"), stored(3, "run.updated"), delta("b"), stored(4)]
    hub.publish(first)
    hub.publish([stored(5)])
    assert every.get(DEADLINE) == [*first, stored(5)]
    assert seqs(turns.get(DEADLINE)) == [2, 4, 5]
    assert seqs(facts.get(DEADLINE)) == [2, 3, 4, 5]
    assert every.get(0) == []
    assert hub.newest == 5


def test_readers_who_want_the_same_are_served_together() -> None:
    hub = Hub()
    wishes = [Asked("turn.updated") for _ in range(20)]
    readers = [hub.subscribe(wish) for wish in wishes]
    other = hub.subscribe(Asked("run.updated"))
    hub.publish([stored(1), stored(2, "run.updated"), stored(3)])
    encoded: list[int | None] = []

    def encode(envelope: Envelope) -> bytes:
        encoded.append(envelope.seq)
        return b"%d " % (envelope.seq or 0)

    assert {b.encoded(encode) for reader in readers for b in reader.take(0)} == {b"1 3 "}
    assert encoded == [1, 3]
    assert sum(len(wish.times) for wish in wishes) == 3
    assert seqs(other.get(0)) == [2]


def test_a_reader_of_one_session_gets_what_is_of_it() -> None:
    hub = Hub()
    one, two = (hub.subscribe(everything, session_id=f"sess_{n}") for n in (1, 2))
    turns = hub.subscribe(Asked("turn.updated"), session_id="sess_1")
    every = hub.subscribe(everything)
    alone = changed(stored(3), session_id=None)
    hub.publish([stored(1), stored(2, "run.updated"), alone, delta("a")])
    assert seqs(one.get(0)) == [1, 2, None]
    assert seqs(turns.get(0)) == [1]
    assert two.get(0) == []
    assert seqs(every.get(0)) == [1, 2, 3, None]
    for reader in (one, turns):
        reader.close()
    hub.publish([changed(stored(4), session_id="sess_2"), stored(5)])
    assert seqs(two.get(0)) == [4]
    assert seqs(every.get(0)) == [4, 5]
    assert one.get(0) == []


def of_session(number: int) -> tuple[str, Callable[[Envelope], bool]]:
    id = f"sess_{number}"
    return id, lambda envelope: envelope.session_id == id


def test_a_reader_of_several_things_gets_each_as_it_asked_for_it() -> None:
    hub = Hub()
    reader = hub.open()
    hub.publish([stored(1)])
    (one, of_one), (two, of_two) = of_session(1), of_session(2)
    turns = Asked("turn.updated")
    hub.add(reader, of_one, session_id=one)
    hub.add(reader, of_one, session_id=one)
    hub.add(reader, turns)
    mixed = [stored(2), changed(stored(3, "run.updated"), session_id=two), delta("a")]
    hub.publish(mixed)
    hub.add(reader, of_two, session_id=two)
    hub.publish([changed(stored(4), session_id=two)])
    told = [(batch.wants, seqs(list(batch.envelopes))) for batch in reader.take(0)]
    assert told == [(turns, [2]), (of_one, [2, None]), (turns, [4]), (of_two, [4])]
    hub.remove(reader, turns)
    hub.remove(reader, of_one)
    hub.publish([stored(5), changed(stored(6), session_id=two)])
    assert [(b.wants, seqs(list(b.envelopes))) for b in reader.take(0)] == [(of_two, [6])]
    reader.close()
    assert not hub.watched


def test_a_reader_of_several_things_that_lost_one_goes_on_before_that() -> None:
    hub = Hub()
    slow = hub.open(capacity=2)
    for id, wants in map(of_session, (1, 2)):
        hub.add(slow, wants, session_id=id)
    # Those of the first session come first: 3 is in there when there is no room for 2.
    hub.publish([stored(1), changed(stored(2), session_id="sess_2"), stored(3)])
    assert seqs(slow.get(0)) == [1, 3]
    assert slow.lagged == 1


def test_what_a_reader_of_several_things_loses_is_known_by_what_it_was() -> None:
    hub = Hub()
    reader = hub.open(capacity=2)
    (one, of_one), (two, of_two) = of_session(1), of_session(2)
    hub.add(reader, of_one, session_id=one)
    hub.add(reader, of_two, session_id=two)
    hub.publish([stored(1), delta("a")])
    hub.publish([changed(stored(2), session_id=two)])
    assert [(b.wants, seqs(list(b.envelopes))) for b in reader.take(0)] == [
        (of_one, [1]),
        (of_two, [2]),
    ]
    assert reader.take_starved() == {("step_1", "text", 0)}


def test_nothing_goes_out_twice() -> None:
    hub = Hub(newest=2)
    reader = hub.subscribe(everything)
    hub.publish([stored(1), stored(2), stored(3)])
    hub.publish([stored(3), stored(4)])
    hub.publish([stored(2)])
    assert seqs(reader.get(DEADLINE)) == [3, 4]


def test_a_reader_waits_for_something() -> None:
    hub = Hub()
    reader = hub.subscribe(everything)
    waiting, got = threading.Event(), []

    def read() -> None:
        waiting.set()
        got.extend(reader.get(DEADLINE))

    thread = threading.Thread(target=read)
    thread.start()
    assert waiting.wait(DEADLINE)
    hub.publish([stored(1)])
    thread.join(DEADLINE)
    assert seqs(got) == [1]


def test_a_nudged_reader_waits_no_longer() -> None:
    hub = Hub()
    reader = hub.open()
    reader.nudge()
    assert reader.get(DEADLINE) == []
    got: list[list[Envelope]] = []
    thread = threading.Thread(target=lambda: got.append(reader.get(10 * DEADLINE)))
    thread.start()
    reader.nudge()
    thread.join(DEADLINE)
    assert got == [[]]
    assert not reader.closed


def test_a_reader_that_has_left_gets_nothing() -> None:
    hub = Hub()
    before = hub.watched
    with hub.subscribe(everything) as reader:
        meanwhile = hub.watched
        hub.publish([stored(1)])
    assert reader.closed
    assert (before, meanwhile, hub.watched) == (False, True, False)
    hub.publish([stored(2)])
    assert seqs(reader.get(0)) == [1]


def test_a_reader_that_fails_is_closed_and_the_others_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def faulty(envelope: Envelope) -> bool:
        raise RuntimeError("a fault")

    hub = Hub()
    before = hub.subscribe(everything)
    broken = hub.subscribe(faulty)
    after = hub.subscribe(everything)
    hub.publish([stored(1)])
    hub.publish([stored(2)])
    assert seqs(before.get(0)) == seqs(after.get(0)) == [1, 2]
    assert broken.closed
    assert broken.get(DEADLINE) == []
    assert "a fault" in caplog.text


# -- slow readers ----------------------------------------------------------------------------------


def test_live_frames_are_lost_first() -> None:
    hub = Hub()
    reader = hub.subscribe(everything)
    for number in range(LIVE_ROOM + 50):
        hub.publish([delta("x", step=f"step_{number % 2}"), progress()])
    hub.publish([stored(1), stored(2)])
    arrived = reader.get(0)
    assert seqs([e for e in arrived if e.seq is not None]) == [1, 2]
    assert len(arrived) == LIVE_ROOM + 2
    assert reader.lagged is None
    assert reader.take_starved() == {("step_0", "text", 0), ("step_1", "text", 0)}
    assert reader.take_starved() == set()
    hub.publish([delta("y")])
    assert [e.payload["text"] for e in reader.get(0)] == ["y"]
    assert reader.take_starved() == set()


def test_live_frames_make_room_for_what_is_stored() -> None:
    hub = Hub()
    reader = hub.subscribe(everything, capacity=4)
    hub.publish([delta("a"), stored(1), delta("b", step="step_2"), progress()])
    hub.publish([stored(2), stored(3), stored(4)])
    assert seqs(reader.get(0)) == [1, 2, 3, 4]
    assert reader.take_starved() == {("step_1", "text", 0), ("step_2", "text", 0)}
    assert reader.lagged is None


def test_a_reader_that_is_too_slow_is_told_once_where_to_go_on() -> None:
    hub = Hub(newest=10)
    slow = hub.subscribe(everything, capacity=3)
    other = hub.subscribe(everything)
    for seq in range(11, 20):
        hub.publish([stored(seq)])
    assert slow.lagged == 13
    assert seqs(slow.get(0)) == [11, 12, 13]
    hub.publish([stored(20)])
    assert slow.get(DEADLINE) == []
    assert slow.lagged == 13
    assert seqs(other.get(0)) == list(range(11, 21))


def test_a_reader_without_room_goes_on_from_where_it_began() -> None:
    hub = Hub(newest=10)
    slow = hub.subscribe(everything, capacity=0)
    hub.publish([stored(11)])
    assert slow.lagged == 10


def test_one_commit_may_be_more_than_a_mailbox_holds() -> None:
    hub = Hub()
    slow = hub.subscribe(everything)
    hub.publish([stored(seq) for seq in range(1, MAILBOX + 100)])
    assert slow.lagged == MAILBOX
    assert seqs(slow.get(0)) == list(range(1, MAILBOX + 1))


def _held(reader: Subscription) -> int:
    return sum(len(str(envelope.payload)) for envelope in reader.get(0))


def test_a_reader_that_stops_holds_little_memory() -> None:
    hub = Hub()
    of_facts, of_frames = hub.subscribe(everything, live=False), hub.subscribe(everything)
    text = "x" * 4096
    for seq in range(1, 100 * MIB // 4096):
        hub.publish([stored(seq, text=text)])
    for _ in range(100 * MIB // 4096):
        hub.publish([delta(text)])
    assert of_facts.lagged is not None
    assert of_facts.lagged < MAILBOX
    most = CHARACTERS + (LIGHT + 1) * (len(text) + 100)
    assert _held(of_facts) <= most
    assert _held(of_frames) <= most


# -- other processes -------------------------------------------------------------------------------


class Table:
    """The events that are in the store, whoever wrote them."""

    def __init__(self) -> None:
        self.rows: list[Envelope] = []
        self.broken = False

    def add(self, count: int = 1) -> list[Envelope]:
        new = [stored(len(self.rows) + 1 + n) for n in range(count)]
        self.rows += new
        return new

    def read(self, after: int, upto: int) -> list[Envelope]:
        if self.broken:
            raise OSError("cannot be read")
        return [e for e in self.rows if e.seq is not None and after < e.seq <= upto]


def test_a_gap_is_filled_from_the_store() -> None:
    table = Table()
    hub = Hub(table.read)
    reader = hub.subscribe(everything)
    hub.publish(table.add())
    table.add(3)
    own = table.add(2)
    hub.publish([delta("live"), *own])
    arrived = reader.get(0)
    assert seqs([e for e in arrived if e.seq is not None]) == [1, 2, 3, 4, 5, 6]
    table.add(2)
    hub.publish(own)
    assert reader.get(0) == []


def test_a_gap_that_cannot_be_read_is_filled_later() -> None:
    table = Table()
    hub = Hub(table.read)
    reader = hub.subscribe(everything)
    table.add(2)
    own = table.add()
    table.broken = True
    with pytest.raises(OSError, match="cannot be read"):
        hub.publish(own)
    assert reader.get(0) == []
    assert hub.newest == 0
    table.broken = False
    hub.publish(table.add())
    assert seqs(reader.get(0)) == [1, 2, 3, 4]


def test_following_what_others_write() -> None:
    table = Table()
    hub = Hub(table.read)
    reader = hub.subscribe(everything)
    table.add(3)
    hub.publish(hub.missed(3))
    assert hub.missed(3) == []
    assert hub.missed(2) == []
    assert seqs(reader.get(0)) == [1, 2, 3]
    hub.publish(table.rows[2:])
    own = table.add()
    hub.publish(own)
    assert hub.missed(4) == []
    assert seqs(reader.get(0)) == [4]
    assert Hub().missed(9) == []


# -- the end, and many at once ---------------------------------------------------------------------


def test_closing_wakes_everyone() -> None:
    hub = Hub()
    readers = [hub.subscribe(everything) for _ in range(3)]
    hub.publish([stored(1)])
    got: list[list[Envelope]] = []

    def read(reader: Subscription) -> None:
        while not reader.closed:
            got.append(reader.get(DEADLINE))

    threads = [threading.Thread(target=read, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    hub.close()
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive()
    assert not hub.watched
    late = hub.subscribe(everything)
    assert late.closed
    several = hub.open()
    hub.add(several, everything)
    assert several.closed
    assert not hub.watched
    assert late.get(DEADLINE) == []
    late.close()
    hub.close()


def test_readers_that_come_and_go_miss_nothing_in_between() -> None:
    hub = Hub()
    count, faults = 4000, []
    started = threading.Barrier(5)
    over = threading.Event()

    def come_and_go() -> None:
        started.wait(DEADLINE)
        while not over.is_set():
            with hub.subscribe(everything) as reader:
                seen = []
                for _ in range(20):
                    seen += [e.seq for e in reader.get(0.01) if e.seq is not None]
                if seen and seen != list(range(seen[0], seen[0] + len(seen))):
                    faults.append(seen)

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait(DEADLINE)
    for seq in range(1, count, 4):
        hub.publish([stored(seq + n) for n in range(4)])
        hub.publish([delta("x")])
    over.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert faults == []
    assert not hub.watched


@pytest.mark.usefixtures("restless")
def test_everyone_who_sleeps_is_woken() -> None:
    """Readers wake each other, however short each one sleeps and whoever leaves meanwhile."""
    hub = Hub()
    count = 300
    seen: dict[int, list[int | None]] = {number: [] for number in range(40)}
    there = threading.Barrier(len(seen) + 1)

    def read(number: int) -> None:
        with hub.subscribe(everything) as reader:
            there.wait(DEADLINE)
            while count not in seen[number]:
                arrived = reader.get(DEADLINE if number % 4 else 0.001)
                assert arrived or not number % 4, "nobody woke it"
                seen[number] += seqs(arrived)
                if number % 8 == 7 and len(seen[number]) > number:
                    return

    threads = [threading.Thread(target=read, args=(number,)) for number in seen]
    for thread in threads:
        thread.start()
    there.wait(DEADLINE)
    for seq in range(1, count + 1):
        hub.publish([stored(seq)])
    for thread in threads:
        thread.join(DEADLINE)
    for number, got in seen.items():
        assert got == list(range(1, len(got) + 1))
        assert len(got) == count or number % 8 == 7
    assert not hub.busy
