"""The loader's process, and the end of it that the measurements hold.

One load at a time: a line of JSON in names it, a line out names the file with what was measured.
That is more than a pipe holds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.asking import Conversation, Reads, Talk, converse, read_pages
from bench.event_loop import run
from bench.load import Calls, Load, run_calls
from bench.processes import running
from bench.watching import Seen, Watching, watch


class Loader:
    """Runs loads in the other process; each method returns when its load has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, calls: Calls) -> Load:
        """Chat requests."""
        return Load(**self._run("calls", calls))

    def read(self, reads: Reads) -> list[list[float]]:
        """Pages of the JSON API."""
        pages: list[list[float]] = self._run("reads", reads)
        return pages

    def converse(self, conversation: Conversation) -> Talk:
        """A conversation that resends its history."""
        return Talk(**self._run("conversation", conversation))

    def watch(self, watching: Watching) -> Seen:
        """A reader of events beside streams."""
        return Seen(**self._run("watching", watching))

    def _run(self, kind: str, load: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([kind, asdict(load)]), file=self._process.stdin, flush=True)
        name = self._process.stdout.readline().strip()
        answer = _take(Path(name)) if name else {"failed": "the loader has ended"}
        if isinstance(answer, dict) and "failed" in answer:
            raise SystemExit(f"bench: {answer['failed']}")
        return answer


@contextlib.contextmanager
def loading() -> Iterator[Loader]:
    """A loader for as long as the block runs."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with running("-m", "bench.loader", **pipes) as process:
        yield Loader(process)


def serve() -> None:
    """Run the loads that standard input asks for."""
    for line in sys.stdin:
        kind, fields = json.loads(line)
        gc.collect()
        gc.disable()
        try:
            answer = _measure(kind, fields)
        except (OSError, TimeoutError) as error:
            answer = {"failed": f"a load of {kind} failed: {error or type(error).__name__}"}
        gc.enable()
        print(_leave(answer), flush=True)


def _leave(answer: Any) -> str:
    """Write it to a file; returns the file's name."""
    with tempfile.NamedTemporaryFile("w", prefix="xgw-bench-", delete=False) as out:
        json.dump(answer, out)
    return out.name


def _take(file: Path) -> Any:
    answer = json.loads(file.read_text())
    file.unlink()
    return answer


def _measure(kind: str, fields: dict[str, Any]) -> Any:
    match kind:
        case "calls":
            return asdict(run(run_calls(Calls(**fields))))
        case "reads":
            return run(read_pages(Reads(**fields)))
        case "conversation":
            return asdict(run(converse(Conversation(**fields))))
        case _:
            return asdict(run(watch(Watching(Calls(**fields["calls"])))))


if __name__ == "__main__":
    serve()
