"""`GET /export/…`: the document of `xgw export` over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import bundles
from api_server import TEAM_KEY, ApiServer


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


def test_a_preview_is_of_ones_own_project(server: ApiServer) -> None:
    other = server.filled.turn(server.filled.session("others"))
    assert server.get(f"/export/turns/{other}/preview", key=TEAM_KEY).status == 404
