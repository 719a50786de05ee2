"""Selects that are spelled once bring the same rows as those that are spelled anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_store import FilledStore, at, selects
from xgw.queries import standing
from xgw.queries.spelled import SelectByIds
from xgw.store.models import Session, Turn


@pytest.mark.parametrize("count", [1, 3, 50])
def test_the_rows_are_those_of_the_select(tmp_path: Path, count: int) -> None:
    filled = FilledStore(tmp_path)
    turns = []
    for number in range(count):
        open: dict[str, Any] = {"status": "running", "ended_at": None}
        turn = filled.turn(filled.session(), user_input=f"input {number}", **open)
        run = filled.run(turn, status="running")
        filled.step(run, turn, number, metadata={"arguments": "{}"}, **open)
        turns.append(turn)
    sessions = [row[0] for row in filled.store.sql("SELECT id FROM sessions")]
    for build, ids in ((standing.of_turns, turns), (standing.of_sessions, sessions)):
        select = SelectByIds(build)
        found = select.fetch(filled.store, ids)
        assert found == filled.store.fetch(build(ids))
        assert select.fetch(filled.store, ids[::-1]) == filled.store.fetch(build(ids[::-1]))
        assert {row["started_at"] for row in found} == {at(number) for number in range(count)}
        assert found[0]["metadata"] == {"arguments": "{}"}
    filled.close()


def test_ids_may_stand_between_other_parameters(tmp_path: Path) -> None:
    filled = FilledStore(tmp_path)
    made = [filled.session(status=status) for status in ("active", "closed", "active", "active")]

    def build(ids: Sequence[str]) -> Any:
        few = Session.select(Session.id).where(Session.status == "active", Session.id.in_(ids))
        return few.order_by(Session.id).limit(2)

    found = SelectByIds(build).fetch(filled.store, made)
    assert [row["id"] for row in found] == sorted([made[0], *made[2:]])[:2]
    filled.close()


def test_ids_may_stand_in_several_places(tmp_path: Path) -> None:
    filled = FilledStore(tmp_path)
    one, other = filled.session(), filled.session(status="closed")

    def build(ids: Sequence[str]) -> Any:
        first, last = ids
        is_first = Session.id == last
        return Session.select(Session.id, is_first.alias("last")).where(
            Session.id.in_(ids), Session.id.in_([last, first])
        )

    found = SelectByIds(build).fetch(filled.store, [one, other])
    assert sorted((row["id"], row["last"]) for row in found) == sorted([(one, 0), (other, 1)])
    filled.close()


def test_bodies_come_with_the_rows_that_name_them(tmp_path: Path) -> None:
    filled = FilledStore(tmp_path)
    long, gone = "a long answer " * 500, "a text that is gone " * 500
    session = filled.session()
    turn = filled.turn(session, user_input=filled.text(long), config_snapshot=filled.body({"a": 1}))
    lost = filled.turn(
        session, turn_index=1, user_input="\x1f" + "0" * 32, config_snapshot="1" * 32
    )
    plain = filled.turn(session, turn_index=2, user_input="short")
    asked = filled.body({"messages": [{"role": "user", "content": gone}], "model": "m"})

    def build(ids: Sequence[str]) -> Any:
        return Turn.select(Turn.id, Turn.user_input, Turn.config_snapshot).where(Turn.id.in_(ids))

    with selects() as statements:
        rows, brought = SelectByIds(build).fetch_whole(
            filled.store,
            [turn, lost, plain],
            texts=("user_input",),
            hashes=("config_snapshot",),
            keys=[asked],
        )
    assert len(statements) == 1
    found = {row["id"]: row["user_input"] for row in rows}
    assert found == {turn: long, lost: None, plain: "short"}
    config = next(row["config_snapshot"] for row in rows if row["id"] == turn)
    assert orjson.loads(brought[config][0]) == {"a": 1}
    body, listed = brought[asked]
    assert orjson.loads(body)["messages"][0]["content"] == gone
    assert len(listed) == 1
    assert "1" * 32 not in brought
    filled.close()
