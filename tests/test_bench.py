"""`python -m bench` measures what it says, in a short form; a filled store is a sound one."""

from __future__ import annotations

import collections
import json
import math
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from xgw import clock
from xgw.events import TYPES
from xgw.queries import overview, sessions, turns
from xgw.queries.events import list_events
from xgw.queries.filters import Filters
from xgw.queries.pages import Page
from xgw.store import payloads
from xgw.store.database import Store

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 580.0

FIRST_STEPS = {
    "2 KB request, 1 client: added median": (1.3, 0.35),
    "2 KB requests, 16 clients: requests/s": (900, 2500),
    "first token, 1 client: added median": (2.0, 0.7),
    "16 streams of 200 tokens/s: throughput": (99, None),
    "16 streams of 200 tokens/s: added transit p99": (3.0, 1.0),
    "16 streams of 200 tokens/s: CPU a token": (100, 75),
    "recording, 16 clients: loss in requests/s": (40, 25),
    "reader of /events, 60 tokens/s: event p95": (200, 120),
    "120 turns: /sessions": (50, 20),
    "120 turns: session: messages": (50, 20),
    "30 turns with their history: stored over said": (3, None),
    "turn 30 over turn 10: added": (2, None),
    "xgw --help": (0.3, 0.1),
    "server ready, new store": (1.5, 0.6),
    "idle memory, all processes: PSS": (90, 60),
}
"""What the figures are held to, first step and goal."""

BESIDE_A_DIRECT_CALL = (
    "2 KB request, 1 client: added median",
    "2 KB requests, 16 clients: requests/s",
    "first token, 1 client: added median",
    "16 streams of 200 tokens/s: throughput",
    "16 streams of 200 tokens/s: added transit p99",
    "reader of /events, 60 tokens/s: token p95",
    "turn 10: added median",
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)


@dataclass(frozen=True)
class Report:
    """What one run printed and wrote."""

    table: str
    figures: dict[str, dict[str, Any]]
    rounds: int


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Every measurement, a short round of it."""
    file = tmp_path_factory.mktemp("bench") / "report.json"
    done = run("bench", "--short", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    written = json.loads(file.read_text())
    return Report(done.stdout, {f["name"]: f for f in written["figures"]}, written["rounds"])


@pytest.mark.slow
def test_every_figure_is_a_number_with_its_rounds(report: Report) -> None:
    assert len(report.figures) > len(FIRST_STEPS)
    for name, figure in report.figures.items():
        assert math.isfinite(figure["value"]), name
        assert len(figure["rounds"]) == report.rounds == 1, name
        assert figure["value"] == figure["rounds"][0], name
        assert figure["unit"], name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unit"),
    [("100,000 additions in Python", "ms"), ("memory, a step at random in 8 MB", "ns")],
)
def test_the_table_begins_with_what_the_machine_gives(report: Report, name: str, unit: str) -> None:
    figure = report.figures[f"this machine: {name}"]
    assert (figure["unit"], figure["first_step"]) == (unit, None)
    assert figure["value"] > 0
    assert f"this machine: {name}" in report.table.splitlines()[1 + (unit == "ns")]


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_STEPS)
def test_a_figure_is_held_against_its_first_step(report: Report, name: str) -> None:
    figure = report.figures[name]
    first, goal = FIRST_STEPS[name]
    assert (figure["first_step"], figure["goal"]) == (first, goal)
    enough = figure["value"] >= first if figure["at_least"] else figure["value"] <= first
    assert figure["met"] is enough


@pytest.mark.slow
@pytest.mark.parametrize("name", BESIDE_A_DIRECT_CALL)
def test_a_direct_call_stands_beside(report: Report, name: str) -> None:
    figure = report.figures[name]
    unit = re.escape(figure["unit"]) if figure["unit"] != "%" else "/s"
    for side in ("direct", "through"):
        assert re.fullmatch(rf"[\d.,]+ {unit}", figure[side])


@pytest.mark.slow
def test_what_is_counted_is_more_than_nothing(report: Report) -> None:
    for name, figure in report.figures.items():
        if figure["unit"] in ("/s", "×", "MB", "s"):
            assert figure["value"] > 0, name
    # A conversation cannot take less than it said, packed as well as prose can be.
    assert report.figures["30 turns with their history: stored over said"]["value"] > 0.2


@pytest.mark.slow
def test_the_table_shows_every_figure(report: Report) -> None:
    head, *lines = report.table.splitlines()
    assert head.split() == ["direct", "through", "xgw", "measured", "first", "step", "met", "goal"]
    shown = lines[: len(report.figures)]
    for line, (name, figure) in zip(shown, report.figures.items(), strict=True):
        assert line.startswith(name)
        verdict = {True: " yes", False: " NO", None: ""}[figure["met"]]
        assert verdict in line
    assert re.search(r"load average before \d+\.\d, after \d+\.\d", report.table)


def test_only_what_is_asked_for_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run("bench", "--short", "--rounds", "2", "--only", "added", "--json", str(file))
    assert done.returncode == 0, done.stderr
    names = [figure["name"] for figure in json.loads(file.read_text())["figures"]]
    assert all(name.startswith("2 KB request, 1 client") for name in names)
    assert len(json.loads(file.read_text())["figures"][0]["rounds"]) == 2


@pytest.mark.parametrize("wrong", [("--only", "speed"), ("--rounds", "0"), ("--full", "--short")])
def test_wrong_usage_is_told(wrong: tuple[str, ...]) -> None:
    done = run("bench", *wrong)
    assert done.returncode == 2
    assert wrong[0] in done.stderr


# -- the filled store ------------------------------------------------------------------------------

SESSIONS, EACH = 14, 6


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Two conversations of each kind and more, with a turn on its own beside each."""
    path = tmp_path_factory.mktemp("filled") / "xgw.db"
    size = ("--turns", str(SESSIONS * EACH), "--sessions", str(SESSIONS))
    done = run("bench.fill", str(path), *size)
    assert done.returncode == 0, done.stderr
    assert f"{SESSIONS * EACH} turns in {SESSIONS} sessions" in done.stdout
    store = Store(path)
    yield store
    store.close()


def test_a_filled_store_is_sound(filled: Store) -> None:
    with closing(sqlite3.connect(filled.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert filled.sql("SELECT count(*) FROM turns") == [(SESSIONS * EACH,)]
    assert filled.sql("SELECT count(*) FROM sessions") == [(SESSIONS,)]
    assert filled.sql("SELECT count(*) FROM turns WHERE session_id IS NULL") == [(SESSIONS,)]


def test_it_has_the_indexes_of_a_new_store(filled: Store, tmp_path: Path) -> None:
    from xgw.store.migrations import migrate

    fresh = Store(tmp_path / "new.db")
    migrate(fresh)
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY name"
    assert filled.sql(schema) == fresh.sql(schema)
    fresh.close()


def test_its_conversations_are_whole(filled: Store) -> None:
    counted = "SELECT id, turn_count, message_count, request_count FROM sessions"
    for session, turn_count, message_count, request_count in filled.sql(counted):
        for table, count in (
            ("turns", turn_count),
            ("messages", message_count),
            ("request_logs", request_count),
        ):
            rows = filled.sql(f"SELECT count(*) FROM {table} WHERE session_id = ?", (session,))
            assert rows == [(count,)]
        assert turn_count == EACH - 1


def test_its_turns_end_in_every_way(filled: Store) -> None:
    ends = {row[0] for row in filled.sql("SELECT DISTINCT ended_by FROM turns")}
    assert ends == {"finished", "provider", "client_disconnect"}
    assert filled.sql("SELECT count(*) FROM steps WHERE status = 'running'") == [(0,)]
    kinds = {row[0] for row in filled.sql("SELECT DISTINCT step_type FROM steps")}
    assert kinds == {"llm_call", "tool_call"}
    assert filled.sql("SELECT count(*) FROM steps WHERE attempt_reason = 'fallback'")[0][0] > 0


def test_its_bodies_are_there_and_unlike_each_other(filled: Store) -> None:
    questions = [
        payloads.load(filled, key)
        for (key,) in filled.sql("SELECT input_payload FROM turns ORDER BY id")
    ]
    assert len(set(questions)) == SESSIONS * EACH
    for column, table in (
        ("output_payload", "steps"),
        ("response_body", "request_logs"),
        ("config_snapshot", "turns"),
    ):
        for (key,) in filled.sql(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
            assert payloads.load(filled, key)
    (text,) = filled.sql("SELECT user_input FROM turns WHERE turn_index = 2 LIMIT 1")[0]
    asked = filled.sql("SELECT input_payload FROM turns WHERE user_input = ?", (text,))
    assert text.encode() in payloads.load(filled, asked[0][0])


def test_its_ids_belong_together(filled: Store) -> None:
    for id, trace_id in filled.sql("SELECT id, trace_id FROM turns"):
        assert id == f"turn_{trace_id}"
    for id, observation_id in filled.sql("SELECT id, observation_id FROM steps"):
        assert id.endswith(observation_id)
    ended = [told for told in list_events(filled, 0, 10_000) if told.type == "turn.completed"]
    assert ended
    for told in ended:
        assert (told.payload["turn_id"], told.payload["session_id"]) == (
            told.turn_id,
            told.session_id,
        )


def test_its_events_tell_each_turn(filled: Store) -> None:
    told: dict[str, list[str]] = collections.defaultdict(list)
    for turn_id, type in filled.sql("SELECT turn_id, type FROM events ORDER BY seq"):
        assert type in TYPES
        told[turn_id or ""].append(type)
    assert set(told.pop("")) == {"session.created"}
    assert len(told) == SESSIONS * EACH
    for types in told.values():
        assert types[:2] == ["turn.started", "run.started"]
        assert types[-2:] == ["run.completed", "turn.completed"]


def test_it_can_be_read_as_any_other(filled: Store) -> None:
    listed = sessions.list_sessions(filled, Filters(), Page(limit=5))
    assert len(listed.rows) == 5
    assert listed.has_more
    latest = listed.rows[0]
    assert latest["created_at"] < latest["last_turn_at"]
    found = turns.list_turns(filled, Filters(), Page(limit=500))
    assert len(found.rows) == SESSIONS * EACH
    begun = [row["started_at"] for row in found.rows]
    assert begun == sorted(begun, reverse=True)
    assert (begun[0] - begun[-1]).days >= 20


def test_a_store_that_is_there_is_left_alone(filled: Store) -> None:
    before = filled.size_bytes()
    done = run("bench.fill", str(filled.path), "--turns", "12", "--sessions", "2")
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert filled.size_bytes() == before


# -- a skewed store, and reading it ----------------------------------------------------------------


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("skewed") / "xgw.db"
    done = run("bench.fill", str(path), "--turns", "240", "--sessions", "80", "--skewed")
    assert done.returncode == 0, done.stderr
    store = Store(path)
    yield store
    store.close()


def test_in_a_skewed_store_most_sessions_are_short_and_some_very_long(skewed: Store) -> None:
    counts = sorted(row[0] for row in skewed.sql("SELECT turn_count FROM sessions"))
    assert len(counts) == 80
    assert counts[40] <= 2
    assert counts[-1] == 400
    assert skewed.sql("SELECT count(*) FROM turns WHERE session_id IS NULL") == [(80,)]
    (total,) = skewed.sql("SELECT count(*) FROM turns")[0]
    assert total == sum(counts) + 80
    for session, turn_count, message_count in skewed.sql(
        "SELECT id, turn_count, message_count FROM sessions"
    ):
        for table, count in (("turns", turn_count), ("messages", message_count)):
            rows = skewed.sql(f"SELECT count(*) FROM {table} WHERE session_id = ?", (session,))
            assert rows == [(count,)]


def test_in_a_skewed_store_some_turns_are_under_way(skewed: Store) -> None:
    found = overview.strip(skewed, None, clock.now())
    assert (found.running, found.waiting) == (20, 20)
    newest = sessions.list_sessions(skewed, Filters(), Page(limit=40)).rows
    seen = overview.of_sessions(skewed, newest)
    assert {view.state for view in seen.values()} == {"running", "waiting"}
    assert all(view.now is not None for view in seen.values())


def test_in_a_skewed_store_every_body_is_there(skewed: Store) -> None:
    for column, table in (("input_payload", "steps"), ("output_payload", "steps")):
        for (key,) in skewed.sql(f"SELECT DISTINCT {column} FROM {table} WHERE {column} NOT NULL"):
            assert payloads.load(skewed, key)
    begun = [row[0] for row in skewed.sql("SELECT max(started_at) FROM turns")]
    assert begun[0] <= clock.to_db(clock.now())


def test_reading_is_measured_by_function(skewed: Store) -> None:
    done = run("bench.reading", str(skewed.path), "--times", "2")
    assert done.returncode == 0, done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["p50", "ms", "p95", "ms", "CPU", "ms", "statements"]
    assert len(lines) >= 14
    statements = {line[:40].strip(): int(line.split()[-1]) for line in lines}
    assert statements["overview.of_sessions, 50 newest"] == 1
    assert statements["history.read, 20 turns of the longest"] == 3
    assert statements["step_closeup.find"] == 2


def test_reading_needs_a_store(tmp_path: Path) -> None:
    done = run("bench.reading", str(tmp_path / "none.db"))
    assert done.returncode == 1
    assert "there is no store" in done.stderr
