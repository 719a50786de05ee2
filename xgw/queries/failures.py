"""How often each provider failed lately."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from xgw import clock
from xgw.store.database import Store

WITHIN = datetime.timedelta(hours=1)
MOST = 10_000
"""Requests that are counted at most, the newest ones."""

# Failed ones are found by an index of their own: of the others the provider alone is looked at.
_COUNTS = f"""
WITH bound AS (
  SELECT COALESCE((
    SELECT started_at FROM request_logs WHERE started_at >= :since
    ORDER BY started_at DESC LIMIT 1 OFFSET {MOST - 1}
  ), :since) AS since
)
SELECT provider_name, SUM(requests), SUM(failed), (SELECT since FROM bound) FROM (
  SELECT provider_name, 1 AS requests, 0 AS failed FROM request_logs
  WHERE started_at >= (SELECT since FROM bound)
  UNION ALL
  SELECT provider_name, 0, 1 FROM request_logs
  WHERE started_at >= (SELECT since FROM bound) AND (error_type IS NOT NULL OR status_code >= 400)
)
GROUP BY provider_name ORDER BY 2 DESC, 1
"""


@dataclass(frozen=True, slots=True)
class Failures:
    """The requests to one provider since `since`, and those of them that failed."""

    provider: str | None
    requests: int
    failed: int
    since: datetime.datetime


def by_provider(store: Store, now: datetime.datetime) -> list[Failures]:
    """Of the hour before `now`, or of its newest MOST requests; most requests first."""
    rows = store.sql(_COUNTS, {"since": clock.to_db(now - WITHIN)})
    return [
        Failures(provider, requests, failed, clock.from_db(since))
        for provider, requests, failed, since in rows
    ]
