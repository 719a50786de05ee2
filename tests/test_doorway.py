"""A few requests are worked on at once; those that are held up inside hold up nobody for long."""

from __future__ import annotations

import threading

import pytest

from xgw.gateway.doorway import PLACES, Doorway

DEADLINE = 60.0


def test_no_more_than_there_are_places() -> None:
    doorway, lock, go_on = Doorway(), threading.Lock(), threading.Event()
    inside, most = 0, 0

    def pass_through() -> None:
        nonlocal inside, most
        for _ in range(200):
            with doorway.passing():
                with lock:
                    inside += 1
                    most = max(most, inside)
                with lock:
                    inside -= 1
        go_on.set()

    threads = [threading.Thread(target=pass_through) for _ in range(PLACES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert go_on.is_set()
    assert 1 <= most <= PLACES


def test_whoever_is_held_up_inside_keeps_nobody_out() -> None:
    doorway, held, go_on = Doorway(), threading.Barrier(PLACES + 1), threading.Event()

    def stay() -> None:
        with doorway.passing():
            held.wait(DEADLINE)
            go_on.wait(DEADLINE)

    threads = [threading.Thread(target=stay) for _ in range(PLACES)]
    for thread in threads:
        thread.start()
    held.wait(DEADLINE)
    passed = False
    with doorway.passing():
        passed = True
    assert passed
    go_on.set()
    for thread in threads:
        thread.join(DEADLINE)
    for _ in range(3 * PLACES):
        with doorway.passing():
            pass


def test_a_place_is_given_back_whatever_happens() -> None:
    doorway = Doorway()
    for _ in range(3 * PLACES):
        with pytest.raises(ZeroDivisionError), doorway.passing():
            raise ZeroDivisionError
    assert doorway.free == PLACES
