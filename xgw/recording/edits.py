"""Edits: what changes because someone asked for it, beside the traffic.

Sessions are opened, changed and deleted, turns whose process is gone are ended. Each edit is one
unit of work; the tickets tell when it is committed.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

from xgw import clock
from xgw.errors import ApiError
from xgw.queries.aged import IDLE
from xgw.recording import owner, sessions
from xgw.recording.facts import Scope, SessionFacts
from xgw.recording.forks import Shown, fork_session
from xgw.recording.recovery import USER_CANCEL, Cause, close_open_work
from xgw.store.digits import packed_id
from xgw.store.transaction import Transaction
from xgw.store.writer import Part, Ticket, Writer

MAX_COUNT = 1 << 30

DELETE_EVENTS = "DELETE FROM events WHERE session_id = ?"
# Children first: deleting them by index costs less than a cascade that looks for each.
DELETIONS = (
    "DELETE FROM request_logs WHERE session_id = ?",
    "DELETE FROM messages WHERE session_id = ?",
    "DELETE FROM steps WHERE session_id = ?",
    "DELETE FROM turns WHERE session_id = ?",
    "DELETE FROM sessions WHERE id = ?",
)

OF_TURNS = (
    ("request_logs", "turn_id"),
    ("messages", "turn_id"),
    ("steps", "turn_id"),
    ("turns", "id"),
)
OPEN_RUN = (
    "SELECT t.project_id, t.session_id, t.id, r.id, t.trace_id, t.task_id, r.run_index, r.kind, "
    "r.from_run_id, r.status FROM turns t JOIN runs r ON r.turn_id = t.id "
    "WHERE t.id = ? AND t.status IN ('queued', 'running') "
    "AND r.status IN ('queued', 'running', 'waiting_tool', 'paused') "
    "ORDER BY r.run_index DESC LIMIT 1"
)


class Edits:
    """Hands units to the writer; nothing here waits."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def open_session(self, session: SessionFacts, taken: Callable[[], None]) -> Ticket:
        """A session that begins without a request: `session.created`.

        Where another process has just opened one with its key nothing is made, and `taken` is
        called.
        """
        at = clock.now()

        def work(tx: Transaction) -> None:
            if sessions.is_key_taken(tx, session.project_id, session.session_key):
                tx.after_commit.append(taken)
            else:
                sessions.open_session(tx, session, at)

        return self._writer.submit(work)

    def change_session(self, project_id: str, session_id: str, changes: dict[str, Any]) -> Ticket:
        """Columns of a session that someone wants changed: `session.updated`, if they differ."""
        at = clock.now()
        return self._writer.submit(
            lambda tx: sessions.change_session(tx, project_id, session_id, changes, at)
        )

    def fork_session(
        self, session_id: str, turn_id: str, new_id: str, shown: Shown, refused: list[ApiError]
    ) -> Ticket:
        """A new session that shares the history of this one up to a turn.

        Where that is not possible nothing changes, and `refused` has the reason.
        """
        at = clock.now()

        def work(tx: Transaction) -> None:
            refused.clear()
            try:
                fork_session(tx, session_id, turn_id, new_id, at, shown)
            except ApiError as refusal:  # it comes before anything is written
                refused.append(refusal)

        return self._writer.submit(work)

    def delete_session(self, project_id: str, session_id: str, gone: Callable[[], None]) -> Ticket:
        """A session and everything under it, its events too; `session.deleted` is all that stays.

        `gone` is called once that is committed, or never will be.
        """
        at = clock.now()

        def work(tx: Transaction) -> None:
            _delete_session(tx, project_id, session_id, at)
            tx.after_commit.append(gone)

        return self._writer.submit(work, part=Part(lost=gone))

    def prune_session(
        self,
        project_id: str,
        session_id: str,
        before: datetime.datetime,
        *,
        gone: Callable[[], None],
        kept: Callable[[], None],
    ) -> Ticket:
        """The same if it has had no activity since then, and nothing is under way in it.

        One of `gone` and `kept` is called.
        """
        at = clock.now()

        def work(tx: Transaction) -> None:
            tx.write()
            if tx.one(IDLE, (session_id, before)) is None:
                tx.after_commit.append(kept)
                return
            _delete_session(tx, project_id, session_id, at)
            tx.after_commit.append(gone)

        return self._writer.submit(work, part=Part(lost=kept))

    def delete_turns(self, turns: Sequence[str]) -> Ticket:
        """Turns without a session and everything under them, their events too."""
        places = ", ".join("?" * len(turns))

        def work(tx: Transaction) -> None:
            tx.write()
            packed = [packed_id(turn, "turn") for turn in turns]
            tx.execute(f"DELETE FROM events WHERE turn_id IN ({places})", packed)
            for table, column in OF_TURNS:
                tx.execute(f"DELETE FROM {table} WHERE {column} IN ({places})", turns)
            count_deletion(tx)

        return self._writer.submit(work)

    def delete_requests(self, requests: Sequence[str]) -> Ticket:
        """Requests that belong to no turn."""
        places = ", ".join("?" * len(requests))

        def work(tx: Transaction) -> None:
            tx.execute(f"DELETE FROM request_logs WHERE id IN ({places})", requests)
            count_deletion(tx)

        return self._writer.submit(work)

    def delete_events(self, numbers: Sequence[int]) -> Ticket:
        """Events by their `seq`."""
        places = ", ".join("?" * len(numbers))

        def work(tx: Transaction) -> None:
            tx.execute(f"DELETE FROM events WHERE seq IN ({places})", numbers)

        return self._writer.submit(work)

    def end_turn(
        self, turn_id: str, cause: Cause = USER_CANCEL, seen: tuple[str, str] | None = None
    ) -> Ticket:
        """End an open turn that nobody works on, as it stands; nothing if it is over by then.

        `seen` are the id and status of its newest run: nothing either where they changed meanwhile.
        """

        def work(tx: Transaction) -> None:
            row = tx.one(OPEN_RUN, (turn_id,))
            if row is None:
                return
            *columns, status = row
            scope = Scope(*columns)
            if seen in (None, (scope.run_id, status)):
                close_open_work(tx, scope, cause, clock.now())

        return self._writer.submit(work)


def _delete_session(
    tx: Transaction, project_id: str, session_id: str, at: datetime.datetime
) -> None:
    tx.write()  # those of the same transaction go too
    tx.execute(DELETE_EVENTS, (packed_id(session_id, "sess"),))
    for statement in DELETIONS:
        tx.execute(statement, (session_id,))
    count_deletion(tx)
    tx.emit("session.deleted", at, project_id, {}, session_id=session_id)


def count_deletion(tx: Transaction) -> None:
    """Note in the file that there may be payloads that nothing refers to any more.

    The number (SQLite's `user_version`) is 0 once they were swept.
    """
    row = tx.one("PRAGMA user_version")
    count = row[0] if row else 0
    tx.execute(f"PRAGMA user_version = {count % MAX_COUNT + 1}")


def is_abandoned(owned_by: str | None) -> bool:
    """Whether the process that owns a run is gone."""
    return not owner.is_alive(owned_by)
