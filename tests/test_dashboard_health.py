"""The page of the server's health: what is wrong, what takes the room, who fails, what is set."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from filled_pages import FilledPages, filled_pages
from filled_store import FilledStore, selects
from live_pages import Element
from xgw import __version__, clock
from xgw.config import Provider, Retention, Server
from xgw.queries import failures, sizes
from xgw.store import migrations

HOSTILE = "<script>alert(1)</script>\"'&"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    with filled_pages(tmp_path) as opened:
        yield opened


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[FilledStore]:
    store = FilledStore(tmp_path)
    yield store
    store.close()


def health(pages: FilledPages, **headers: str) -> Element:
    page = pages.open("/ui/health", **headers)
    assert page.reply.status == 200
    return page.tree


def cells(table: Element) -> list[list[str]]:
    return [[cell.text for cell in row.all("td")] for row in table.one("tbody").all("tr")]


def figures(page: Element) -> dict[str, str]:
    return {f.one("dt").text: f.one("dd").text for f in page.all("div", class_="figure")}


# -- how it is -------------------------------------------------------------------------------------


def test_all_is_well_and_what_is_under_way_has_its_limits(tmp_path: Path) -> None:
    with filled_pages(tmp_path, server=Server(max_calls=7, max_watchers=9)) as pages:
        with pages.services.watchers.taken(), pages.services.calls.place():
            page = health(pages)
        schema = migrations.schema_version(pages.filled.store)
    assert page.one(class_="health-state").text == f"ok xgw {__version__} · schema {schema}"
    shown = figures(page)
    assert shown["model calls under way"] == "1 of 7"
    assert shown["open pages and followers"] == "1 of 9"
    assert shown["waiting to be written"] == "0"
    assert shown["behind with writing"] == "0 ms"
    assert shown["left unrecorded"] == "0"
    assert int(shown["threads"]) > 1
    assert page.all(class_="troubles") == []


def test_what_is_wrong_stands_on_top(pages: FilledPages) -> None:
    writer = pages.services.writer
    writer.down, writer.down_reason = True, f"disk full {HOSTILE}"
    writer.dropped["turns"] = 3
    page = health(pages)
    assert page.one(class_="health-state").text.startswith("degraded")
    told = [entry.text for entry in page.one("ul", class_="troubles").all("li")]
    assert told == [
        f"The store cannot be written: disk full {HOSTILE}.",
        "Not recorded since the start, for want of memory: 3 turns.",
    ]
    assert figures(page)["left unrecorded"] == "3"


def test_a_store_that_cannot_be_read_is_said_and_the_rest_still_shown(tmp_path: Path) -> None:
    with filled_pages(tmp_path) as pages:
        pages.client.get("/health")
        pages.filled.close()
        for file in tmp_path.glob("xgw.db*"):
            file.unlink()
        (tmp_path / "xgw.db").write_bytes(b"no database at all" * 100)
        page = health(pages)
    assert "The store cannot be read" in page.one("ul", class_="troubles").text
    assert "It cannot be measured." in page.text
    assert page.one("table", class_="configuration") is not None


# -- providers -------------------------------------------------------------------------------------


def test_error_rates_are_those_of_the_last_hour(tmp_path: Path) -> None:
    providers = (
        Provider(name="openai", api_key="sk-provider-secret"),
        Provider(name="quiet", api_key="sk-provider-secret", base_url="https://quiet.example/v1"),
    )
    with filled_pages(tmp_path, providers=providers) as pages:
        now = clock.now()
        for minutes, columns in enumerate(
            (
                {"provider_name": "openai"},
                {"provider_name": "openai", "status_code": 503},
                {"provider_name": "openai", "status_code": None, "error_type": "upstream_timeout"},
                {"provider_name": "openai"},
                {"provider_name": "gone", "status_code": 401},
            )
        ):
            started = now - timedelta(minutes=minutes)
            pages.filled.request(started_at=started, ended_at=now, **columns)
        old = now - timedelta(minutes=61)
        pages.filled.request(provider_name="openai", started_at=old, status_code=500)
        page = health(pages)
        table = page.all("table", class_="plain")[0]
        link = table.all("a")[0]
        behind = pages.open(link.attributes["href"])
    assert cells(table) == [
        ["openai", "4", "2", "50 %"],
        ["quiet", "–", "–", "–"],
        ["gone", "1", "1", "100 %"],
    ]
    assert len(behind.rows) == 2


def test_a_rate_is_rounded_to_neither_nothing_nor_all(tmp_path: Path) -> None:
    names = ("seldom", "mostly")
    providers = tuple(Provider(name=name, api_key="sk-provider-secret") for name in names)
    with filled_pages(tmp_path, providers=providers) as pages:
        now = clock.now()
        for number in range(300):
            for name, fails in (("seldom", number == 0), ("mostly", number > 0)):
                code = 503 if fails else 200
                pages.filled.request(provider_name=name, started_at=now, status_code=code)
        table = health(pages).all("table", class_="plain")[0]
    assert cells(table) == [["seldom", "300", "1", "<1 %"], ["mostly", "300", "299", ">99 %"]]


def test_of_very_many_requests_the_newest_are_counted(
    filled: FilledStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    for seconds in range(20):
        started = now - timedelta(seconds=seconds)
        filled.request(provider_name="p", started_at=started, status_code=500)
    statement = failures._COUNTS.replace(str(failures.MOST - 1), "9")
    monkeypatch.setattr(failures, "_COUNTS", statement)
    [found] = failures.by_provider(filled.store, now)
    assert (found.requests, found.failed) == (10, 10)
    assert found.since == now - timedelta(seconds=9)


def test_error_rates_are_found_by_indexes(filled: FilledStore) -> None:
    filled.request(provider_name="p", started_at=clock.now())
    rows = filled.store.sql(f"EXPLAIN QUERY PLAN {failures._COUNTS}", {"since": "2026"})
    plan = [row[3] for row in rows]
    assert not any(step.startswith("SCAN request_logs") for step in plan)
    assert any("request_logs_failed (started_at>?)" in step for step in plan)


# -- the store -------------------------------------------------------------------------------------


def test_a_small_store_is_measured_whole(pages: FilledPages) -> None:
    session = pages.filled.session()
    for number in range(3):
        pages.filled.turn(session, turn_index=number, user_input="ü" * 100)
    page = health(pages)
    shown = {row[0]: row[1:3] for row in cells(page.all("table", class_="plain")[-3])}
    assert shown["turns"][0] == "3"
    assert shown["sessions"][0] == "1"
    assert shown["bodies"] == ["0", "0 B"]
    assert str(pages.filled.store.path) in page.text
    assert "Measured now" in page.text or "Measured 1 s ago" in page.text
    turns = next(k for k in sizes.measure(pages.filled.store).kinds if k.table == "turns")
    # Bytes, not characters: each of these inputs takes 200.
    assert 600 < turns.bytes < 1800


def test_a_large_table_is_reckoned_from_a_sample(filled: FilledStore) -> None:
    exact = sizes.SAMPLED * 11 // 10
    for number in range(exact):
        filled.event("turn.updated", text="x" * (number % 7 * 100))
    kinds = {kind.table: kind for kind in sizes.measure(filled.store).kinds}
    found = kinds["events"]
    [(rows, text)] = filled.store.sql("SELECT COUNT(*), SUM(LENGTH(payload)) FROM events")
    assert (found.rows, found.is_exact, rows) == (exact, False, exact)
    assert text < found.bytes < 1.6 * text


def test_rows_that_were_deleted_are_not_counted(filled: FilledStore) -> None:
    for _ in range(4 * sizes.SAMPLED):
        filled.event("turn.updated")
    connection = filled.store.open_writer()
    connection.execute("DELETE FROM events WHERE seq % 2 = 0")
    connection.close()
    kinds = {kind.table: kind for kind in sizes.measure(filled.store).kinds}
    assert abs(kinds["events"].rows - 2 * sizes.SAMPLED) <= 2 * sizes.SAMPLED / 2


def test_measuring_takes_two_statements_whatever_there_is(filled: FilledStore) -> None:
    for _ in range(2 * sizes.SAMPLED):
        filled.event("turn.updated")
    filled.request()
    with selects() as statements:
        sizes.measure(filled.store)
        sizes.requests_by_day(filled.store, clock.now().date())
    assert len(statements) == 3
    plans = "\n".join(
        row[3]
        for text, params in statements
        for row in filled.store.sql(f"EXPLAIN QUERY PLAN {text}", tuple(params))
    )
    assert "SCAN events" not in plans
    assert "SCAN request_logs" not in plans


def test_growth_is_told_by_day(filled: FilledStore) -> None:
    now = clock.now()
    counts = [2, 0, 3, 1]
    for back, count in reversed(list(enumerate(counts))):
        for _ in range(count):
            filled.request(started_at=now - timedelta(days=back))
    days = sizes.requests_by_day(filled.store, now.date())
    assert [day.requests for day in days] == [2, 0, 3, 1, 0, 0, 0]
    assert [day.date for day in days[:2]] == [now.date(), now.date() - timedelta(days=1)]


def test_what_was_measured_serves_for_a_while(pages: FilledPages) -> None:
    health(pages)
    pages.filled.turn()
    assert len(pages.statements("/ui/health")) <= 3
    shown = {row[0]: row[1] for row in cells(health(pages).all("table", class_="plain")[-3])}
    assert shown["turns"] == "0"


def test_what_a_prune_would_take_is_told_by_age(tmp_path: Path) -> None:
    with filled_pages(tmp_path, retention=Retention(bodies_days=30)) as pages:
        filled, now = pages.filled, clock.now()
        for days in (0, 10, 40):
            began = now - timedelta(days=days)
            session = filled.session(f"{days} days", created_at=began, last_turn_at=began)
            turn = filled.turn(session, started_at=began, created_at=began)
            filled.step(filled.run(turn), turn, input_payload=filled.body({"of": days}))
        page = health(pages)
        words = page.one(id="prune").text
    shown = {row[0]: row[1:4] for row in cells(page.one(id="prune").one("table"))}
    assert shown["7 days"] == ["2", "2", "18 B"]
    assert shown["30 days"] == ["1", "1", "9 B"]
    assert shown["90 days"] == ["0", "0", "0 B"]
    assert "xgw prune --bodies-older-than 30d" in words
    assert "Bodies are kept for 30 days · sessions for ever" in words


# -- configuration, and what changes ---------------------------------------------------------------


def test_the_configuration_in_force_is_shown_with_its_sources_and_no_secret(
    tmp_path: Path,
) -> None:
    token, key = "the-token-0001", "sk-provider-SECRET-0001"
    providers = (Provider(name="openai", api_key=key),)
    with filled_pages(tmp_path, server=Server(token=token), providers=providers) as pages:
        page = pages.open("/ui/health", authorization=f"Bearer {token}")
    rows = {row[0]: row[1:] for row in cells(page.tree.one("table", class_="configuration"))}
    assert rows["server.port"] == ["8787", "default"]
    assert rows["server.token"][0] == '"[masked]"'
    assert rows["providers.openai.api_key"][0] == '"[masked]"'
    for secret in (token, key):
        assert secret.encode() not in page.reply.body


def test_the_page_asks_for_the_very_part_that_it_holds(pages: FilledPages) -> None:
    page, part = pages.open("/ui/health").reply.body, pages.open("/ui/health/now")
    refreshed = part.tree.one("div", id="health-now")
    assert refreshed.attributes["hx-get"] == "/ui/health/now"
    assert refreshed.attributes["hx-swap"] == "outerMorph"
    held = refreshed.one(class_="health-state").text
    assert held in health(pages).text
    assert page.count(b'id="health-now"') == 1


def test_names_stay_text(pages: FilledPages) -> None:
    pages.filled.request(provider_name=HOSTILE, started_at=clock.now())
    page = pages.open("/ui/health")
    assert b"<script>alert" not in page.reply.body
    assert HOSTILE in page.tree.text
