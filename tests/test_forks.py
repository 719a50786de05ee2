"""A command as a fork does what it does as a process; each one is run as a process here."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import forks
from cli_stores import FixedStore
from servers import DEADLINE, FORKED, XGW, ServerProcess
from xgw.cli import COMMANDS

ARGUMENTS: dict[str, list[str]] = {
    "serve": ["--port", "0", "--host", "192.0.2.1"],
    "chat": ["--agent", "nobody", "hi"],
    "show": ["last"],
    "export": ["checkout-42", "--format", "curl"],
    "import": ["nothing.json"],
    "replay": ["nothing.json"],
    "tail": ["--after", "1000000"],
    "cancel": ["nothing"],
    "approve": ["last", "call_1"],
    "deny": ["last", "call_1"],
    "resume": ["last"],
    "rerun": ["nothing"],
    "keys": ["list"],
    "config": ["--show"],
    "prune": ["--older-than", "7d", "--dry-run"],
    "backup": ["-"],
}
"""What most need; the rest needs nothing but its store."""


@pytest.mark.parametrize("name", list(COMMANDS))
def test_a_fork_says_what_a_process_says(tmp_path: Path, name: str) -> None:
    told = []
    FixedStore(tmp_path).close()
    for folder in (tmp_path / "process", tmp_path / "fork"):
        folder.mkdir()
        shutil.copy(tmp_path / "xgw.db", folder)
        arguments = [name, *ARGUMENTS.get(name, []), "--db", "xgw.db"]
        if folder.name == "fork":
            done = forks.run(*arguments, cwd=folder, timeout=DEADLINE)
        else:
            command = [*XGW, *arguments]
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=DEADLINE,
            )
        said = [text.replace(str(folder), "") for text in (done.stdout, done.stderr)]
        told.append((done.returncode, *said))
    assert told[0] == told[1]
    assert "internal error" not in told[0][2]
    assert told[0][1] or told[0][2]


def test_a_fork_has_the_environment_and_the_streams_of_its_own(tmp_path: Path) -> None:
    store = tmp_path / "a b.db"
    FixedStore(tmp_path).close()
    (tmp_path / "xgw.db").rename(store)
    said = forks.run(
        "sessions", "--db", store.name, env={"HOME": "/nowhere", "TZ": "UTC"}, cwd=tmp_path,
        timeout=DEADLINE,
    )  # fmt: skip
    assert "checkout-42" in said.stdout
    reader, writer = os.pipe()
    os.close(reader)
    deaf = forks.Command(["sessions", "--db", str(store)], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert deaf.communicate(None, DEADLINE) == (b"", b"")
    assert deaf.returncode == 0


def test_a_fork_ends_by_its_signal(tmp_path: Path) -> None:
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        command = [*FORKED, "serve", "--demo", "--port", "0", "--db", str(tmp_path / "xgw.db")]
        server = ServerProcess(command, cwd=tmp_path)
        try:
            assert os.getsid(server.popen.pid) == server.popen.pid
            assert server.popen.poll() is None
            server.send(number)
            assert server.wait() == server.popen.poll() == code
        finally:
            server.close()
