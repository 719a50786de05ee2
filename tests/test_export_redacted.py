"""Exports without secrets: what leaves, what stays as it is, and what is said of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest

import bundles
from api_server import TEAM_KEY, ApiServer
from filled_store import FilledStore
from xgw.cli import main
from xgw.portable.intake import take_in
from xgw.store.database import Store

KEY = "sk-proj-" + "Ab3dE5gH7jK9mN1p" * 3
EMAIL = "jane.doe@corp-mail.net"
CARD = "4242 4242 4242 4242"
PASSWORD = "tr0ub4dor-Zx81"
SECRETS = (KEY, EMAIL, CARD, PASSWORD)

Row = dict[str, Any]


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def exported(filled: FilledStore, **asked: Any) -> Row:
    return bundles.read(bundles.export(filled.store, redact=True, **asked))


def spoken(*pieces: str) -> bytes:
    """A streamed answer that says these pieces."""
    chunks = ({"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces)
    return b"".join(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks) + b"data: [DONE]\n\n"


def plant(filled: FilledStore) -> str:
    """A session with secrets in every column that can hold one; its id."""
    said = f"mail {EMAIL}, pay with {CARD}, use {KEY}. "
    long = said + "and so on, " * 100
    session = filled.session(f"of {EMAIL}", title=said, metadata={"password": PASSWORD, "a": said})
    turn = filled.turn(
        session,
        user_input=filled.text(long),
        final_output=said,
        error_message=f"no {PASSWORD} fits",
        metadata={"note": said},
    )
    run = filled.run(turn, checkpoint={"pending_tool_calls": [{"arguments": json.dumps([said])}]})
    step = filled.step(
        run,
        turn,
        session_id=session,
        name=EMAIL,
        partial_output=said,
        input_payload=filled.body({"messages": [{"role": "user", "content": long}]}),
        output_payload=filled.body({"password": PASSWORD, "content": said}),
        tool_calls=[{"tool_call_id": "call_1", "name": "f", "arguments": json.dumps({"to": said})}],
    )
    part = filled.body(orjson.dumps(long))
    filled.message(
        session,
        turn,
        0,
        content=said,
        parts=[{"type": "text", "text": {"payload": part, "size": len(long)}}],
        name=EMAIL,
    )
    filled.request(
        turn,
        session_id=session,
        step_id=step,
        url=f"https://api.example.com/v1?api_key={KEY}",
        request_headers=[["authorization", f"Bearer {KEY}"], ["x-user", EMAIL]],
        response_headers=[["set-cookie", f"s={PASSWORD}"]],
        error_body=said,
        client={"user_agent": EMAIL},
        response_body=filled.body(spoken("to jane.doe@", "corp-", "mail.net", " it goes")),
    )
    filled.event("turn.started", session, user_input=long, turn_index=0)
    filled.event("tool.requested", session, calls=[{"arguments": json.dumps({"to": said})}])
    return session


def test_no_secret_leaves(filled: FilledStore) -> None:
    session = plant(filled)
    for format in ("json", "jsonl"):
        text = bundles.export(filled.store, ("session", session), format=format, redact=True)
        for secret in SECRETS:
            assert secret not in text.decode()
    document = exported(filled)
    for content in bundles.contents(document).values():
        assert not any(secret.encode() in content for secret in SECRETS)
    said = document["turns"][0]["final_output"]
    email = document["sessions"][0]["session_key"].removeprefix("of ")
    assert re.fullmatch(rf"mail {re.escape(email)}, pay with \[card-1\], use \[key-\d\]. ", said)
    assert document["messages"][0]["content"] == said
    assert document["turns"][0]["error_message"].startswith("no [secret-")


def test_what_was_masked_is_told_and_where(filled: FilledStore) -> None:
    session = plant(filled)
    redaction = exported(filled)["redaction"]
    assert redaction["on"] is True
    by_kind = {entry["kind"]: entry for entry in redaction["masked"]}
    assert {"email", "card", "key", "secret"} <= by_kind.keys()
    first = by_kind["email"]["places"][0]
    assert first == {"table": "sessions", "id": session, "field": "session_key"}
    assert by_kind["email"]["count"] > 5
    assert not any(secret in json.dumps(redaction) for secret in SECRETS)


def test_a_secret_is_masked_too_where_it_stood_before_its_name_was_met(filled: FilledStore) -> None:
    session = filled.session()
    turn = filled.turn(session)
    filled.message(session, turn, 0, content=f"it was {PASSWORD} all along")
    filled.request(turn, session_id=session, request_headers=[["x-password", PASSWORD]])
    document = exported(filled)
    (entry,) = document["redaction"]["masked"]
    assert document["messages"][0]["content"] == f"it was {entry['placeholder']} all along"
    assert entry["count"] == 2


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_what_a_text_has_already_is_no_placeholder_of_another(
    filled: FilledStore, tmp_path: Path, format: str
) -> None:
    session = filled.session(title=f"of {EMAIL}")
    turn = filled.turn(session, user_input="we call her [email-1]")
    filled.message(session, turn, 0, content=f"{KEY} is not [key-7]")
    content = bundles.export(filled.store, format=format, redact=True)
    text = content.decode()
    assert "we call her [email-1]" in text
    assert "of [email-2]" in text
    assert "[key-1] is not [key-7]" in text
    _, head = take_in(BytesIO(content), "bug", tmp_path / "taken.db")
    assert [one["placeholder"] for one in head["redaction"]["masked"]] == ["[email-2]", "[key-1]"]
    imported = Store(tmp_path / "taken.db")
    try:
        again = bundles.export(imported, format=format, redact=True)
        assert again.decode().partition('"redaction"')[0] == text.partition('"redaction"')[0]
    finally:
        imported.close()


def test_clean_text_is_changed_nowhere(filled: FilledStore) -> None:
    session = filled.session(
        metadata={"max_tokens": 4096, "id": "0192f0c1-a2b3-7abc-8def-012345678"}
    )
    body = filled.body({"messages": [{"role": "user", "content": "plain words " * 50}] * 40})
    filled.call(session, input_payload=body, output_payload=filled.body(spoken("a", "b")))
    plain = bundles.read(bundles.export(filled.store))
    masked = exported(filled)
    assert masked["redaction"].pop("on") is not plain["redaction"].pop("on")
    for document in (plain, masked):
        del document["exported_at"]
    assert masked == plain


def test_timing_stays_with_what_was_read(filled: FilledStore) -> None:
    pieces = ("to jane.doe@", "corp-", "mail.net", " it goes")
    body = spoken(*pieces)
    places = [body.index(f'"{piece}"'.encode()) for piece in pieces]
    frames = [[place, 10 * number] for number, place in enumerate(places)]
    filled.request(filled.turn(), response_body=filled.body(body), frames=frames)
    document = exported(filled)
    (log,) = document["request_logs"]
    content = bundles.contents(document)[log["response_body"]]
    assert [ms for _, ms in log["frames"]] == [0, 10, 20, 30]
    assert content[log["frames"][0][0] :].startswith(b'"to [email-1]"')
    assert content[log["frames"][3][0] :].startswith(b'" it goes"')


def test_a_resent_history_is_masked_once_and_is_there_once(filled: FilledStore) -> None:
    session = filled.session()
    history = [
        {"role": "assistant" if n % 2 else "user", "content": f"message {n} " + "text " * 40}
        for n in range(120)
    ]
    history[3]["content"] += EMAIL
    history[50]["content"] += f"{EMAIL} or ann@corp-mail.net"
    sent = [{"model": "m", "messages": history[: 2 * n], "user": EMAIL} for n in range(1, 61)]
    for turn, body in enumerate(sent):
        filled.call(session, turn, input_payload=filled.body(body))
    document = exported(filled)
    found = bundles.contents(document)
    for step, body in zip(document["steps"], sent, strict=True):
        masked = orjson.dumps(body).replace(EMAIL.encode(), b"[email-1]")
        assert found[step["input_payload"]] == masked.replace(b"ann@corp-mail.net", b"[email-2]")
    size = sum(len(json.dumps(payload)) for payload in document["payloads"])
    assert size < 4 * len(orjson.dumps(sent[-1]))


def test_without_bodies_lengths_are_those_of_what_is_masked(filled: FilledStore) -> None:
    filled.turn(filled.session(), user_input=f"I am {EMAIL}")
    document = exported(filled, bodies=False)
    assert document["turns"][0]["user_input"]["length"] == len("I am [email-1]")


def test_the_command_masks_unless_it_is_told_not_to(filled: FilledStore, tmp_path: Path) -> None:
    filled.turn(filled.session("talk"), user_input=f"I am {EMAIL}, number is 17")
    config, file = tmp_path / "xgw.toml", tmp_path / "report.json"
    config.write_text("[redact]\npatterns = ['number is \\d+']\n")
    files = ["--config", str(config), "--db", str(filled.store.path), "-o", str(file)]
    main(["export", "talk", *files], standalone_mode=False)
    masked = bundles.read(file.read_bytes())
    assert masked["turns"][0]["user_input"] == "I am [email-1], [pattern-1]"
    main(["export", "talk", "--no-redact", *files], standalone_mode=False)
    plain = bundles.read(file.read_bytes())
    assert plain["turns"][0]["user_input"] == f"I am {EMAIL}, number is 17"
    assert plain["redaction"] == {"on": False, "bodies": True, "masked": []}


def test_over_http_only_the_token_switches_it_off(tmp_path: Path) -> None:
    server = ApiServer(tmp_path)
    try:
        session = server.filled.session(project_id="team")
        turn = server.filled.turn(session, project_id="team", user_input=f"I am {EMAIL}")
        path = f"/export/turns/{turn}"
        for key in ({}, {"key": TEAM_KEY}):
            assert EMAIL not in server.get(path, **key).body.decode()
        assert EMAIL in server.get(f"{path}?redact=false").body.decode()
        refused = server.get(f"{path}?redact=false", key=TEAM_KEY)
        assert (refused.status, refused.json["error"]["code"]) == (403, "forbidden")
    finally:
        server.stop()
