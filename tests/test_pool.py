"""The threads that answer requests: as many as there is work for, up to a limit."""

from __future__ import annotations

import threading

from servers import DEADLINE
from xgw.cli.pool import Pool


class Jobs:
    """Jobs that go on when they are told to; `done` has their numbers and threads."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._may_end = threading.Semaphore(0)
        self._changed = threading.Condition()
        self.begun = 0
        self.done: list[tuple[int, int]] = []

    def submit(self, number: int) -> None:
        self._pool.submit(lambda: self._work(number))

    def _work(self, number: int) -> None:
        with self._changed:
            self.begun += 1
            self._changed.notify_all()
        assert self._may_end.acquire(timeout=DEADLINE)
        with self._changed:
            self.done.append((number, threading.get_ident()))
            self._changed.notify_all()

    def wait(self, *, begun: int, done: int = 0) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: (self.begun, len(self.done)) == (begun, done), DEADLINE
            )

    def let_end(self, count: int) -> None:
        self._may_end.release(count)


def test_jobs_run_at_once_up_to_the_limit_and_then_take_turns() -> None:
    jobs = Jobs(Pool(3))
    before = set(threading.enumerate())
    for number in range(5):
        jobs.submit(number)
    assert jobs.wait(begun=3)
    assert len(set(threading.enumerate()) - before) == 3
    jobs.let_end(1)
    assert jobs.wait(begun=4, done=1)
    jobs.let_end(4)
    assert jobs.wait(begun=5, done=5)
    assert {number for number, _ in jobs.done} == set(range(5))
    assert len({thread for _, thread in jobs.done}) <= 3


def test_a_thread_is_used_again() -> None:
    jobs = Jobs(Pool(1000))
    for number in range(20):
        jobs.let_end(1)
        jobs.submit(number)
        assert jobs.wait(begun=number + 1, done=number + 1)
    assert len({thread for _, thread in jobs.done}) <= 2


def test_many_who_submit_at_once_have_everything_done() -> None:
    jobs = Jobs(Pool(4))
    jobs.let_end(400)

    def submit(first: int) -> None:
        for number in range(first, first + 100):
            jobs.submit(number)

    threads = [threading.Thread(target=submit, args=(n * 100,)) for n in range(4)]
    for thread in threads:
        thread.start()
    assert jobs.wait(begun=400, done=400)
    assert sorted(number for number, _ in jobs.done) == list(range(400))
