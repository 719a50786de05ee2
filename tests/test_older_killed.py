"""Taking over and backfilling, killed at any row: going on gives what one go gives."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from older_readings import dump, rows
from older_stores import WRITERS, without_rowids
from servers import DEADLINE, ROOT

KILLS, KILLS_IN_PLACE = 10, 4


def run(points: list[int], *arguments: object) -> tuple[str, list[int], int]:
    """Killed at these points, then to the end: stdout, how runs ended, steps of the last one."""
    script = str(ROOT / "tests" / "killed_often.py")
    command = [sys.executable, script, ",".join(map(str, points)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * DEADLINE, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *_, last = done.stderr.splitlines()
    ended = next(line for line in done.stderr.splitlines() if not points or "-9" in line)
    return done.stdout, [int(code) for code in ended.split()] if points else [], int(last)


def points_among(steps: int, seed: int, kills: int = KILLS) -> list[int]:
    """Where to kill: each run gets a little further, the last ones perhaps to the end."""
    chance = random.Random(seed)
    return [chance.randint(2, max(3, 2 * steps // kills)) for _ in range(kills)]


@pytest.fixture(scope="module", params=["gateway", "tasks"])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("older") / "old.db"
    WRITERS[request.param](path, 200, seed=3)
    return path


@pytest.mark.slow
def test_from_a_file(old: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.db", tmp_path / "killed.db"
    *_, steps = run([], "migrate", "--db", whole, "--from-legacy", old)
    points = points_among(steps, 1)
    said, ended, _ = run(points, "migrate", "--db", killed, "--from-legacy", old)
    assert ended.count(-9) >= KILLS // 2
    assert "the counts balance" in said
    assert dump(killed) == dump(whole)

    *_, steps = run([], "backfill-turns", "--db", whole, "--batch", "20")
    points = points_among(steps, 2)
    _, ended, _ = run(points, "backfill-turns", "--db", killed, "--batch", "20")
    assert ended.count(-9) >= KILLS // 2
    assert told_of(killed) == told_of(whole)


def told_of(path: Path) -> dict[str, list[object]]:
    """A store but for the numbers of its events."""
    found = {name: list[object](table) for name, table in dump(path).items()}
    for event in found["events"]:
        assert isinstance(event, dict)
        del event["seq"]
    return found


@pytest.mark.slow
def test_a_store_without_rowids(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    WRITERS["gateway"](old, 120, seed=3)
    keyed = without_rowids(old)
    whole, killed = tmp_path / "whole.db", tmp_path / "killed.db"
    *_, steps = run([], "migrate", "--db", whole, "--from-legacy", keyed)
    points = points_among(steps, 1, KILLS_IN_PLACE)
    said, ended, _ = run(points, "migrate", "--db", killed, "--from-legacy", keyed)
    assert -9 in ended
    assert "the counts balance" in said
    assert dump(killed) == dump(whole)


@pytest.mark.slow
def test_in_place(old: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole.db", tmp_path / "killed.db"
    shutil.copy(old, whole)
    shutil.copy(old, killed)
    *_, steps = run([], "migrate", "--db", whole)
    run(points_among(steps, 3, KILLS_IN_PLACE), "migrate", "--db", killed)
    assert dump(killed) == dump(whole)
    kept = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name LIKE 'legacy%'"
    assert rows(killed, kept) == rows(whole, kept)
    assert len(list(tmp_path.glob("killed.db.backup-*"))) == 1
