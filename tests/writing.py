"""A store and its writer, without a server: units that write, and what was published of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from filled_store import at
from servers import DEADLINE, eventually
from xgw.events import Envelope
from xgw.store import migrations
from xgw.store.database import Store
from xgw.store.transaction import Transaction
from xgw.store.writer import Ticket, Work, Writer


class Scene:
    """A store with its writer, and everything that was published."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.published: list[Envelope] = []
        self.writer = Writer(store, self._publish)
        self.writer.start()

    def _publish(self, envelopes: Sequence[Envelope]) -> None:
        """What is told of is in the store already."""
        seqs = [envelope.seq for envelope in envelopes]
        found = self.store.sql("SELECT seq FROM events WHERE seq BETWEEN ? AND ?", _span(seqs))
        assert [seq for (seq,) in found] == seqs
        self.published += envelopes

    def submit(self, name: str, **options: object) -> Ticket:
        """A unit that writes a row and an event, both of this name."""
        return self.writer.submit(noting(name), **options)  # type: ignore[arg-type]

    def blocked(self) -> threading.Event:
        """Holds the writer inside a unit until it is set."""
        entered, go = threading.Event(), threading.Event()

        def work(_: Transaction) -> None:
            entered.set()
            assert go.wait(DEADLINE)

        self.writer.submit(work)
        assert entered.wait(DEADLINE)
        return go

    def names(self) -> list[str]:
        """The rows, in the order in which they were written."""
        return [name for (name,) in self.store.sql("SELECT name FROM api_keys ORDER BY rowid")]

    def events(self) -> list[str]:
        """The stored events, in order."""
        rows = self.store.sql("SELECT json_extract(payload, '$.name') FROM events ORDER BY seq")
        return [name for (name,) in rows]

    def told(self) -> list[str]:
        """The published events, in order, once all that are stored have been published."""
        [(count,)] = self.store.sql("SELECT count(*) FROM events")
        eventually(lambda: len(self.published) >= count)
        return [str(envelope.payload["name"]) for envelope in self.published]

    def close(self) -> None:
        self.writer.stop()
        self.store.close()


def _span(seqs: Sequence[int | None]) -> tuple[int | None, int | None]:
    return seqs[0], seqs[-1]


def noting(name: str) -> Work:
    def work(tx: Transaction) -> None:
        tx.insert(
            "api_keys",
            {
                "id": name,
                "name": name,
                "prefix": "",
                "hash": name,
                "project_id": "default",
                "created_at": at(0),
            },
        )
        tx.emit("session.updated", at(0), "default", {"name": name})

    return work


def wait_for(*tickets: Ticket) -> None:
    for ticket in tickets:
        assert ticket.wait(DEADLINE)


def is_down(scene: Scene) -> bool:
    return scene.writer.down


def new_store(folder: Path, kind: type[Store] = Store) -> Store:
    store = kind(folder / "xgw.db")
    migrations.migrate(store)
    return store
