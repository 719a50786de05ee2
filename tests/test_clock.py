"""Moments and how they are spelled."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from xgw import clock

MOMENT = datetime(2026, 1, 31, 12, 5, 9, 120)


def test_now_is_the_present_in_naive_utc() -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    now = clock.now()
    assert now.tzinfo is None
    assert before <= now <= datetime.now(UTC).replace(tzinfo=None)


def test_monotonic_never_goes_back() -> None:
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)


def test_both_clocks_are_read_at_one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the thread is held up for a quarter of a second between its first two readings."""
    steps = iter((0.0, 0.25, 0.25, 0.25, 0.25, 0.25))
    passed = 1000.0

    def read() -> float:
        nonlocal passed
        passed += next(steps, 0.0)
        return passed

    monkeypatch.setattr(clock, "monotonic", read)
    monkeypatch.setattr(time, "time", lambda: passed)
    at, moment = clock.together()
    assert (at - clock.EPOCH).total_seconds() == moment


def test_the_store_always_gets_six_digits() -> None:
    assert clock.to_db(MOMENT) == "2026-01-31 12:05:09.000120"
    assert clock.to_db(datetime(2026, 1, 31)) == "2026-01-31 00:00:00.000000"
    assert clock.to_db(datetime(33, 1, 1)) == "0033-01-01 00:00:00.000000"


def test_json_gets_rfc_3339_with_z() -> None:
    assert clock.to_rfc3339(MOMENT) == "2026-01-31T12:05:09.000120Z"
    assert clock.to_rfc3339(datetime(2026, 1, 31)) == "2026-01-31T00:00:00.000000Z"


def test_a_moment_with_a_zone_is_spelled_in_utc() -> None:
    there = datetime(2026, 1, 31, 14, tzinfo=timezone(timedelta(hours=2)))
    assert clock.to_db(there) == "2026-01-31 12:00:00.000000"
    assert clock.to_rfc3339(there) == "2026-01-31T12:00:00.000000Z"


def test_both_spellings_are_read_back() -> None:
    for moment in (MOMENT, datetime(2026, 1, 31), clock.now()):
        assert clock.from_db(clock.to_db(moment)) == moment
        assert clock.parse_time(clock.to_rfc3339(moment)) == moment


def test_text_order_in_the_store_is_time_order() -> None:
    moments = [MOMENT + timedelta(microseconds=n * 333_333) for n in range(50)]
    spelled = [clock.to_db(moment) for moment in moments]
    assert spelled == sorted(spelled)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", datetime(2026, 1, 31)),
        (" 2026-01-31 ", datetime(2026, 1, 31)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12)),
        ("2026-01-31t12:00:00z", datetime(2026, 1, 31, 12)),
        ("2026-01-31 12:00:00", datetime(2026, 1, 31, 12)),
        ("2026-01-31T12:00", datetime(2026, 1, 31, 12)),
        ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10)),
        ("2026-01-31T23:00:00-02:00", datetime(2026, 2, 1, 1)),
        ("2026-01-31T12:00:00.5Z", datetime(2026, 1, 31, 12, 0, 0, 500_000)),
        ("2026-01-31T12:00:00.123456789Z", datetime(2026, 1, 31, 12, 0, 0, 123_456)),
    ],
)
def test_what_people_and_clients_write_is_understood(text: str, moment: datetime) -> None:
    assert clock.parse_time(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01",
        "2026-02-30",
        "20260131",
        "2026-W05",
        "2026-01-31T",
        "2026-01-31T25:00:00Z",
        "2026-01-31T12:00:00+25:00",
        "2026-01-31T12:00.5Z",
        "0001-01-01T00:00:00+23:00",
        "9999-12-31T23:59:59-23:00",
        "٢٠٢٦-٠١-٣١",
        "1769860000",
    ],
)
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        clock.parse_time(text)
