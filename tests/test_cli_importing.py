"""`xgw import`, and the commands that find what was imported."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

import handmade
from cli_stores import run
from servers import DEADLINE, XGW


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a store would be, with one import beside it."""
    folder = tmp_path_factory.mktemp("cli")
    file = folder / "bug.json"
    file.write_bytes(handmade.spelled(handmade.bundle()))
    ran = run(folder / "xgw.db", "import", str(file))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().startswith("imp_")
    assert "Imported: 1 session, 1 turn, 1 request." in ran.stderr
    return folder / "xgw.db"


def test_what_was_imported_is_found_without_a_store_of_ones_own(store: Path) -> None:
    assert not store.exists()

    shown = run(store, "show", "key-1")

    assert shown.returncode == 0, shown.stderr
    assert "session key-1" in shown.stdout
    assert shown.stderr.startswith("Imported from bug.json, exported 2026-02-03 04:05:06")
    listed = json.loads(run(store, "sessions", "--imported", "--json").stdout)
    assert [row["session_key"] for row in listed["data"]] == ["key-1"]
    assert "imp_" in run(store, "requests", "--imported").stdout


def test_stdin_lists_and_removal(store: Path) -> None:
    packed = gzip.compress(handmade.lines(handmade.bundle(asked_for=["other"])))
    command = [*XGW, "import", "-", "--json", "--db", str(store)]
    ran = subprocess.run(command, input=packed, capture_output=True, timeout=DEADLINE)
    assert ran.returncode == 0, ran.stderr
    id = json.loads(ran.stdout)["id"]

    assert "stdin" in run(store, "import", "--list").stdout
    assert run(store, "import", "--remove", id[:12]).returncode == 0
    again = run(store, "import", "--remove", id)
    assert again.returncode == 1
    assert "there is no import" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "give one of FILE, --list and --remove ID"),
        (("--list", "x.json"), 2, "give one of FILE, --list and --remove ID"),
        (("",), 2, "FILE is empty: name a bundle, or - for stdin"),
        (("nothing.json",), 2, "there is no file nothing.json"),
        (("odd.json",), 1, "the bundle is no valid JSON"),
    ],
)
def test_what_cannot_be_imported(
    store: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    (store.parent / "odd.json").write_text("odd")

    ran = run(store, "import", *arguments)

    assert ran.returncode == code
    assert words in ran.stderr
    assert ran.stderr.count("\n") == 1
