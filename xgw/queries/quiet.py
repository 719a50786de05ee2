"""When a run counts as stalled: it runs, and nothing was stored of it for a while."""

from __future__ import annotations

import datetime
from typing import Any

import peewee
from peewee import SQL, fn

from xgw import clock
from xgw.store.models import Event

STALLED_AFTER = datetime.timedelta(seconds=30)


def is_stalled(run: Any, turn: Any, now: datetime.datetime) -> peewee.Expression:
    """Whether a run of an open turn is stalled at the moment `now`; both are models."""
    quiet_since = now - STALLED_AFTER
    last = Event.select(Event.at).where(Event.turn_id == fn.packed_id(turn.id, "turn"))
    last = last.order_by(Event.seq.desc()).limit(1)
    # A text that streams leaves no events, but a heartbeat each time it is saved.
    condition: peewee.Expression = (
        # The status is literal, because only then does the index of running ones apply.
        (run.status == SQL("'running'"))
        & (fn.COALESCE(run.heartbeat_at, "") < clock.to_db(quiet_since))
        & fn.COALESCE(
            last < clock.to_microseconds(quiet_since), run.started_at < clock.to_db(quiet_since)
        )
    )
    return condition
