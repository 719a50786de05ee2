"""`GET /export/…`: the document of `xgw export` over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import bundles
from api_server import TEAM_KEY, ApiServer
from xgw.portable.preview import sample
from xgw.portable.selection import Selection
from xgw.portable.source import Asked
from xgw.queries import filters

Row = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("api"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def turn(server: ApiServer) -> str:
    """A turn with a message in a session of the project `team`."""
    session = server.filled.session("team-talk", project_id="team")
    turn = server.filled.turn(session, project_id="team", user_input="what was said")
    server.filled.message(session, turn, 0, content="what was said")
    return turn


@pytest.mark.parametrize("key", [None, TEAM_KEY], ids=("token", "client key"))
def test_a_session_is_a_file_to_keep(server: ApiServer, turn: str, key: str | None) -> None:
    keys = {} if key is None else {"key": key}
    session = server.get(f"/turns/{turn}", **keys).json["session_id"]
    ref = session if key is None else "team-talk"
    reply = server.get(f"/export/sessions/{ref}", **keys)
    document = bundles.read(reply.body)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["Content-Disposition"] == f'attachment; filename="{session}.json"'
    assert reply.headers["Cache-Control"] == "no-store"
    assert int(reply.headers["Content-Length"]) == len(reply.body)
    assert document["asked_for"] == [session]
    assert [row["content"] for row in document["messages"]] == ["what was said"]


def test_lines_and_documents_without_bodies(server: ApiServer, turn: str) -> None:
    lines = server.get(f"/export/turns/{turn}?format=jsonl")
    assert lines.headers["Content-Type"].startswith("application/x-ndjson")
    assert lines.body.count(b"\n") == 5
    document = bundles.read(server.get(f"/export/turns/{turn}?bodies=false").body)
    assert document["turns"][0]["user_input"]["length"] == len("what was said")
    assert "what was said" not in str(document)


def test_what_is_of_another_project_is_not_there(server: ApiServer, turn: str) -> None:
    other = server.filled.session("other-talk")
    hidden = server.filled.turn(other)
    for path in ("sessions/other-talk", f"sessions/{other}", f"turns/{hidden}", "turns/turn_0"):
        reply = server.get(f"/export/{path}", key=TEAM_KEY)
        assert reply.status == 404, path
        assert reply.json["error"]["code"] == f"{path.partition('s/')[0]}_not_found"
    assert server.get(f"/export/turns/{turn}", key=None).status == 401


@pytest.mark.parametrize("query", ["format=xml", "bodies=no", "colour=blue"])
def test_a_parameter_that_is_wrong_is_named(server: ApiServer, turn: str, query: str) -> None:
    error = server.get(f"/export/turns/{turn}?{query}").json["error"]
    assert error["param"] == query.partition("=")[0]


def test_a_preview_tells_what_would_leave(server: ApiServer, turn: str) -> None:
    told = server.get(f"/export/turns/{turn}/preview?format=openai").json
    assert (told["object"], told["kind"], told["id"]) == ("export_preview", "turn", turn)
    rows = {part["name"]: part["rows"] for part in told["parts"]}
    assert (rows["turns"], rows["messages"], rows["request_logs"]) == (1, 1, 0)
    assert told["redaction"] == {"on": True, "bodies": True, "masked": []}
    assert told["left_out"] == [
        "left out: 1 × message behind the last answer, 1 × conversation without an answer"
    ]
    whole = server.get(f"/export/turns/{turn}/preview").json
    assert whole["bytes"] == len(server.get(f"/export/turns/{turn}").body)


# -- what a list has -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def several(server: ApiServer) -> dict[str, str]:
    """Sessions of two projects, one archived, and a turn without any: ids by what they are."""
    filled = server.filled
    made = {}
    for name, columns in (
        ("done", {"project_id": "team"}),
        ("failed", {"project_id": "team"}),
        ("archived", {"project_id": "team", "status": "archived"}),
        ("hidden", {"project_id": "default"}),
    ):
        made[name] = filled.session(f"several-{name}", kind="agent", **columns)
        turn = filled.turn(made[name], project_id=columns["project_id"], user_input=name)
        code = 500 if name == "failed" else 200
        filled.request(
            turn,
            session_id=made[name],
            project_id=columns["project_id"],
            status_code=code,
        )
    made["alone"] = filled.turn(project_id="team", user_input="alone")
    return made


def names_of(document: Row) -> set[str]:
    """What was said in the turns of an export that the fixture made."""
    known = {"done", "failed", "archived", "hidden", "alone"}
    return {turn["user_input"] for turn in document["turns"]} & known


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?kind=agent", {"done", "failed", "hidden"}),
        ("?session_key=several-done&session_key=several-failed", {"done", "failed"}),
        ("?q=" + quote('"failed"'), {"failed"}),
        ("?kind=agent&status=archived", {"archived"}),
        ("/requests?status_code=5xx", {"failed"}),
        ("/turns?session_id=none", {"alone"}),
        ("/turns?session_key=several-done", {"done"}),
        ("?", {"done", "failed", "archived", "hidden", "alone"}),
        ("?kind=agent&session_key=nobody", set()),
    ],
)
def test_what_a_list_has_is_one_document(
    server: ApiServer, several: dict[str, str], query: str, expected: set[str]
) -> None:
    path, _, query = query.partition("?")
    reply = server.get(f"/export{path}?{query}")
    assert reply.headers["Content-Disposition"] == 'attachment; filename="xgw-export.json"'
    document = bundles.read(reply.body)
    assert names_of(document) == expected
    assert document["asked_for"] == []
    lines = server.get(f"/export{path}?{query}&format=jsonl").body.splitlines()
    assert sum(b'"table":"turns"' in line for line in lines) == len(document["turns"])
    told = server.get(f"/export{path}/preview?{query}").json
    rows = {part["name"]: part["rows"] for part in told["parts"]}
    assert rows["turns"] == len(document["turns"])
    covers = told["covers"]
    assert (covers["looked_at"], covers["all_counted"]) == (covers["found"], True)


def test_a_document_tells_how_its_rows_were_found(
    server: ApiServer, several: dict[str, str]
) -> None:
    asked = "status_code=5xx&status_code=404&provider=openai"
    told = bundles.read(server.get(f"/export/requests?{asked}").body)
    where = {"status_code": ["5xx", "404"], "provider": ["openai"]}
    assert told["filter"] == {"of": "requests", "where": where}
    mail = quote('"ada@example.com"')
    told = bundles.read(server.get(f"/export?q={mail}&since=2024-01-01", key=TEAM_KEY).body)
    where = {"since": ["2024-01-01"]}
    assert told["filter"] == {
        "of": "sessions",
        "q": '"[email-1]"',
        "where": where,
        "project": "team",
    }
    assert bundles.read(server.get("/export").body)["filter"] is None
    report = server.get(f"/export/requests?{asked}&format=markdown").body.decode()
    assert "requests status_code:5xx" in report


def test_a_client_key_gets_all_of_its_project_alone(
    server: ApiServer, several: dict[str, str]
) -> None:
    document = bundles.read(server.get("/export", key=TEAM_KEY).body)
    assert names_of(document) == {"done", "failed", "archived", "alone"}
    for table in ("sessions", "turns", "request_logs"):
        assert {row["project_id"] for row in document[table]} == {"team"}
    assert document["filter"] == {"project": "team"}
    found = bundles.read(server.get("/export?kind=agent", key=TEAM_KEY).body)
    assert names_of(found) == {"done", "failed"}
    seen = server.get("/export/preview", key=TEAM_KEY).json
    assert seen["kind"] == "everything"
    assert {p["name"]: p["rows"] for p in seen["parts"]}["turns"] == len(document["turns"])
    refused = server.get("/export?redact=false", key=TEAM_KEY)
    assert (refused.status, refused.json["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize("query", ["?of=turns", "/turns?q=x", "?limit=5", "?kind=x", "?provider=x"])
def test_a_filter_that_the_list_does_not_have_is_named(server: ApiServer, query: str) -> None:
    path, _, query = query.partition("?")
    for kind in ("", "/preview"):
        reply = server.get(f"/export{path}{kind}?{query}")
        assert reply.status == 422
        assert reply.json["error"]["param"] == query.partition("=")[0]


def test_a_preview_of_much_is_of_the_newest_and_says_so(
    server: ApiServer, several: dict[str, str]
) -> None:
    store = server.filled.store
    kinds = filters.parse("sessions", [("kind", "agent")])
    selection = Selection(store, "sessions", (("kind", "agent"),), kinds)
    asked = Asked(selection, lambda name: None, selection.told())
    seen = sample(store, asked, "json", selection, seconds=0)
    assert (seen.looked_at, seen.found, seen.all_counted) == (1, 3, True)
    assert {part.name: part.rows for part in seen.seen.parts}["sessions"] == 1
    sought = filters.parse("sessions", [("q", "cost>=0")])
    selection = Selection(store, "sessions", (("q", "cost>=0"),), sought)
    assert not sample(store, asked, "json", selection, seconds=0).all_counted


def test_a_preview_is_of_ones_own_project(server: ApiServer) -> None:
    other = server.filled.turn(server.filled.session("others"))
    assert server.get(f"/export/turns/{other}/preview", key=TEAM_KEY).status == 404
