"""The command line: help, exit codes, pipes, and the commands about configuration and schema."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from servers import STANDIN, XGW, Installation, installed
from xgw import __version__
from xgw.cli import COMMANDS, main
from xgw.cli.server import ServerLock
from xgw.queries.lookup import MIN_PREFIX

CONFIG = """\
[server]
port = 9000
token = "${MY_TOKEN}"

[[providers]]
name = "mock"
base_url = "http://127.0.0.1:1/v1"
api_key = "sk-provider-secret"

[[routes]]
model = "gpt-4o"
targets = ["mock/gpt-4o"]
"""
ID = re.compile(r"\b(?:sess|turn|run|step|msg|req)_[0-9a-f]+\b")
TOKEN = {"MY_TOKEN": "tk-server-secret"}


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG, XGW) as one:
        yield one


def run(
    *arguments: str, stdout: int = subprocess.PIPE, **env: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*XGW, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
        timeout=60,
    )


# -- the group -------------------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, b"")
    listed = done.stdout.decode().partition("Commands:")[2]
    assert re.findall(r"^  (\S+)", listed, re.MULTILINE) == list(COMMANDS)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_command_is_what_the_table_says(name: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    groups = [[name, part] for part in command.commands] if isinstance(command, click.Group) else []
    for words in groups or [[name]]:
        done = run(*words, "--help")
        assert (done.returncode, done.stderr) == (0, b"")
        told = done.stdout.decode()
        assert "--config" in told
        assert "--db" in told
        assert re.search(
            rf"^ +(?:.*[ (])?xgw {' '.join(words)}\b", told.partition("Examples:")[2], re.M
        )
        assert all(len(start) >= MIN_PREFIX for start in ID.findall(told))


def test_version() -> None:
    assert run("--version").stdout.decode().split() == ["xgw", __version__]


@pytest.mark.parametrize("arguments", [["frob"], ["serve", "--frob"], ["serve", "--port", "x"], []])
def test_bad_usage(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"Usage: xgw" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["chat", "\xff"], "MESSAGE"),
        (["sessions", "--model", "\xff"], "--model"),
        (["requests", "-s", "\xff"], "--session"),
        (["export", "last", "\xff"], "ID"),
        (["prune", "\xff", "--dry-run"], "QUERY"),
        (["keys", "create", "\xff"], "NAME"),
        (["serve", "--host", "\xff"], "--host"),
    ],
)
def test_an_argument_that_is_no_text(arguments: list[str], name: str) -> None:
    done = run(*(os.fsdecode(part.encode("latin-1")) for part in arguments))
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode().splitlines() == [f"xgw: {name} must be UTF-8 text"]


def test_an_empty_db_is_not_the_usual_store(tmp_path: Path) -> None:
    for arguments in (["prune", "--older-than", "1d"], ["sessions"], ["serve"], ["migrate"]):
        done = run(*arguments, "--db", "", HOME=str(tmp_path), XDG_DATA_HOME=str(tmp_path))
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr == b"xgw: --db must name a file, and is empty\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    odd, copy, bundle = (str(tmp_path / os.fsdecode(b"\xff" + end)) for end in (b"", b"2", b"3"))
    commands = (
        ["migrate", "--db", odd],
        ["backup", copy, "--db", odd],
        ["export", "-o", bundle, "--db", copy],
        ["sessions", "--db", f"sqlite:///{copy}"],
    )
    assert [run(*arguments).returncode for arguments in commands] == [0, 0, 0, 0]
    assert Path(copy).is_file()
    assert Path(bundle).is_file()
    missing = run("replay", os.fsdecode(b"\xff"))
    assert (missing.returncode, missing.stderr) == (2, b"xgw: there is no file ?\n")


def _raising(
    statement: str, *, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    """A command that does `statement`."""
    code = f"""
import sys, types
import click
from xgw import cli
from xgw.errors import UsageError, WorkError
@click.command()
def odd():
    {statement}
module = sys.modules["odd"] = types.ModuleType("odd")
module.odd = odd
cli.COMMANDS["odd"] = ("odd", "odd", "Odd.")
cli.main(["odd"], prog_name="xgw")
"""
    return subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0", "LC_ALL": "C"},
        timeout=60,
    )


@pytest.mark.parametrize(
    ("statement", "code", "said"),
    [
        ("raise UsageError('one.', 'two.')", 2, ["xgw: one.", "xgw: two."]),
        ("raise WorkError('it failed')", 1, ["xgw: it failed"]),
        ("raise click.ClickException('so it is')", 1, ["Error: so it is"]),
        ("open('/no/such/file')", 1, ["xgw: No such file or directory (/no/such/file)"]),
        ("raise KeyboardInterrupt", 130, []),
        ("click.prompt('Name')", 130, []),
        ("click.get_current_context().exit(7)", 7, []),
        ("sys.exit(3)", 3, []),
        ("return 'anything'", 0, []),
    ],
)
def test_how_a_command_ends(statement: str, code: int, said: list[str]) -> None:
    done = _raising(statement)
    assert done.returncode == code
    assert [line for line in done.stderr.decode().splitlines() if line] == said


def test_a_fault_of_xgw_itself_is_one_line() -> None:
    done = _raising("raise ValueError('oh')")
    assert done.returncode == 1
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("xgw: an internal error occurred: ValueError: oh (")


def test_pipes_get_utf_8_whatever_the_locale() -> None:
    done = _raising(r"click.echo('21\xb0 \U0001f642 \ud800')")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().strip() == "21° 🙂 ?"


def test_a_closed_pipe_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _raising("[click.echo('x' * 1000) for _ in range(1000)]", stdout=writing)
        little = _raising("sys.stdout.write('x')", stdout=writing)
    finally:
        os.close(writing)
    for one in (done, little):
        assert (one.returncode, one.stderr) == (0, b"")


def test_ctrl_c() -> None:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, types, threading, click\n"
            "from xgw import cli\n"
            "def wait():\n    click.echo('waiting')\n    threading.Event().wait(60)\n"
            "odd = sys.modules['odd'] = types.ModuleType('odd')\n"
            "odd.odd = click.command()(wait)\n"
            "cli.COMMANDS['odd'] = ('odd', 'odd', '')\n"
            "cli.main(['odd'])\n",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Traceback" not in process.stderr.read()


def test_the_group_can_be_called_from_python() -> None:
    done = CliRunner().invoke(main, ["--version"])
    assert (done.exit_code, done.output) == (0, f"xgw {__version__}\n")


# -- configuration ---------------------------------------------------------------------------------


def test_check_tells_that_all_is_well(installation: Installation) -> None:
    done = installation.run("check", env=TOKEN)
    assert (done.returncode, done.stderr) == (0, "")
    for told in (str(installation.config), "mock", "gpt-4o", str(installation.store)):
        assert told in done.stdout
    told = json.loads(installation.run("check", "--json", env=TOKEN).stdout)
    assert told == {
        "path": str(installation.config),
        "providers": ["mock"],
        "routes": ["gpt-4o"],
        "agents": [],
        "storage": str(installation.store),
    }


def test_check_names_providers_that_nothing_is_asked_of(installation: Installation) -> None:
    assert "not asked" not in installation.run("check", env=TOKEN).stdout
    with installation.config.open("a") as file:
        file.write(
            '[[providers]]\nname = "claude"\nkind = "anthropic"\napi_key = "sk-provider-2"\n'
        )
    told = installation.run("check", env=TOKEN).stdout
    assert re.search(r"^not asked +claude \(.*/v1/messages", told, re.MULTILINE)


@pytest.mark.parametrize("command", ["check", "config", "serve", "migrate"])
def test_every_mistake_is_one_line(installation: Installation, command: str) -> None:
    installation.config.write_text('[server]\nprt = 1\nport = "many"\ntoken = "${NOBODY}"\n')
    done = installation.run(command)
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("xgw: ") and "xgw.toml" in line for line in lines)
    assert not installation.store.exists()


def test_config_names_its_file(installation: Installation) -> None:
    assert installation.run("config", env=TOKEN).stdout == f"{installation.config}\n"


def test_config_shows_values_and_where_they_come_from(installation: Installation) -> None:
    done = installation.run("config", "--show", env={**TOKEN, "XGW_HOST": "localhost"})
    assert done.returncode == 0
    shown = dict(line.split("  # ") for line in done.stdout.splitlines())
    sources = {key.strip(): source for key, source in shown.items()}
    assert sources["server.port = 9000"].endswith("xgw.toml:2")
    assert sources['server.host = "localhost"'] == "environment XGW_HOST"
    assert sources["server.max_calls = 256"] == "default"
    assert sources[f'storage.url = "sqlite:///{installation.store}"'] == "--db"
    assert "secret" not in done.stdout
    rows = json.loads(installation.run("config", "--show", "--json", env=TOKEN).stdout)
    assert rows["path"] == str(installation.config)
    [port] = [row for row in rows["values"] if row["key"] == "server.port"]
    assert (port["value"], port["source"].endswith("xgw.toml:2")) == ("9000", True)


def test_config_shows_what_is_in_force_and_nothing_else(installation: Installation) -> None:
    with installation.config.open("a") as file:
        file.write('[agents.helper]\nmodel = "gpt-4o"\ntools = ["docs"]\n')
        file.write('[tools.docs]\nretrieval = { path = "." }\n')
    shown = installation.run("config", "--show", env=TOKEN).stdout
    values = dict(line.partition("  # ")[0].split(" = ", 1) for line in shown.splitlines())
    assert values["tools.docs.retry_safe"].strip() == "true"
    assert values["retention.bodies_days"].strip() == "0"
    assert not any(key.startswith("routes.") and "retry" in key for key in values)
    assert "agents.helper.limits.max_seconds" not in values


# -- the schema ------------------------------------------------------------------------------------


def test_migrate_makes_a_store_and_then_has_nothing_to_do(installation: Installation) -> None:
    tried = installation.run("migrate", "--dry-run", env=TOKEN)
    assert tried.returncode == 0
    assert "would apply 0001" in tried.stdout
    assert not installation.store.exists()
    made = installation.run("migrate", env=TOKEN)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == tried.stdout.replace("would apply", "applied")
    assert "up to date" in installation.run("migrate", env=TOKEN).stdout
    again = json.loads(installation.run("migrate", "--json", env=TOKEN).stdout)
    assert again == {"applied": [], "backup": None, "dry_run": False}


def test_migrate_status(installation: Installation) -> None:
    before = installation.run("migrate", "--status", env=TOKEN)
    assert before.returncode == 0
    assert all(line.endswith("  pending") for line in before.stdout.splitlines())
    assert not installation.store.exists()
    installation.run("migrate", env=TOKEN)
    told = json.loads(installation.run("migrate", "--status", "--json", env=TOKEN).stdout)
    assert told["migrations"]
    assert all(row["applied_at"].endswith("Z") for row in told["migrations"])
    assert told["taken_over"] == []


def test_migrate_options_that_exclude_each_other(installation: Installation) -> None:
    assert installation.run("migrate", "--status", "--dry-run", env=TOKEN).returncode == 2


def test_migrate_refuses_a_store_of_a_newer_xgw(installation: Installation) -> None:
    installation.run("migrate", env=TOKEN)
    connection = sqlite3.connect(installation.store)
    with connection:
        columns = "(name, applied) VALUES ('9999_later', '2031-01-01 00:00:00.000000')"
        connection.execute(f"INSERT INTO schema_migrations {columns}")
    connection.close()
    done = installation.run("migrate", env=TOKEN)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert "newer" in line


def test_migrate_leaves_the_store_of_a_running_server_alone(tmp_path: Path) -> None:
    with installed(tmp_path, program=STANDIN) as installation:
        server = installation.serve()
        done = installation.run("migrate")
        assert done.returncode == 2
        assert server.url in done.stderr
        assert installation.run("migrate", "--status").returncode == 0
        assert server.stop() == 0
        assert installation.run("migrate").returncode == 0


def test_the_lock_is_free_after_migrating(installation: Installation) -> None:
    done = installation.run("migrate", env=TOKEN)
    assert (done.returncode, installation.store.exists()) == (0, True)
    ServerLock.acquire(installation.store).release()  # raises while anyone holds it
