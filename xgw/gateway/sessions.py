"""The sessions in use, and who may decide about each: read from the store, forgotten when idle."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator

from xgw import ids
from xgw.gateway.recall import Recall
from xgw.gateway.state import SessionState, TurnState
from xgw.store.database import Store

KEPT = 256


class Sessions:
    """The sessions in use, by project and key. Read from the store when they are not in memory."""

    def __init__(self, store: Store) -> None:
        self.recall = Recall(store)
        self._lock = threading.Lock()
        self._by_key: OrderedDict[tuple[str, str], SessionState] = OrderedDict()
        self._by_id: dict[str, SessionState] = {}
        self._leaving: set[str] = set()

    def take(self, project_id: str, key: str) -> SessionState:
        """The session of this key (or id), new if there is none; give it back with `release`."""
        with self._lock:
            session = self._by_key.get((project_id, key)) or self._load(project_id, key)
            self._by_key[project_id, key] = session
            self._by_key.move_to_end((project_id, key))
            self._by_id[session.session_id] = session
            session.in_use += 1
            self._forget_idle()
            return session

    def take_new(self, project_id: str) -> SessionState:
        """A session of the gateway's own making."""
        session_id = ids.mint("sess")
        with self._lock:
            session = SessionState(session_id, session_id, project_id, exists=False)
            self._by_key[project_id, session_id] = session
            self._by_id[session_id] = session
            session.in_use += 1
            self._forget_idle()
            return session

    def release(self, session: SessionState) -> None:
        """The request that took it has ended."""
        with self._lock:
            session.in_use -= 1

    @contextlib.contextmanager
    def held(self, session: SessionState) -> Iterator[SessionState]:
        """The session under its lock; if it was deleted since it was taken, the one after it."""
        while True:
            with session.lock:
                if session.successor is None:
                    yield session
                    return
            with self._lock:
                session.in_use -= 1
                session = session.successor
                session.in_use += 1

    def supersede(self, session: SessionState, successor: SessionState) -> None:
        """The session is being deleted: `successor` has its key, and nobody finds it any more.

        The caller holds the locks of both.
        """
        with self._lock:
            self._leaving.add(session.session_id)
            self._drop(session.session_id)
            self._by_key[session.project_id, session.session_key] = successor
            self._by_id[successor.session_id] = successor
            session.successor = successor

    def reinstate(self, session: SessionState, successor: SessionState) -> None:
        """The session was not deleted after all: whoever has its successor finds it again."""
        with self._lock:
            self._leaving.discard(session.session_id)
            self._drop(successor.session_id)
            self._by_key[session.project_id, session.session_key] = session
            self._by_id[session.session_id] = session
            session.successor, successor.successor = None, session

    def give_way(self, session: SessionState) -> None:
        """The session was not made: another process has opened one with its key meanwhile."""
        with self._lock:
            self._drop(session.session_id)
            found = self._load(session.project_id, session.session_key)
            self._by_key[found.project_id, found.session_key] = found
            self._by_id[found.session_id] = found
            session.successor = found

    def forget(self, session_id: str) -> None:
        """The session was deleted."""
        with self._lock:
            self._leaving.discard(session_id)
            self._drop(session_id)

    def find_turn(self, session: SessionState, key: str) -> TurnState | None:
        """The gateway turn of this key (or id) in a session."""
        known = session.find_turn(key)
        if known is not None or not session.exists:
            return known
        return self.recall.turn(session, key)

    def find_issuer(self, session: SessionState, call_ids: list[str]) -> TurnState | None:
        """The newest turn of the session that asked for any of these tool calls."""
        known = [
            turn
            for turn in session.turns.values()
            if any(c in turn.open_tools or c in turn.ended_tools for c in call_ids)
        ]
        if session.exists and call_ids:
            known += self.recall.issuers(session, call_ids)
        return max(known, key=lambda turn: turn.scope.turn_id, default=None)

    def _drop(self, session_id: str) -> None:
        self._by_id.pop(session_id, None)
        for key in [k for k, s in self._by_key.items() if s.session_id == session_id]:
            del self._by_key[key]

    def _forget_idle(self) -> None:
        if len(self._by_key) <= KEPT:
            return
        for key, session in list(self._by_key.items())[: len(self._by_key) - KEPT]:
            if session.in_use or (session.last_ticket and not session.last_ticket.done):
                continue
            del self._by_key[key]
            if not any(other is session for other in self._by_key.values()):
                self._by_id.pop(session.session_id, None)

    def _load(self, project_id: str, key: str) -> SessionState:
        found = self.recall.session(project_id, key)
        if found is None or found.session_id in self._leaving:
            return SessionState(ids.mint("sess"), key, project_id, exists=False)
        known = self._by_id.get(found.session_id)
        if known is not None:
            return known
        self.recall.fill(found)
        return found
