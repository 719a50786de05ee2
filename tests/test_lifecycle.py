"""The state machines: exactly the moves of the data model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from filled_store import FilledStore
from xgw.errors import ApiError
from xgw.recording.lifecycle import (
    ENDED,
    REOPEN_CAUSES,
    STATUS_OF_CAUSE,
    IllegalMove,
    Noun,
    allows,
    allows_reopen,
)
from xgw.recording.moves import apply
from xgw.store.transaction import Transaction

STATES: dict[Noun, str] = {
    "turn": "queued running success error cancelled",
    "run": "queued running waiting_tool paused success error cancelled",
    "step": "running success error cancelled",
}
MOVES: dict[Noun, str] = {
    "turn": """
        queued → running
        queued → cancelled
        running → success | error | cancelled
    """,
    "run": """
        queued → running | cancelled
        running → waiting_tool | paused | success | error | cancelled
        waiting_tool → running | success | error | cancelled
        paused → success | error | cancelled
    """,
    "step": """
        running → success | error | cancelled
    """,
}
"""As the data model draws them, written out."""

CAUSES = {
    "success": {"finished"},
    "error": {"provider", "limit", "gateway", "shutdown", "crash"},
    "cancelled": {"client_disconnect", "user_cancel", "superseded"},
}


def moves(noun: Noun) -> set[tuple[str, str]]:
    lines = [line.split(" → ") for line in MOVES[noun].strip().splitlines()]
    return {(old.strip(), new) for old, news in lines for new in news.split(" | ")}


def pairs(noun: Noun) -> Iterator[tuple[str, str]]:
    yield from itertools.product(STATES[noun].split(), repeat=2)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    filled = FilledStore(tmp_path)
    yield filled
    filled.close()


class Row:
    """A turn, run or step of a status."""

    def __init__(self, filled: FilledStore, noun: Noun, status: str) -> None:
        self._filled, self._noun = filled, noun
        turn = filled.turn(status=status if noun == "turn" else "running")
        run = filled.run(turn, status=status if noun == "run" else "running")
        step = filled.step(run, turn, status=status if noun == "step" else "running")
        self.id = {"turn": turn, "run": run, "step": step}[noun]

    def move(self, new: str, reopen: str | None = None) -> None:
        connection = self._filled.store.open_writer()
        try:
            transaction = Transaction(connection)
            changes = {"error_message": "changed along"}
            apply(transaction, self._noun, self.id, new, changes, reopen=reopen)
        finally:
            connection.close()

    @property
    def columns(self) -> tuple[str, str | None]:
        query = f"SELECT status, error_message FROM {self._noun}s WHERE id = ?"
        status, message = self._filled.store.sql(query, (self.id,))[0]
        return status, message


# -- the tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("noun", ["turn", "run", "step"])
def test_the_moves_are_those_of_the_data_model(noun: Noun) -> None:
    assert {pair for pair in pairs(noun) if allows(noun, *pair)} == moves(noun)


@pytest.mark.parametrize("noun", ["turn", "run", "step"])
def test_only_what_ended_is_reopened_and_for_three_causes(noun: Noun) -> None:
    assert {"turn_key", "tool_result", "rerun"} == REOPEN_CAUSES
    for status in STATES[noun].split():
        expected = noun != "step" and status in ("success", "error", "cancelled")
        assert all(allows_reopen(noun, status, cause) is expected for cause in REOPEN_CAUSES)
        assert not allows_reopen(noun, status, "because")


def test_the_status_follows_from_the_cause() -> None:
    expected = {cause: status for status, causes in CAUSES.items() for cause in causes}
    assert expected == STATUS_OF_CAUSE
    assert set(STATUS_OF_CAUSE.values()) == ENDED


# -- the one function ------------------------------------------------------------------------------


@pytest.mark.parametrize("noun", ["turn", "run", "step"])
def test_a_legal_move_changes_the_row(filled: FilledStore, noun: Noun) -> None:
    for old, new in sorted(moves(noun)):
        row = Row(filled, noun, old)
        row.move(new)
        assert row.columns == (new, "changed along")


@pytest.mark.parametrize("noun", ["turn", "run", "step"])
def test_any_other_move_is_refused(filled: FilledStore, noun: Noun) -> None:
    for old, new in sorted(set(pairs(noun)) - moves(noun)):
        row = Row(filled, noun, old)
        with pytest.raises(IllegalMove) as refused:
            row.move(new)
        assert isinstance(refused.value, ApiError)
        assert (refused.value.status, refused.value.code) == (409, "illegal_move")
        assert refused.value.message == f"{noun} {row.id} is {old} and cannot become {new}"
        assert row.columns == (old, None)


@pytest.mark.parametrize("noun", ["turn", "run"])
def test_reopening(filled: FilledStore, noun: Noun) -> None:
    for cause, status in itertools.product(sorted(REOPEN_CAUSES), sorted(ENDED)):
        row = Row(filled, noun, status)
        row.move("running", reopen=cause)
        assert row.columns == ("running", "changed along")


@pytest.mark.parametrize("noun", ["turn", "run", "step"])
def test_reopening_is_for_what_ended_and_makes_it_run(filled: FilledStore, noun: Noun) -> None:
    refused = [(old, "running", "because") for old in STATES[noun].split()]
    refused += [(old, "running", "rerun") for old in set(STATES[noun].split()) - ENDED]
    refused += [("success", new, "rerun") for new in STATES[noun].split() if new != "running"]
    if noun == "step":
        refused += [(old, "running", "rerun") for old in ENDED]
    for old, new, cause in refused:
        row = Row(filled, noun, old)
        with pytest.raises(IllegalMove):
            row.move(new, reopen=cause)
        assert row.columns == (old, None)


@pytest.mark.parametrize("noun", ["turn", "run", "step"])
def test_what_is_not_there_cannot_move(filled: FilledStore, noun: Noun) -> None:
    row = Row(filled, noun, "running")
    row.id = "gone"
    with pytest.raises(IllegalMove, match="gone is not there and cannot become success"):
        row.move("success")
