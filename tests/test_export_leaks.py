"""Secrets of each kind, planted wherever a request and its answer can hold one: none leaves."""

from __future__ import annotations

import contextlib
import html
import http.client
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import bundles
from planted import BASIC, HOMES, KEYS, NAMED, PASSWORD, PEOPLE
from servers import DEADLINE, Installation, installed
from xgw import clock
from xgw.cli import main

FORMATS = ("json", "jsonl", "markdown", "html", "curl", "python", "openai")
SECRETS = {
    **KEYS,
    **PEOPLE,
    **{f"home: {kind}": name for kind, (_, name) in HOMES.items()},
    "password": PASSWORD,
    "basic": BASIC,
}
PATHS = [path for path, _ in HOMES.values()]
SAID = "\n".join([*KEYS.values(), *PEOPLE.values(), *PATHS, *NAMED.values(), f"Basic {BASIC}"])
ARGUMENTS = json.dumps({"text": SAID, "password": PASSWORD, "list": [PEOPLE["email"]]})
CLEAN = """def login(user: str, password: str) -> None: ...  # 2024-11-30T12:00:00Z v1.2.3 10.0.0.1
{"max_tokens": 5, "id": "0193f1c2-a4b5-c6d7-e8f9-0a1b2c3d4e5f", "n": [1.50, 4111111111111112]}
Bearer tokens, sk-circle-fade-dot, git@github.com:owner/repo.git, +1 234 567 more \\u00e9 %20"""
CONFIG = """
[redact]
patterns = ["ACME-[0-9]+"]
[[providers]]
name = "up"
kind = "openai"
base_url = "{url}/v1"
api_key = "up-configured-key-0001"
[[routes]]
model = "*"
targets = ["up/*"]
"""

Row = dict[str, Any]


class _Upstream(BaseHTTPRequestHandler):
    """Says in every way what it was told to: in a stream, in arguments, in an error, in headers."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last = body["messages"][-1]
        if last["content"] == "fail":
            error = {"message": f"bad: {SAID}", "type": "x", "code": PEOPLE["email"]}
            self._answer(400, "application/json", json.dumps({"error": error}).encode())
        elif last["content"] == CLEAN:
            self._answer(200, "text/event-stream", b"".join(_stream(_pieces(CLEAN))))
        elif body.get("tools") and last["role"] == "user":
            self._answer(200, "text/event-stream", b"".join(_calls()))
        else:
            self._answer(200, "text/event-stream", b"".join(_stream(_pieces(SAID))))

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if self.headers["Cookie"]:
            self.send_header("Set-Cookie", f"sid={PASSWORD}; Path=/")
            self.send_header("Location", f"https://app:{PASSWORD}@h.example/?token={PASSWORD}")
            self.send_header("X-Note", f"{PEOPLE['email']} {KEYS['openai']}")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _pieces(text: str) -> list[str]:
    return [text[at : at + 11] for at in range(0, len(text), 11)]


def _stream(pieces: list[str]) -> Iterator[bytes]:
    yield from (_chunk({"content": piece}) for piece in pieces)
    yield _chunk({}, "stop")
    yield b"data: [DONE]\n\n"


def _calls() -> Iterator[bytes]:
    function = {"name": "look_up", "arguments": ""}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    yield _chunk({"tool_calls": [call]})
    for piece in _pieces(ARGUMENTS):
        yield _chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    yield _chunk({}, "tool_calls")
    yield b"data: [DONE]\n\n"


def _chunk(delta: Row, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Upstream) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(DEADLINE)


def ask(port: int, session: str, messages: list[Any], **fields: Any) -> None:
    body = {"model": f"m-{PEOPLE['email']}", "messages": messages, "stream": True, **fields}
    body["metadata"] = {"session_id": session, "note": SAID, "password": PASSWORD}
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {KEYS['openai']}",
        "Cookie": f"sid={PASSWORD}",
        "User-Agent": f"app/1 ({PEOPLE['email']})",
        "X-Note": f"{KEYS['github']} /home/adalove/x",
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    connection.getresponse().read()
    connection.close()


TOOL = {"type": "function", "function": {"name": "look_up", "description": SAID, "parameters": {}}}
SESSION = f"of {PEOPLE['email']}"


@pytest.fixture(scope="module")
def installation(served: tuple[Installation, int]) -> Installation:
    return served[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, int]]:
    """Where all of it was recorded, and the port at which the server still is."""
    with (
        upstream() as url,
        installed(tmp_path_factory.mktemp("leaks"), CONFIG.format(url=url)) as made,
    ):
        server = made.serve()
        picture = {"url": f"https://app:{PASSWORD}@h.example/a.png?sig={PASSWORD}"}
        parts = [{"type": "text", "text": SAID}, {"type": "image_url", "image_url": picture}]
        history: list[Any] = [
            {"role": "system", "content": SAID},
            {"role": "user", "name": PEOPLE["email"], "content": parts},
        ]
        ask(server.port, SESSION, history, tools=[TOOL], user=PEOPLE["email"])
        call = {"name": "look_up", "arguments": ARGUMENTS}
        history.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
            }
        )
        result = json.dumps({"found": SAID, "raw": json.dumps({"secret": PASSWORD})})
        history.append({"role": "tool", "tool_call_id": "call_1", "content": result})
        ask(server.port, SESSION, history, tools=[TOOL])
        ask(server.port, SESSION, [{"role": "user", "content": "fail"}])
        ask(server.port, SESSION, [{"role": "user", "content": "ACME-77 and ACME-78"}])
        ask_clean(server.port)
        yield made, server.port


def ask_clean(port: int) -> None:
    messages = [{"role": "user", "content": CLEAN}]
    body = {"model": "m", "messages": messages, "stream": True}
    headers = {"Content-Type": "application/json", "X-Session-Id": "clean"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    connection.getresponse().read()
    connection.close()


def exported(installation: Installation, *arguments: str) -> str:
    """What the command writes, run in this very process: a new one takes a second."""
    file = installation.folder / "exported"
    files = ["--config", str(installation.config), "--db", str(installation.store)]
    with contextlib.redirect_stderr(io.StringIO()):
        main(["export", *arguments, "-o", str(file), *files], standalone_mode=False)
    return file.read_text("utf-8")


def spelled(text: str) -> Iterator[str]:
    """A text as it may stand in JSON, and in JSON in JSON."""
    for _ in range(3):
        yield text
        text = json.dumps(text)[1:-1]


def leaks(text: str) -> list[str]:
    """The secrets that are in a text."""
    return [kind for kind, secret in SECRETS.items() if any(one in text for one in spelled(secret))]


def streamed(body: str) -> str:
    """What the pieces of a streamed answer say together."""
    told = []
    for line in body.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", []):
                delta = choice["delta"]
                told.append(delta.get("content") or "")
                for call in delta.get("tool_calls", []):
                    told.append(call["function"].get("arguments") or "")
    return "".join(told)


@pytest.mark.parametrize("format", FORMATS)
def test_no_secret_leaves(installation: Installation, format: str) -> None:
    text = exported(installation, SESSION, "--format", format)
    assert leaks(text) == []
    assert leaks(html.unescape(text)) == []
    assert "ACME-7" not in text
    assert "[email-1]" in html.unescape(text)


def fetched(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("GET", path)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    assert reply.status == 200, text[:1000]
    return text


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("selected", ["", "/turns?kind=chat", "/requests?has_error=false"])
def test_no_secret_leaves_over_http(
    served: tuple[Installation, int], selected: str, format: str
) -> None:
    path, _, filters = selected.partition("?")
    query = f"?format={format}&{filters}"
    for way in (f"/export{path}{query}", f"/ui/export{path or '/sessions'}/file{query}"):
        text = fetched(served[1], way)
        assert leaks(text) == leaks(html.unescape(text)) == []
        assert "ACME-7" not in text
        if (path, format) != ("/requests", "openai"):  # a request alone is no conversation
            assert "[email-1]" in html.unescape(text)
    for way in (f"/export{path}/preview{query}", f"/ui/export{path or '/sessions'}{query}"):
        text = previewed(served[1], way, "[email-1]")
        assert leaks(text) == leaks(html.unescape(text)) == []
        assert "[email-1]" in html.unescape(text)


def previewed(port: int, path: str, masked: str) -> str:
    """A preview that has come across this: it looks for two seconds, and machines differ."""
    end = clock.monotonic() + DEADLINE
    while masked not in html.unescape(text := fetched(port, path)) and clock.monotonic() < end:
        assert leaks(text) == leaks(html.unescape(text)) == []
    return text


def test_clean_lines_are_the_same_however_they_leave(served: tuple[Installation, int]) -> None:
    for way in ("/export?session_key=clean", "/export/turns?session_key=clean"):
        masked, plain = (
            json.loads(fetched(served[1], f"{way}&redact={redact}")) for redact in ("true", "false")
        )
        assert masked["redaction"]["masked"] == []
        for name in (*bundles.TABLES, "payloads"):
            assert masked[name] == plain[name]


def test_no_secret_is_in_the_pieces_of_a_stream(installation: Installation) -> None:
    document = bundles.read(exported(installation, SESSION))
    bodies = [content.decode() for content in bundles.contents(document).values()]
    told = [text for body in bodies if (text := streamed(body))]
    assert len(told) >= 2
    for text in (*told, *bodies):
        assert leaks(text) == []
        assert leaks(text.replace("\\/", "/")) == []
    assert any("[email-1]" in text for text in told)


def test_the_report_names_every_kind(installation: Installation) -> None:
    redaction = json.loads(exported(installation, SESSION))["redaction"]
    assert redaction["on"]
    kinds = {one["kind"] for one in redaction["masked"]}
    assert kinds >= {"key", "secret", "cookie", "email", "phone", "card", "user", "pattern"}
    assert all(one["count"] >= 1 and one["places"] for one in redaction["masked"])
    assert leaks(json.dumps(redaction)) == []


@pytest.mark.parametrize("format", FORMATS)
def test_what_has_no_secret_is_changed_nowhere(installation: Installation, format: str) -> None:
    masked = exported(installation, "clean", "--format", format)
    as_it_is = exported(installation, "clean", "--format", format, "--no-redact")
    if format == "json":
        told, whole = json.loads(masked), json.loads(as_it_is)
        assert told["redaction"] == {"on": True, "bodies": True, "masked": []}
        for name in (*bundles.TABLES, "payloads"):
            assert told[name] == whole[name]
    elif format in ("curl", "python", "openai"):
        assert masked == as_it_is
    assert [line for line in masked.splitlines() if "sk-circle-fade-dot" in line] == [
        line for line in as_it_is.splitlines() if "sk-circle-fade-dot" in line
    ]
