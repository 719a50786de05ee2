"""`xgw export --format pytest`: a recorded session becomes a test of an app."""

from __future__ import annotations

import os
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

import cli_stores
import handmade
from servers import DEADLINE
from test_replay import REFUSED, TOO_MANY, call, told
from xgw.errors import WorkError
from xgw.portable.imports import Imports
from xgw.portable.regression import write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a bundle with two calls, one of them refused."""
    made = tmp_path / "regression"
    refused = call(2, "And then?", (2, 3))
    refused["request_logs"].update(TOO_MANY, error_body=REFUSED, response_body=None)
    bundle = told(call(1, "Where?", (0, 1)), refused)
    write_folder(made, lambda out: out.write(bundle) and None)
    return made


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    """As a person would, in a folder that knows nothing of this project."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
    )


@pytest.mark.slow
def test_it_passes_as_it_is(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "app.py",
        "bundle.json",
        "conftest.py",
        "requests.json",
        "test_recorded.py",
    ]

    ran = run_pytest(folder)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


@pytest.mark.slow
def test_an_app_that_asks_for_something_else_fails(folder: Path) -> None:
    app = folder / "app.py"
    asks = 'body = recorded["body"]\n        body["messages"][0]["content"] += "!"\n        send('
    changed = app.read_text("utf-8").replace("        send(", f"        {asks}")
    app.write_text(changed, "utf-8")

    ran = run_pytest(folder)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    words = (
        'the request is not the recorded one: /messages/0/content differs: the record has "Where?"'
    )
    assert words in ran.stdout
    assert '"Where?!" was sent' in ran.stdout


@pytest.mark.slow
def test_an_app_that_asks_for_less_fails(folder: Path) -> None:
    app = folder / "app.py"
    app.write_text(app.read_text("utf-8").replace('"utf-8")):', '"utf-8"))[:1]:'), "utf-8")

    ran = run_pytest(folder)

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 of 2 recorded requests were not sent: /chat/completions (req_" in ran.stdout


def test_nothing_is_left_of_what_cannot_be_played(tmp_path: Path) -> None:
    made = tmp_path / "regression"
    bundle = handmade.spelled(handmade.bundle(request_logs=[]))

    with pytest.raises(WorkError, match="has no request to a provider"):
        write_folder(made, lambda out: out.write(bundle) and None)

    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_folder_of_an_import(tmp_path: Path) -> None:
    bundle = told(call(1, "Where?", (0, 1)))
    Imports(tmp_path / "xgw.db").add(BytesIO(bundle), "bug.json")

    asked = ("export", "key-1", "--format", "pytest", "-o", "made")

    ran = cli_stores.run(tmp_path / "xgw.db", *asked)

    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "made" / "bundle.json").exists()
    again = cli_stores.run(
        tmp_path / "xgw.db", "export", "key-1", "--format", "pytest", "-o", "made"
    )
    assert again.returncode == 1
    assert "is there already: name a new folder" in again.stderr
