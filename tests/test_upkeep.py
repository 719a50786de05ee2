"""The commands that look after a store: `backup` and `doctor`."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import servers
from cli_stores import FixedStore
from gateway_fixtures import Gate, a_test_of, gate_and_model
from scripted_model import asks_for, chat, named, says
from servers import DEADLINE, XGW, eventually
from xgw.cli import main
from xgw.store.models import Payload, Turn

SECRET = "sk-planted-0123456789abcdef"


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = FixedStore(tmp_path_factory.mktemp("fixed"))
    store.close()
    return store.path


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with gate_and_model(tmp_path) as gate, a_test_of(gate):
        yield gate


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return servers.run(*map(str, arguments))


def ask(*arguments: str | Path) -> tuple[int, str]:
    """A command in this process: its exit code and what it says."""
    done = CliRunner().invoke(main, [*map(str, arguments)])
    return done.exit_code, done.output


def rows(path: Path, table: str) -> list[Any]:
    with sqlite3.connect(path) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall()


# -- backup ----------------------------------------------------------------------------------------


def test_a_backup_is_a_store_with_the_same_rows(fixed: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    code, said = ask("backup", target, "--db", fixed, "--json")
    assert (code, json.loads(said)) == (0, {"file": str(target), "bytes": target.stat().st_size})
    for table in ("sessions", "turns", "steps", "messages", "request_logs", "events", "payloads"):
        assert rows(target, table) == rows(fixed, table)
    assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]
    assert target.stat().st_mode & 0o077 == 0
    assert ask("sessions", "--db", target)[0] == 0


def test_a_backup_while_a_server_records_is_of_one_moment(gate: Gate, tmp_path: Path) -> None:
    gate.model.always(says("an answer " * 300))
    done = threading.Event()

    def talk(number: int) -> None:
        count = 0
        while not done.is_set():
            gate.post(chat(f"{number} {count}" * 200, **named(f"talk-{number}")))
            count += 1

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(gate.all(Turn)) > 10)
    counts = []
    for number in range(3):
        target = tmp_path / f"copy-{number}.db"
        assert ask("backup", target, "--db", gate.store.path)[0] == 0
        counts.append(len(rows(target, "turns")))
        code, said = ask("doctor", "--offline", "--json", "--db", target)
        wrong = [one for one in json.loads(said)["findings"] if one["standing"] == "wrong"]
        # Turns that were under way at that moment are this process's, which lives.
        assert (code, wrong) == (0, [])
    done.set()
    for thread in threads:
        thread.join(DEADLINE)
    assert counts == sorted(counts)


def test_a_file_that_is_there_is_replaced_on_request_alone(fixed: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    code, said = ask("backup", target, "--db", fixed)
    assert (code, "--overwrite" in said, target.read_text()) == (2, True, "precious")
    assert ask("backup", "--overwrite", target, "--db", fixed)[0] == 0
    assert rows(target, "sessions") == rows(fixed, "sessions")


@pytest.mark.parametrize(("name", "words"), [("", "folder"), ("no/such/x.db", "no folder")])
def test_a_place_that_cannot_be_one(fixed: Path, tmp_path: Path, name: str, words: str) -> None:
    code, said = ask("backup", tmp_path / name, "--db", fixed)
    assert (code, words in said) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_is_never_replaced(fixed: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, said = ask("backup", "--overwrite", pipe, "--db", fixed)
    assert (code, "no file" in said, pipe.is_fifo()) == (2, True, True)


def test_the_store_is_not_its_own_backup(fixed: Path) -> None:
    code, said = ask("backup", "--overwrite", fixed, "--db", fixed)
    assert (code, "the store itself" in said) == (2, True)


def test_a_full_disk_leaves_nothing_half(fixed: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    done = subprocess.run(
        [*XGW, "backup", "--overwrite", str(target), "--db", str(fixed)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
    )
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]
    assert target.read_text() == "precious"


# -- doctor ----------------------------------------------------------------------------------------


def examine(path: Path | None, *arguments: str | Path) -> tuple[int, dict[str, list[Any]]]:
    """The exit code, and the findings by their check."""
    named = [] if path is None else ["--db", path]
    code, said = ask("doctor", "--json", *named, *arguments)
    told = json.loads(said)
    assert told["fine"] is (code == 0)
    found: dict[str, list[Any]] = {}
    for one in told["findings"]:
        assert one["standing"] != "wrong" or one["advice"], one
        found.setdefault(one["check"], []).append(one)
    return code, found


def only(found: dict[str, list[Any]], check: str) -> Any:
    (one,) = found[check]
    return one


@pytest.fixture
def copy(fixed: Path, tmp_path: Path) -> Path:
    path = Path(shutil.copy(fixed, tmp_path / "xgw.db"))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        # Those of the fixed rows are of no process that there is.
        database.execute("UPDATE turns SET status = 'success' WHERE status = 'running'")
        database.execute("DELETE FROM request_logs")
        database.execute("UPDATE steps SET input_payload = NULL, output_payload = NULL")
        database.execute("UPDATE turns SET input_payload = NULL, config_snapshot = NULL")
    return path


def test_a_sound_store_is_fine(copy: Path) -> None:
    code, found = examine(copy, "--offline")
    assert code == 0
    assert {only(found, check)["standing"] for check in ("integrity", "schema", "payloads")} == {
        "fine"
    }
    shown = ask("doctor", "--offline", "--db", copy)[1]
    assert "what takes the room:" in shown
    assert "payloads" in shown


def test_a_store_that_is_not_there(tmp_path: Path) -> None:
    code, found = examine(tmp_path / "none.db", "--offline")
    assert (code, "xgw serve" in only(found, "store")["advice"]) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store(tmp_path: Path) -> None:
    path = tmp_path / "xgw.db"
    path.write_bytes(b"something else entirely" * 100)
    code, found = examine(path, "--offline")
    assert (code, only(found, "store")["standing"]) == (1, "wrong")
    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE things (x)")
    code, found = examine(tmp_path / "other.db", "--offline")
    assert (code, only(found, "schema")["standing"]) == (1, "wrong")


def test_a_store_that_is_damaged(copy: Path) -> None:
    content = bytearray(copy.read_bytes())
    for at in range(40 * 4096, len(content), 4096):
        content[at : at + 300] = b"\x55" * 300
    copy.write_bytes(content)
    code, found = examine(copy, "--offline")
    assert (code, any(one["standing"] == "wrong" for ones in found.values() for one in ones)) == (
        1,
        True,
    )


def test_a_store_that_somebody_else_holds_is_not_told_to_be_damaged(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        code, found = examine(copy, "--offline")
    told = only(found, "store")
    assert (code, told["standing"], "database is locked" in told["says"]) == (1, "wrong", True)
    assert "move" not in told["advice"]


def test_a_store_of_another_version(copy: Path) -> None:
    with sqlite3.connect(copy) as database:
        database.execute(
            "INSERT INTO schema_migrations (name, applied) VALUES ('9999_future', '2030-01-01')"
        )
    code, found = examine(copy, "--offline")
    assert (code, "upgrade" in only(found, "schema")["advice"]) == (1, True)
    with sqlite3.connect(copy) as database:
        database.execute("DELETE FROM schema_migrations WHERE name > '0002'")
    code, found = examine(copy, "--offline")
    assert (code, only(found, "schema")["standing"]) == (0, "note")


@contextlib.contextmanager
def as_somebody_else() -> Iterator[None]:
    """Root may write anywhere: this thread looks at files as another user meanwhile (Linux)."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None)
    libc.setfsuid(65534)
    try:
        yield
    finally:
        libc.setfsuid(0)


def test_a_store_that_can_only_be_read(copy: Path) -> None:
    # What is imported on the way may lie where somebody else cannot read it.
    assert examine(copy, "--offline")[0] == 0
    with sqlite3.connect(copy) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(shutil.copy(copy, folder))
        closed.chmod(0o444)
        Path(folder).chmod(0o555)
        with as_somebody_else():
            code, found = examine(closed, "--offline")
        Path(folder).chmod(0o755)
    assert (code, "cannot be written" in only(found, "writing")["says"]) == (1, True)
    assert only(found, "integrity")["standing"] == "fine"


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_store_that_may_not_be_read(copy: Path, is_folder: bool) -> None:
    # What is imported on the way may lie where somebody else cannot read it.
    assert (examine(copy, "--offline")[0], ask("sessions", "--db", copy)[0]) == (0, 0)
    with tempfile.TemporaryDirectory() as folder:
        closed = Path(shutil.copy(copy, folder))
        (Path(folder) if is_folder else closed).chmod(0)
        with as_somebody_else():
            code, found = examine(closed, "--offline")
            refused, said = ask("sessions", "--db", closed)
        Path(folder).chmod(0o755)
    assert code == 1
    assert only(found, "store")["standing"] == "wrong"
    assert "the right to read it" in only(found, "store")["advice"]
    assert (refused, "Permission denied" in said) == (2, True)


def test_what_cannot_be_written_is_said_once(copy: Path) -> None:
    with contextlib.closing(sqlite3.connect(copy)) as database:
        # The log and its index are there: only what is written at the log's end makes a file grow.
        database.execute("UPDATE sessions SET title = 'title'")
        database.commit()
        command = shlex.join([*XGW, "keys", "create", "one", "--db", str(copy)])
        done = subprocess.run(
            ["sh", "-c", f"ulimit -f 0; exec {command}"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "xgw: the store cannot be written: disk I/O error\n"


def test_bodies_that_are_missing_and_those_that_nothing_needs(gate: Gate) -> None:
    gate.model.always(says("ok"))
    for number in range(2):
        gate.post(chat(f"question {number}", "and the same " * 60, **named(f"s{number}")))
    first, second = (gate.turns(f"s{number}")[0]["input_payload"] for number in range(2))
    code, found = examine(gate.store.path, "--offline")
    assert (code, only(found, "payloads")["standing"]) == (0, "fine")
    with sqlite3.connect(gate.store.path) as database:
        gone = database.execute("DELETE FROM payloads WHERE hash = ?", (bytes.fromhex(first),))
        assert gone.rowcount == 1
        database.execute("INSERT INTO payloads VALUES (?, 5, 'raw', x'00')", (b"\x07" * 16,))
    code, found = examine(gate.store.path, "--offline")
    assert (code, "input_payload of" in only(found, "payloads")["says"]) == (1, True)
    assert only(found, "orphans")["standing"] == "note"
    assert len(gate.all(Payload, Payload.hash == second)) == 1


def test_open_turns_and_whose_they_are(gate: Gate) -> None:
    gate.model.will(asks_for("c1"))
    gate.post(chat("use a tool", **named("waits")))
    code, found = examine(gate.store.path, "--offline")
    assert (code, only(found, "turns")["standing"]) == (0, "note")
    assert only(found, "turns")["says"].startswith("1 turn waits for a person or a client: turn_")
    copy = gate.store.path.with_name("copy.db")
    assert ask("backup", copy, "--db", gate.store.path)[0] == 0
    with sqlite3.connect(copy) as database:
        database.execute("UPDATE runs SET status = 'running', owner = 'another-boot:1:1'")
    code, found = examine(copy, "--offline")
    assert (code, "nobody's" in only(found, "turns")["says"]) == (1, True)


def test_every_mistake_in_the_configuration(tmp_path: Path, copy: Path) -> None:
    config = tmp_path / "xgw.toml"
    config.write_text('[server]\nport = "x"\ncolour = 1\n[retention]\nbodies_days = -1\n')
    code, found = examine(copy, "--config", config)
    assert (code, len(found["configuration"])) == (1, 3)
    # The store is looked at all the same.
    assert only(found, "integrity")["standing"] == "fine"


def test_providers_are_asked_and_no_key_is_told(gate: Gate, tmp_path: Path, copy: Path) -> None:
    gate.model.always(says("ok"))
    config = tmp_path / "xgw.toml"
    config.write_text(
        f'[[providers]]\nname = "there"\nbase_url = "{gate.model.url}"\napi_key = "{SECRET}"\n'
        f'[[providers]]\nname = "away"\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "{SECRET}"\n'
        '[[providers]]\nname = "demo"\nkind = "demo"\n'
    )
    code, found = examine(copy, "--config", config)
    assert only(found, "provider there")["standing"] in ("fine", "note")
    assert "cannot be asked" in only(found, "provider away")["says"]
    assert (code, only(found, "provider demo")["standing"]) == (1, "fine")
    assert SECRET not in json.dumps(found)


@pytest.mark.parametrize(
    ("free", "advice"), [(100_000_000, "make room: `xgw prune"), (60_000, "needs room itself")]
)
def test_what_to_do_about_little_room_is_something_that_can_be_done(
    fixed: Path, monkeypatch: pytest.MonkeyPatch, free: int, advice: str
) -> None:
    disk = shutil.disk_usage(fixed.parent)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: disk)
    code, said = ask("doctor", "--offline", "--db", fixed)
    assert (code, advice in said) == (1, True)
