"""Older stores while a server runs: it goes on serving, and shows what has come."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from older_readings import READERS, rows
from older_stores import write_gateway, write_tasks
from servers import DEADLINE, Installation, ServerProcess, installed


class Live:
    """A server, the older stores beside it, and a client that asks all the time."""

    def __init__(self, installation: Installation) -> None:
        self.xgw = installation
        self.server: ServerProcess = installation.serve("--demo")
        self.gateway, self.tasks = (installation.folder / f"{n}.db" for n in ("gateway", "tasks"))
        write_gateway(self.gateway, 30, seed=5)
        write_tasks(self.tasks, 30, seed=5)
        self.statuses: list[int] = []
        self._stopping = threading.Event()

    def ask(self, session: str, text: str = "hello") -> int:
        """One chat request; its status."""
        body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
        headers = {"Content-Type": "application/json", "X-Session-Id": session}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def get(self, path: str) -> str:
        """What a GET brings; it has to be 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        assert answer.status == 200, (path, body)
        return body

    def beside(self, *arguments: str) -> dict[str, Any]:
        """Run a command while the client asks; what it reports."""
        self._stopping.clear()
        asking = threading.Thread(target=self._ask_on)
        asking.start()
        try:
            done = self.xgw.run(*arguments, "--json")
        finally:
            self._stopping.set()
            asking.join(DEADLINE)
        assert done.returncode == 0, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def _ask_on(self) -> None:
        while not self._stopping.is_set():
            self.statuses.append(self.ask("live"))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with installed(tmp_path_factory.mktemp("live")) as installation:
        yield Live(installation)


@pytest.mark.slow
def test_a_server_goes_on_while_older_stores_come_in(live: Live) -> None:
    said = READERS["gateway"](live.gateway)
    chosen = next(name for name, (_, told) in said.items() if told and told[0].role == "user")
    for old in (live.gateway, live.tasks):
        assert live.beside("migrate", "--from-legacy", str(old))["balances"]

    before_turns(live, chosen, [one.content for one in said[chosen][1]])
    # The conversation goes on with a turn of today, then the old ones get theirs.
    assert live.ask(chosen, "and today?") == 200
    made = live.beside("backfill-turns")
    assert made["turns"] > 50
    [(id,)] = rows(live.xgw.store, "SELECT id FROM sessions WHERE session_key = ?", chosen)
    told = json.loads(live.get(f"/sessions/{id}/turns?order=asc&limit=100"))["data"]
    assert [turn["turn_index"] for turn in told] == list(range(len(told)))
    assert [turn["user_input"] for turn in told][-1] == "and today?"
    assert ["backfilled" in (turn["metadata"] or {}) for turn in told] == [
        *[True] * (len(told) - 1),
        False,
    ]
    assert "of no turn" not in live.get(f"/ui/sessions/{id}")
    assert "success" in live.get(f"/ui/turns/{told[0]['id']}")
    for [step] in rows(
        live.xgw.store, "SELECT id FROM steps WHERE step_type = 'tool_call' LIMIT 1"
    ):
        live.get(f"/ui/steps/{step}")

    assert set(live.statuses) == {200}
    [(count,)] = rows(
        live.xgw.store,
        "SELECT turn_count FROM sessions WHERE session_key = 'live'",
    )
    assert count == len(live.statuses)
    types = dict(rows(live.xgw.store, "SELECT type, count(*) FROM events GROUP BY type"))
    assert types["turn.backfilled"] == made["turns"]


def before_turns(live: Live, key: str, contents: list[str | None]) -> None:
    """A session that was taken over is shown, though it has no turns yet."""
    [(id,)] = rows(live.xgw.store, "SELECT id FROM sessions WHERE session_key = ?", key)
    listed = json.loads(live.get(f"/sessions/{id}/messages?order=asc&limit=500"))["data"]
    assert [one["content"] for one in listed] == contents
    assert {one["turn_id"] for one in listed} == {None}
    assert json.loads(live.get(f"/sessions/{id}"))["source"] == "import"
    page = live.get(f"/ui/sessions/{id}")
    assert "of no turn" in page
    assert page.count("entry is-") == len(contents)
    shown = live.xgw.run("show", id)
    assert shown.returncode == 0
    assert "Messages without a turn" in shown.stdout
    for path in ("/ui/", "/ui/requests", "/requests", "/sessions?q=source"):
        live.get(path)
    [(request,)] = rows(
        live.xgw.store, "SELECT id FROM request_logs WHERE status_code = 500 LIMIT 1"
    )
    assert "upstream failed" in live.get(f"/ui/requests/{request}")
    assert "None" not in live.xgw.run("show", request).stdout
