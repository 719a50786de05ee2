"""Request logs without a turn: those that name one explicitly get it, by no other means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson

from xgw import ids
from xgw.recording.adopt import add_session_usage, add_usage, place_requests
from xgw.store.database import Store
from xgw.store.transaction import Transaction
from xgw.upkeep.pace import Pace

BATCH = 500
UNNAMED = "name neither a turn nor a tool call"
UNKNOWN = "name a turn or a tool call that no session has"
SEVERAL = "name a tool call that several turns have, or a session of several turns"

_CALLS = """CREATE TEMP TABLE calls AS
    SELECT s.tool_call_id, s.session_id, s.turn_id, s.run_id
    FROM steps s JOIN turns t ON t.id = s.turn_id
    WHERE s.tool_call_id IS NOT NULL AND t.metadata LIKE '{"backfilled":%'
"""
_REQUESTS = (
    "SELECT rowid, id, metadata, input_tokens, output_tokens "
    "FROM request_logs INDEXED BY request_logs_turn_id "
    "WHERE turn_id IS NULL AND rowid > ? ORDER BY rowid LIMIT ?"
)


class _Turn(NamedTuple):
    session_id: str
    id: str
    run_id: str


class _Asked(NamedTuple):
    """A request log: what it names, and its tokens."""

    id: str
    links: dict[str, Any]
    tokens: tuple[int | None, int | None]


def count_named(store: Store) -> tuple[int, int]:
    """How many request logs without a turn name a turn or a tool call, and how many neither."""
    behind = named = looked_at = 0
    while rows := store.sql(_REQUESTS, (behind, BATCH)):
        behind = rows[-1][0]
        looked_at += len(rows)
        named += sum(bool(_links(row[2])) for row in rows)
    return named, looked_at - named


class Linking:
    """One pass over the request logs without a turn; `only` bounds it to turns of one session."""

    def __init__(self, store: Store, pace: Pace, only: str | None = None) -> None:
        self._store = store
        self._pace = pace
        self._only = only
        self._connection = store.open_writer()
        self._connection.execute("PRAGMA temp_store = file")
        self._has_calls = False
        self.linked = 0
        self.unlinked: Counter[str] = Counter()

    def run(self) -> None:
        """Go through all of them, in batches of BATCH."""
        behind = 0
        while rows := self._store.sql(_REQUESTS, (behind, BATCH)):
            behind = rows[-1][0]
            asked = [_Asked(id, _links(told), (sent, got)) for _, id, told, sent, got in rows]
            self._link(asked)

    def close(self) -> None:
        """Close what it reads with."""
        self._connection.close()

    def _link(self, asked: Sequence[_Asked]) -> None:
        named = [one for one in asked if one.links]
        self.unlinked[UNNAMED] += len(asked) - len(named)
        placed: list[tuple[_Asked, _Turn]] = []
        if named:
            by_call, by_session = self._by_call(named), self._by_session(named)
            for one in named:
                found = _turns_of(one.links, by_call, by_session)
                turns = {turn for turn in found if self._only in (None, turn.session_id)}
                if len(turns) == 1:
                    placed.append((one, turns.pop()))
                else:
                    self.unlinked[SEVERAL if turns else UNKNOWN] += 1
        if placed:
            self._pace.write(lambda tx: self._place(tx, placed))

    def _place(self, tx: Transaction, placed: Sequence[tuple[_Asked, _Turn]]) -> None:
        """Give them their turns, those turns that have not been deleted meanwhile."""
        turns = {turn.id for _, turn in placed}
        marks = ", ".join("?" * len(turns))
        rows = tx.execute(f"SELECT id FROM turns WHERE id IN ({marks})", turns)
        there = {row[0] for row in rows}
        found = [one for one in placed if one[1].id in there]
        self.linked += len(found)
        self.unlinked[UNKNOWN] += len(placed) - len(found)
        _place(tx, found)

    def _by_call(self, named: Sequence[_Asked]) -> dict[str, set[_Turn]]:
        """The turns whose tools have these calls."""
        sought = {id for one in named for id in one.links.get("tool_call_ids", ())}
        found: dict[str, set[_Turn]] = {}
        if not sought:
            return found
        if not self._has_calls:
            self._connection.execute(_CALLS)
            self._connection.execute("CREATE INDEX temp.calls_id ON calls (tool_call_id)")
            self._has_calls = True
        for call_id, *turn in self._rows("SELECT * FROM temp.calls WHERE tool_call_id IN", sought):
            found.setdefault(call_id, set()).add(_Turn(*turn))
        return found

    def _by_session(self, named: Sequence[_Asked]) -> dict[str, set[tuple[_Turn, str | None]]]:
        """The backfilled turns of sessions that are named by id or key, each with its own key."""
        sought = {one.links["session_id"] for one in named if "session_id" in one.links}
        found: dict[str, set[tuple[_Turn, str | None]]] = {}
        for column in ("id", "session_key"):
            for key, turn_key, *turn in self._rows(
                f"SELECT s.{column}, t.turn_key, t.session_id, t.id, r.id FROM sessions s "
                "JOIN turns t ON t.session_id = s.id JOIN runs r ON r.turn_id = t.id "
                f"WHERE t.metadata LIKE '{{\"backfilled\":%' AND s.{column} IN",
                sought,
            ):
                found.setdefault(key, set()).add((_Turn(*turn), turn_key))
        return found

    def _rows(self, statement: str, values: Iterable[str]) -> list[tuple[Any, ...]]:
        sought = tuple(values)
        if not sought:
            return []
        marks = ", ".join("?" * len(sought))
        return self._connection.execute(f"{statement} ({marks})", sought).fetchall()


def _links(metadata: str | None) -> dict[str, Any]:
    if metadata is None or '"links":' not in metadata:
        return {}
    legacy = orjson.loads(metadata).get("legacy")
    links = legacy.get("links") if isinstance(legacy, dict) else None
    return links if isinstance(links, dict) else {}


def _turns_of(
    links: dict[str, Any],
    by_call: dict[str, set[_Turn]],
    by_session: dict[str, set[tuple[_Turn, str | None]]],
) -> set[_Turn]:
    """The turns that a request may belong to by what it names; one is as good as certain."""
    inside = by_session.get(links.get("session_id", ""), set())
    if "turn_id" in links and inside:
        exact = {turn for turn, key in inside if links["turn_id"] in (turn.id, key)}
        if exact:
            return exact
    called = {turn for id in links.get("tool_call_ids", ()) for turn in by_call.get(id, ())}
    if "session_id" in links and called:
        return {turn for turn in called if any(turn == other for other, _ in inside)} or called
    return called or {turn for turn, _ in inside}


def _place(tx: Transaction, placed: Sequence[tuple[_Asked, _Turn]]) -> None:
    place_requests(
        tx,
        [
            (turn.session_id, turn.id, turn.run_id, ids.trace_id_of(turn.id), one.id)
            for one, turn in placed
        ],
    )
    add_usage(tx, sorted({turn.id for _, turn in placed}))
    used: dict[str, list[int | None]] = {}
    for one, turn in placed:
        sums = used.setdefault(turn.session_id, [0, None, None, None])
        sent, got = one.tokens
        both = None if sent is None and got is None else (sent or 0) + (got or 0)
        for place, amount in enumerate((1, sent, got, both)):
            if amount is not None:
                sums[place] = (sums[place] or 0) + amount
    add_session_usage(tx, [(*sums, session_id) for session_id, sums in used.items()])
