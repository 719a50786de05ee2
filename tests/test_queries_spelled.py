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


def test_the_ids_have_to_come_last() -> None:
    def build(ids: Sequence[str]) -> Any:
        return Session.select().where(Session.id.in_(list(ids))).limit(3)

    with pytest.raises(ValueError, match="last parameters"):
        SelectByIds(build).fetch(None, ["a"])  # type: ignore[arg-type]
