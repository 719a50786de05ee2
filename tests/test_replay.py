"""A bundle answers as it was recorded: the same bytes, the same failures, at the same times."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

import bundles
import handmade
from cli_stores import WEATHER, Recorded, recorded
from servers import DEADLINE, XGW, Process
from xgw.store.database import Store

MODEL = "demo"
TOOL_QUESTION = "What is the weather in Paris and Rome?"


@dataclass
class Heard:
    """What a client heard of one request: bytes and their seconds since it was sent."""

    status: int
    kind: str
    body: bytes
    seconds: list[float]


@dataclass
class Playing:
    """`xgw replay` on a bundle."""

    process: Process
    url: str

    def status(self) -> Any:
        return self.ask("GET", "/replay")[1]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        host = self.url.removeprefix("http://").removesuffix("/v1")
        connection = http.client.HTTPConnection(host, timeout=DEADLINE)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def post(self, body: Any, path: str = "/v1/chat/completions") -> tuple[int, Any]:
        return self.ask("POST", path, body)

    def stop(self) -> str:
        """What it says at its end."""
        self.process.popen.send_signal(signal.SIGTERM)
        assert self.process.popen.wait(DEADLINE) == 0
        return self.process.stderr.wait_for_end()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Any]:
    """Starts `xgw replay` on the bytes of a bundle."""
    running: list[Playing] = []

    def start(content: bytes, *options: str) -> Playing:
        file = tmp_path / "bundle.json"
        file.write_bytes(content)
        process = Process([*XGW, "replay", str(file), *options])
        url = process.stdout.wait_for(r"http://\S+/v1")[0]
        running.append(Playing(process, url))
        return running[-1]

    yield start
    for one in running:
        one.process.popen.kill()
        one.process.popen.wait(DEADLINE)


def hear(url: str, body: dict[str, Any]) -> Heard:
    """One request through the SDK."""
    client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=DEADLINE)
    begun, seconds, blocks = time.monotonic(), [], []
    with client:
        try:
            with client.chat.completions.with_streaming_response.create(**body) as reply:
                for block in reply.iter_bytes():
                    blocks.append(block)
                    seconds.append(time.monotonic() - begun)
                kind = reply.headers["content-type"]
                return Heard(reply.status_code, kind, b"".join(blocks), seconds)
        except openai.APIStatusError as error:
            kind = error.response.headers["content-type"]
            seconds = [time.monotonic() - begun]
            return Heard(error.status_code, kind, error.response.content, seconds)


def said(content: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], **more}


def with_session(body: dict[str, Any], key: str) -> dict[str, Any]:
    return {**body, "metadata": {"session_id": key}}


def requests_of(first: Heard) -> Iterator[dict[str, Any]]:
    """What follows on the answer that asks for tools."""
    message = json.loads(first.body)["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": '{"temp": 20}'}
        for call in message["tool_calls"]
    ]
    asked = said(TOOL_QUESTION, tools=[WEATHER], stream=True)
    yield {**asked, "messages": [*asked["messages"], message, *results]}


@dataclass
class Session:
    """A recorded session: what was sent, what was heard, and the bundle of it."""

    sent: list[dict[str, Any]]
    heard: list[Heard]
    bundle: bytes


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Tools, a stream, a refusal, a stream that is cut, and one answered at the second try."""
    with recorded(tmp_path_factory.mktemp("recorded")) as server:
        url = f"{server.installation.server.url}/v1" if False else _url(server)
        sent = [said(TOOL_QUESTION, tools=[WEATHER])]
        heard = [hear(url, with_session(sent[0], "s-1"))]
        sent += requests_of(heard[0])
        sent += [said("429 please"), said("please cut this answer", stream=True)]
        sent += [{**said("be flaky once"), "model": "flaky"}]
        heard += [hear(url, with_session(body, "s-1")) for body in sent[1:]]
        store = Store(next(server.installation.folder.rglob("xgw.db")))
        try:
            return Session(sent, heard, bundles.export(store))
        finally:
            store.close()


def _url(server: Recorded) -> str:
    return f"{server.server.url}/v1"


def test_a_client_hears_what_it_heard_then(session: Session, play: Any) -> None:
    playing = play(session.bundle)

    for body, then in zip(session.sent, session.heard, strict=True):
        now = hear(playing.url, body)

        assert (now.status, now.kind) == (then.status, then.kind), body
        assert now.body == then.body, body
        print(
            body["messages"][0]["content"],
            then.seconds[0],
            now.seconds[0],
            then.seconds[-1],
            now.seconds[-1],
        )
    assert [one.status for one in session.heard] == [200, 200, 429, 200, 200]
    assert b'"type":"upstream_truncated"' in session.heard[3].body
    status = playing.status()
    assert (status["played"], status["left"], status["refused"]) == (5, 0, 0)
    assert playing.stop().strip() == "Played 5 of 5 requests."
