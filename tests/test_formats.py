"""The formats of an export that people and other programs read."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from hashlib import sha256
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import accessibility
from cli_stores import Recorded, first_hour
from filled_store import FilledStore
from scripted_upstream import Peer, upstream
from servers import DEADLINE
from visits import Visits
from xgw.portable.chosen import Root
from xgw.portable.source import Asked
from xgw.portable.writing import write
from xgw.store.database import Store

Row = dict[str, Any]
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)> </pre> ```\n# no heading\n| a"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with first_hour(tmp_path_factory.mktemp("formats")) as record:
        record.ask(MARKUP, "markup")
        yield record


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def exported(real: Recorded, format: str, *arguments: str) -> str:
    """What the command writes, run in this very process."""
    file = real.installation.folder / "exported"
    real.show("export", *arguments, "--format", format, "-o", str(file))
    return file.read_text("utf-8")


def written(store: Store, format: str, *roots: Root) -> tuple[str, list[str]]:
    """What is written of these, and what is told of it."""
    out = io.BytesIO()
    asked = Asked(roots, lambda name: None)
    told = write(store, asked, format, out)
    return out.getvalue().decode(), told


# -- reports ---------------------------------------------------------------------------------------


class TestMarkdown:
    def test_it_tells_what_happened(self, real: Recorded) -> None:
        text = exported(real, "markdown", "checkout-42", "weather", "flaky", "broken")
        assert text.startswith("# Report of 4 sessions\n")
        assert "## Session checkout-42\n" in text
        assert "**user**\n\n```\nWhat can you do?\n```" in text
        assert "| Turn 2 | done | And what else? demo:reason | fast/gpt-4o |" in text
        assert "→ 68 out (27 reasoning) = 80, as reported" in text
        assert re.search(r"2\. model call · fast/gpt-4o-mini — ✓ done · attempt 2 · retry", text)
        assert "upstream_error: The server is overloaded on purpose" in text
        assert '"code": "overloaded"' in text
        assert re.search(r"#### 2\. tool call · get_weather — ✓ done", text)
        assert '**arguments**\n\n```\n{"city":"Paris"}\n```' in text
        assert '**result**\n\n```\n{"temp": 21}\n```' in text
        assert "### Turn 1 — ✗ error" in text
        assert "upstream_truncated" in text

    def test_images_and_sound_are_named(self, filled: FilledStore) -> None:
        session = filled.session()
        turn = filled.turn(session)
        sound = {"type": "input_audio", "input_audio": {"data": "A" * 400, "format": "wav"}}
        kept = {"type": "image_url", "image_url": {"url": {"payload": "0" * 32, "size": 27000}}}
        parts = [{"type": "text", "text": "What is it?"}, IMAGE, sound, kept]
        asked = {"role": "user", "content": "What is it?", "parts": json.dumps(parts)}
        empty = {"refusal": "", "annotations": [], "audio": {"id": "audio_1"}}
        filled.message(session, turn, 0, **asked)
        filled.message(session, turn, 1, role="assistant", parts=json.dumps(empty))
        text, _ = written(filled.store, "markdown", Root("session", session))
        said = (
            "What is it?\n"
            "(image: image/png, 26 B in the request, not loaded)\n"
            "(audio: wav, 400 B in the request, not loaded)\n"
            "(image: 27.0 kB in the request, not loaded)"
        )
        assert f"**user**\n\n```\n{said}\n```" in text
        assert "annotations" not in text
        assert "audio_1" in text

    def test_what_was_said_stays_in_its_fence(self, real: Recorded) -> None:
        text = exported(real, "markdown", "markup", "שלום <b>bold</b>")
        assert f"````\n{MARKUP}\n````" in text
        assert "\\<b\\>bold\\</b\\>" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\\x1b]0;owned\\x07" in text

    def test_without_bodies(self, real: Recorded) -> None:
        text = exported(real, "markdown", "weather", "--no-bodies")
        assert "Paris" not in text
        assert "**user**: *38 characters, left out (hash " in text


ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "header", "span", "a"),
    *("h1", "h2", "h3", "h4", "div", "dl", "dt", "dd", "p", "pre"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}


class _Page(HTMLParser):
    """The elements of a page, and what they refer to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name in ("href", "src", "action"):
                self.links.append(value or "")


class TestHtml:
    def test_it_has_nothing_but_its_own_elements(self, real: Recorded) -> None:
        text = exported(real, "html")
        page = _Page(text)
        assert page.tags <= ELEMENTS
        assert not any(name.startswith("on") or name == "style" for name in page.attributes)
        assert all(link.startswith("#turn_") for link in page.links)
        assert "&lt;script&gt;alert(1)" in text
        assert "url(" not in text
        assert "\x1b" not in text

    def test_its_policy_allows_its_own_style_alone(self, real: Recorded) -> None:
        text = exported(real, "html", "weather")
        style = text.partition("<style>")[2].partition("</style>")[0]
        digest = base64.b64encode(sha256(style.encode()).digest()).decode()
        assert (
            f"default-src &#39;none&#39;; style-src &#39;sha256-{digest}&#39;; "
            "base-uri &#39;none&#39;; form-action &#39;none&#39;"
        ) in text

    def test_in_a_browser(self, real: Recorded, visit: Visits) -> None:
        with served(exported(real, "html").encode()) as url:
            page = visit(url)
            assert page.locator("section.level-4.is-error").count() >= 2
            assert MARKUP in page.locator(".said.user pre").all_inner_texts()
            accessibility.assert_for_everyone(page)


@contextlib.contextmanager
def served(page: bytes) -> Iterator[str]:
    """A server that has this page alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join(DEADLINE)


# -- requests that can be sent again ---------------------------------------------------------------

BODIES = {
    "plain": b'{"model":"m","messages":[]}',
    "quotes": b'{"a": "it\'s `id` $HOME ${X} %s %% \\\\n \\" !x"}',
    "lines": b'\n{"a":\r\n\t1}\n\n',
    "unicode": 'שלום 你好 \u202e é "x" 🎉'.encode(),
    "nul": b'{"a": "x\x00y\x07\x1b[0m\x7f", "b": \'100%\\\'}',
    "bytes": bytes(range(256)),
    "long": b'{"a": "' + b"it's long " * 30_000 + b'"}',
    "file": b"@/etc/passwd",
    "empty": b"",
}


def sent(filled: FilledStore, url: str) -> str:
    """A session in whose turn each of these was sent."""
    session = filled.session()
    turn = filled.turn(session)
    for number, body in enumerate(BODIES.values()):
        filled.request(
            turn,
            number,
            session_id=session,
            provider_name="fast one",
            url=f"{url}/v1/x?a=[1-3]&key=[masked]&b={{c,d}}'{number}",
            request_headers=orjson_text(
                [
                    ["Content-Type", "application/json; a='b' \"c\" $HOME"],
                    ["Authorization", "[masked]"],
                    ["x-api-key", "[masked]"],
                    ["Accept-Encoding", "gzip"],
                    ["Content-Length", "5"],
                    ["X-Empty", ""],
                ]
            ),
            request_payload=filled.body(body),
        )
    return session


def orjson_text(value: Any) -> str:
    return json.dumps(value)


@pytest.mark.parametrize("format", ["curl", "python"])
def test_requests_are_sent_again_as_they_were(
    filled: FilledStore, tmp_path: Path, format: str
) -> None:
    got: list[tuple[bytes, bytes]] = []

    def script(peer: Peer) -> None:
        got.append(peer.request())
        peer.answer(b"done", headers="Connection: close\r\n")

    with upstream(*[script] * len(BODIES)) as server:
        session = sent(filled, server.url)
        text, told = written(filled.store, format, Root("session", session))
        assert told == []
        program = tmp_path / "again"
        program.write_bytes(text.encode())
        runs: dict[str, list[str]] = {
            "curl": [shutil.which("dash") or "sh", str(program)],
            "python": [sys.executable, str(program)],
        }
        env = {**os.environ, "FAST_ONE_API_KEY": "k'e$1", "NO_PROXY": "127.0.0.1"}
        done = subprocess.run(runs[format], env=env, capture_output=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count(b"done") == len(BODIES)
    assert [body for _, body in got] == list(BODIES.values())
    for number, (head, _) in enumerate(got):
        line, *headers = head.decode().split("\r\n")
        assert line.startswith("POST /v1/x?a=[1-3]&key=k")
        assert line.endswith(f"&b={{c,d}}'{number} HTTP/1.1")
        received = {name.lower(): value for name, _, value in (h.partition(": ") for h in headers)}
        assert received["content-type"] == "application/json; a='b' \"c\" $HOME"
        assert received["authorization"] == "Bearer k'e$1"
        assert received["x-api-key"] == "k'e$1"
        assert received.get("accept-encoding") != "gzip"


@pytest.mark.parametrize("format", ["curl", "python"])
def test_without_a_body_a_request_cannot_be_sent_again(real: Recorded, format: str) -> None:
    done = real.run("export", "weather", "--format", format, "--no-bodies")
    assert "It cannot be sent again: its body is not in this export." in done.stdout
    assert "2 of 2 requests cannot be sent again" in done.stderr


def test_keys_are_variables(real: Recorded) -> None:
    for format in ("curl", "python"):
        text = exported(real, format, "weather")
        assert "FAST_API_KEY" in text
        assert "sk-fast" not in text
        assert "[masked]" not in text


# -- conversations ---------------------------------------------------------------------------------


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


class TestOpenai:
    def test_a_line_is_a_conversation(self, real: Recorded) -> None:
        (line,) = exported(real, "openai", "weather").splitlines()
        told = json.loads(line)
        assert [m["role"] for m in told["messages"]] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
        calls = told["messages"][1]["tool_calls"]
        assert [call["id"] for call in calls] == [m["tool_call_id"] for m in told["messages"][2:4]]
        assert [tool["function"]["name"] for tool in told["tools"]] == ["get_weather"]

    def test_what_it_has_no_words_for_is_counted(self, real: Recorded) -> None:
        done = real.run("export", "broken", "checkout-42", "--format", "openai")
        # The second request came without the first one's history: nobody had this conversation.
        said = [json.loads(line)["messages"] for line in done.stdout.splitlines()]
        assert [[m["role"] for m in messages] for messages in said] == [["user", "assistant"]] * 2
        assert [m[0]["content"] for m in said] == ["What can you do?", "And what else? demo:reason"]
        assert "1 × answer that broke off" in done.stderr
        assert "1 × conversation without an answer" in done.stderr

    def test_a_refusal_is_an_answer(self, filled: FilledStore) -> None:
        session = filled.session()
        turn = filled.turn(session)
        refusal = json.dumps({"refusal": "No."})
        filled.message(session, turn, 0, role="user", content="Please", kind="message")
        filled.message(session, turn, 1, role="assistant", content=None, parts=refusal)
        filled.message(session, turn, 2, role="user", content=None, parts=refusal)
        text, told = written(filled.store, "openai", Root("session", session))
        assert json.loads(text)["messages"] == [
            {"role": "user", "content": "Please"},
            {"role": "assistant", "content": None, "refusal": "No."},
        ]
        assert told == ["left out: 1 × message without content"]

    def test_calls_and_results_are_in_a_valid_order(self, filled: FilledStore) -> None:
        def call(id: str) -> Row:
            return {"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}}

        session = filled.session()
        turn = filled.turn(session)
        rows: list[Row] = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "tool_calls": json.dumps([call("a"), call("b"), call("c")])},
            {"kind": "status", "role": None, "content": "working"},
            {"kind": "tool_result", "role": "tool", "content": "B", "tool_call_id": "b"},
            {"kind": "tool_result", "role": "tool", "content": "?", "tool_call_id": "stray"},
            {"kind": "tool_result", "role": "tool", "content": "A", "tool_call_id": "a"},
            {"role": "user", "parts": json.dumps([{"type": "text", "text": "and"}, IMAGE, {}])},
            {"role": "assistant", "content": "done"},
            {"role": "user", "content": "unanswered"},
        ]
        for index, row in enumerate(rows):
            filled.message(session, turn, index, **{"kind": "message", **row})
        text, told = written(filled.store, "openai", Root("session", session))
        messages = json.loads(text)["messages"]
        assert [(m["role"], m["content"]) for m in messages] == [
            ("user", "go"),
            ("assistant", None),
            ("tool", "A"),
            ("tool", "B"),
            ("user", [{"type": "text", "text": "and"}, IMAGE]),
            ("assistant", "done"),
        ]
        assert [c["id"] for c in messages[1]["tool_calls"]] == ["a", "b"]
        assert told == [
            "left out: 1 × status that is no message, 1 × part of another kind, "
            "1 × tool call without a result, 1 × tool result without a call, "
            "1 × message behind the last answer"
        ]


@pytest.mark.parametrize("format", ["markdown", "html", "curl", "python", "openai"])
def test_a_store_with_nothing_in_it(filled: FilledStore, format: str) -> None:
    text, told = written(filled.store, format, Root("session", filled.session("empty")))
    assert bool(text) == (format != "openai")
    assert bool(told) == (format in ("curl", "python", "openai"))
