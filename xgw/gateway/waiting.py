"""Turns that await a client's tools: they end when the results take too long."""

from __future__ import annotations

import datetime
import threading

from xgw import clock
from xgw.gateway.closing import close_waiting
from xgw.gateway.sessions import Sessions
from xgw.recording.recorder import Recorder
from xgw.store.database import Store

LONGEST_PAUSE = 5.0

OVERDUE = (
    "SELECT t.project_id, t.session_id, t.id FROM runs r JOIN turns t ON t.id = r.turn_id "
    "WHERE r.status = 'waiting_tool' AND t.endpoint IS NOT NULL AND r.heartbeat_at < ?"
)


class Waiting:
    """Ends what has waited for longer than `tool_wait_seconds`; one thread looks every few s."""

    def __init__(
        self, store: Store, sessions: Sessions, recorder: Recorder, wait_seconds: float
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._recorder = recorder
        self._wait_seconds = wait_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="xgw-waiting", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2)

    def _run(self) -> None:
        pause = min(LONGEST_PAUSE, self._wait_seconds / 4)
        while not self._stopping.wait(pause):
            if not self._recorder.writer.down:
                self.close_overdue()

    def close_overdue(self) -> int:
        """End every turn whose results are overdue; returns how many."""
        before = clock.now() - datetime.timedelta(seconds=self._wait_seconds)
        overdue = self._store.sql(OVERDUE, (clock.to_db(before),))
        return sum(self._close(*row) for row in overdue)

    def _close(self, project_id: str, session_id: str, turn_id: str) -> int:
        session = self._sessions.take(project_id, session_id)
        try:
            with self._sessions.held(session) as session:
                turn = self._sessions.find_turn(session, turn_id)
                if turn is None or turn.status != "waiting" or turn.under_way:
                    return 0
                closing = close_waiting(turn, "finished", clock.now())
                session.last_ticket = self._recorder.close_turns([closing])
                return 1
        finally:
            self._sessions.release(session)
