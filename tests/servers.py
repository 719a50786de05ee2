"""Servers for tests: real processes on free ports, and one inside the test's own process."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import bundles
import forks
from xgw.cli.server import bind, listen, make_threaded, url_of

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

ROOT = Path(__file__).resolve().parent.parent
XGW = (sys.executable, "-m", "xgw")
FORKED = ("xgw",)
"""The same as a fork, which begins at once: for tests of what a command does, not how it starts."""

STANDIN = (sys.executable, str(ROOT / "tests" / "standin.py"))
"""`xgw` with a small application in place of the gateway."""

DEADLINE = 60.0
"""Seconds; many times what anything here takes, also on a machine that does ten things at once."""

_BASE_URL = re.compile(r"^\s*(http://\S+)/v1$", re.MULTILINE)


run = functools.partial(forks.run, timeout=DEADLINE)
"""A command of xgw as a fork, to its end."""


class Output:
    """What a process writes, as it comes."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._text = ""
        self._ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._reader.start()

    def _read(self, pipe: IO[bytes]) -> None:
        while block := os.read(pipe.fileno(), 65536):
            with self._changed:
                self._text += block.decode()
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def text(self) -> str:
        """Everything so far."""
        with self._changed:
            return self._text

    def wait_for(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """The first match; AssertionError once the process has closed its end without one."""
        with self._changed:
            self._changed.wait_for(lambda: re.search(pattern, self._text) or self._ended, DEADLINE)
            found = re.search(pattern, self._text)
            assert found is not None, f"no {pattern!r} in {self._text!r}"
            return found

    def wait_for_end(self) -> str:
        """Everything, once nobody holds the other end any more."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, DEADLINE), self._text
            return self._text


class Process:
    """A command in a process group of its own, as a terminal would run it."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        how: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "env": {**os.environ, **(env or {})},
            "cwd": cwd or ROOT,
            "start_new_session": True,
        }
        self.popen: subprocess.Popen[bytes] | forks.Command
        if command[0] not in FORKED:
            self.popen = subprocess.Popen(command, **how)
        elif forks.possible(how["env"]):
            self.popen = forks.Command(command[1:], **how)
        else:
            self.popen = subprocess.Popen([*XGW, *command[1:]], **how)
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        self.stdout, self.stderr = Output(self.popen.stdout), Output(self.popen.stderr)

    def send(self, number: int) -> None:
        """Signal the command's own process alone."""
        self.popen.send_signal(number)

    def send_all(self, number: int) -> None:
        """Signal the whole group, as Ctrl-C in a terminal does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def wait(self) -> int:
        """The exit code."""
        return self.popen.wait(DEADLINE)

    def stop(self) -> int:
        """End it with SIGTERM; the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        """End whatever is left of it."""
        self.send_all(signal.SIGKILL)
        self.popen.wait(DEADLINE)
        for output in (self.stdout, self.stderr):
            output.wait_for_end()
        for pipe in (self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()


class ServerProcess(Process):
    """A server in its own process; it is there once the constructor returns."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        super().__init__(command, env, cwd)
        try:
            self.url = self.stdout.wait_for(_BASE_URL)[1]
        except AssertionError:
            self.close()
            raise AssertionError(f"it did not start: {self.stderr.text}") from None
        self.port = int(self.url.rpartition(":")[2])

    def workers(self) -> list[int]:
        """The process ids of its children (Linux)."""
        pid = self.popen.pid
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Installation:
    """A folder with a configuration and a store, and the servers that are started on it."""

    def __init__(self, folder: Path, config: str = "", program: Sequence[str] = FORKED) -> None:
        self.folder = folder
        self.store = folder / "data" / "xgw.db"
        self.config = folder / "xgw.toml"
        self.config.write_text(config)
        self._program = program
        self._started: list[Process] = []

    def command(self, *arguments: str) -> list[str]:
        """A command line of xgw on this configuration and store, for a process."""
        return [*(XGW if self._program is FORKED else self._program), *self._on_these(arguments)]

    def _on_these(self, arguments: Sequence[str]) -> list[str]:
        return [*arguments, "--config", str(self.config), "--db", str(self.store)]

    def _line(self, *arguments: str) -> list[str]:
        return [*self._program, *self._on_these(arguments)]

    def serve(self, *arguments: str, env: Mapping[str, str] | None = None) -> ServerProcess:
        """A server on a free port, unless `arguments` name one."""
        port = [] if "--port" in arguments else ["--port", "0"]
        server = ServerProcess(self._line("serve", *port, *arguments), env, self.folder)
        self._started.append(server)
        return server

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> Process:
        """Any other command, under way."""
        process = Process(self._line(*arguments), env, self.folder)
        self._started.append(process)
        return process

    def run(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        piped: bytes | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Any other command, to its end; without `piped` it has nothing to read."""
        env = {**os.environ, **(env or {})}
        if self._program is FORKED:
            return run(*self._on_these(arguments), env=env, cwd=self.folder, piped=piped)
        return subprocess.run(
            self.command(*arguments),
            env=env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=DEADLINE,
        )

    def close(self) -> None:
        """End everything that was started."""
        for process in self._started:
            process.close()


@contextlib.contextmanager
def installed(
    folder: Path, config: str = "", program: Sequence[str] = FORKED
) -> Iterator[Installation]:
    """An installation whose servers are ended with the `with` block."""
    installation = Installation(folder, config, program)
    try:
        yield installation
    finally:
        installation.close()
    bundles.check_store(installation.store)


@contextlib.contextmanager
def in_process(wsgi: WSGIApplication) -> Iterator[str]:
    """Serve an application from a thread of this process; its URL."""
    listener = bind("127.0.0.1", 0)
    listen(listener)
    url = url_of(listener)
    server = make_threaded(wsgi, listener)
    listener.close()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        thread.join(DEADLINE)
        server.server_close()


def eventually(happens: Any) -> None:
    """Wait until `happens()` is true: for what can only be asked for, not waited on."""
    pause, end = threading.Event(), time.monotonic() + DEADLINE
    while not happens():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.02)
