"""One file of everything, in an empty folder with nothing around it: dist/xgw.pyz and dist/xgw.

`make zipapp binary` makes them; XGW_ONE_FILE_TESTS=required says that they are made and meant.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import ROOT, ServerProcess
from visits import Visits
from xgw import __version__

REQUIRED = os.environ.get("XGW_ONE_FILE_TESTS") == "required"
DIST = ROOT / "dist"
KINDS = ("xgw.pyz", "xgw")
SECONDS = 120
"""The first start of a zip unpacks it, each start of the program does."""

pytestmark = [
    pytest.mark.skipif(not REQUIRED, reason="XGW_ONE_FILE_TESTS is not `required`"),
    pytest.mark.slow,
]


class Alone:
    """A file in an empty folder, with an environment of four names."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder / "empty"
        self.scratch = folder / "scratch"
        home = folder / "home"
        for made in (self.folder, self.scratch, home):
            made.mkdir()
        python = Path(sys.base_prefix, "bin")
        path = f"{python}:/usr/bin:/bin" if kind.endswith(".pyz") else "/usr/bin:/bin"
        names = {"HOME": home, "PATH": path, "TMPDIR": self.scratch, "LANG": "C.UTF-8"}
        pairs = [f"{name}={value}" for name, value in names.items()]
        self._command = ["/usr/bin/env", "-i", *pairs, str(DIST / kind)]

    def run(self, *arguments: str) -> str:
        """What a command says; it succeeds and complains about nothing."""
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self) -> ServerProcess:
        return ServerProcess([*self._command, "serve", "--port", "0"], cwd=self.folder)


@pytest.fixture(scope="module", params=KINDS)
def alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Alone:
    kind = request.param
    assert (DIST / kind).is_file(), f"make zipapp binary makes dist/{kind}"
    return Alone(tmp_path_factory.mktemp("alone"), kind)


def ask(url: str, body: Any = None) -> Any:
    content = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
        return json.load(answer)


def test_the_commands_work_without_a_server(alone: Alone) -> None:
    assert alone.run("--version") == f"xgw {__version__}\n"
    said = alone.run("chat", "-a", "demo", "-s", "first", "what is the weather in Oslo and 17*23?")
    assert "391" in said
    (session,) = json.loads(alone.run("sessions", "--json"))["data"]
    assert (session["session_key"], session["turn_count"]) == ("first", 1)
    assert "no mistakes" in alone.run("doctor", "--offline")
    exported = json.loads(alone.run("export", "first", "-o", "-"))
    assert "xgw_bundle" in exported
    assert list(alone.scratch.iterdir()) == []


@pytest.fixture
def server(alone: Alone) -> Iterator[ServerProcess]:
    server = alone.serve()
    yield server
    server.close()


def test_it_serves_and_shows_the_dashboard(
    alone: Alone, server: ServerProcess, visit: Visits
) -> None:
    assert ask(f"{server.url}/health")["status"] == "ok"
    said = {"role": "user", "content": "hello from a client"}
    body = {"model": "demo", "messages": [said], "metadata": {"session_id": "by hand"}}
    answer = ask(f"{server.url}/v1/chat/completions", body)
    assert "scripted demo" in answer["choices"][0]["message"]["content"]
    assert "391" in alone.run("chat", "-a", "demo", "17*23?")  # by the server
    assert ask(f"{server.url}/sessions/by%20hand")["context"]["used"] > 0
    page = visit(f"{server.url}/ui/")
    page.get_by_text("hello from a client").first.click()
    page.get_by_text("scripted demo").first.wait_for()
    assert page.evaluate("getComputedStyle(document.body).margin") == "0px"
    assert page.evaluate("typeof htmx") == "object"
    page.close()
    assert server.stop() == 0
    assert list(alone.scratch.iterdir()) == []


def test_the_tools_of_an_mcp_server(alone: Alone) -> None:
    pytest.importorskip("mcp")
    script = [sys.executable, "-m", "mcp_server_time"]
    config = alone.folder / "mcp.toml"
    config.write_text(
        f"[tools.far]\nmcp = {{ command = {json.dumps(script)} }}\n"
        '[agents.a]\nmodel = "demo"\ninstructions = "x"\ntools = ["far"]\n'
    )
    assert "no mistakes" in alone.run("check", "--config", "mcp.toml")


def test_nothing_of_this_machine_is_in_it() -> None:
    here = str(ROOT).encode()
    with zipfile.ZipFile(DIST / "xgw.pyz") as archive:
        assert [name for name in archive.namelist() if here in archive.read(name)] == []
    assert here not in (DIST / "xgw").read_bytes()
