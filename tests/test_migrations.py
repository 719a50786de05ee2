"""Migrations: in order, all or nothing, by one process at a time; what is not ours stays."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from filled_store import FilledStore
from servers import DEADLINE, ROOT, installed
from xgw import clock
from xgw.errors import UsageError
from xgw.store import migrations
from xgw.store.database import Store

OURS = sorted(path.stem for path in migrations.DIRECTORY.glob("[0-9]*.py"))
ADD_COLUMN = """
def up(migrator, db):
    db.execute_sql("ALTER TABLE sessions ADD COLUMN colour TEXT")
    db.execute_sql("UPDATE sessions SET colour = 'green'")
"""
BREAK = """
def up(migrator, db):
    db.execute_sql("CREATE TABLE half (id INTEGER)")
    db.execute_sql("DELETE FROM sessions")
    {fault}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "xgw.db"


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A folder with our migrations, for more of them."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    for name in OURS:
        shutil.copy(migrations.DIRECTORY / f"{name}.py", folder)
    return folder


@pytest.fixture
def existing(path: Path, scripts: Path) -> Path:
    """A store of this version's schema, with a session."""
    path.parent.mkdir()
    filled = FilledStore(path.parent)
    filled.session("kept")
    filled.close()
    return path


def query(path: Path, text: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(text).fetchall()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def refusal(path: Path) -> str:
    """The one sentence with which everything that may refuse a store does so."""
    with pytest.raises(UsageError) as caught:
        migrations.migrate(Store(path))
    [sentence] = caught.value.lines
    assert "\n" not in sentence
    assert str(path) in sentence
    with pytest.raises(UsageError):
        migrations.migrate(Store(path), dry_run=True)
    return sentence


# -- forward ---------------------------------------------------------------------------------------


def test_a_new_store(path: Path) -> None:
    store = Store(path)
    before = clock.now()
    report = migrations.migrate(store)
    assert report == migrations.MigrationReport(OURS, None)
    assert migrations.schema_version(store) == OURS[-1]
    assert [name for name, _ in migrations.status(store)] == OURS
    for _, applied in migrations.status(store):
        assert applied is not None
        assert before <= applied <= clock.now()
    assert store.sql("PRAGMA journal_mode") == [("wal",)]
    assert migrations.migrate(store) == migrations.MigrationReport([], None)
    store.close()
    assert list(path.parent.glob("*backup*")) == []


def test_an_empty_file_is_a_new_store(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert migrations.migrate(Store(path)).applied == OURS


@pytest.mark.parametrize("count", range(1, len(OURS)))
def test_an_older_store_comes_to_be_as_a_new_one(path: Path, scripts: Path, count: int) -> None:
    for name in OURS[count:]:
        (scripts / f"{name}.py").unlink()
    assert migrations.migrate(Store(path), directory=scripts).applied == OURS[:count]
    fresh = path.with_name("fresh.db")
    migrations.migrate(Store(fresh))
    assert migrations.migrate(Store(path)).applied == OURS[count:]
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    assert query(path, schema) == query(fresh, schema)


def test_a_dry_run_changes_nothing(path: Path, existing: Path, scripts: Path) -> None:
    fresh = path.parent / "deeper" / "fresh.db"
    assert migrations.migrate(Store(fresh), dry_run=True).applied == OURS
    assert migrations.status(Store(fresh)) == [(name, None) for name in OURS]
    assert not fresh.parent.exists()

    (scripts / "0901_colour.py").write_text(ADD_COLUMN)
    before = contents(existing.parent)
    report = migrations.migrate(Store(existing), dry_run=True, directory=scripts)
    assert report == migrations.MigrationReport(["0901_colour"], None)
    assert contents(existing.parent) == before


def test_an_older_store_is_copied_and_then_changed(existing: Path, scripts: Path) -> None:
    (scripts / "0901_colour.py").write_text(ADD_COLUMN)
    (scripts / "0902_more.py").write_text("def up(migrator, db):\n    pass\n")
    report = migrations.migrate(Store(existing), directory=scripts)
    assert report.applied == ["0901_colour", "0902_more"]
    assert query(existing, "SELECT session_key, colour FROM sessions") == [("kept", "green")]
    names = [name for name, _ in migrations.status(Store(existing), directory=scripts)]
    assert names == [*OURS, "0901_colour", "0902_more"]

    assert report.backup is not None
    assert report.backup.parent == existing.parent
    assert query(report.backup, "PRAGMA integrity_check") == [("ok",)]
    assert query(report.backup, "SELECT session_key FROM sessions") == [("kept",)]
    assert migrations.migrate(Store(report.backup)).applied == []
    with pytest.raises(sqlite3.OperationalError, match="colour"):
        query(report.backup, "SELECT colour FROM sessions")


def test_a_backup_holds_what_is_still_in_the_log(existing: Path, scripts: Path) -> None:
    (scripts / "0901_colour.py").write_text(ADD_COLUMN)
    writer = Store(existing).open_writer()
    writer.execute("PRAGMA wal_autocheckpoint = 0")
    writer.execute("UPDATE sessions SET session_key = 'late'")
    report = migrations.migrate(Store(existing), directory=scripts)
    writer.close()
    assert report.backup is not None
    assert query(report.backup, "SELECT session_key FROM sessions") == [("late",)]
    assert query(existing, "SELECT session_key, colour FROM sessions") == [("late", "green")]


@pytest.mark.parametrize(
    "fault",
    ["raise RuntimeError('a fault')", "db.execute_sql('SELECT nonsense')", "db.nonsense()"],
)
def test_a_migration_is_all_or_nothing(existing: Path, scripts: Path, fault: str) -> None:
    (scripts / "0901_colour.py").write_text(ADD_COLUMN)
    (scripts / "0902_broken.py").write_text(BREAK.format(fault=fault))
    with pytest.raises((RuntimeError, AttributeError, UsageError)):
        migrations.migrate(Store(existing), directory=scripts)
    assert query(existing, "SELECT session_key, colour FROM sessions") == [("kept", "green")]
    assert query(existing, "SELECT name FROM sqlite_master WHERE name = 'half'") == []
    (scripts / "0902_broken.py").write_text("def up(migrator, db):\n    pass\n")
    assert migrations.migrate(Store(existing), directory=scripts).applied == ["0902_broken"]


def test_a_process_that_dies_in_a_migration_leaves_it_undone(existing: Path, scripts: Path) -> None:
    fault = f"import os; os.kill(os.getpid(), {int(signal.SIGKILL)})"
    (scripts / "0901_dies.py").write_text(BREAK.format(fault=fault))
    process = _migrating(existing, scripts)
    process.communicate(timeout=DEADLINE)
    assert process.returncode == -signal.SIGKILL
    (scripts / "0901_dies.py").write_text(ADD_COLUMN)
    assert migrations.migrate(Store(existing), directory=scripts).applied == ["0901_dies"]
    assert query(existing, "SELECT session_key, colour FROM sessions") == [("kept", "green")]
    assert query(existing, "SELECT name FROM sqlite_master WHERE name = 'half'") == []


@pytest.mark.parametrize("is_new", [True, False])
def test_processes_that_migrate_at_once(path: Path, scripts: Path, is_new: bool) -> None:
    if not is_new:
        migrations.migrate(Store(path), directory=scripts)
        for number in range(2, 6):
            (scripts / f"090{number}_add.py").write_text(ADD_COLUMN.replace("colour", f"c{number}"))
    pending = migrations.migrate(Store(path), dry_run=True, directory=scripts).applied
    processes = [_migrating(path, scripts, waits=True) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    said = [process.communicate("go\n", DEADLINE) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert sorted(out.split() for out, _ in said) == [[], [], [], pending]
    names = [name for name, _ in migrations.status(Store(path), directory=scripts)]
    assert names == sorted(path.stem for path in scripts.iterdir() if path.suffix == ".py")


def _migrating(path: Path, scripts: Path, *, waits: bool = False) -> subprocess.Popen[str]:
    """A process that migrates, if it `waits` after it has said that it is ready."""
    code = """
import sys
from pathlib import Path
from xgw.store import migrations
from xgw.store.database import Store
if sys.argv[3] == "True":
    print("ready", flush=True)
    sys.stdin.readline()
print(*migrations.migrate(Store(Path(sys.argv[1])), directory=Path(sys.argv[2])).applied)
"""
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(scripts), str(waits)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


# -- what is not ours ------------------------------------------------------------------------------


def test_a_store_of_a_newer_version(existing: Path) -> None:
    with contextlib.closing(sqlite3.connect(existing)) as connection, connection:
        connection.execute(
            "INSERT INTO schema_migrations (name, applied) VALUES ('0999_later', '2030-01-01')"
        )
    before = contents(existing.parent)
    assert "was written by a newer xgw (schema 0999_later)" in refusal(existing)
    assert contents(existing.parent) == before
    names = [name for name, _ in migrations.status(Store(existing))]
    assert names == [*OURS, "0999_later"]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("CREATE TABLE conversations (id INTEGER PRIMARY KEY, title TEXT)", "an older program"),
        ("CREATE TABLE task_sessions (id TEXT)", "an older program"),
        ("CREATE TABLE customers (id INTEGER)", "another program"),
        ("CREATE TABLE sessions (id TEXT, token TEXT)", "another program"),
        ("CREATE TABLE schema_migrations (version TEXT)", "another program"),
        ("CREATE TABLE schema_migrations (version INTEGER, dirty INTEGER)", "another program"),
        (
            "CREATE TABLE schema_migrations (name TEXT, applied TEXT);"
            "INSERT INTO schema_migrations VALUES ('0001_users', '2020-01-01')",
            "another program",
        ),
    ],
)
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_of_another_program(path: Path, schema: str, words: str, journal: str) -> None:
    path.parent.mkdir()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.executescript(schema)
    before = contents(path.parent)
    assert words in refusal(path)
    with pytest.raises(UsageError):
        migrations.status(Store(path))
    assert contents(path.parent) == before


@pytest.mark.parametrize(
    "content",
    [b"hello, this is a note\n", b"\x00" * 8192, b"SQLite format 3\x00" + b"\xff" * 4080],
)
def test_a_file_that_is_no_database(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    assert "is not a usable SQLite database" in refusal(path)
    with pytest.raises(UsageError):
        migrations.status(Store(path))
    assert contents(path.parent) == {path.name: content}


def test_a_folder(path: Path) -> None:
    path.mkdir(parents=True)
    assert "cannot be opened" in refusal(path)


def test_a_file_where_the_folder_should_be(path: Path) -> None:
    path.parent.write_text("in the way")
    with pytest.raises(UsageError, match="cannot be opened"):
        migrations.migrate(Store(path))
    assert path.parent.read_text() == "in the way"


def test_a_damaged_store_is_told_of_or_taken(existing: Path) -> None:
    whole, chance = existing.read_bytes(), random.Random(20260102)
    refused = 0
    for _ in range(150):
        damaged = bytearray(whole)
        start = chance.randrange(len(damaged))
        length = chance.choice((1, 16, 512, 4096))
        damaged[start : start + length] = chance.randbytes(length)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        existing.write_bytes(damaged)
        with contextlib.suppress(UsageError):
            migrations.migrate(Store(existing))
            migrations.status(Store(existing))
            continue
        refused += 1
    assert 10 < refused < 150


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """A folder that this test may look into and not write to, even where it runs as root."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "closed").mkdir(mode=0o555)
        yield folder / "closed"


def test_a_folder_that_cannot_be_written(closed_folder: Path) -> None:
    with _as_somebody_else():
        sentence = refusal_of_migrate(closed_folder / "xgw.db")
        assert "cannot be opened for writing" in sentence
        sentence = refusal_of_migrate(closed_folder / "deeper" / "xgw.db")
        assert "cannot be opened for writing" in sentence
    assert list(closed_folder.iterdir()) == []


def test_a_store_that_cannot_be_written(closed_folder: Path, scripts: Path) -> None:
    (scripts / "0901_colour.py").write_text(ADD_COLUMN)
    path = closed_folder / "xgw.db"
    closed_folder.chmod(0o755)
    migrations.migrate(Store(path))
    path.chmod(0o444)
    closed_folder.chmod(0o555)
    before = contents(closed_folder)
    with _as_somebody_else(), pytest.raises(UsageError, match="cannot be opened for writing"):
        migrations.migrate(Store(path), directory=scripts)
    assert contents(closed_folder) == before


def test_a_store_that_may_only_be_read_is_refused_where_its_schema_is_the_newest(
    closed_folder: Path,
) -> None:
    closed_folder.chmod(0o777)
    path = closed_folder / "xgw.db"
    migrations.refuse_unwritable(path)
    migrations.migrate(Store(path))
    migrations.refuse_unwritable(path)
    path.chmod(0o444)
    with _as_somebody_else(), pytest.raises(UsageError, match="cannot be opened for writing"):
        migrations.refuse_unwritable(path)


def refusal_of_migrate(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        migrations.migrate(Store(path))
    [sentence] = caught.value.lines
    return sentence


@contextlib.contextmanager
def _as_somebody_else() -> Iterator[None]:
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


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["migrate"], ["migrate", "--status"], ["serve"]])
def test_a_command_says_it_in_one_line(tmp_path: Path, command: list[str]) -> None:
    with installed(tmp_path) as installation:
        installation.store.parent.mkdir()
        installation.store.write_bytes(b"no database" * 100)
        done = installation.run(*command)
        assert done.returncode == 2
        assert done.stdout == ""
        [line] = done.stderr.splitlines()
        assert "is not a usable SQLite database" in line
        assert installation.store.read_bytes() == b"no database" * 100
