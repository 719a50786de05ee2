"""The API's description: exactly the routes that exist, and answers that are as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from flask import Flask
from jsonschema_rs import Draft202012, Draft202012Validator, Registry, meta

import bundles
from gateway_fixtures import Client, Reading, Reply, gate_and_model
from scripted_model import Row, chat, named, says
from servers import ROOT, eventually, in_process
from xgw import clock
from xgw.config import ClientKey, Config, Loaded, Provider, Server
from xgw.config.discovery import demo_agent
from xgw.providers.demo import DemoServer
from xgw.store import migrations
from xgw.store.database import Store
from xgw.web import v1
from xgw.web.app import create_app

TOKEN, TEAM = "token-of-the-test", "key-of-the-team"
METHODS = frozenset({"get", "post", "put", "patch", "delete"})
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


class Described(Client):
    """A server on the demo, what it says of itself, and what of that was tried."""

    def __init__(self, url: str, app: Flask) -> None:
        super().__init__(url)
        self.app = app
        self.document: Row = orjson.loads(self.get("/openapi.json").body)
        self._registry = Registry([("urn:xgw", self.document)], draft=Draft202012)
        self.tried: set[tuple[str, str]] = set()

    def operations(self) -> set[tuple[str, str]]:
        """Method and path of each, path parameters without their names."""
        return {
            (method, bare(path))
            for path, item in self.document["paths"].items()
            for method in item
            if method in METHODS
        }

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """An answer that is as the description says."""
        reply = Reading(self.send(body, path, method.upper(), **headers)).rest()
        self.check(method, path, reply)
        return reply

    def check(self, method: str, path: str, reply: Reply) -> None:
        described, item = self._find(method, path)
        self.tried.add((method, bare(described)))
        responses = item[method]["responses"]
        assert str(reply.status) in responses, f"{method} {path} answers {reply.status}"
        answer = self._resolved(responses[str(reply.status)])
        kind = reply.headers.get("content-type", "").partition(";")[0]
        if "content" not in answer:
            assert (reply.body, kind) == (b"", "")
            return
        assert kind in answer["content"], f"{method} {path} answers {kind}"
        if kind == "application/json":
            self.validate(answer["content"][kind]["schema"], reply.json)

    def validate(self, schema: Row, value: Any) -> None:
        whole = {"$ref": f"urn:xgw{schema['$ref']}"} if "$ref" in schema else schema
        checked = Draft202012Validator(whole, registry=self._registry)
        faults = [f"{error.instance_path}: {error.message}" for error in checked.iter_errors(value)]
        assert not faults, faults[:5]

    def _resolved(self, value: Row) -> Row:
        if "$ref" not in value:
            return value
        found: Any = self.document
        for key in value["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        return dict(found)

    def _find(self, method: str, path: str) -> tuple[str, Row]:
        path = path.partition("?")[0]
        for described, item in self.document["paths"].items():
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(described))
            if method in item and re.fullmatch(pattern, path):
                return described, item
        raise AssertionError(f"{method} {path} is not described")


def bare(path: str) -> str:
    return re.sub(r"\{\w+\}|<(?:\w+:)?\w+>", "{}", path)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    store = Store(tmp_path_factory.mktemp("described") / "xgw.db")
    migrations.migrate(store)
    # The demo, many times as fast as the one inside the server.
    demo = DemoServer(pace=0.05)
    provider = Provider(name="demo", base_url=demo.start())
    config = Config(providers=(provider,), agents={"demo": demo_agent("demo")})
    app = create_app(Loaded(config, {}, None), store)
    services = app.extensions["xgw"]
    services.start()
    with in_process(app) as url:
        yield Described(url, app)
    services.drain(1)
    services.stop()
    demo.stop()


# -- what there is ---------------------------------------------------------------------------------


def test_exactly_the_routes_that_exist(described: Described) -> None:
    """The dashboard's are pages, not API."""
    served = {
        (method.lower(), bare(rule.rule))
        for rule in described.app.url_map.iter_rules()
        if not rule.endpoint.startswith("ui.") and not rule.websocket
        for method in rule.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }
    below = [("get", "/v1/models"), ("get", "/v1/models/{}")]
    below += [("post", path) for path in v1.ENDPOINTS]
    served |= {(method, start + path) for method, path in below for start in ("", "/s/{}")}
    assert described.operations() == served


def test_every_route_of_v1_is_there_in_truth(described: Described) -> None:
    """What is described is served, with these methods and no other."""
    for path in [*v1.ENDPOINTS, "/v1/models", "/v1/models/demo"]:
        for start in ("", "/s/key"):
            known, item = described._find("post" if path in v1.ENDPOINTS else "get", start + path)
            assert known.startswith("/s/{session_key}" if start else "/v1")
            for method in METHODS - item.keys():
                reply = Reading(described.send(None, start + path, method.upper())).rest()
                assert reply.status == 405, (method, path)
    assert described.get("/v1/nothing").status == 404


def test_the_schemas_are_schemas_and_lead_somewhere(described: Described) -> None:
    document = described.document
    assert document["openapi"].startswith("3.1.")
    for schema in document["components"]["schemas"].values():
        meta.validate(schema)
    for name in re.findall(rb'"\$ref":"#/components/(\w+/\w+)"', orjson.dumps(document)):
        kind, _, key = name.decode().partition("/")
        assert key in document["components"][kind], name


def test_refusals_are_described(described: Described) -> None:
    for path, item in described.document["paths"].items():
        for method in METHODS & item.keys():
            assert {"401", "default"} <= item[method]["responses"].keys(), (method, path)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("post", "/prune", "403"),
        ("post", "/import", "403"),
        ("get", "/imports", "403"),
        ("get", "/imports/{id}", "403"),
        ("delete", "/imports/{id}", "403"),
        ("post", "/sessions", "409"),
        ("get", "/export", "507"),
        ("get", "/export/turns/{id}", "507"),
    ],
)
def test_refusals_of_their_own_are_described(
    described: Described, method: str, path: str, status: str
) -> None:
    assert status in described.document["paths"][path][method]["responses"]


def test_the_cursor_of_a_browser_is_described(described: Described) -> None:
    for path in ("/events", "/sessions/{session}/events"):
        names = [one["name"] for one in described.document["paths"][path]["get"]["parameters"]]
        assert "Last-Event-ID" in names


# -- real answers ----------------------------------------------------------------------------------


def converse(described: Described) -> Row:
    """Turns of every kind, made through the demo; ids of what they left."""
    key = "talk"
    described.ask("post", "/v1/chat/completions", chat("hello", **named(key, "t-1")))
    asked = chat("What is the weather in Oslo?", tools=[WEATHER], **named(key))
    answer = described.ask("post", "/v1/chat/completions", asked)
    (call,) = answer.json["choices"][0]["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain"}
    more = [*asked["messages"], answer.json["choices"][0]["message"], result]
    described.ask("post", "/v1/chat/completions", {**asked, "messages": more, "stream": True})
    described.ask("post", f"/s/{key}/v1/chat/completions", chat("again"))
    described.ask("post", "/v1/embeddings", {"model": "demo", "input": ["one", "two"]})
    described.ask("post", f"/s/{key}/v1/embeddings", {"model": "demo", "input": "three"})
    odd: list[Any] = [b"{", {"messages": []}, {"model": "demo", "messages": {}}]
    for body in odd:
        assert described.ask("post", "/v1/chat/completions", body).status == 400
    assert described.ask("post", f"/s/{'x' * 300}/v1/embeddings", {"model": "demo"}).status == 400
    waiting = chat("What is the weather in Rome?", tools=[WEATHER], **named(key))
    described.ask("post", "/v1/chat/completions", waiting)
    turn = described.get("/turns?limit=1").json["data"][0]
    described.ask("post", f"/turns/{turn['id']}/cancel")
    assert described.ask("post", f"/turns/{turn['id']}/cancel", {}).status == 409
    return {"key": key, "turn": turn["id"]}


def ask_agent(described: Described) -> None:
    """Messages to the demo's agent, answered with tools, and while another one is answered."""
    question = {"message": "What is the weather in Oslo and 17*23?", "sessionId": "to an agent"}
    answer = described.ask("post", "/agents/demo/chat", question)
    assert [call["name"] for call in answer.json["toolCalls"]] == ["calculator", "demo_weather"]
    path = "/agents/demo/chat/stream"
    streamed = Reading(described.send(question, path, "POST")).rest()
    last = streamed.body.rpartition(b"event: chat.response\ndata: ")[2]
    described.validate({"$ref": "#/components/schemas/ChatResponse"}, orjson.loads(last))
    described.check("post", path, Reply(streamed.status, streamed.headers, b""))
    later = described.ask("post", "/agents/demo/chat", {**question, "wait": 0})
    assert later.status == 202
    described.ask("post", f"/turns/{later.json['turnId']}/cancel")
    decided = {"tool_call_id": "c", "decision": "deny", "reason": "no"}
    run = f"/runs/{later.json['runId']}"
    assert described.ask("post", f"{run}/approvals", decided).status == 409
    assert described.ask("post", f"{run}/resume").status == 409
    again = described.ask("post", f"/turns/{answer.json['turnId']}/runs", {"reuse": "results"})
    assert (again.status, again.json["kind"]) == (201, "rerun")
    assert described.ask("get", f"/sessions/{later.json['sessionId']}").json["tools"]
    eventually(lambda: described.get(f"/turns/{answer.json['turnId']}").json["ended_at"])
    fork = f"/sessions/{answer.json['sessionId']}/fork"
    assert described.ask("post", fork, {"turn_id": answer.json["turnId"]}).status == 201
    assert described.ask("post", fork, {}).status == 422
    compact_context(described, later.json["sessionId"])
    for read, status in (("/agents", 200), ("/agents/demo", 200), ("/agents/no", 404)):
        assert described.ask("get", read).status == status
    assert described.ask("post", "/agents/demo/chat", {}).status == 422


def compact_context(described: Described, session_id: str) -> None:
    """An agent's context, looked at and made shorter."""
    path = f"/sessions/{session_id}"
    assert described.ask("post", f"{path}/compact", {"keep": 1}).status == 422
    for message in ("one", "two", "three", "four"):
        question = {"message": message, "sessionId": session_id}
        described.ask("post", "/agents/demo/chat", question)
    assert described.ask("post", f"{path}/compact").status == 200
    assert described.ask("post", f"{path}/compact", {}).status == 409
    shown = described.ask("get", f"{path}/context?expand=payloads").json
    assert {"instructions", "summary", "turn", "tools"} == {one["part"] for one in shown["parts"]}
    assert described.ask("get", f"{path}/context?expand=all").status == 422


def test_real_answers_are_as_described(described: Described) -> None:
    found = converse(described)
    ask_agent(described)
    session = described.ask("get", f"/sessions/{found['key']}").json
    path = f"/sessions/{session['id']}"
    for expand in ("", "?expand=payloads"):
        for listed in ("/turns", "/requests", f"{path}/turns", f"{path}/steps", f"{path}/requests"):
            assert described.ask("get", listed + expand).json["data"], listed
    assert described.ask("get", f"{path}/messages?limit=2&order=asc").json["has_more"]
    assert described.ask("get", f"{path}/context").json["step_id"]
    for query in ("", "?q=talk", "?running=false&kind=chat&since=2020-01-01", "?limit=1&order=asc"):
        assert described.ask("get", "/sessions" + query).json["data"], query
    for turn in described.get("/turns?limit=500").json["data"]:
        whole = described.ask("get", f"/turns/{turn['id']}?expand=payloads").json
        for run in whole["runs"]:
            described.ask("get", f"/runs/{run['id']}")
            for step in run["steps"]:
                described.ask("get", f"/steps/{step['id']}")
    for request in described.get("/requests?limit=500").json["data"]:
        described.ask("get", f"/requests/{request['id']}")
        described.ask("get", f"/requests/{request['id']}/curl")
    for exported in (path, f"/turns/{turn['id']}", f"/runs/{run['id']}", f"/steps/{step['id']}"):
        bundles.read(described.ask("get", f"/export{exported}").body)
        described.ask("get", f"/export{exported}/preview")
    described.ask("get", f"/export/requests/{request['id']}?format=jsonl")
    for of, query in (("", ""), ("", "?q=talk"), ("/turns", "?kind=chat"), ("/requests", "")):
        described.ask("get", f"/export{of}{query}")
        described.ask("get", f"/export{of}/preview{query}")
    described.ask("get", f"/export/requests/{request['id']}/preview?format=html")
    for group in ("day", "model", "provider", "agent"):
        assert described.ask("get", f"/stats?group={group}").json["data"]
    for read in ("/health", "/openapi.json", "/v1/models", "/v1/models/demo"):
        described.ask("get", read)
    for read in ("/s/k/v1/models", "/s/k/v1/models/demo"):
        described.ask("get", read)
    check_changes(described)
    check_events(described, session["id"])
    check_refusals(described, f"/export{path}")
    check_imports(described, described.get(f"/export{path}").body)
    check_pruning(described, session["id"])
    assert described.tried == described.operations()


def check_pruning(described: Described, session_id: str) -> None:
    moment = clock.to_rfc3339(clock.now())
    done = described.ask("post", "/prune", {"bodies_before": moment, "legacy": True}).json
    assert done["bodies"]["count"] > 0
    for listed in ("/turns", "/requests"):
        shown = described.ask("get", f"{listed}?expand=payloads").json
        assert "'pruned': True" in str(shown["data"])
    refused = described.ask("post", "/prune", {"before": None})
    assert (refused.status, refused.error["param"]) == (422, "before")
    before = {"before": moment, "filters": {"kind": ["chat"], "q": "nothing like it"}}
    assert described.ask("post", "/prune", before).json["sessions"] == 0
    assert described.ask("get", f"/sessions/{session_id}").status == 200


def check_changes(described: Described) -> None:
    opened = described.ask("post", "/sessions", {"session_key": "new one", "title": "A"})
    assert opened.status == 201
    assert described.ask("post", "/sessions", {"session_key": "new one"}).status == 200
    path = f"/sessions/{opened.json['id']}"
    changes = {"status": "archived", "budget": {"tokens": 5.0, "cost_usd": 1}, "metadata": {"a": 1}}
    described.ask("patch", path, changes)
    assert described.ask("patch", path, {"status": "odd"}).status == 422
    assert described.ask("delete", path).status == 204
    assert described.ask("delete", path).status == 404


def check_imports(described: Described, bundle: bytes) -> None:
    made = described.ask("post", "/import?file=bug.json", bundle)
    assert made.status == 201
    assert described.ask("post", "/import", bundle).status == 200
    assert described.ask("post", "/import", {}).status == 422
    assert described.ask("get", "/imports").json["data"] == [made.json]
    path = f"/imports/{made.json['id']}"
    assert described.ask("get", path).json == made.json
    assert described.ask("delete", path).status == 204
    assert described.ask("get", path).status == 404


def check_events(described: Described, session_id: str) -> None:
    for path in ("/events", f"/sessions/{session_id}/events"):
        reading = Reading(described.send(None, f"{path}?after=0", "GET"))
        reading.until(b"event: turn.completed")
        reading.leave()
        described.check("get", path, Reply(reading.status, reading.headers, b""))
        told = re.findall(rb"^data: (.*)\n\n", reading.body, re.MULTILINE)
        assert told
        for envelope in told:
            described.validate({"$ref": "#/components/schemas/Event"}, orjson.loads(envelope))


def check_refusals(described: Described, exported: str) -> None:
    assert described.ask("get", "/export/turns/turn_0").status == 404
    for path in ("/sessions/no", "/turns/no", "/runs/no", "/steps/no", "/requests/no/curl"):
        assert described.ask("get", path).status == 404
    for query in ("format=x", "bodies=x", "colour=blue"):
        assert described.ask("get", f"{exported}?{query}").status == 422
        assert described.ask("get", f"/export?{query}").status == 422
        assert described.ask("get", f"/export/preview?{query}").status == 422
    for query in ("cursor=x", "limit=0", "colour=blue", "q=colour:blue", "since=x"):
        reply = described.ask("get", f"/sessions?{query}")
        assert reply.status in (400, 422), query
    assert described.ask("post", "/sessions", b"x", content_type="text/plain").status == 415
    assert described.ask("get", "/events?after=999999999").status == 409


def test_with_keys_it_asks_for_one_like_the_rest(tmp_path: Path) -> None:
    keys = (ClientKey(key=TEAM, project="team"),)
    with gate_and_model(tmp_path, server=Server(token=TOKEN), keys=keys) as gate:
        assert gate.get("/openapi.json").status == 401
        for key in (TOKEN, TEAM):
            document = gate.get("/openapi.json", authorization=f"Bearer {key}").json
            named_there = document["components"]["securitySchemes"]
            assert [next(iter(one)) for one in document["security"]] == list(named_there)
        assert document["paths"]["/health"]["get"]["security"] == []


def test_without_keys_none_is_asked_for(described: Described) -> None:
    assert "security" not in described.document


# -- a search for what is not as described ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("token", ["", TOKEN])
def test_schemathesis_finds_nothing(tmp_path: Path, token: str) -> None:
    with gate_and_model(tmp_path, routes=(), server=Server(token=token)) as gate:
        gate.model.always(says())
        program = str(Path(sys.executable).with_name("schemathesis"))
        command = [program, "--config-file", str(ROOT / "tests" / "schemathesis.toml"), "run"]
        command += [f"{gate.url}/openapi.json", "--max-examples=3", "--seed=1", "--no-color"]
        command += ["--phases=coverage,fuzzing"] if token else ["--phases=fuzzing,stateful"]
        if token:
            command += ["--header", f"Authorization: Bearer {token}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=580)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        assert "passed" in done.stdout
