"""How long reading takes: what is read for the dashboard, and its pages, on a store that is there.

`python -m bench.reading STORE [--times N] [--pages]` prints the median and the 95th percentile in
milliseconds, the CPU time, which other work on the machine disturbs less, and of functions how many
statements each takes at most. With `--pages` a server is started on the store, which ends what was
left under way in it, and asked for each page, and for each list of the API.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import itertools
import logging
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bench import processes
from bench.server import serving
from bench.setting import upstream
from xgw import clock
from xgw.queries import (
    filters,
    history,
    lines,
    overview,
    sessions,
    step_closeup,
    steps,
    turn_closeup,
)
from xgw.queries.filters import Filters
from xgw.queries.pages import Page
from xgw.store.database import Store

ALL = Filters()
ALONE = filters.parse("turns", [("session_id", "none")])
BODIES = ("input_payload", "output_payload")
READS = ("SELECT", "WITH")
SAMPLED = 25
"""Sessions, turns and steps from all over the store that are read in turn."""

Read = Callable[[], object]


@dataclass(frozen=True)
class Samples:
    """Ids that are read; `long` is the session with the most turns, `middle` a turn within."""

    sessions: list[str]
    turns: list[str]
    steps: list[str]
    long: str
    middle: str


def take_samples(store: Store) -> Samples:
    """From all over the store."""
    (long,) = store.sql("SELECT id FROM sessions ORDER BY turn_count DESC LIMIT 1")[0]
    middle = (
        "SELECT id FROM turns WHERE session_id = ? AND turn_index ="
        " (SELECT max(turn_index) / 2 FROM turns WHERE session_id = ?)"
    )
    return Samples(
        _spread(store, "sessions"),
        _spread(store, "turns"),
        _spread(store, "steps"),
        long,
        store.sql(middle, (long, long))[0][0],
    )


def _spread(store: Store, table: str) -> list[str]:
    highest = store.sql(f"SELECT max(rowid) FROM {table}")[0][0]
    # Not evenly: conversations that repeat have the same row at each of such places.
    chance = random.Random(highest)
    places = [int((n + chance.random()) * highest / SAMPLED) for n in range(SAMPLED)]
    found = (store.sql(f"SELECT id FROM {table} WHERE rowid >= ? LIMIT 1", (at,)) for at in places)
    return [rows[0][0] for rows in found if rows]


def reads(store: Store, samples: Samples) -> dict[str, list[Read]]:
    """What is read, by what the table calls it; several ones are taken in turn."""
    newest = sessions.list_sessions(store, ALL, Page()).rows
    each = [row for row in (sessions.find_session(store, id) for id in samples.sessions) if row]
    alone = lines.list_lines(store, ALONE, Page())
    found = [steps.find_step(store, id) for id in samples.steps]
    rows = [row for row in found if row is not None]
    return {
        "sessions.list_sessions": [lambda: sessions.list_sessions(store, ALL, Page())],
        "overview.of_sessions, 50 newest": [lambda: overview.of_sessions(store, newest)],
        "overview.of_sessions, from all over": [lambda: overview.of_sessions(store, each)],
        "overview.strip": [lambda: overview.strip(store, None, clock.now())],
        "lines.list_lines, without a session": [
            lambda: lines.list_lines(store, ALONE, Page()),
            lambda: lines.list_lines(store, ALONE, Page(cursor=alone.next_cursor)),
        ],
        "overview.of_turns, 50 newest alone": [lambda: overview.of_turns(store, alone.rows)],
        "history.list_lines, 200 of the longest": [
            lambda: history.list_lines(store, samples.long, Page(200))
        ],
        "history.read, 20 turns": [
            _reading(history.read, store, id, Page(20)) for id in samples.sessions
        ],
        "history.read, 20 turns of the longest": [
            lambda: history.read(store, samples.long, Page(20))
        ],
        "history.read_around, in the longest": [
            lambda: history.read_around(store, samples.long, samples.middle, 20)
        ],
        "turn_closeup.find": [_reading(turn_closeup.find, store, id) for id in samples.turns],
        "step_closeup.find": [_reading(step_closeup.find, store, id) for id in samples.steps],
        "step_closeup.find, with its bodies": [
            functools.partial(step_closeup.find, store, id, bodies=BODIES) for id in samples.steps
        ],
        "steps.find_changes": [_reading(steps.find_changes, store, row) for row in rows],
    }


def _reading(function: Callable[..., object], *given: Any) -> Read:
    return lambda: function(*given)


TABS = ("summary", "sent", "received", "changes", "attempts", "timing", "usage", "raw")
SOUGHT = ("state:error", "model:gpt-4.1*", "cost>0.01", "tool:get_*", "question", '"no such words"')
LISTED = (
    *("/sessions", "/sessions?has_error=true", "/sessions?model=gpt-4.1", "/sessions?running=true"),
    *("/turns", "/turns?session_id=none", "/turns?status=error", "/turns?has_error=true"),
    *(
        "/requests",
        "/requests?status=error",
        "/requests?status_code=5xx",
        "/requests?provider=openai",
    ),
)
"""What is sought in the list of sessions; lists of the API, of all and of what fits a filter."""


def paths(samples: Samples) -> dict[str, list[str]]:
    """The dashboard's pages and the API's lists, likewise."""
    return {
        "/ui/": ["/ui/"],
        **{f"/ui/?q={words}": [f"/ui/?q={quote(words)}"] for words in SOUGHT},
        "/ui/turns": ["/ui/turns"],
        "/ui/requests": ["/ui/requests"],
        "/ui/requests?status=error": ["/ui/requests?status=error"],
        "/ui/agents": ["/ui/agents"],
        "/ui/health": ["/ui/health"],
        "/ui/sessions/ID": [f"/ui/sessions/{id}" for id in samples.sessions],
        "/ui/sessions/ID, the longest": [f"/ui/sessions/{samples.long}"],
        "/ui/turns/ID": [f"/ui/turns/{id}" for id in samples.turns],
        **{
            f"/ui/steps/ID?tab={tab}": [f"/ui/steps/{id}?tab={tab}" for id in samples.steps]
            for tab in TABS
        },
        **{path: [path] for path in LISTED},
        **{
            f"/sessions/ID/{noun}": [f"/sessions/{id}/{noun}" for id in samples.sessions]
            for noun in ("turns", "messages", "steps", "requests")
        },
        "/turns/ID": [f"/turns/{id}" for id in samples.turns],
        "/steps/ID": [f"/steps/{id}" for id in samples.steps],
    }


# -- measuring -------------------------------------------------------------------------------------


class _Counter(logging.Handler):
    """Counts what peewee runs, but for the opening and closing of transactions."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        statement: Any = record.msg
        self.count += record.name == "peewee" and statement[0].lstrip().startswith(READS)


@contextlib.contextmanager
def _counted() -> Iterator[_Counter]:
    log, counter = logging.getLogger("peewee"), _Counter()
    log.addHandler(counter)
    log.setLevel(logging.DEBUG)
    try:
        yield counter
    finally:
        log.setLevel(logging.WARNING)
        log.removeHandler(counter)


def _statements(read: Read) -> int:
    with _counted() as counter:
        read()
    return counter.count


def _times(calls: Sequence[Read], times: int) -> tuple[list[float], list[float]]:
    """Milliseconds, and those of CPU time, of so many calls, and of each at least one."""
    taken, spent = [], []
    for call in itertools.islice(itertools.cycle(calls), max(times, len(calls))):
        begun, before = time.perf_counter(), time.thread_time()
        call()
        taken.append((time.perf_counter() - begun) * 1000)
        spent.append((time.thread_time() - before) * 1000)
    return taken, spent


def _line(name: str, taken: Sequence[float], *others: str) -> str:
    p95 = statistics.quantiles(taken, n=20)[-1] if len(taken) > 1 else taken[0]
    figures = (f"{statistics.median(taken):.1f}", f"{p95:.1f}", *others)
    return f"{name:40}" + "".join(f"{figure:>11}" for figure in figures)


def measure_functions(store: Store, samples: Samples, times: int) -> Iterator[str]:
    """A line for each function."""
    yield f"{'':40}{'p50 ms':>11}{'p95 ms':>11}{'CPU ms':>11}{'statements':>11}"
    for name, calls in reads(store, samples).items():
        statements = max(_statements(call) for call in calls)
        taken, spent = _times(calls, times)
        yield _line(name, taken, f"{statistics.median(spent):.1f}", str(statements))


def measure_pages(path: Path, samples: Samples, times: int) -> Iterator[str]:
    """A line for each page, as a browser on this machine gets it, on a kept-alive connection."""
    with (
        tempfile.TemporaryDirectory(prefix="xgw-bench-") as folder,
        upstream() as port,
        serving(Path(folder), port, store=path) as server,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection,
    ):
        for name, asked in paths(samples).items():
            status = _get(connection, asked[0])
            if status != 200:
                yield f"{name:40}{status:>11}"
                continue
            calls = [_reading(_get, connection, address) for address in asked]
            before = processes.cpu_seconds(server.pid)
            taken, _ = _times(calls, times)
            spent = (processes.cpu_seconds(server.pid) - before) * 1000 / len(taken)
            yield _line(name, taken, f"{spent:.1f}")


def _get(connection: http.client.HTTPConnection, path: str) -> int:
    connection.request("GET", path, headers={"Accept": "text/html"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.reading", description=__doc__)
    parser.add_argument("store", type=Path, help="a store, such as bench.fill makes")
    parser.add_argument("--times", type=int, default=50, help="how often each is read (50)")
    parser.add_argument("--pages", action="store_true", help="the pages of the dashboard, too")
    chosen = parser.parse_args()
    if not chosen.store.is_file():
        raise SystemExit(f"bench: there is no store {chosen.store}")
    store = Store(chosen.store)
    samples = take_samples(store)
    for line in measure_functions(store, samples, chosen.times):
        print(line, flush=True)
    store.close()
    if chosen.pages:
        for line in measure_pages(chosen.store, samples, chosen.times):
            print(line, flush=True)


if __name__ == "__main__":
    main()
