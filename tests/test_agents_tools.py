"""Tools by themselves: functions as tools, the built-in ones, and what `http_get` may reach."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from scripted_upstream import Peer, Upstream
from xgw.agents.builtin import calculator, current_time, demo_weather
from xgw.agents.definition import read_agents
from xgw.agents.fetching import Fetching, Refused
from xgw.agents.functions import BadArguments, BadTool, load_function, read_function
from xgw.agents.pool import Pool
from xgw.config import Config
from xgw.errors import UsageError

# -- functions -------------------------------------------------------------------------------------


def every(
    text: str,
    count: int = 1,
    kind: Literal["a", "b"] | None = None,
    parts: list[str] | None = None,
    schema: dict[str, int] | None = None,
    model_config: bool = False,
    _private: float = 0.5,
) -> dict[str, Any]:
    return {name: value for name, value in locals().items() if value is not None}


def test_every_name_and_type_that_a_parameter_may_have() -> None:
    tool = read_function(every)
    properties = tool.parameters["properties"]
    assert list(properties) == [
        *("text", "count", "kind", "parts", "schema", "model_config", "_private")
    ]
    assert tool.parameters["required"] == ["text"]
    assert properties["count"] == {"type": "integer", "default": 1}
    given = {"text": "x", "parts": ["y"], "schema": {"n": 1}, "model_config": True}
    assert every(**tool.check(given)) == {**given, "count": 1, "_private": 0.5}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "text: Field required"),
        ({"text": 5}, "text: Input should be a valid string"),
        ({"text": "x", "count": "many"}, "count: Input should be a valid integer"),
        ({"text": "x", "kind": "c"}, "kind: Input should be 'a' or 'b'"),
        ({"text": "x", "p0": 1}, "p0: Extra inputs are not permitted"),
    ],
)
def test_arguments_that_do_not_fit_are_named(given: dict[str, Any], error: str) -> None:
    with pytest.raises(BadArguments, match="^" + error.replace("?", "[?]")):
        read_function(every).check(given)


def test_a_title_that_is_a_property_stays() -> None:
    def book(title: str) -> str:
        return title

    assert read_function(book).parameters["properties"] == {"title": {"type": "string"}}


@pytest.mark.parametrize(
    ("returned", "text"),
    [("as it is", "as it is"), (None, "null"), ({"a": 1.5}, '{"a":1.5}'), ((1, "x"), '[1,"x"]')],
)
def test_what_a_function_returns_is_text(returned: object, text: str) -> None:
    def give() -> object:
        return returned

    assert read_function(give).call({}) == text


def strange(value: socket.socket) -> None: ...


def by_position(value: int, /) -> None: ...


def several(*values: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (strange, "has type hints that are no JSON schema"),
        (by_position, "takes value by position"),
        (several, "takes values by position"),
    ],
)
def test_what_a_model_cannot_call_is_no_tool(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(BadTool, match=why):
        read_function(function)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x = 1", "has no f"),
        ("f = 1", "f in .* is none"),
        ("def f(:", "fails with SyntaxError"),
        ("import nothing_like_it", "fails with ModuleNotFoundError: No module named"),
        ("raise SystemError('no')", "fails with SystemError: no"),
    ],
)
def test_a_file_that_has_no_such_function(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "tool.py"
    path.write_text(content)
    with pytest.raises(BadTool, match=why):
        load_function(f"{path}:f")


def test_all_mistakes_in_tools_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "tool.py"
    path.write_text("def ok(): ...\ndef bad(x, /): ...\n")
    tools = {name: {"python": f"{path}:{name}"} for name in ("ok", "bad", "missing")}
    table = {"model": "m", "tools": tuple(tools), "instructions_file": str(tmp_path / "gone.md")}
    config = Config.model_validate({"agents": {"a": table}, "tools": tools})
    with pytest.raises(UsageError) as caught:
        read_agents(config, {"tools.bad.python": "xgw.toml:7"})
    bad, missing, file = caught.value.lines
    assert bad == "xgw.toml:7: [tools.bad] python takes x by position: a model names every argument"
    assert missing.startswith("[tools.missing] python must name a function: ")
    assert file == "[agents.a] instructions_file cannot be read: No such file or directory"


# -- those that are built in -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("17*23", "391"),
        ("17 × 23", "391"),
        ("(1 + 2) ** 3 - -4 % 3", "25"),
        ("7 / 2", "3.5"),
        ("6 / 2", "3"),
        ("2^10", "1024"),
        ("2 ** -1", "0.5"),
        ("sqrt(2) * sqrt(2)", "2.0000000000000004"),
        ("max(1, round(2.6), floor(pi))", "3"),
    ],
)
def test_sums(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "x",
        "'a' * 9",
        "True + 1",
        "__import__('os')",
        "(1).real",
        "[1][0]",
        "9 ** 9 ** 9",
        "(9**999) * (9**999) * (9**999)",
        "-8 ** 0.5 + (-8) ** 0.5",
        "1 if 1 else 2",
        "lambda: 1",
        "1 / 0",
        "(" * 400,
        "1" * 2000,
    ],
)
def test_what_is_no_sum_is_refused(expression: str) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        calculator(expression)


def test_the_time_has_its_zone() -> None:
    assert current_time().endswith("+00:00")
    assert current_time("Asia/Kolkata").endswith("+05:30")
    with pytest.raises(ValueError, match="no time zone 'Mars/Base'"):
        current_time("Mars/Base")


def test_the_demos_weather_is_the_same_for_the_same_city() -> None:
    assert demo_weather("Oslo") == demo_weather("Oslo")
    assert demo_weather("Oslo")["source"] == "made up for the demo"


# -- the web ---------------------------------------------------------------------------------------

CLOSED = Fetching(allow_private=False, timeout_seconds=5, max_bytes=1000)
OPEN = Fetching(allow_private=True, timeout_seconds=5, max_bytes=1000)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:1/",
        "http://[::1]/",
        "http://0.0.0.0/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://[fd00::1]/",
        "http://[fe80::1]/",
        "http://[2002:7f00:1::]/",
        "http://[64:ff9b::7f00:1]/",
        "http://224.0.0.1/",
        "http://2130706433/",
        "http://0x7f.1/",
    ],
)
def test_nothing_that_is_not_public_is_reached(url: str) -> None:
    with pytest.raises(Refused, match=r"which is no public address|there is no host"):
        CLOSED.get(url)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://example.com/", "http://", "example.com", "http://a:b/"]
)
def test_only_web_addresses_are_read(url: str) -> None:
    with pytest.raises(Refused):
        CLOSED.get(url)


def test_every_address_of_a_name_is_judged_and_the_judged_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name with one public and one private address is refused; no second look-up is made."""
    asked: list[str] = []

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        addresses = ("93.184.216.34", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, port)) for a in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(Refused, match=r"rebinding\.example is at 127\.0\.0\.1"):
        CLOSED.get("http://rebinding.example/")
    assert asked == ["rebinding.example"]


def answering(*answers: bytes) -> Upstream:
    def script(content: bytes) -> Callable[[Peer], None]:
        def play(peer: Peer) -> None:
            peer.request()
            peer.send(content)
            peer.sock.close()

        return play

    return Upstream(*map(script, answers))


def test_a_page_is_read_with_its_status() -> None:
    upstream = answering(b"HTTP/1.1 404 No\r\nContent-Length: 4\r\n\r\ngone")
    try:
        assert OPEN.get(f"{upstream.url}/page?x=1") == "HTTP 404\n\ngone"
    finally:
        upstream.close()


def test_a_redirect_is_judged_like_the_first_address() -> None:
    there = answering(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n")
    try:
        with pytest.raises(Refused, match="only http:// and https://"):
            OPEN.get(there.url)
    finally:
        there.close()


def test_an_answer_that_is_too_large_is_refused() -> None:
    upstream = answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000)
    try:
        with pytest.raises(Refused, match="larger than 1000 bytes"):
            OPEN.get(upstream.url)
    finally:
        upstream.close()


def test_what_is_no_answer_is_refused() -> None:
    upstream = answering(b"SSH-2.0-x\r\n")
    try:
        with pytest.raises(Refused, match="cannot be read"):
            OPEN.get(upstream.url)
    finally:
        upstream.close()


# -- the pool --------------------------------------------------------------------------------------


def test_what_is_too_much_waits_and_can_be_withdrawn() -> None:
    pool, go, done = Pool(1), threading.Event(), threading.Event()
    ran: list[str] = []
    pool.run(lambda: go.wait(30) and ran.append("first"))  # type: ignore[func-returns-value]

    def second() -> None:
        ran.append("second")

    pool.run(second)
    pool.run(done.set)
    assert pool.withdraw(second)
    assert not pool.withdraw(second)
    go.set()
    assert done.wait(30)
    assert ran == ["first"]
