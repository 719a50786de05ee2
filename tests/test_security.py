"""Who may enter, over real sockets: hosts, origins, keys, media types; and how errors look."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import flask
import pytest
from werkzeug.exceptions import abort

from servers import in_process
from xgw import errors
from xgw.config import ClientKey, Config, Server
from xgw.web.security import Caller, Guard, Keyring, answer, digest, register_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed.wsgi import StartResponse, WSGIEnvironment

APP = "https://app.example.com"
CONFIG = Config(
    server=Server(
        token="the-token-0001", allowed_hosts=("gw.example.com", "fe80::1"), allowed_origins=(APP,)
    ),
    keys=(
        ClientKey(key="team-a-key", project="team-a", org="acme"),
        ClientKey(key="team-b-key", project="team-b"),
    ),
)
OPEN = Config(server=Server(allowed_origins=(APP,)))
KEY = {"Authorization": "Bearer team-a-key"}


class Inner:
    """The application behind the guard: says who calls, answers what it is told to refuse."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        self.calls.append(environ["PATH_INFO"])
        if (refused := environ.get("xgw.refused")) is not None:
            return answer(refused, environ, start_response)
        caller = environ.get("xgw.caller")
        body = json.dumps(
            {
                "project": caller and caller.project_id,
                "org": caller and caller.org_id,
                "sees_all": caller and caller.sees_all,
                "credential": environ.get("xgw.credential"),
            }
        ).encode()
        start_response("200 OK", [("Content-Type", "application/json")])
        return [body]


class Gate:
    """A guarded application and a client that says what it likes."""

    def __init__(self, url: str, inner: Inner) -> None:
        self.port = int(url.rpartition(":")[2])
        self.inner = inner

    def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str | None] | dict[str, str],
        body: str | None = None,
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            host = headers.get("Host", f"127.0.0.1:{self.port}")
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if host is not None:
                connection.putheader("Host", host.replace("PORT", str(self.port)))
            for name, value in headers.items():
                if name != "Host" and value is not None:
                    connection.putheader(name, value.replace("PORT", str(self.port)))
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(None if body is None else body.encode())
            response = connection.getresponse()
            self.body = response.read()
            return response
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> int:
        return self.ask("GET", path, _dashed(headers)).status

    def post(self, path: str, body: str = "{}", **headers: str) -> int:
        typed = {"Content-Type": "application/json", **_dashed(headers)}
        return self.ask("POST", path, typed, body).status

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def assert_error(self, code: str) -> None:
        assert set(self.json["error"]) == {"message", "type", "param", "code"}
        assert self.json["error"]["type"] == "invalid_request_error"
        assert self.json["error"]["code"] == code


def _dashed(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _gate(config: Config) -> Iterator[Gate]:
    inner = Inner()
    with in_process(Guard(inner, config, Keyring(config))) as url:
        yield Gate(url, inner)


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    yield from _gate(CONFIG)


@pytest.fixture(scope="module")
def open_gate() -> Iterator[Gate]:
    yield from _gate(OPEN)


# -- hosts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:PORT",
        "127.0.0.1:1",
        "localhost:PORT",
        "LocalHost",
        "[::1]:PORT",
        "gw.example.com",
        "GW.example.com:443",
        "gw.example.com.",
        "[fe80::1]:8787",
    ],
)
def test_our_own_names(gate: Gate, host: str) -> None:
    assert gate.ask("GET", "/sessions", {**KEY, "Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "attacker.test",
        "localhost.attacker.test",
        "127.0.0.1.attacker.test",
        "attacker-localhost",
        "gw.example.com.attacker.test",
        "xgw.example.com",
        "127.0.0.1:PORT@attacker.test",
        "localhost:PORT.attacker.test",
        "localhost, attacker.test",
        "127.0.0.2",
        "127.1",
        "[::1",
        "::1",
        "localhost:",
        "localhost:x",
    ],
)
def test_foreign_names(gate: Gate, host: str) -> None:
    assert gate.ask("GET", "/sessions", {**KEY, "Host": host}).status == 421
    gate.assert_error("misdirected_request")


def test_no_name_at_all(gate: Gate) -> None:
    assert gate.ask("GET", "/sessions", {**KEY, "Host": None}).status == 400


def test_only_loopback_names_by_default(open_gate: Gate) -> None:
    assert open_gate.get("/sessions", Host="gw.example.com") == 421
    assert open_gate.get("/sessions", Host="localhost:1234") == 200


# -- origins ---------------------------------------------------------------------------------------

FOREIGN = [
    "https://attacker.test",
    "http://127.0.0.1:PORT.attacker.test",
    "http://localhost:PORT.attacker.test",
    "http://attacker-localhost:PORT",
    "http://localhost:PORT",
    "https://127.0.0.1:PORT",
    "http://127.0.0.1",
    "http://127.0.0.1:PORT/",
    "http://user@127.0.0.1:PORT",
    "127.0.0.1:PORT",
    "null",
    "",
    f"{APP}.attacker.test",
    "http://app.example.com",
]


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_page_changes_nothing(open_gate: Gate, origin: str) -> None:
    before = list(open_gate.inner.calls)
    for path in ("/v1/chat/completions", "/s/key/v1/chat/completions", "/sessions"):
        assert open_gate.post(path, Origin=origin) == 403
        open_gate.assert_error("foreign_origin")
    websocket = {"Upgrade": "WebSocket", "Connection": "Upgrade", "Origin": origin}
    assert open_gate.ask("GET", "/ws", websocket).status == 403
    assert open_gate.inner.calls == before


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_a_cross_site_request_needs_no_origin_to_be_foreign(open_gate: Gate, method: str) -> None:
    crossing = {"Sec-Fetch-Site": "cross-site"}
    assert open_gate.ask(method, "/sessions/1", crossing).status == 403
    crossing["Origin"] = "http://127.0.0.1:PORT"
    assert open_gate.ask(method, "/sessions/1", crossing).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT"])
def test_our_own_page_may(open_gate: Gate, host: str) -> None:
    own = {"Host": host, "Origin": f"http://{host}", "Sec_Fetch_Site": "same-origin"}
    assert open_gate.post("/sessions", **own) == 200
    assert open_gate.get("/ws", Upgrade="websocket", **own) == 200


def test_our_own_page_behind_a_proxy_that_speaks_tls(gate: Gate) -> None:
    behind = {"Host": "gw.example.com", "Authorization": "Bearer team-a-key"}
    assert gate.post("/sessions", Origin="https://gw.example.com", **behind) == 200
    assert gate.post("/sessions", Origin="https://gw.example.com:8443", **behind) == 403
    assert gate.post("/sessions", Origin="https://www.gw.example.com", **behind) == 403


def test_programs_have_no_origin(open_gate: Gate) -> None:
    assert open_gate.post("/v1/chat/completions") == 200
    assert open_gate.post("/v1/chat/completions", Sec_Fetch_Site="none") == 200


def test_reading_is_left_to_the_browser(open_gate: Gate) -> None:
    response = open_gate.ask("GET", "/sessions", {"Origin": "https://attacker.test"})
    assert response.status == 200
    assert "Access-Control-Allow-Origin" not in response.headers


def test_an_allowed_page_may_call_v1_and_nothing_else(open_gate: Gate) -> None:
    for path in ("/v1/chat/completions", "/s/my/key/v1/embeddings"):
        headers = {"Origin": APP, "Sec-Fetch-Site": "cross-site"}
        typed = {**headers, "Content-Type": "application/json"}
        response = open_gate.ask("POST", path, typed, "{}")
        assert response.status == 200
        assert response.headers["Access-Control-Allow-Origin"] == APP
        assert "X-Session-Id" in response.headers["Access-Control-Expose-Headers"]
        assert "x-request-id" in response.headers["Access-Control-Expose-Headers"]
        assert "Origin" in response.headers["Vary"]
    for path in ("/sessions", "/ui/v1", "/v1x"):
        assert open_gate.post(path, Origin=APP) == 403
    assert open_gate.get("/ws", Upgrade="websocket", Origin=APP) == 403


def test_preflight(gate: Gate) -> None:
    wish = {
        "Origin": APP,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
        "Access-Control-Request-Private-Network": "true",
    }
    response = gate.ask("OPTIONS", "/v1/chat/completions", wish)
    assert (response.status, gate.body) == (204, b"")
    assert response.headers["Access-Control-Allow-Origin"] == APP
    assert "POST" in response.headers["Access-Control-Allow-Methods"]
    assert "x-stainless-os" in response.headers["Access-Control-Allow-Headers"]
    assert response.headers["Access-Control-Allow-Private-Network"] == "true"
    assert gate.ask("OPTIONS", "/sessions", wish).status == 403
    wish["Origin"] = "https://attacker.test"
    response = gate.ask("OPTIONS", "/v1/chat/completions", wish)
    assert response.status == 403
    assert "Access-Control-Allow-Origin" not in response.headers


def test_an_allowed_page_can_read_why_it_was_refused(gate: Gate) -> None:
    response = gate.ask("GET", "/v1/models", {"Origin": APP})
    assert response.status == 401
    assert response.headers["Access-Control-Allow-Origin"] == APP


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "project", "credential"),
    [
        ({"Authorization": "Bearer team-a-key"}, "team-a", "authorization"),
        ({"Authorization": "bearer  team-b-key "}, "team-b", "authorization"),
        ({"x-api-key": "team-b-key"}, "team-b", "x-api-key"),
        ({"X-Xgw-Key": "team-b-key"}, "team-b", "x-xgw-key"),
        ({"X-Xgw-Key": "team-b-key", "Authorization": "Bearer sk-upstream"}, "team-b", "x-xgw-key"),
        ({"x-api-key": "team-b-key", "Authorization": "Bearer nobody"}, "team-b", "x-api-key"),
        ({"Authorization": "Bearer the-token-0001"}, "default", "authorization"),
    ],
)
def test_a_key_opens_its_project(
    gate: Gate, headers: dict[str, str], project: str, credential: str
) -> None:
    assert gate.ask("GET", "/sessions", headers).status == 200
    assert gate.json["project"] == project
    assert gate.json["credential"] == credential
    assert gate.json["sees_all"] is (project == "default")
    assert gate.json["org"] == ("acme" if project == "team-a" else None)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer team-a-ke"},
        {"Authorization": "Bearer team-a-keyy"},
        {"Authorization": "Bearer TEAM-A-KEY"},
        {"Authorization": "Basic team-a-key"},
        {"Authorization": "team-a-key"},
        {"Authorization": "Bearer team-a-key, Bearer team-a-key"},
        {"Authorization": "Bearer \xff\xfe"},
        {"x-api-key": ""},
        {"Cookie": "key=team-a-key"},
    ],
)
def test_anything_else_opens_nothing(gate: Gate, headers: dict[str, str]) -> None:
    before = list(gate.inner.calls)
    for path in ("/sessions", "/v1/models", "/uix", "/ui.x/"):
        response = gate.ask("GET", path, headers)
        assert response.status == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        gate.assert_error("invalid_api_key")
    for path in ("/ui/", "/"):
        response = gate.ask("GET", path, headers)
        assert (response.status, gate.body) == (303, b"")
        assert response.headers["Location"] == "/ui/login?next=%2Fui%2F"
    assert gate.ask("GET", "/sessions?key=team-a-key", headers).status == 401
    assert gate.inner.calls == before


def test_without_keys_everyone_sees_all(open_gate: Gate) -> None:
    assert open_gate.get("/sessions", Authorization="Bearer sk-whatever") == 200
    assert (open_gate.json["project"], open_gate.json["sees_all"]) == ("default", True)
    assert open_gate.json["credential"] is None


def test_health_tells_a_stranger_that_it_lives(gate: Gate) -> None:
    assert gate.get("/health") == 200
    strangers = gate.json
    assert strangers["project"] is None
    assert gate.get("/health", Authorization="Bearer the-token-0001") == 200
    assert gate.json["project"] == "default"
    assert gate.post("/health") == 401


def test_a_refused_call_of_a_model_is_left_to_be_recorded(gate: Gate) -> None:
    for path in ("/v1/chat/completions", "/v1/embeddings", "/s/k/v1/chat/completions"):
        before = len(gate.inner.calls)
        assert gate.post(path) == 401
        gate.assert_error("invalid_api_key")
        assert gate.inner.calls[before:] == [path]


def test_keys_that_are_issued_and_revoked_while_it_runs() -> None:
    issued = {digest("issued-key"): Caller("team-c", None, "key_1", "laptop")}
    keyring = Keyring(CONFIG, lambda: list(issued.items()))
    environ = {"HTTP_AUTHORIZATION": "Bearer issued-key"}
    assert keyring.authenticate(environ) == Caller("team-c", None, "key_1", "laptop")
    issued.clear()
    with pytest.raises(errors.ApiError) as refused:
        keyring.authenticate(environ)
    assert refused.value.status == 401


# -- media types and headers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "media_type",
    ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"],
)
def test_json_by_any_of_its_names(open_gate: Gate, media_type: str) -> None:
    assert open_gate.post("/sessions", Content_Type=media_type) == 200


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "text/plain; application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=json",
        "application/jsonx",
        "",
    ],
)
def test_other_bodies_are_refused_before_anything_happens(open_gate: Gate, media_type: str) -> None:
    before = list(open_gate.inner.calls)
    for path in ("/v1/chat/completions", "/sessions"):
        assert open_gate.post(path, Content_Type=media_type) == 415
        open_gate.assert_error("unsupported_media_type")
    assert open_gate.ask("POST", "/sessions", {}, "{}").status == 415
    assert open_gate.inner.calls == before


def test_what_has_no_body_needs_no_media_type(open_gate: Gate) -> None:
    assert open_gate.ask("POST", "/turns/1/cancel", {}, "").status == 200
    assert open_gate.ask("DELETE", "/sessions/1", {}).status == 200


def test_security_headers_stand_on_every_answer(gate: Gate) -> None:
    for headers in (KEY, {}):
        response = gate.ask("GET", "/sessions", headers)
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Referrer-Policy"] == "no-referrer"


# -- errors of the application ---------------------------------------------------------------------


def _application() -> flask.Flask:
    app = flask.Flask("errors")
    register_errors(app)

    @app.get("/refuses")
    def refuses() -> str:
        raise errors.overloaded("too much", retry_after=7)

    @app.post("/breaks")
    def breaks() -> str:
        raise ValueError("a secret detail")

    @app.get("/aborts/<int:status>")
    def aborts(status: int) -> str:
        abort(status)

    return app


@pytest.fixture(scope="module")
def application() -> Iterator[Gate]:
    with in_process(_application()) as url:
        yield Gate(url, Inner())


def test_an_error_that_a_view_raises(application: Gate) -> None:
    response = application.ask("GET", "/refuses", {})
    assert (response.status, response.headers["Retry-After"]) == (503, "7")
    assert application.json["error"]["type"] == "overloaded"


@pytest.mark.parametrize("path", ["/nowhere", "/refuses/", "/%e4", "/v1/<script>", "/aborts/404"])
def test_no_such_path(application: Gate, path: str) -> None:
    if path == "/refuses/":  # the same resource, and no redirect
        assert application.get(path) == 503
        return
    response = application.ask("GET", path, {})
    assert (response.status, response.headers["Content-Type"]) == (404, "application/json")
    application.assert_error("not_found")


def test_wrong_method(application: Gate) -> None:
    response = application.ask("DELETE", "/refuses", {})
    assert response.status == 405
    assert set(response.headers["Allow"].split(", ")) == {"GET", "HEAD", "OPTIONS"}
    application.assert_error("method_not_allowed")


def test_other_http_errors(application: Gate) -> None:
    assert application.get("/aborts/409") == 409
    application.assert_error("conflict")
    assert application.get("/aborts/413") == 413
    assert application.get("/aborts/502") == 500
    assert application.json["error"]["type"] == "internal"


def test_a_fault_is_logged_and_not_told(
    application: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="xgw"):
        assert application.post("/breaks?token=query-secret") == 500
    assert application.json["error"]["type"] == "internal"
    assert b"secret" not in application.body
    [record] = caplog.records
    assert record.getMessage() == "POST /breaks failed"
    assert record.exc_info is not None
    assert "query-secret" not in caplog.text
