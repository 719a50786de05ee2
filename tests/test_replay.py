"""A bundle answers as it was recorded: the same bytes, the same failures, at the same times."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import openai
import pytest

import bundles
import handmade
from cli_stores import WEATHER, recorded
from servers import DEADLINE, FORKED, XGW, Process
from xgw.cli.server import bind, listen, url_of
from xgw.portable.refusal import BadBundle
from xgw.portable.replay.opening import opened
from xgw.portable.replay.server import Player
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
    """A bundle that is played at `url`."""

    url: str

    def status(self) -> Any:
        return self.ask("GET", "/replay")[1]

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def post(self, body: Any, path: str = "/v1/chat/completions") -> tuple[int, Any]:
        return self.ask("POST", path, body)

    def connect(self, timeout: float = DEADLINE) -> http.client.HTTPConnection:
        host = self.url.removeprefix("http://").removesuffix("/v1")
        return http.client.HTTPConnection(host, timeout=timeout)


@pytest.fixture
def play() -> Iterator[Any]:
    """Plays the bytes of a bundle in this process, without waits if not told otherwise."""
    with contextlib.ExitStack() as stack:

        def start(content: bytes, *, speed: float = 0, every_try: bool = False) -> Playing:
            reel = stack.enter_context(opened(BytesIO(content), "bug.json", every_try=every_try))
            listener = bind("127.0.0.1", 0)
            listen(listener)
            player = Player(reel, listener, speed=speed, as_upstream=every_try)
            url = url_of(listener)
            player.start()
            stack.callback(player.stop)
            return Playing(f"{url}/v1")

        yield start


@contextlib.contextmanager
def command(source: Path | str, *options: str) -> Iterator[tuple[Process, Playing]]:
    """`xgw replay` of this, in a process of its own."""
    process = Process([*FORKED, "replay", str(source), *options])
    try:
        yield process, Playing(process.stdout.wait_for(r"http://\S+/v1")[0])
    finally:
        process.close()


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
    store: Path


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """Tools, a stream, a refusal, answers that break off, one answered at the second try."""
    with recorded(tmp_path_factory.mktemp("recorded")) as server:
        url = f"{server.server.url}/v1"
        sent = [said(TOOL_QUESTION, tools=[WEATHER])]
        heard = [hear(url, with_session(sent[0], "s-1"))]
        sent += requests_of(heard[0])
        sent += [said("demo:429"), said("demo:cut", stream=True), said("demo:cut")]
        sent += [said("demo:error", stream=True)]
        sent += [{**said("demo:flaky"), "model": "flaky"}]
        heard += [hear(url, with_session(body, "s-1")) for body in sent[1:]]
        path = next(server.installation.folder.rglob("xgw.db"))
        store = Store(path)
        try:
            return Session(sent, heard, bundles.export(store), path)
        finally:
            store.close()


@pytest.mark.slow
def test_a_client_hears_what_it_heard_then(session: Session, tmp_path: Path) -> None:
    file = tmp_path / "bug.json"
    file.write_bytes(session.bundle)
    with command(file) as (process, playing):
        for body, then in zip(session.sent, session.heard, strict=True):
            now = hear(playing.url, body)

            assert (now.status, now.kind) == (then.status, then.kind), body
            assert now.body == then.body, body
            assert is_near(now.seconds[0], then.seconds[0]), (body, now.seconds, then.seconds)
            assert is_near(now.seconds[-1], then.seconds[-1]), (body, now.seconds, then.seconds)
        status = playing.status()
        assert (status["played"], status["left"], status["refused"]) == (7, 0, 0)
        assert process.stop() == 0
        assert process.stderr.wait_for_end().strip() == "Played 7 of 7 requests."
    assert [one.status for one in session.heard] == [200, 200, 429, 200, 502, 200, 200]
    assert b'"type":"upstream_truncated"' in session.heard[3].body


def test_what_is_in_the_store_is_played_without_a_file(session: Session) -> None:
    with command("s-1", "--speed", "max", "--db", str(session.store)) as (process, playing):
        for body, then in zip(session.sent, session.heard, strict=True):
            assert hear(playing.url, body).body == then.body
        assert process.stop() == 0
    nobody = Process([*FORKED, "replay", "nobody", "--db", str(session.store)])
    try:
        assert nobody.wait() == 1
        assert "nobody" in nobody.stderr.wait_for_end()
    finally:
        nobody.close()


def is_near(now: float, then: float) -> bool:
    """Within bounds that hold on a busy machine, too."""
    return min(then, 2.0) / 3 - 0.3 <= now <= then * 3 + 20


def test_there_are_no_waits_at_speed_0(session: Session, play: Any) -> None:
    playing = play(session.bundle)

    for body, then in zip(session.sent, session.heard, strict=True):
        assert hear(playing.url, body).body == then.body


def test_what_is_another_request_is_told_the_first_difference(session: Session, play: Any) -> None:
    playing = play(session.bundle)
    (asked,) = session.sent[0]["messages"]
    changed = {**session.sent[0], "messages": [{**asked, "content": "And in Oslo?"}]}

    status, body = playing.post(changed)

    assert status == 409
    error = body["error"]
    assert (error["code"], error["param"]) == ("replay_differs", "/messages/0/content")
    assert (error["recorded"], error["sent"]) == (TOOL_QUESTION, "And in Oslo?")
    assert "/messages/0/content differs" in error["message"]
    assert playing.status()["differences"][0]["pointer"] == "/messages/0/content"
    assert hear(playing.url, session.sent[0]).status == 200
    status = playing.status()
    assert (status["played"], status["left"], status["refused"]) == (1, 6, 1)


def test_spelling_own_identifiers_and_usage_say_nothing(session: Session, play: Any) -> None:
    playing = play(session.bundle)
    first = dict(reversed(session.sent[0].items()))

    assert playing.post({**first, "metadata": {"session_id": "another"}})[0] == 200
    with_usage = {**session.sent[1], "stream_options": {"include_usage": True}}
    heard = hear(playing.url, with_usage)

    assert heard.status == 200
    assert b'"usage":{' in heard.body.replace(b" ", b"")
    assert b'"usage":{' not in session.heard[1].body.replace(b" ", b"")


# -- bundles written by hand -----------------------------------------------------------------------


def whole(**changes: Any) -> bytes:
    return handmade.spelled(handmade.bundle(**changes))


SENT = json.loads(handmade.SENT)


def test_what_is_played_is_used_up(play: Any) -> None:
    playing = play(whole())

    assert playing.post(SENT) == (200, json.loads(handmade.ANSWERED))
    status, body = playing.post(SENT)

    assert (status, body["error"]["code"]) == (409, "replay_used_up")
    assert body["error"]["message"] == "all 1 requests were played"


def call(number: int, content: str, seconds: tuple[int, int], session: int = 1) -> dict[str, Any]:
    """The rows of one call of one turn of its own, and its body."""
    sent = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]})
    began, ended = (handmade.NOON.replace(":00.", f":{at:02}.") for at in seconds)
    ids = {
        "session_id": handmade.id_of("sess", session),
        "turn_id": handmade.id_of("turn", number),
        "run_id": handmade.id_of("run", number),
    }
    times = {"started_at": began, "ended_at": ended, "latency_ms": 0}
    step = {"step_index": 0, "attempt": 1, "input_payload": handmade.hash_of(sent)}
    return {
        "turns": handmade.turn(number, session_id=ids["session_id"]),
        "runs": handmade.run(number),
        "steps": handmade.step(number, **ids, **times, **step),
        "request_logs": handmade.request(
            number, **ids, **times, request_payload=handmade.hash_of(sent)
        ),
        "payloads": handmade.body(sent),
    }


def told(*calls: dict[str, Any], sessions: int = 1) -> bytes:
    """A bundle of these calls."""
    rows = {table: [one[table] for one in calls] for table in calls[0]}
    rows["payloads"].append(handmade.body(handmade.ANSWERED))
    named = [handmade.session(number) for number in range(1, sessions + 1)]
    return whole(sessions=named, messages=[], events=[], **rows)


def ask(content: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


def test_calls_that_followed_on_one_another_do_so_again(play: Any) -> None:
    playing = play(told(call(1, "a", (0, 1)), call(2, "b", (2, 3))))

    status, body = playing.post(ask("b"))

    assert (status, body["error"]["sent"]) == (409, "b")
    assert [playing.post(ask(content))[0] for content in "ab"] == [200, 200]


def test_calls_side_by_side_come_in_any_order(play: Any) -> None:
    playing = play(told(call(1, "a", (0, 5)), call(2, "b", (1, 3))))

    assert [playing.post(ask(content))[0] for content in "ba"] == [200, 200]


def test_sessions_do_not_wait_for_one_another(play: Any) -> None:
    calls = call(1, "a", (0, 1)), call(2, "b", (2, 3), session=2), call(3, "c", (4, 5))
    playing = play(told(*calls, sessions=2))

    assert len(playing.status()["next"]) == 2
    assert [playing.post(ask(content))[0] for content in "bac"] == [200, 200, 200]


@pytest.mark.parametrize(
    ("recorded", "sent", "status"),
    [
        ("Write to [email-3], please", "Write to someone@example.org, please", 200),
        ("Write to [email-3], please", "Write to the boss, please", 409),
        ("Ticket [pattern-1] of [email-1]", "Ticket T-77 of someone@example.org", 200),
        ("Ticket [pattern-1] of us", "Ticket T-77 of them", 409),
        ("the key is [masked].", "the key is sk-abc.", 200),
    ],
)
def test_a_placeholder_stands_for_what_would_be_masked(
    play: Any, recorded: str, sent: str, status: int
) -> None:
    playing = play(told(call(1, recorded, (0, 1))))

    assert playing.post(ask(sent))[0] == status


def tries(*ends: dict[str, Any]) -> bytes:
    """A bundle of one call that was tried so often."""
    steps, requests = [], []
    for number, end in enumerate(ends, 1):
        at = handmade.NOON.replace(":00.", f":{number:02}.")
        times = {"started_at": at, "ended_at": at, "latency_ms": 10}
        failed = {"status": "error"} if "error_type" in end else {}
        steps.append(handmade.step(number, model_requested="m", **times, **failed))
        requests.append(handmade.request(number, **{**times, **end}))
    refused = handmade.body(REFUSED)
    payloads = [handmade.body(handmade.SENT), handmade.body(handmade.ANSWERED), refused]
    return whole(steps=steps, request_logs=requests, payloads=payloads)


REFUSED = '{"error": {"message": "slow down", "type": "rate"}}'
TOO_MANY = {
    "status_code": 429,
    "response_body": handmade.hash_of(REFUSED),
    "error_type": "upstream_rate_limit",
    "response_headers": [["content-type", "application/json"], ["retry-after", "7"]],
}
NO_ANSWER = {
    "status_code": None,
    "response_body": None,
    "response_headers": None,
    "frames": None,
    "error_type": "upstream_connection",
    "error_message": "p refused the connection",
}


def test_an_app_does_not_see_what_was_tried_in_vain(play: Any) -> None:
    playing = play(tries(TOO_MANY, {}))

    assert playing.status()["total"] == 1
    assert playing.post(SENT) == (200, json.loads(handmade.ANSWERED))


def test_what_the_gateway_did_before_is_waited_for_too(play: Any) -> None:
    """The clock of an exchange starts when it goes out, that of its record when it came in."""
    late = {"ended_at": handmade.NOON.replace(":00.", ":02."), "latency_ms": 600}
    playing = play(tries(late), speed=1)
    begun = time.monotonic()

    assert playing.post(SENT)[0] == 200

    assert time.monotonic() - begun > 0.9


def test_an_upstream_repeats_every_try(play: Any) -> None:
    playing = play(tries(TOO_MANY, NO_ANSWER, {}), every_try=True)

    assert playing.post(SENT) == (429, json.loads(REFUSED))
    with pytest.raises(ConnectionError):
        playing.post(SENT)
    assert playing.post(SENT) == (200, json.loads(handmade.ANSWERED))


def test_a_connection_that_failed_is_told_as_the_gateway_did(play: Any) -> None:
    playing = play(tries(NO_ANSWER))

    status, body = playing.post(SENT)

    assert (status, body["error"]["type"]) == (502, "upstream_connection")
    assert body["error"]["message"] == "p refused the connection"


def test_an_upstream_that_said_no_more_says_no_more(play: Any) -> None:
    silent = {**NO_ANSWER, "error_type": "upstream_timeout"}
    playing = play(tries(silent), every_try=True)
    connection = playing.connect(timeout=0.5)

    connection.request("POST", "/v1/chat/completions", handmade.SENT)

    with pytest.raises(TimeoutError):
        connection.getresponse()
    connection.close()


def test_it_answers_under_its_own_name_alone(play: Any) -> None:
    connection = play(whole()).connect()
    try:
        connection.request("GET", "/replay", headers={"Host": "evil.example"})
        assert connection.getresponse().status == 421
    finally:
        connection.close()


def test_what_is_nowhere_is_named_with_where_to_go(play: Any) -> None:
    status, body = play(whole()).ask("GET", "/")

    assert status == 404
    assert body["error"]["message"].startswith("there is nothing at GET /: the base URL")


def test_models_are_those_of_the_record(play: Any) -> None:
    playing = play(whole())

    assert [model["id"] for model in playing.ask("GET", "/v1/models")[1]["data"]] == ["m"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (whole(payloads=[]), "its body is not there"),
        (whole(request_logs=[]), "has no request to a provider"),
        (
            whole(payloads=[], redaction={"on": True, "bodies": False, "masked": []}),
            "exported without what was said",
        ),
    ],
)
def test_what_cannot_be_played_is_refused(play: Any, content: bytes, words: str) -> None:
    with pytest.raises(BadBundle, match=words):
        play(content)


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "bundle.json"
    file.write_bytes(b"{}")
    process = Process([*XGW, "replay", str(file)])
    try:
        assert process.wait() == 1
        assert "this is no bundle of xgw" in process.stderr.wait_for_end()
    finally:
        process.close()
