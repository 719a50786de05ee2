"""Which rows an export takes: what was named, what that stands in, and what is under it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xgw.frozen import frozen
from xgw.portable.scratch import Scratch
from xgw.store.database import Store

TABLES = ("sessions", "turns", "runs", "steps", "messages", "request_logs", "events")
"""The tables whose rows a bundle has, in its order."""


@frozen
class Root:
    """Something that was asked for: its kind, and its id.

    A kind is session, turn, run, step, message or request.
    """

    kind: str
    id: str


_TURN_OF_RUN = "(SELECT turn_id FROM runs WHERE id = :id)"
_TURN_OF_STEP = "(SELECT turn_id FROM steps WHERE id = :id)"
_UNDER_STEP = f"""
WITH RECURSIVE inside(id) AS (
    VALUES (:id)
    UNION
    SELECT s.id FROM inside JOIN steps AS s
    ON s.turn_id = {_TURN_OF_STEP} AND s.parent_step_id = inside.id
),
over(id) AS (
    VALUES (:id)
    UNION
    SELECT s.parent_step_id FROM over JOIN steps AS s
    ON s.id = over.id AND s.parent_step_id IS NOT NULL
)
"""
_OVER = """
WITH RECURSIVE over(id) AS (
    SELECT step_id FROM {table} WHERE id = :id AND step_id IS NOT NULL
    UNION
    SELECT s.parent_step_id FROM over JOIN steps AS s
    ON s.id = over.id AND s.parent_step_id IS NOT NULL
)
SELECT id FROM over
"""


def _named(table: str) -> str:
    return f"SELECT id FROM {table} WHERE id = :id"


def _owner(column: str, table: str) -> str:
    """The parent that a row names, if there is one."""
    return f"SELECT {column} FROM {table} WHERE id = :id AND {column} IS NOT NULL"


def _standing_in(table: str) -> dict[str, str]:
    """The rows that a message or a request stands in."""
    return {
        "sessions": _owner("session_id", table),
        "turns": _owner("turn_id", table),
        "runs": _owner("run_id", table),
        "steps": _OVER.format(table=table),
        table: _named(table),
    }


CHOICES: dict[str, dict[str, str]] = {
    "session": {
        "sessions": _named("sessions"),
        "turns": "SELECT id FROM turns WHERE session_id = :id",
        "runs": "SELECT r.id FROM turns AS t JOIN runs AS r ON r.turn_id = t.id"
        " WHERE t.session_id = :id",
        "steps": "SELECT id FROM steps WHERE session_id = :id",
        "messages": "SELECT id FROM messages WHERE session_id = :id",
        "request_logs": "SELECT id FROM request_logs WHERE session_id = :id",
        "events": "SELECT seq FROM events WHERE session_id = packed_id(:id, 'sess')",
    },
    "turn": {
        "sessions": _owner("session_id", "turns"),
        "turns": _named("turns"),
        "runs": "SELECT id FROM runs WHERE turn_id = :id",
        "steps": "SELECT id FROM steps WHERE turn_id = :id",
        "messages": "SELECT id FROM messages WHERE turn_id = :id",
        "request_logs": "SELECT id FROM request_logs WHERE turn_id = :id",
        "events": "SELECT seq FROM events WHERE turn_id = packed_id(:id, 'turn')",
    },
    "run": {
        "sessions": "SELECT t.session_id FROM runs AS r JOIN turns AS t ON t.id = r.turn_id"
        " WHERE r.id = :id AND t.session_id IS NOT NULL",
        "turns": _owner("turn_id", "runs"),
        "runs": _named("runs"),
        "steps": "SELECT id FROM steps WHERE run_id = :id",
        "messages": f"SELECT id FROM messages WHERE turn_id = {_TURN_OF_RUN} AND run_id = :id",
        "request_logs": "SELECT id FROM request_logs"
        f" WHERE turn_id = {_TURN_OF_RUN} AND run_id = :id",
        "events": f"SELECT seq FROM events WHERE turn_id = packed_id({_TURN_OF_RUN}, 'turn')"
        " AND run_id = packed_id(:id, 'run')",
    },
    "step": {
        "sessions": _owner("session_id", "steps"),
        "turns": _owner("turn_id", "steps"),
        "runs": _owner("run_id", "steps"),
        "steps": f"{_UNDER_STEP} SELECT id FROM inside UNION SELECT id FROM over",
        "messages": f"{_UNDER_STEP} SELECT id FROM messages"
        f" WHERE turn_id = {_TURN_OF_STEP} AND step_id IN (SELECT id FROM inside)",
        "request_logs": f"{_UNDER_STEP} SELECT id FROM request_logs"
        " WHERE step_id IN (SELECT id FROM inside)",
        "events": f"{_UNDER_STEP} SELECT seq FROM events"
        f" WHERE turn_id = packed_id({_TURN_OF_STEP}, 'turn')"
        " AND step_id IN (SELECT packed_id(id, 'step') FROM inside)",
    },
    "message": _standing_in("messages"),
    "request": _standing_in("request_logs"),
}
"""For each kind of thing and each table, the keys of the rows that come with it."""


class Chosen:
    """The rows of one export; everything in the store where nothing was named.

    To be used inside one snapshot of the store.
    """

    def __init__(self, store: Store, scratch: Scratch, *, everything: bool = False) -> None:
        self.store = store
        self.everything = everything
        self._scratch = scratch

    def add(self, roots: Iterable[Root]) -> None:
        """These, and what belongs to them."""
        with self.store.reading() as database:
            for root in roots:
                for table, statement in CHOICES[root.kind].items():
                    cursor = database.execute_sql(statement, {"id": root.id})  # type: ignore[no-untyped-call]
                    self._scratch.choose(table, (row[0] for row in cursor))

    def batches(self, table: str, count: int) -> Iterator[list[str | int]]:
        """The keys of a table's rows in order, so many at a time; not if it is everything."""
        return self._scratch.chosen(table, count)
