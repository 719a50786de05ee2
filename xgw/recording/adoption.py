"""Rows that were finished elsewhere, taken over as they are: ids, states, times and numbers.

Nothing is told of them and no total changes: what belongs together comes together. Long texts are
kept as those of the store's own rows are.
"""

from __future__ import annotations

from typing import Any

from xgw.events import Envelope
from xgw.store.transaction import Transaction


class Twice(ValueError):
    """Two rows have the same id; the text is their table's name."""


_TEXTS = {"turns": ("user_input", "final_output"), "messages": ("content",)}
_JSON = {"messages": ("parts",)}
_SEARCHED = "user_input"


def adopt(tx: Transaction, table: str, row: dict[str, Any]) -> None:
    """One row, with every column that has a value; it is the transaction's from now on.

    Twice, if the transaction has made one with this id already; what else the file has against it
    is known when it is written.
    """
    if tx.is_new(table, row["id"]):
        raise Twice(table)
    for name in _TEXTS.get(table, ()):
        row[name] = tx.text_column(row[name], plain=name == _SEARCHED and row["turn_index"] == 0)
    for name in _JSON.get(table, ()):
        row[name] = tx.json_column(row[name])
    tx.hold(table, row)


def adopt_event(tx: Transaction, envelope: Envelope) -> None:
    """One event under the number that it has, and not published again."""
    tx.emit_again(envelope)
