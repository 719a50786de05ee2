"""Commands of xgw that begin at once: forks of a process that has imported all of xgw.

To import it takes a command longer than most tests have it work for, a second of a core and a
server two, and the tests start far more than a thousand: a good part of all that they took. Each
process of the tests starts one such process. What is forked has its own arguments, environment,
folder, streams, session and exit code. What only a new Python has it lacks: imports one at a time,
the options of Python, a command line that others see. Tests of these take `servers.XGW`.

Run as a program, with the descriptor of its link, it is that process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(ROOT / "xgw" / "__main__.py")

_READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_")
"""How the names begin of what counts at the start of a process alone."""


def possible(env: Mapping[str, str] | None = None) -> bool:
    """Whether a command with this environment can be a fork."""
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        return False
    return _of_python(os.environ if env is None else env) == _start()[1]


def _of_python(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_BY_PYTHON)}


# -- on the side of the tests ----------------------------------------------------------------------


class Command:
    """A command of xgw as a fork; what can be done with it is what Popen has.

    `env` is the whole environment, None that of the tests.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        start_new_session: bool = False,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._waiting = threading.Lock()
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        asked = {
            "arguments": list(arguments),
            "env": dict(os.environ if env is None else env),
            "folder": str(cwd or os.getcwd()),
            "session": start_new_session,
        }
        self._link, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as given:
            streams = [
                self._stream(0, "stdin", stdin, given),
                self._stream(1, "stdout", stdout, given),
                self._stream(2, "stderr", stderr, given),
            ]
            _ask([theirs.fileno(), *streams])
        self._link.sendall(json.dumps(asked).encode() + b"\n")
        self.pid = int(_line(self._link))

    def _stream(self, number: int, name: str, wanted: int | None, given: Any) -> int:
        if wanted is None:
            return number
        if wanted == subprocess.DEVNULL:
            wanted = os.open(os.devnull, os.O_RDWR)
        elif wanted == subprocess.PIPE:
            reading, writing = os.pipe()
            ours, wanted = (writing, reading) if number == 0 else (reading, writing)
            setattr(self, name, os.fdopen(ours, "wb" if number == 0 else "rb", buffering=0))
        else:
            return wanted
        given.callback(os.close, wanted)
        return wanted

    def poll(self) -> int | None:
        """The exit code, as Popen has it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; TimeoutExpired."""
        with self._waiting:
            if self.returncode is None:
                # With zero it would not be a timeout that is told of.
                self._link.settimeout(timeout if timeout is None else max(timeout, 0.001))
                try:
                    ended = _line(self._link)
                except TimeoutError:
                    raise subprocess.TimeoutExpired(list(self.args), timeout or 0) from None
                self.returncode = os.waitstatus_to_exitcode(int(ended))
                self._link.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        """To it alone; nothing once it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, given: bytes | None, timeout: float) -> tuple[bytes, bytes]:
        """What it writes to its pipes, to the end; TimeoutExpired once it was killed for that."""
        written: dict[str, bytes] = {}
        works = [threading.Thread(target=self._give, args=(given,))] if self.stdin else []
        for name in ("stdout", "stderr"):
            if pipe := getattr(self, name):
                works.append(threading.Thread(target=_read_all, args=(pipe, name, written)))
        for work in works:
            work.start()
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            for work in works:
                work.join(timeout)
        return written.get("stdout", b""), written.get("stderr", b"")

    def _give(self, given: bytes | None) -> None:
        assert self.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.stdin as pipe:
            left = memoryview(given or b"")
            while left:
                left = left[pipe.write(left) :]


def _read_all(pipe: IO[bytes], name: str, written: dict[str, bytes]) -> None:
    with pipe:
        written[name] = pipe.read()


def run(
    *arguments: str,
    piped: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """A command of xgw to its end, and what it wrote; without `piped` nothing can be read."""
    if not possible(env):
        return _run_alone(arguments, piped, env, cwd, timeout)
    pipe = subprocess.PIPE
    stdin = subprocess.DEVNULL if piped is None else pipe
    command = Command(arguments, stdin=stdin, stdout=pipe, stderr=pipe, env=env, cwd=cwd)
    out, said = command.communicate(piped, timeout)
    code = command.wait()
    return subprocess.CompletedProcess(list(arguments), code, _text(out), _text(said))


def _run_alone(
    arguments: Sequence[str],
    piped: bytes | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    nothing: dict[str, Any] = {"stdin": subprocess.DEVNULL} if piped is None else {"input": piped}
    command = [sys.executable, "-m", "xgw", *arguments]
    done = subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, timeout=timeout, **nothing
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, _text(done.stdout), _text(done.stderr)
    )


def _text(written: bytes) -> str:
    """As a file that is opened as text has it."""
    return io.TextIOWrapper(io.BytesIO(written), encoding="utf-8").read()


def _ask(descriptors: list[int]) -> None:
    """One more fork, which is told by the first of these what it is to run."""
    socket.send_fds(_start()[0], [b"."], descriptors)


def _line(link: socket.socket) -> bytes:
    """The next line, and nothing of what follows it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = link.recv(1)
        assert byte, "the fork is gone"
        line += byte
    return line


@functools.cache
def _start() -> tuple[socket.socket, dict[str, str]]:
    """The link to the process that forks, which ends with it, and what that had for Python."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, _of_python(os.environ)


# -- on the side of the forks ----------------------------------------------------------------------


def _import_all() -> None:
    """Everything that a command of xgw may import."""
    import xgw
    from xgw.store import migrations

    for module in pkgutil.walk_packages(xgw.__path__, "xgw."):
        # The steps of the migrations are no modules, and this one runs when it is imported.
        if not module.name.startswith((f"{migrations.__name__}.", "xgw.__main__")):
            with contextlib.suppress(ImportError):  # what is not installed, or of other systems
                importlib.import_module(module.name)
    for name in ("genai_prices.data", "gunicorn.glogging", "rich.console"):
        importlib.import_module(name)


def _fork_for(link: socket.socket) -> list[str]:
    """Fork whenever asked; it returns in forks alone, with the arguments that they have."""
    while True:
        asked, descriptors, _, _ = socket.recv_fds(link, 1, 4)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not asked:
            os._exit(0)
        if os.fork() == 0:
            link.close()
            return _keep(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(told: int, *streams: int) -> list[str]:
    """Fork once more: somebody has to wait for the command and tell how it ended."""
    link = socket.socket(fileno=told)
    with link.makefile("r") as lines:
        asked = json.loads(lines.readline())
    if (pid := os.fork()) == 0:
        return _become(asked, link, streams)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in {*streams}:
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        link.sendall(f"{status}\n".encode())
    os._exit(0)


def _become(asked: Any, link: socket.socket, streams: Sequence[int]) -> list[str]:
    if asked["session"]:
        os.setsid()
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]
    os.environ.clear()
    os.environ.update(asked["env"])
    time.tzset()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    _open_streams()
    link.sendall(f"{os.getpid()}\n".encode())
    link.detach()
    os.closerange(3, max(map(int, os.listdir("/dev/fd"))) + 1)
    return [str(argument) for argument in asked["arguments"]]


def _open_streams() -> None:
    """As Python opens them when it starts."""
    # They stay open to the end.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _end(code: Any) -> NoReturn:
    """As Python ends, but for taking apart all that was imported."""
    if code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    threading._shutdown()
    atexit._run_exitfuncs()
    ended = code if isinstance(code, int) else int(code is not None)
    try:
        sys.stdout.flush()
    except OSError:
        ended = ended or 120
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(ended)


def _main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    _import_all()
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "what runs in a thread is missing in a fork"
    arguments = _fork_for(link)
    sys.argv = [PROGRAM, *arguments]
    from xgw.cli import main

    try:
        main(prog_name="xgw")
    except SystemExit as end:
        _end(end.code)
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        _end(1)
    _end(None)


if __name__ == "__main__":
    _main()
