"""Imports on the server: the same pages and API over them, all to be read, nothing to act."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import handmade
from dashboard import Browser
from filled_pages import FilledPages, filled_pages
from gateway_fixtures import Client, Reply
from handmade import bundle, event, id_of, message, request, run, session, step, turn
from xgw.config import ClientKey, Server

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x00\x1b[31m"
TOKEN, KEY = "the-token-0001", "team-a-key"
ADDRESS = re.compile(r' (?:href|src|action|hx-get|hx-ws:connect)="([^"]*)"')


def put(client: Client, content: bytes, name: str = "bug.json", **headers: str) -> Reply:
    given = {"content_type": "application/json", **headers}
    return client.post(content, f"/import?file={name}", **given)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FilledPages]:
    with filled_pages(tmp_path_factory.mktemp("own")) as one:
        yield one


def imported(pages: FilledPages, **changes: Any) -> str:
    """The root of a bundle that is imported."""
    reply = put(pages.client, handmade.spelled(bundle(**changes)))
    assert reply.status in (200, 201), reply.body
    return f"/imports/{reply.json['id']}"


def walk(pages: FilledPages, root: str) -> dict[str, str]:
    """Every page and document that links lead to, each answered well."""
    seen: dict[str, str] = {}
    todo = [f"{root}/ui/", f"{root}/ui/turns", f"{root}/ui/requests"]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        reply = pages.client.get(path)
        assert reply.status == 200, (path, reply.status, reply.body[:300])
        seen[path] = reply.body.decode()
        if "html" not in reply.headers["content-type"]:
            continue
        for address in ADDRESS.findall(seen[path]):
            inside = address.replace("&amp;", "&").partition("#")[0]
            if inside.startswith(f"{root}/"):
                todo += [inside] if "/ui/find" not in inside else []
            else:
                known = ("/ui/static/", "/ui/imports", "data:")
                assert not inside or inside.startswith(known), (path, address)
    return seen


OPEN: dict[str, Any] = {
    "sessions": [session(kind="agent", agent_name="support", active_turn_id=id_of("turn"))],
    "turns": [
        turn(
            status="running",
            ended_by=None,
            ended_at=None,
            latency_ms=None,
            agent_name="support",
            endpoint=None,
            final_output=None,
        ),
        turn(
            2,
            status="queued",
            ended_by=None,
            started_at=None,
            ended_at=None,
            agent_name="support",
            endpoint=None,
            queued_at=handmade.NOON,
        ),
        turn(3, status="running", ended_by=None, ended_at=None, latency_ms=None),
    ],
    "runs": [
        run(
            status="waiting_tool",
            ended_at=None,
            checkpoint={
                "next": "tools",
                "pending_tool_calls": [
                    {
                        "tool_call_id": "c1",
                        "name": "refund",
                        "arguments": "{}",
                        "state": "awaits_approval",
                    }
                ],
            },
        ),
        run(3, status="running", ended_at=None),
    ],
    "steps": [
        step(
            tool_calls=[
                {
                    "tool_call_id": "c1",
                    "name": "refund",
                    "arguments": "{}",
                    "arguments_json_valid": True,
                    "incomplete": False,
                }
            ]
        ),
        step(
            2,
            run_id=id_of("run", 3),
            turn_id=id_of("turn", 3),
            status="running",
            ended_at=None,
            latency_ms=None,
            output_payload=None,
            partial_output="so far",
        ),
    ],
}


def test_every_page_of_an_import_is_there_and_acts_on_nothing(pages: FilledPages) -> None:
    root = imported(pages, **OPEN)

    seen = walk(pages, root)

    assert len(seen) > 30
    for path, text in seen.items():
        if "/ui/" not in path or "<html" not in text:
            continue
        assert "Imported from <b><bdi>bug.json</bdi></b>" in text, path
        assert "by xgw <bdi>9.8.7</bdi>" in text, path
        assert 'method="post"' not in text, path
        assert not re.search(r"data-(since|timer|grows|live|composer)|hx-ws:", text), path


def test_what_was_under_way_is_as_it_was_then(pages: FilledPages) -> None:
    root = imported(pages, **OPEN)

    text = pages.open(f"{root}/ui/turns/{id_of('turn', 3)}").tree.text

    assert "Running 05:06" in text  # from its start to the export
    rows = pages.open(f"{root}/ui/").rows
    assert len(rows) == 1


def test_the_api_reads_and_refuses_the_rest(pages: FilledPages) -> None:
    root = imported(pages)
    client = pages.client
    (found,) = client.get(f"{root}/sessions").json["data"]

    assert (found["id"], found["session_key"]) == (id_of("sess"), "key-1")
    assert client.get("/sessions").json["data"] == []
    for method, path in (
        ("POST", "/sessions"),
        ("PATCH", "/sessions/key-1"),
        ("DELETE", "/sessions/key-1"),
        ("POST", f"/turns/{id_of('turn')}/cancel"),
        ("POST", f"/ui/turns/{id_of('turn')}/fork"),
    ):
        reply = client.get(f"{root}{path}", method)
        assert reply.status == 409, path
    error = client.get(f"{root}/sessions/key-1", "DELETE").json["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "read_only")
    for path in ("/health", "/agents", "/v1/models", "/nowhere", "/ui/login", "/ui/agents"):
        assert client.get(f"{root}{path}").status == 404, path
    told = client.get(f"{root}/sessions/key-1/events?after=0").body
    assert b"\n\nid: 1\nevent: message.added\n" in told
    assert client.get(f"{root}/").headers["location"] == f"{root}/ui/"
    assert client.get("/imports/imp_nothing/ui/").status == 404


def test_markup_in_every_field_is_text(pages: FilledPages) -> None:
    def evil(row: dict[str, Any], *names: str) -> dict[str, Any]:
        return row | dict.fromkeys(names, EVIL)

    many = ("error_type", "error_message", "finish_reason", "model", "provider_name", "name")
    root = imported(
        pages,
        xgw=handmade.SOFTWARE | {"version": EVIL, "platform": EVIL},
        sessions=[
            evil(
                session(metadata={EVIL: EVIL}, working_memory={EVIL: [EVIL]}),
                "session_key",
                "title",
                "agent_name",
                "mode",
                "model",
                "source",
                "end_user_id",
                "task_id",
                "session_summary",
                "usage_source",
                "provider_name",
            )
        ],
        turns=[
            evil(
                turn(status="error"),
                "user_input",
                "final_output",
                "error_type",
                "error_message",
                "finish_reason",
                "final_model",
                "trace_id",
                "ended_by",
                "turn_key",
                "endpoint",
            )
        ],
        runs=[evil(run(), "ended_by", "error_type", "error_message", "owner")],
        steps=[
            evil(step(), *many, "step_type", "attempt_reason", "history", "observation_id"),
            evil(step(2, status="error"), *many, "tool_call_id", "finish_reason_raw"),
        ],
        messages=[
            evil(message(1), "role", "content", "name", "tool_call_id", "token_source"),
            evil(message(2, kind="tool_call", role=None), "content", "name"),
        ],
        request_logs=[
            evil(
                request(request_headers=[[EVIL, EVIL]], client={EVIL: EVIL}),
                "method",
                "url",
                "model",
                "provider_name",
                "error_type",
                "error_message",
                "error_body",
            )
        ],
        events=[event(payload={"text": EVIL, "role": EVIL})],
    )

    for path, text in walk(pages, root).items():
        if "<html" in text:
            assert "<script>alert" not in text, path
            assert "<img" not in text, path


ODD = [None, {}, [], "x", 7, {"a": {"b": [None, 1, "x"]}}, [[1], {"x": None}, "y", 3]]


@pytest.mark.parametrize("value", ODD, ids=repr)
def test_whatever_stands_in_json_columns_is_refused_or_shown(
    pages: FilledPages, value: Any
) -> None:
    columns = {
        "sessions": (session, ("metadata", "working_memory", "artifacts", "budget")),
        "turns": (turn, ("metadata",)),
        "runs": (run, ("planner_state", "checkpoint", "overrides", "metadata")),
        "steps": (step, ("tool_calls", "usage_raw", "metadata")),
        "messages": (message, ("parts", "tool_calls", "metadata")),
        "request_logs": (
            request,
            ("request_headers", "response_headers", "frames", "client", "metadata"),
        ),
        "events": (event, ("payload",)),
    }
    taken: dict[str, Any] = {}
    for table, (row, names) in columns.items():
        taken[table] = [row()]
        for name in names:
            content = handmade.spelled(bundle(**{table: [row(**{name: value})]}))
            reply = put(pages.client, content, str(uuid.uuid4()))
            if reply.status == 422:
                assert reply.json["error"]["code"] == "bad_bundle"
            else:
                taken[table][0][name] = value
                pages.client.get(f"/imports/{reply.json['id']}", "DELETE")

    walk(pages, imported(pages, **taken))


def test_uploads_need_a_kind_and_stay_under_a_bound(pages: FilledPages) -> None:
    client = pages.client
    long = {"content_type": "application/json", "content_length": str(1 << 40)}

    assert put(client, b"{}", content_type="text/plain").status == 415
    assert put(client, b"{}", content_type="application/gzip").json["error"]["code"] == (
        "bad_bundle"
    )
    assert client.get("/import", "POST", **long).status == 413
    assert client.get("/imports?limit=3").status == 422


def test_an_import_is_listed_and_removed(pages: FilledPages) -> None:
    root = imported(pages, asked_for=["only-this"])
    client, path = pages.client, root
    assert client.get(path).json["counts"]["turns"] == 1
    assert root in [f"/imports/{one['id']}" for one in client.get("/imports").json["data"]]
    assert client.get(f"{root}/ui/").status == 200

    assert client.get(path, "DELETE").status == 204
    assert client.get(path, "DELETE").status == 404
    assert client.get(f"{root}/ui/").status == 404


def test_a_form_imports_and_another_removes(pages: FilledPages) -> None:
    browser = Browser(pages.client.url)
    browser.open("/ui/imports")
    content = handmade.spelled(bundle(asked_for=["by-form"]))

    page = upload(browser, content)
    assert page.status == 303
    root = page.headers["location"].removesuffix("/ui/")
    assert "by-form.json" in browser.open(f"{root}/ui/").text
    assert "by-form.json" in browser.open("/ui/imports").text

    refused = upload(browser, b"hello")
    assert refused.status == 422
    assert "The bundle cannot be imported: the bundle is no valid JSON" in refused.text
    assert upload(browser, content, csrf="x" * 43).status == 403

    id = root.removeprefix("/imports/")
    browser.send(f"/ui/imports/{id}/remove", {})
    assert browser.open(f"{root}/ui/").status == 404


def upload(browser: Browser, content: bytes, csrf: str | None = None) -> Any:
    fields = f'name="csrf"\r\n\r\n{csrf or browser.cookies["xgw_csrf"]}'
    file = 'name="bundle"; filename="by-form.json"\r\nContent-Type: application/json\r\n\r\n'
    head = "--edge\r\nContent-Disposition: form-data; "
    body = f"{head}{fields}\r\n{head}{file}".encode() + content + b"\r\n--edge--\r\n"
    sent = {"content_type": "multipart/form-data; boundary=edge", "Origin": browser.url}
    return browser._ask("POST", "/ui/imports", body, False, sent)


def test_only_the_token_opens_imports(tmp_path: Path) -> None:
    server = Server(token=TOKEN)
    keys = (ClientKey(key=KEY, project="team-a"),)
    with filled_pages(tmp_path, server=server, keys=keys) as pages:
        client, key, token = pages.client, f"Bearer {KEY}", f"Bearer {TOKEN}"
        content = handmade.spelled(bundle())
        assert put(client, content).status == 401
        assert put(client, content, authorization=key).status == 403
        made = put(client, content, authorization=token)
        assert made.status == 201
        root = f"/imports/{made.json['id']}"

        for path in ("/imports", root, f"{root}/sessions"):
            assert client.get(path).status == 401, path
            assert client.get(path, authorization=key).status == 403, path
            assert client.get(path, authorization=token).status == 200, path
        browser = Browser(client.url)
        asked = browser.open(f"{root}/ui/", follow=False)
        assert asked.status == 303
        page = browser.open(asked.headers["location"])
        entered = browser.send("/ui/login", {**page.fields, "token": TOKEN}, follow=False)
        assert entered.headers["location"] == f"{root}/ui/"
        paths = [line.partition("Path=")[2].partition(";")[0] for line in entered.set_cookies]
        assert paths == ["/ui", "/imports"]
        assert "Imported from bug.json" in browser.open(f"{root}/ui/").text
        assert browser.open(f"{root}/sessions").status == 401  # a login opens pages alone
