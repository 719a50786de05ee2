"""Stores for the commands that read: one of fixed rows, and one that a real server wrote."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filled_store import FilledStore, at
from servers import DEADLINE, ROOT, Installation, installed
from servers import run as run_forked
from xgw.cli import main
from xgw.providers.demo import DemoServer

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m \x00nul "
    "\u202eevil\u202c \x9b31m שלום 你好 \u200btail"
)
CONFIG = """
[[providers]]
name = "fast"
kind = "openai"
base_url = "{fast}"
api_key = "sk-fast-0123456789abcdef"
[[providers]]
name = "dead"
kind = "openai"
base_url = "http://127.0.0.1:{dead}/v1"
api_key = "sk-dead-0123456789abcdef"
[[providers]]
name = "demo"
kind = "demo"
[[routes]]
model = "gpt-4o"
targets = ["fast/gpt-4o"]
[[routes]]
model = "flaky"
targets = ["fast/gpt-4o-mini"]
retry = {{ max_attempts = 2, base_delay_ms = 20 }}
[[routes]]
model = "spare"
targets = ["dead/gpt-4o", "fast/gpt-4o-mini"]
fallback_on = ["connection"]
[[routes]]
model = "demo"
targets = ["demo/demo"]
"""


def run(store: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command on a store without a configuration, in UTC, to its end."""
    env = {**os.environ, "TZ": "UTC", **env}
    return run_forked(*arguments, "--db", str(store), env=env, cwd=store.parent)


# -- fixed rows ------------------------------------------------------------------------------------

SECOND = 1 / 60
"""In minutes, as FilledStore takes times."""


class FixedStore(FilledStore):
    """Sessions with every id, time and figure known beforehand."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "xgw.db"
        self._add_retried()
        self._add_tools()
        self._add_estimated()

    def _add_retried(self) -> None:
        totals: dict[str, Any] = {
            "input_tokens": 1200,
            "output_tokens": 44,
            "cached_tokens": 1024,
            "reasoning_tokens": 0,
            "total_tokens": 1244,
            "cost_usd": 0.00217,
            "usage_source": "provider",
        }
        session = self.session(
            "checkout-42",
            id=_id("sess", 1),
            model="gpt-4o",
            provider_name="openai",
            turn_count=1,
            message_count=2,
            request_count=2,
            context_tokens=1244,
            **totals,
        )
        turn = self.turn(
            session,
            id=_id("turn", 1),
            user_input="Where?",
            final_output="On its way.",
            final_provider_name="openai",
            final_model="gpt-4o",
            ended_by="finished",
            finish_reason="stop",
            ended_at=at(2 * SECOND),
            latency_ms=2000,
            busy_ms=2000,
            llm_calls=1,
            attempts=2,
            trace_id="1" * 32,
            **totals,
        )
        run = self.run(
            turn,
            id=_id("run", 1),
            ended_at=at(2 * SECOND),
            latency_ms=2000,
            busy_ms=2000,
            ended_by="finished",
        )
        shared: dict[str, Any] = {
            "provider_name": "openai",
            "model": "gpt-4o",
            "model_requested": "gpt-4o",
            "session_id": session,
            "trace_id": "1" * 32,
        }
        failed = self.step(
            run,
            turn,
            id=_id("step", 1),
            observation_id="1" * 16,
            status="error",
            error_type="upstream_rate_limit",
            error_message="Slow down",
            http_status=429,
            latency_ms=100,
            ended_at=at(0.1 * SECOND),
            **shared,
        )
        answered = self.step(
            run,
            turn,
            1 * SECOND,
            id=_id("step", 2),
            observation_id="2" * 16,
            step_index=1,
            attempt=2,
            attempt_reason="retry",
            waited_ms=900,
            finish_reason="stop",
            http_status=200,
            ttft_ms=400,
            latency_ms=1000,
            ended_at=at(2 * SECOND),
            context_tokens=1200,
            output_payload=self.body(
                {
                    "choices": [
                        {
                            "index": 0,
                            "message": {"role": "assistant", "content": "On its way."},
                            "finish_reason": "stop",
                        }
                    ]
                }
            ),
            input_payload=self.body(
                {
                    "model": "gpt-4o",
                    "temperature": 0.2,
                    "messages": [
                        {"role": "system", "content": "Be brief."},
                        {"role": "user", "content": "Where?"},
                    ],
                }
            ),
            **shared,
            **totals,
        )
        self._log(
            turn,
            session,
            1,
            failed,
            status_code=429,
            latency_ms=100,
            error_type="upstream_rate_limit",
            error_message="Slow down",
        )
        self._log(
            turn,
            session,
            2,
            answered,
            input_tokens=1200,
            output_tokens=44,
            latency_ms=1000,
            ttft_ms=400,
            frames=[[0, 400], [90, 410], [180, 990]],
            response_body=self.body(b'{"choices": []}'),
        )

    def _log(self, turn: str, session: str, number: int, step: str, **columns: Any) -> None:
        known: dict[str, Any] = {
            "provider_name": "openai",
            "model": "gpt-4o",
            "session_id": session,
            "step_id": step,
            "id": _id("req", number),
            "stream": 1,
            "chunks": 3,
            "endpoint": "/chat/completions",
            "bytes_sent": 200,
            "bytes_received": 2048,
            "url": "https://api.openai.com/v1/chat/completions",
            "client": {"user_agent": "app/1", "address": "127.0.0.1", "key": None},
            "request_headers": [
                ["content-type", "application/json"],
                ["authorization", "[masked]"],
            ],
            "response_headers": [["x-request-id", "abc"]],
        }
        self.request(turn, number - 1, **(known | columns))

    def _add_tools(self) -> None:
        session = self.session(
            start=10,
            id=_id("sess", 2),
            session_key=_id("sess", 2),
            model="gpt-4o",
            provider_name="openai",
            turn_count=1,
            active_turn_id=_id("turn", 2),
        )
        turn = self.turn(
            session,
            10,
            id=_id("turn", 2),
            user_input="Weather in Rome?",
            status="running",
            ended_at=None,
            llm_calls=1,
            tool_calls=1,
            attempts=1,
        )
        run = self.run(turn, 10, id=_id("run", 2), status="waiting_tool")
        self.step(
            run,
            turn,
            10,
            id=_id("step", 3),
            session_id=session,
            provider_name="openai",
            model="gpt-4o",
            finish_reason="tool_calls",
            latency_ms=500,
            ttft_ms=500,
            ended_at=at(10 + 0.5 * SECOND),
            tool_calls=[
                {
                    "tool_call_id": "call_1",
                    "name": "get_weather",
                    "arguments": '{"city": "Rome"}',
                    "arguments_json_valid": True,
                }
            ],
        )
        self.step(
            run,
            turn,
            10 + 0.5 * SECOND,
            id=_id("step", 4),
            session_id=session,
            step_index=1,
            step_type="tool_call",
            name="get_weather",
            attempt=None,
            tool_call_id="call_1",
            latency_ms=300,
            ended_at=at(10 + 0.8 * SECOND),
            metadata={"side": "client", "arguments": '{"city": "Rome"}'},
            output_payload=self.body({"temp": 21}),
        )

    def _add_estimated(self) -> None:
        session = self.session(
            "broken",
            20,
            id=_id("sess", 3),
            model="llama",
            turn_count=1,
            provider_name="local",
            total_tokens=19,
            usage_source="estimated",
        )
        self.turn(
            session,
            20,
            id=_id("turn", 3),
            user_input="Say\nsomething",
            status="error",
            ended_by="provider",
            error_type="upstream_truncated",
            error_message="the answer broke off",
            total_tokens=19,
            latency_ms=60_000,
            usage_source="estimated",
        )


def _id(prefix: str, number: int) -> str:
    return f"{prefix}_{number:032x}"


# -- what a real server wrote ----------------------------------------------------------------------


@contextlib.contextmanager
def recorded(folder: Path) -> Iterator[Recorded]:
    """A server with a fast scripted upstream behind it, a dead one, and the demo."""
    upstream = DemoServer(pace=0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        dead = taken.getsockname()[1]
    try:
        config = CONFIG.format(fast=upstream.start(), dead=dead)
        with installed(folder, config) as installation:
            yield Recorded(installation)
    finally:
        upstream.stop()


class Recorded:
    """An installation whose server takes requests."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.server = installation.serve()

    def restart(self) -> None:
        """A new server on the same store; it has another port."""
        self.server = self.installation.serve()

    def ask(
        self,
        said: str | list[Any],
        session: str | None = None,
        model: str = "gpt-4o",
        key: str = "",
        **fields: Any,
    ) -> Answer:
        """One request to the gateway, to the end of its answer."""
        messages = said if isinstance(said, list) else [{"role": "user", "content": said}]
        body = {"model": model, "messages": messages, **fields}
        if session is not None:
            body["metadata"] = {"session_id": session}
        connection = self.connect()
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "app/1"}
            if key:
                headers["Authorization"] = f"Bearer {key}"
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            content = response.read()
            return Answer(response.status, response.getheader("X-Turn-Id") or "", content)
        finally:
            connection.close()

    def ask_with_tool(self, session: str) -> Answer:
        """A question that the model answers by means of tools, and their results."""
        history: list[Any] = [{"role": "user", "content": "What is the weather in Paris and Rome?"}]
        asked = self.ask(history, session, tools=[WEATHER])
        message = json.loads(asked.body)["choices"][0]["message"]
        history.append(message)
        for number, call in enumerate(message["tool_calls"]):
            content = json.dumps({"temp": 20 + number})
            history.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        return self.ask(history, session, tools=[WEATHER], stream=True)

    def get(self, path: str) -> Any:
        """What the JSON API answers."""
        connection = self.connect()
        try:
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command on this store, to its end."""
        return self.installation.run(*arguments, env={"TZ": "UTC", **env})

    def show(self, *arguments: str) -> str:
        """What a command prints, run in this very process: for many of them."""
        files = ["--config", str(self.installation.config), "--db", str(self.installation.store)]
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            main([*arguments, *files], standalone_mode=False)
        return printed.getvalue()

    def json(self, *arguments: str) -> Any:
        """What a command prints as JSON."""
        return json.loads(self.show(*arguments, "--json"))


class Answer:
    """An answer of the gateway."""

    def __init__(self, status: int, turn: str, body: bytes) -> None:
        self.status = status
        self.turn = turn
        self.body = body


__all__ = ["HOSTILE", "ROOT", "FixedStore", "Recorded", "recorded", "run"]


@contextlib.contextmanager
def first_hour(folder: Path) -> Iterator[Recorded]:
    """The same with what one would do in a first hour with xgw."""
    with recorded(folder) as record:
        record.ask("What can you do?", "checkout-42", stream=True)
        record.ask("And what else? demo:reason", "checkout-42", temperature=0.5)
        record.ask_with_tool("weather")
        record.ask("demo:flaky please", "flaky", model="flaky")
        record.ask("demo:cut now", "broken", stream=True)
        record.ask(HOSTILE, "שלום <b>bold</b>")
        record.ask("hello", model="no-such-model")
        yield record
