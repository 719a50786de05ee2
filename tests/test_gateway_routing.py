"""Which provider answers for a model name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_fixtures import Gate, gateway, provider
from scripted_model import Model, Row, chat, counts, says, whole
from xgw.config import Provider, Route

DEMO = Provider(name="demo", kind="demo")


@pytest.fixture
def models() -> Iterator[list[Model]]:
    made = [Model() for _ in range(2)]
    yield made
    for model in made:
        model.check()
        model.close()


@contextlib.contextmanager
def routed(folder: Path, models: list[Model], *routes: Route, **second: object) -> Iterator[Gate]:
    """A gateway with a provider of its own for each model: `one` and `two`."""
    providers = (provider(models[0], "one"), provider(models[1], "two", **second), DEMO)
    for model in models:
        model.always(says())
    with gateway(folder, models[0], providers=providers, routes=routes) as gate:
        yield gate


def answered(models: list[Model], gate: Gate, asked_for: str) -> tuple[str, str] | None:
    """Which provider was asked for which of its models; None if the request was refused."""
    for model in models:
        model.asked.clear()
    reply = gate.post(chat(model=asked_for))
    if reply.status == 404:
        assert reply.error["code"] == "model_not_found"
        return None
    assert reply.status == 200
    asked = [
        (name, str(a.json["model"]))
        for name, model in zip(("one", "two"), models, strict=True)
        for a in model.asked
        if a.line.startswith("POST")
    ]
    return asked[0]


def listing(*names: str) -> Row:
    return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}


def test_routes(tmp_path: Path, models: list[Model]) -> None:
    routes = [
        Route(model="gpt-*", targets=("two/*",)),
        Route(model="gpt-4o", targets=("one/renamed",)),
        Route(model="g*", targets=("one/caught",)),
        Route(model="[x]", targets=("two/literal",)),
    ]
    with routed(tmp_path, models, *routes, endpoints=("chat.completions",)) as gate:
        found = {
            asked: answered(models, gate, asked)
            for asked in ("gpt-4o", "gpt-5", "gemini", "x", "two/org/model", "two/", "GPT-5")
        }
    assert found == {
        "gpt-4o": ("one", "renamed"),
        "gpt-5": ("two", "gpt-5"),
        "gemini": ("one", "caught"),
        "x": ("two", "literal"),
        "two/org/model": ("two", "org/model"),
        "two/": None,
        "GPT-5": None,
    }


def test_without_routes_the_first_provider_takes_what_nobody_lists(
    tmp_path: Path, models: list[Model]
) -> None:
    models[0].will(whole(listing("a", "both")))
    models[1].will(whole(listing("b", "both")))
    with routed(tmp_path, models) as gate:
        names = ("a", "b", "both", "unheard-of", "demo", "one/x", "three/x")
        found = {asked: answered(models, gate, asked) for asked in names}
    assert found == {
        "a": ("one", "a"),
        "b": ("two", "b"),
        "both": ("one", "both"),
        "unheard-of": ("one", "unheard-of"),
        "demo": ("one", "demo"),
        "one/x": ("one", "x"),
        "three/x": ("one", "three/x"),
    }


def test_with_routes_a_listed_model_needs_none(tmp_path: Path, models: list[Model]) -> None:
    with routed(tmp_path, models, Route(model="r", targets=("one/r",))) as gate:
        assert answered(models, gate, "r") == ("one", "r")
        models[0].will(whole(listing("a")))
        models[1].will(whole({"error": {"message": "no list"}}, status="500 No"))
        assert answered(models, gate, "a") == ("one", "a")
        assert answered(models, gate, "b") is None


def test_only_providers_that_have_the_endpoint(tmp_path: Path, models: list[Model]) -> None:
    models[1].always(whole({"data": [], "usage": counts(1, 0)}))
    route = Route(model="m", targets=("one/m", "two/m"))
    with routed(tmp_path, models, route, endpoints=("embeddings",)) as gate:
        assert answered(models, gate, "m") == ("one", "m")
        assert answered(models, gate, "two/m") is None
        reply = gate.post({"model": "two/m", "input": "a"}, "/v1/embeddings")
        assert (reply.status, len(models[1].asked)) == (200, 1)


def test_the_demo_serves_where_there_is_nothing_else(tmp_path: Path) -> None:
    model = Model()
    with gateway(tmp_path, model, providers=(DEMO,), routes=()) as gate:
        reply = gate.post(chat("hello", model="anything"))
        turn = gate.turn(reply)
        assert (reply.status, turn["final_provider_name"]) == (200, "demo")
        assert turn["total_tokens"] > 0
        streamed = gate.post(chat("hello", model="anything", stream=True))
        assert streamed.body.endswith(b"data: [DONE]\n\n")
    model.close()
