"""Stand-ins for a provider that others wrote, as real servers: llmock (Python), aimock (Node).

A test says what the model answers to each message; how that looks on the wire is theirs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pytest

from gateway_fixtures import Client
from servers import DEADLINE, Process

# Read when the tests are collected: later this name is taken out of the environment.
REQUIRED = os.environ.get("XGW_NODE_TESTS") == "required"

FOLDER = Path(__file__).with_name("node")
OLDEST_NODE = (20, 15)

Row = dict[str, Any]


@dataclass(frozen=True)
class Says:
    """A text; with `breaks_off` the connection ends in the middle of it."""

    text: str
    breaks_off: bool = False


@dataclass(frozen=True)
class Calls:
    """A call of a tool; with `broken` its arguments are no JSON."""

    name: str
    arguments: Row
    broken: bool = False


@dataclass(frozen=True)
class Refuses:
    """429, with the seconds to wait in Retry-After."""

    retry_after: float


Answer = Says | Calls | Refuses
Script = Mapping[str, Sequence[Answer]]
"""What is answered to a person's message, request by request."""


class Fake:
    """A running one; `url` is what a provider's `base_url` is."""

    def __init__(self, process: Process, root: str, script: Script) -> None:
        self.process = process
        self.url = f"{root}/v1"
        self.admin = Client(root)
        self.script = script

    def plan(self, message: str) -> None:
        """This message is about to be sent."""

    def asked(self) -> list[Row]:
        """The bodies of the requests it has got, as it tells them."""
        raise NotImplementedError

    def check(self) -> None:
        """AssertionError where it finds fault with what it was asked."""
        raise NotImplementedError


class LLMock(Fake):
    """Its answers and its faults wait in one queue each, and a refused request takes none."""

    def plan(self, message: str) -> None:
        behaviours = [one for answer in self.script[message] for one in _behaviours(answer)]
        posted = self.admin.post({"behaviors": behaviours}, "/_llmock/scenario")
        assert posted.status == 201, posted.body

    def asked(self) -> list[Row]:
        return [one["body"] for one in self.admin.get("/_llmock/requests").json["requests"]]

    def check(self) -> None:
        verdict = self.admin.get("/_llmock/verdict").json
        # An answer that has begun is not asked for again: that is a warning of its own.
        assert {one["code"] for one in verdict["findings"]} <= {"gave_up"}, verdict


def _behaviours(answer: Answer) -> Iterator[Row]:
    match answer:
        case Refuses(retry_after):
            yield {"type": "fail", "status": 429, "retry_after": retry_after}
        case Says(text, breaks_off):
            yield {"type": "reply", "text": text}
            if breaks_off:
                yield {"type": "stream_fault", "kind": "disconnect", "after_chunks": 4}
        case Calls(name, arguments, broken):
            yield {"type": "reply", "tool_calls": [{"name": name, "arguments": arguments}]}
            if broken:
                yield {"type": "tool_fault", "kind": "malformed_arguments"}


class AIMock(Fake):
    """It reads the whole script at its start: only in a file may arguments be broken."""

    def asked(self) -> list[Row]:
        return [one["body"] for one in self._journal()]

    def check(self) -> None:
        assert [one for one in self._journal() if one["response"]["status"] not in (200, 429)] == []

    def _journal(self) -> list[Row]:
        listed: list[Row] = self.admin.get("/__aimock/journal").json
        return listed


def _fixture(message: str, number: int, answer: Answer) -> Row:
    match = {"userMessage": message, "sequenceIndex": number}
    match answer:
        case Refuses(retry_after):
            error = {"message": "Slow down.", "type": "rate_limit_error"}
            return {
                "match": match,
                "response": {"error": error, "status": 429, "retryAfter": retry_after},
            }
        case Says(text, breaks_off):
            # With a pause before each, only the chunk that it breaks off after can get lost.
            cut = {"truncateAfterChunks": 4, "latency": 10} if breaks_off else {}
            return {"match": match, "response": {"content": text}, **cut}
        case Calls(name, arguments, broken):
            sent = orjson.dumps(arguments).decode()
            called = {"name": name, "arguments": sent[: len(sent) // 2] if broken else sent}
            return {"match": match, "response": {"toolCalls": [called]}}


@contextlib.contextmanager
def llmock(folder: Path, script: Script) -> Iterator[LLMock]:
    """llmock for a `with` block."""
    program = "from llmock.cli import app; app()"
    process = Process([sys.executable, "-c", program, "serve", "--port", "0"], cwd=folder)
    with contextlib.closing(process):
        running = process.stderr.wait_for(r"running on (http://\S+)")
        yield LLMock(process, running[1], script)


@contextlib.contextmanager
def aimock(folder: Path, script: Script) -> Iterator[AIMock]:
    """aimock for a `with` block; the test is skipped where there is no Node for it."""
    program = _node_modules() / "@copilotkit" / "aimock" / "dist" / "aimock-cli.js"
    fixtures = [
        _fixture(message, number, answer)
        for message, answers in script.items()
        for number, answer in enumerate(answers)
    ]
    (folder / "script.json").write_bytes(orjson.dumps({"fixtures": fixtures}))
    config = {"strict": True, "llm": {"chunkSize": 6, "fixtures": str(folder / "script.json")}}
    (folder / "aimock.json").write_bytes(orjson.dumps(config))
    process = Process(["node", str(program), "--config", str(folder / "aimock.json")], cwd=folder)
    with contextlib.closing(process):
        running = process.stdout.wait_for(r"listening on (http://\S+)")
        yield AIMock(process, running[1], script)


# -- Node ------------------------------------------------------------------------------------------


def _node_modules() -> Path:
    """What `tests/node/package-lock.json` names, installed if it is not yet."""
    if _node_version() < OLDEST_NODE or shutil.which("npm") is None:
        _missing(f"there is no Node {'.'.join(map(str, OLDEST_NODE))} or newer with npm here")
    installed, wanted = FOLDER / "node_modules", FOLDER / "package-lock.json"
    mark = installed / ".package-lock.json"
    if not mark.exists() or mark.stat().st_mtime < wanted.stat().st_mtime:
        done = subprocess.run(
            ["npm", "ci"], cwd=FOLDER, capture_output=True, text=True, timeout=4 * DEADLINE
        )
        if done.returncode != 0:
            _missing(f"`npm ci` in tests/node failed: {done.stderr.strip()}")
    return installed


def _node_version() -> tuple[int, ...]:
    """The version of this machine's Node; nothing without one."""
    if shutil.which("node") is None:
        return ()
    told = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=DEADLINE)
    return tuple(map(int, re.findall(r"\d+", told.stdout)))


def _missing(reason: str) -> NoReturn:
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)
