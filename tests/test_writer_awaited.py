"""Units whose caller waits for them at once: it writes them itself, if nobody else is writing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from locking import holder
from servers import DEADLINE, eventually
from writing import Scene, is_down, new_store, noting, wait_for
from xgw.store.database import Store
from xgw.store.transaction import Transaction
from xgw.store.writer import Patience, Ticket, Work


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(new_store(tmp_path))
    yield scene
    scene.close()


def _noting_where(name: str, threads: list[threading.Thread]) -> Work:
    """A unit that also notes the thread that it runs in."""
    inner = noting(name)

    def work(tx: Transaction) -> None:
        threads.append(threading.current_thread())
        inner(tx)

    return work


def _wait(scene: Scene, ticket: Ticket) -> bool:
    return scene.writer.wait(ticket, Patience(DEADLINE))


def test_whoever_waits_writes_and_tells_when_it_has_time(scene: Scene) -> None:
    threads: list[threading.Thread] = []
    ticket = scene.writer.submit(_noting_where("own", threads), awaited=True)
    assert _wait(scene, ticket)
    assert threads == [threading.current_thread()]
    assert scene.names() == scene.events() == ["own"]
    assert scene.published == []
    scene.writer.tell()
    assert scene.told() == ["own"]


def test_what_can_wait_goes_with_it(scene: Scene) -> None:
    scene.submit("begun", urgent=False)
    assert _wait(scene, scene.submit("ended", awaited=True))
    assert scene.names() == ["begun", "ended"]


def test_events_are_told_in_the_order_of_their_commits(scene: Scene) -> None:
    assert _wait(scene, scene.submit("first", awaited=True))
    wait_for(scene.submit("second"))
    assert scene.told() == ["first", "second"]


def test_while_another_thread_writes_it_waits_for_that_one(scene: Scene) -> None:
    threads: list[threading.Thread] = []
    go = scene.blocked()
    ticket = scene.writer.submit(_noting_where("later", threads), awaited=True)
    assert not scene.writer.wait(ticket, Patience(0.001))
    go.set()
    assert _wait(scene, ticket)
    assert [thread.name for thread in threads] == ["xgw-writer"]


def test_many_at_once_are_all_written(scene: Scene) -> None:
    def ask(number: int) -> None:
        for round in range(50):
            assert _wait(scene, scene.submit(f"{number}-{round}", awaited=True))
            scene.writer.tell()

    clients = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(8)]
    for client in clients:
        client.start()
    for client in clients:
        client.join(DEADLINE)
    assert sorted(scene.names()) == sorted(f"{n}-{r}" for n in range(8) for r in range(50))
    assert scene.told() == scene.events() == scene.names()


def test_one_whose_caller_forgets_to_wait_is_written_at_the_next_nudge(scene: Scene) -> None:
    ticket = scene.submit("forgotten", awaited=True)
    scene.writer.nudge()
    wait_for(ticket)
    assert scene.told() == ["forgotten"]


def test_in_a_lock_it_waits_no_longer_than_it_may(scene: Scene) -> None:
    wait_for(scene.submit("before"))
    with holder(scene.store.path) as other:
        other.take()
        patience = Patience()
        ticket = scene.submit("held up", awaited=True)
        assert not scene.writer.wait(ticket, patience)
        assert patience.left == 0
        assert is_down(scene)
        assert "locked" in str(scene.writer.down_reason)
        also = scene.submit("after it", awaited=True)
        assert not scene.writer.wait(also, Patience(DEADLINE))
        other.release()
    wait_for(ticket, also)
    assert scene.told() == scene.names() == ["before", "held up", "after it"]
    assert not is_down(scene)


def test_a_unit_that_fails_takes_no_other_along(scene: Scene) -> None:
    def fail(_: Transaction) -> None:
        raise ValueError("a fault of its own")

    go = scene.blocked()
    faulty = scene.writer.submit(fail)
    good = scene.submit("good", awaited=True)
    go.set()
    assert _wait(scene, good)
    wait_for(faulty)
    assert isinstance(faulty.error, ValueError)
    alone = scene.writer.submit(fail, awaited=True)
    assert _wait(scene, alone)
    assert isinstance(alone.error, ValueError)
    assert scene.names() == ["good"]


def test_where_the_disk_is_waited_for_a_thread_of_its_own_does_that(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []
    path = new_store(tmp_path).path
    scene = Scene(Store(path, "full"))
    assert _wait(scene, scene.writer.submit(_noting_where("safe", threads), awaited=True))
    assert [thread.name for thread in threads] == ["xgw-writer"]
    assert scene.told() == ["safe"]
    scene.close()


def test_after_a_slow_commit_nobody_writes_for_a_while_who_has_other_work(scene: Scene) -> None:
    wait_for(scene.submit("before"))
    threads: list[threading.Thread] = []
    with holder(scene.store.path) as other:
        other.take()
        ticket = scene.writer.submit(_noting_where("slow", threads), awaited=True)
        waiting = threading.Thread(target=_wait, args=(scene, ticket), daemon=True)
        waiting.start()
        eventually(lambda: scene.writer.down_reason is not None)
        other.release()
        waiting.join(DEADLINE)
    assert _wait(scene, scene.writer.submit(_noting_where("next", threads), awaited=True))
    assert {thread.name for thread in threads} == {"xgw-writer"}
    assert scene.names() == ["before", "slow", "next"]
