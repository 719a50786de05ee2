"""Which session and turn a request names: sources, their order, spelling, and what comes back."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson
import pytest

from gateway_fixtures import CHAT, Gate, a_test_of, gate_and_model
from scripted_model import (
    DONE,
    Answer,
    Row,
    chat,
    delta,
    finish,
    named,
    raw,
    says,
    stream,
    streams,
    whole,
)
from xgw import ids
from xgw.config import Gateway
from xgw.errors import ApiError
from xgw.gateway.identity import REPEATED, read_identity


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("identity")) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        served.model.always(says("ok"))
        yield served


def session_of(gate: Gate, body: Row, path: str = CHAT, **headers: str) -> Row:
    """The session that a request went to."""
    session_id = gate.turn(gate.post(body, path, **headers))["session_id"]
    return next(s for s in gate.sessions() if s["id"] == session_id)


# -- sources ---------------------------------------------------------------------------------------

EVERYWHERE = {"x_session_id": "in-header", "session_id": "of-client", "x_thread_id": "of-thread"}


@pytest.mark.parametrize(
    ("metadata", "headers", "path", "key", "source"),
    [
        ("in-metadata", EVERYWHERE, f"/s/in-url{CHAT}", "in-metadata", "metadata"),
        (None, EVERYWHERE, f"/s/in-url{CHAT}", "in-header", "header"),
        (None, {"session_id": "of-client"}, f"/s/in-url{CHAT}", "in-url", "url"),
        (None, {"session_id": "of-client", "x_thread_id": "t"}, CHAT, "of-client", "client"),
    ],
)
def test_the_first_source_names_the_session(
    gate: Gate, metadata: str | None, headers: dict[str, str], path: str, key: str, source: str
) -> None:
    session = session_of(gate, chat(metadata={"session_id": metadata}), path, **headers)
    assert (session["session_key"], session["source"]) == (key, source)


def test_identifiers_that_disagree_are_kept_with_their_source(gate: Gate) -> None:
    headers = EVERYWHERE | {"x_turn_id": "other-turn"}
    reply = gate.post(chat(**named("first-named", "turn")), f"/s/in-url{CHAT}", **headers)
    others = {
        "header:session_id": "in-header",
        "url:session_id": "in-url",
        "header:session-id": "of-client",
        "header:x-thread-id": "of-thread",
        "header:turn_id": "other-turn",
    }
    assert gate.turn(reply)["metadata"]["identifiers"] == others
    assert gate.session("first-named")["metadata"]["identifiers"] == others


def test_sources_that_agree_are_not_worth_a_word(gate: Gate) -> None:
    reply = gate.post(chat(**named("agreed")), x_session_id="agreed", session_id="agreed")
    assert gate.turn(reply)["metadata"] is None


def test_tasks_and_users_are_named_likewise(gate: Gate) -> None:
    body = chat(**named("s-task", task_id="task-1", End_User_ID="user-1"), user="by-body")
    reply = gate.post(body, x_task_id="task-2", x_end_user_id="user-2")
    session, turn = gate.session("s-task"), gate.turn(reply)
    assert (session["task_id"], session["end_user_id"]) == ("task-1", "user-1")
    assert turn["task_id"] == "task-1"
    assert turn["metadata"]["identifiers"] == {
        "header:task_id": "task-2",
        "header:end_user_id": "user-2",
        "body:user": "by-body",
    }
    later = gate.turn(gate.post(chat(**named("s-task"))))
    assert (later["task_id"], later["turn_index"]) == ("task-1", 1)
    gate.post(chat(**named("s-task")), x_task_id="task-3", x_end_user_id="user-3")
    session = gate.session("s-task")
    assert (session["task_id"], session["end_user_id"]) == ("task-3", "user-3")


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({"user": "u"}, "u"),
        ({"user": "u", "safety_identifier": "safe"}, "safe"),
        ({"user": "u\n"}, None),
        ({"user": None}, None),
    ],
)
def test_the_user_of_the_body_is_taken_where_it_can_be(
    gate: Gate, fields: Row, user: str | None
) -> None:
    assert session_of(gate, chat(metadata={"session_id": "new"}, **fields))["end_user_id"] == user
    assert fields.items() <= gate.model.asked[-1].json.items()


# -- spelling --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["session_id", "Session_ID", "SESSION_ID"])
def test_names_in_metadata_match_in_any_case(gate: Gate, name: str) -> None:
    assert session_of(gate, chat(metadata={name: "Any-Case"}))["session_key"] == "Any-Case"


@pytest.mark.parametrize("name", ["x-session-id", "X-SESSION-ID", "X-Session-Id"])
def test_header_names_match_in_any_case(gate: Gate, name: str) -> None:
    assert session_of(gate, chat(), **{name: "hdr"})["session_key"] == "hdr"


def test_blanks_around_a_header_are_no_part_of_it(gate: Gate) -> None:
    gate.model.will(*[says()] * 3)
    for value in (b"X-Session-Id: blank", b"X-Session-Id:blank \t", b"X-Session-Id: \t blank  "):
        assert gate.write(value + b"\r\n", chat()).headers["x-session-id"] == "blank"
    assert gate.session("blank")["turn_count"] == 3


def test_a_header_that_comes_twice_and_differs_is_refused() -> None:
    with pytest.raises(ApiError) as refused:
        read_identity(Gateway(), {"x-session-id": f"a{REPEATED}b"}, {}, None)
    assert (refused.value.status, refused.value.code) == (400, "invalid_session_id")
    assert "comes twice" in refused.value.message


def test_keys_are_compared_byte_for_byte(gate: Gate) -> None:
    keys = [session_of(gate, chat(**named(key)))["id"] for key in ("Cased", "cased", "Cased")]
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("metadata", [None, {"session_id": None}, {"SESSION_ID": None, "x": "1"}])
def test_null_means_absent(gate: Gate, metadata: Row | None) -> None:
    reply = gate.post(chat(metadata=metadata))
    assert gate.turn(reply)["session_id"] is None
    assert "x-session-id" not in reply.headers


def test_null_under_one_spelling_leaves_the_other(gate: Gate) -> None:
    metadata = {"session_id": "given", "Session_Id": None}
    assert session_of(gate, chat(metadata=metadata))["session_key"] == "given"


def test_keys_of_any_script_are_one_in_every_source(gate: Gate) -> None:
    key = unicodedata.normalize("NFD", "Café 会話")
    same = unicodedata.normalize("NFC", key)
    replies = [
        gate.post(chat(**named(key))),
        gate.post(chat(), x_session_id=key),
        gate.post(chat(), x_session_id=same),
        gate.post(chat(), f"/s/{quote(key)}{CHAT}"),
        gate.post(chat(), session_id=key),
    ]
    assert gate.session(same)["turn_count"] == len(replies)
    assert {reply.headers["x-session-id"] for reply in replies} == {quote(same, safe="")}


@pytest.mark.parametrize(
    "key", ["会話 7", "ö%2F", "100 % Ø", "%E6", "%41", "%C3%A9", "%25C3%25A9", "100%"]
)
def test_what_an_answer_names_continues_when_it_is_sent_back(gate: Gate, key: str) -> None:
    first = gate.post(chat(**named(key, f"{key} turn")))
    named_so = {f"x_{what}_id": first.headers[f"x-{what}-id"] for what in ("session", "turn")}
    again = gate.post(chat("again"), **named_so)
    assert gate.turn(again)["id"] == gate.turn(first)["id"]
    assert gate.session(key)["turn_count"] == 1


@pytest.mark.parametrize("half", ["\\ud800", "\\uDFFF"])
def test_half_a_character_names_nothing(gate: Gate, half: str) -> None:
    asked = orjson.dumps(chat(**named("a-half"))).replace(b"-half", half.encode())
    reply = gate.post(asked)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (
        400,
        "invalid_session_id",
        "session_id",
    )
    assert session_of(gate, chat(**named("\ufffd")))["session_key"] == "\ufffd"


@pytest.mark.parametrize("key", ["a/b", "a b", "ä%2F", "…/v1/…", "?#&"])
def test_the_base_url_can_carry_any_key(gate: Gate, key: str) -> None:
    session = session_of(gate, chat(), f"/s/{quote(key, safe='')}{CHAT}")
    assert (session["session_key"], session["source"]) == (key, "url")


# -- what goes on and what comes back --------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "forwarded"),
    [
        ('{"session_id": "s", "Turn_Id": null, "task_id":"t","end_user_id":"e"}', None),
        ('{"a": 1.50, "session_id": "s", "b": "\\u00e9"}', '{"a":1.50,"b":"\\u00e9"}'),
        ("{}", "{}"),
        ("null", "null"),
    ],
)
def test_own_identifiers_stay_here(gate: Gate, metadata: str, forwarded: str | None) -> None:
    body = '{"model": "m", "messages": [], "metadata": %s, "x": [ 1 ]}' % metadata  # noqa: UP031
    headers = {"x_session_id": "h", "x_turn_id": ids.mint("turn"), "x_task_id": "t"}
    gate.post(body.encode(), **headers, x_end_user_id="e", x_kept="kept")
    asked = gate.model.asked[-1]
    sent = "" if forwarded is None else f'"metadata":{forwarded},'
    assert asked.body.replace(b'": ', b'":').replace(b", ", b",").decode() == (
        f'{{"model":"m","messages":[],{sent}"x":[ 1 ]}}'
    )
    names = {name for name, _ in asked.headers}
    assert "x-kept" in names
    assert not names & {"x-session-id", "x-turn-id", "x-task-id", "x-end-user-id"}


ANSWERS: dict[str, tuple[Answer, Row]] = {
    "plain": (says(), {}),
    "stream": (streams("a"), {"stream": True}),
    "error": (whole({"error": {"message": "no"}}, status="400 Bad"), {}),
    "error of a stream": (whole({"error": {"message": "no"}}, status="500 Bad"), {"stream": True}),
    "broken stream": (stream(delta("a"), b"data: {]\n\n"), {"stream": True}),
    "broken off": (raw(b""), {}),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_every_answer_says_what_it_belongs_to(gate: Gate, kind: str) -> None:
    answer, fields = ANSWERS[kind]
    session = f"told-{kind}"
    gate.model.will(answer)
    reply = gate.post(chat(**fields, **named(session, "t-1")))
    turn = gate.turn(reply)
    assert reply.headers["x-session-id"] == session
    assert reply.headers["x-turn-id"] == "t-1"
    assert reply.headers["x-trace-id"] == turn["trace_id"] == ids.trace_id_of(turn["id"])
    assert ids.is_id(reply.headers["x-run-id"], "run")


def test_an_upstream_that_is_an_xgw_does_not_name_ours(gate: Gate) -> None:
    foreign = "X-Session-Id: theirs\r\nX-Turn-Id: theirs\r\nX-Run-Id: r\r\nX-Trace-Id: t\r\n"
    gate.model.will(stream(delta("a"), finish(), DONE, headers=foreign))
    reply = gate.open(chat(stream=True, **named("chained", "mine")))
    sent = [(n.lower(), v) for n, v in reply.all_headers if n.lower().startswith("x-")]
    reply.rest()
    assert [v for n, v in sent if n == "x-session-id"] == ["chained"]
    assert [v for n, v in sent if n == "x-turn-id"] == ["mine"]
    assert len([n for n, _ in sent if n in ("x-run-id", "x-trace-id")]) == 2


def test_minted_ids_sent_back_continue(gate: Gate) -> None:
    first = gate.post(chat("one", **named("new")))
    session, turn = first.headers["x-session-id"], first.headers["x-turn-id"]
    assert ids.is_id(session, "sess")
    assert ids.is_id(turn, "turn")
    again = gate.post(chat("two"), x_session_id=session, x_turn_id=turn)
    assert again.headers["x-turn-id"] == turn
    assert again.headers["x-run-id"] == first.headers["x-run-id"]
    other = gate.post(chat("three"), x_session_id=session)
    assert [t["id"] for t in gate.turns(session)] == [turn, other.headers["x-turn-id"]]
    assert gate.session(session)["source"] == "managed"


def test_the_id_of_a_session_with_a_key_is_as_good_as_its_key(gate: Gate) -> None:
    gate.post(chat(**named("by-key")))
    reply = gate.post(chat(**named(gate.session("by-key")["id"])))
    assert gate.turn(reply)["turn_index"] == 1
    assert reply.headers["x-session-id"] == "by-key"


def test_a_turn_key_without_a_session_continues_nothing(gate: Gate) -> None:
    replies = [gate.post(chat(**named(turn="lonely"))) for _ in range(2)]
    turns = [gate.turn(reply) for reply in replies]
    assert turns[0]["id"] != turns[1]["id"]
    assert [(t["turn_key"], t["session_id"], t["turn_index"]) for t in turns] == [
        ("lonely", None, 0)
    ] * 2
    assert {reply.headers["x-turn-id"] for reply in replies} == {"lonely"}


TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", True),
        (f"cc-{TRACE}-b7ad6b7169203331-01-more", True),
        (f"00-{TRACE}-b7ad6b7169203331-01-more", False),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        ("nonsense", False),
    ],
)
def test_a_traceparent_is_taken_over(gate: Gate, header: str, taken: bool) -> None:
    reply = gate.post(chat(**named("traced")), traceparent=header)
    turn = gate.turn(reply)
    assert (turn["trace_id"] == TRACE) is taken
    assert reply.headers["x-trace-id"] == turn["trace_id"]
    rows: list[Any] = [*gate.steps(turn), *gate.requests(turn)]
    assert {row["trace_id"] for row in rows} == {turn["trace_id"]}
    assert ("traceparent", header) in gate.model.asked[-1].headers
