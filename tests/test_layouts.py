"""Events' payloads take little room in the store, and come back as they were told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway_fixtures import gate_and_model
from scripted_model import asks_for, chat, named, result, said, says, streams, user, whole
from xgw.queries.events import list_events
from xgw.store.layouts import LAYOUTS, OF_TURNS, laid_out, spread_out

OWN = ("turn_1", "sess_1")
VALUES: dict[str, dict[str, Any]] = {
    "its own ids": {"turn_id": OWN[0], "session_id": OWN[1]},
    "ids of others": {"turn_id": "turn_2", "session_id": "sess_2"},
    "no session": {"turn_id": OWN[0], "session_id": None},
}


@pytest.mark.parametrize("number", LAYOUTS)
@pytest.mark.parametrize("ids", VALUES)
def test_every_layout_brings_back_fields_and_values(number: int, ids: str) -> None:
    for empty_from in range(len(LAYOUTS[number]) + 1):
        payload = {
            name: VALUES[ids].get(name, [False, {"payload": n}, 0, "", 1.5][n % 5])
            for n, name in enumerate(LAYOUTS[number])
        }
        payload |= dict.fromkeys(LAYOUTS[number][empty_from:])
        kept = orjson.dumps(laid_out(payload, *OWN))
        assert kept.startswith(b"[%d" % number)
        assert orjson.dumps(spread_out(orjson.loads(kept), *OWN)) == orjson.dumps(payload)


@pytest.mark.parametrize("payload", [{}, {"a": 1}, {"status": None, "run_index": 0}])
def test_what_has_no_layout_is_kept_as_it_is(payload: dict[str, Any]) -> None:
    assert laid_out(payload, *OWN) == payload
    assert spread_out(payload, *OWN) == payload


def test_those_of_turns_begin_with_the_ids() -> None:
    ids = ("turn_id", "session_id")
    assert {n for n, fields in LAYOUTS.items() if set(ids) & set(fields)} == OF_TURNS
    assert all(LAYOUTS[n][:2] == ids for n in OF_TURNS)


def test_what_is_told_of_a_conversation(tmp_path: Path) -> None:
    failure = whole({"error": {"message": "no"}}, status="400 Bad Request")
    with gate_and_model(tmp_path) as gate:
        told = gate.services.hub.subscribe(lambda envelope: envelope.seq is not None)
        gate.model.will(asks_for("c1"), streams("a", "b"), failure, says("again"))
        asked = [user("look")]
        gate.post(chat(*asked, **named("s", "t1")))
        asked += [said(None), result("c1")]
        gate.post(chat(*asked, stream=True, **named("s", "t1")))
        gate.post(chat("without a session"))
        gate.post(chat("once more", **named("s", "t1")))
        stored = list_events(gate.store, 0)
        published = []
        while not published or published[-1].seq != stored[-1].seq:
            published += told.get(10.0)
        for one, other in zip(stored, published, strict=True):
            assert orjson.dumps(one.to_json()) == orjson.dumps(other.to_json())
        types = {e.type for e in stored}
        assert {"turn.updated", "llm.error", "tool.results_sent", "turn.completed"} <= types
        whole_ones = gate.store.sql("SELECT DISTINCT type FROM events WHERE payload LIKE '{%'")
        assert whole_ones == [("tool.requested",)]
