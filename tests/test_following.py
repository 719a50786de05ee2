"""Events of other processes on the same store reach whoever watches here."""

from __future__ import annotations

from pathlib import Path

import orjson

from xgw import clock
from xgw.events import Envelope
from xgw.hub import Hub
from xgw.queries import events
from xgw.recording.following import Following
from xgw.store import migrations
from xgw.store.database import Store

DEADLINE = 60.0


def _commit_elsewhere(store: Store, type: str) -> None:
    """What another process does: an event straight into the table."""
    connection = store.open_writer()
    connection.execute(
        "INSERT INTO events (type, at, project_id, session_id, payload) VALUES (?, ?, ?, ?, ?)",
        (type, clock.to_microseconds(clock.now()), "default", "sess_1", orjson.dumps({}).decode()),
    )
    connection.close()


def _store(folder: Path) -> Store:
    store = Store(folder / "xgw.db")
    migrations.migrate(store)
    return store


def test_foreign_events_go_out_once_and_in_order(tmp_path: Path) -> None:
    store = _store(tmp_path)

    def read(after: int, upto: int) -> list[Envelope]:
        return events.list_events(store, after, limit=upto - after)

    hub = Hub(read, events.newest(store))
    following = Following(store, hub, hub.publish)
    with hub.subscribe(lambda _: True) as mailbox:
        following.start()
        for type in ("turn.started", "run.started", "turn.completed"):
            _commit_elsewhere(store, type)
        heard: list[Envelope] = []
        end = clock.monotonic() + DEADLINE
        while len(heard) < 3 and clock.monotonic() < end:
            heard += mailbox.get(0.5)
        following.stop()
        assert [e.type for e in heard] == ["turn.started", "run.started", "turn.completed"]
        assert [e.seq for e in heard] == [1, 2, 3]
        following.look()
        following.look()
        assert mailbox.get(0.0) == []
    store.close()


def test_own_events_in_transit_are_left_to_their_writer(tmp_path: Path) -> None:
    store = _store(tmp_path)
    hub = Hub(lambda after, upto: events.list_events(store, after, limit=upto - after), 0)
    following = Following(store, hub, hub.publish)
    with hub.subscribe(lambda _: True) as mailbox:
        _commit_elsewhere(store, "turn.started")
        following.look()
        assert mailbox.get(0.0) == []
        following.look()
        assert [e.seq for e in mailbox.get(0.0)] == [1]
    store.close()
