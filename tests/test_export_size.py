"""An export takes the same memory whatever the store holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from filled_store import NOON, FilledStore
from servers import DEADLINE, XGW
from xgw.store.payloads import Shelf

MEGABYTE = 1024 * 1024
PEAK = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(code)
"""
WORDS = "and so on it went, as words do when there is nothing else to be told of a thing "


def fill(filled: FilledStore, messages: int) -> None:
    """One session with messages of 2 KB, as many bodies of 2 KB, and a resent history."""
    session = filled.session("long")
    turn = filled.turn(session)
    run = filled.run(turn)
    shelf = Shelf()
    history = [{"role": "user", "content": f"{WORDS} {n}"} for n in range(messages)]
    with filled.written():
        for n in range(messages):
            content = WORDS * 25 + str(n)
            stored = shelf.whole(content.encode()[::-1])
            filled.keep_rows(stored.rows)
            filled.step(run, turn, session_id=session, step_index=n, output_payload=stored.hash)
            filled.message(session, turn, n, content=content, created_at=NOON)
        for n in range(0, messages, 100):
            sent = shelf.request(orjson.dumps({"messages": history[: n + 1]}))
            filled.keep_rows(sent.rows)
            filled.step(
                run, turn, session_id=session, step_index=messages + n, input_payload=sent.hash
            )


def peak(store: Path, *arguments: str) -> int:
    """Bytes of memory that an export took at most."""
    command = [*XGW, "export", "--db", str(store), *arguments]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command], capture_output=True, text=True, timeout=DEADLINE * 4
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_what_is_exported(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    for folder, messages in ((empty, 10), (full, 4000)):
        folder.mkdir()
        filled = FilledStore(folder)
        fill(filled, messages)
        filled.close()
    file = tmp_path / "out.json"
    little = peak(empty / "xgw.db", "-o", str(file))
    much = peak(full / "xgw.db", "-o", str(file))
    assert file.stat().st_size > 16 * MEGABYTE
    assert much - little < 10 * MEGABYTE
    assert file.read_bytes().count(b'"kind":"message"') == 4000


@pytest.mark.slow
@pytest.mark.parametrize("format", ["markdown", "openai"])
def test_a_format_to_read_holds_no_rows_of_a_whole_session(tmp_path: Path, format: str) -> None:
    """The conversation itself is one line of `openai`, and held; the rows it comes from are not."""
    peaks = []
    for messages in (10, 1500):
        folder = tmp_path / str(messages)
        folder.mkdir()
        filled = FilledStore(folder)
        session = filled.session("long")
        turn = filled.turn(session)
        kept = json.dumps({"kept": WORDS * 200})
        with filled.written():
            for n in range(messages):
                role = ("user", "assistant")[n % 2]
                filled.message(session, turn, n, role=role, content=f"{n}", metadata=kept)
        filled.close()
        file = tmp_path / "out"
        peaks.append(peak(folder / "xgw.db", "--format", format, "-o", str(file)))
    assert "1499" in file.read_text()
    assert peaks[1] - peaks[0] < 12 * MEGABYTE
