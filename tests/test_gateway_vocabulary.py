"""What tokens are counted with is large: it is there once somebody has asked a model something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults import Running
from gateway_fixtures import PROVIDER_KEY
from scripted_model import Model, chat, says
from servers import Installation, ServerProcess, installed

CONFIG = """
[[providers]]
name = "p1"
base_url = "{url}"
api_key = "{key}"
[[routes]]
model = "m"
targets = ["p1/m"]
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.check()
    model.close()


@pytest.fixture
def installation(tmp_path: Path, model: Model) -> Iterator[Installation]:
    with installed(tmp_path, CONFIG.format(url=model.url, key=PROVIDER_KEY)) as one:
        yield one


def has_vocabulary(server: ServerProcess) -> bool:
    """Whether a process of the server has loaded the library that has it inside."""
    pids = [server.popen.pid, *server.workers()]
    return any("toktok" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)


def test_it_comes_with_the_first_request_and_counts_that_one_too(
    installation: Installation, model: Model
) -> None:
    server = installation.serve()
    gate = Running(server, model, installation.store)
    assert gate.get("/health").status == 200
    assert gate.get("/sessions").status == 200
    assert not has_vocabulary(server)
    model.will(says("four"))
    assert gate.post(chat("What is two and two?", metadata={"session_id": "first"})).status == 200
    assert has_vocabulary(server)
    [turn] = gate.turns("first")
    counted = [(said["token_count"], said["token_source"]) for said in gate.messages(turn)]
    assert counted[0] == (10, "estimated")
    assert gate.steps(turn)[0]["context_tokens"] is not None
    gate.store.close()
