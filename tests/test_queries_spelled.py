"""Selects that are spelled once bring the same rows as those that are spelled anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from filled_store import FilledStore, at
from xgw.queries import standing
from xgw.queries.spelled import SelectByIds
from xgw.store.models import Session


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


def test_ids_in_two_places_are_refused() -> None:
    def build(ids: Sequence[str]) -> Any:
        return Session.select().where(Session.id.in_(ids) | Session.session_key.in_(ids))

    with pytest.raises(ValueError, match="one place"):
        SelectByIds(build).fetch(None, ["a", "b"])  # type: ignore[arg-type]
