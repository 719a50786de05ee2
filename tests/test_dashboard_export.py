"""The export's page: what would leave and what is masked, and the file itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import bundles
from accessibility import assert_for_everyone
from filled_pages import FilledPages, Page, filled_pages
from visits import Visits

SECRET = "ada@example.com"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    with filled_pages(tmp_path) as opened:
        yield opened


@pytest.fixture
def session(pages: FilledPages) -> str:
    session = pages.filled.session("checkout-42")
    turn = pages.filled.turn(session, user_input=f"write to {SECRET}")
    for index in range(5):
        pages.filled.message(session, turn, index, content=f"{index}: {SECRET}")
    pages.filled.message(session, turn, 5, role="assistant", content="done")
    return session


def test_it_tells_what_leaves_and_what_is_masked(pages: FilledPages, session: str) -> None:
    page = pages.open(f"/ui/sessions/{session}/export")
    rows = {
        row.all("td")[0].text: row.all("td")[1].text for row in page.tree.all("tr") if row.all("td")
    }
    assert rows["sessions"] == "1"
    assert rows["messages"] == "6"
    assert rows["together, as JSON"] == "8"
    assert rows["[email-1]"] == "6"
    told = page.tree.text
    assert "turn user input, message content, message content and 3 more" in " ".join(told.split())
    assert SECRET not in page.reply.body.decode()


def test_the_file_is_what_was_chosen(pages: FilledPages, session: str) -> None:
    query = "format=jsonl&bodies=false&redact=false"
    page = pages.open(f"/ui/sessions/{session}/export?{query}")
    form = next(f for f in page.tree.all("form") if f.attributes["action"].endswith("/file"))
    fields = {i.attributes["name"]: i.attributes["value"] for i in form.all("input")}
    assert fields == {"format": "jsonl", "bodies": "false", "redact": "false"}
    assert "leave as they are" in page.tree.text
    reply = pages.client.get(f"/ui/sessions/{session}/export/file?{query}")
    assert reply.headers["content-disposition"] == f'attachment; filename="{session}.jsonl"'
    *_, tail = map(json.loads, reply.body.splitlines())
    assert tail["redaction"] == {"on": False, "bodies": False, "masked": []}


def test_turns_and_requests_have_one_too(pages: FilledPages) -> None:
    turn = pages.filled.turn()
    request = pages.filled.request(turn, url="https://h.example/v1")
    for path in (f"/ui/turns/{turn}", f"/ui/requests/{request}"):
        assert f"{path}/export" in [
            a.attributes.get("href") for a in pages.open(path).tree.all("a")
        ]
        assert "Nothing was found that has to be masked" in pages.open(f"{path}/export").tree.text
        reply = pages.client.get(f"{path}/export/file")
        assert bundles.read(reply.body)["asked_for"] == [path.rpartition("/")[2]]


def test_a_run_has_one_where_there_are_several(pages: FilledPages) -> None:
    turn = pages.filled.turn()
    runs = [pages.filled.run(turn, run_index=index) for index in range(2)]
    page = pages.open(f"/ui/turns/{turn}?run={runs[0]}")
    path = f"/ui/runs/{runs[0]}/export"
    assert path in hrefs(page)
    page = pages.open(path)
    assert f"/ui/turns/{turn}?run={runs[0]}" in hrefs(page)
    document = bundles.read(pages.client.get(f"{path}/file").body)
    assert (document["asked_for"], len(document["runs"])) == ([runs[0]], 1)


def hrefs(page: Page) -> list[str]:
    return [a.attributes.get("href", "") for a in page.tree.all("a")]


@pytest.mark.parametrize(
    ("shown", "path", "rows"),
    [
        ("/ui/?q=agent%3Abuyer", "/ui/export/sessions?q=agent%3Abuyer", 1),
        ("/ui/", "/ui/export/sessions?", 2),
        ("/ui/requests?status_code=5xx", "/ui/export/requests?status_code=5xx", 1),
        ("/ui/turns", "/ui/export/turns?session_id=none", 1),
    ],
)
def test_a_list_has_one_of_what_its_filters_leave(
    pages: FilledPages, session: str, shown: str, path: str, rows: int
) -> None:
    other = pages.filled.session("other", agent_name="buyer")
    turn = pages.filled.turn(other)
    pages.filled.request(turn, session_id=other, status_code=503)
    pages.filled.request(turn, session_id=other, status_code=200)
    pages.filled.turn()
    page = pages.open(shown)
    assert path in hrefs(page)
    noun = path.partition("?")[0].rpartition("/")[2]
    page = pages.open(path)
    told = f"all {rows} {noun}" if rows > 1 else f"1 {noun[:-1]}"
    assert f"This tells of {told}." in page.tree.text
    assert shown in hrefs(page)
    query = {
        i.attributes["name"]: i.attributes["value"]
        for i in page.tree.all("input")
        if "value" in i.attributes
    }
    assert query | {"format": "json", "bodies": "true", "redact": "true"} == query
    reply = pages.client.get(f"{path.partition('?')[0]}/file?{urlencode(query)}")
    document = bundles.read(reply.body)
    assert len(document[{"requests": "request_logs"}.get(noun, noun)]) == rows
    assert SECRET not in reply.body.decode()
    assert SECRET not in page.reply.body.decode()


def test_a_list_without_any_row_and_a_filter_that_is_wrong(pages: FilledPages) -> None:
    assert not any("export" in href for href in hrefs(pages.open("/ui/?q=nobody")))
    page = pages.open("/ui/export/sessions?q=nobody")
    assert "Nothing fits: the file has no rows." in page.tree.text
    assert pages.client.get("/ui/export/sessions?q=colour%3Ablue").status == 422
    assert pages.client.get("/ui/export/steps").status == 404


def test_a_hostile_filter_is_text(pages: FilledPages, session: str) -> None:
    query = '"><script>alert(1)</script>'
    page = pages.open("/ui/export/requests?" + urlencode({"model": query, "provider": SECRET}))
    assert "<script>alert" not in page.reply.body.decode()
    assert query in page.tree.text


def test_what_a_format_cannot_tell_is_said_before(pages: FilledPages, session: str) -> None:
    page = pages.open(f"/ui/sessions/{session}/export?format=curl")
    assert "There is no request in it." in page.tree.text


def test_what_is_not_there_and_what_is_no_format(pages: FilledPages, session: str) -> None:
    assert pages.client.get("/ui/turns/turn_0/export").status == 404
    assert pages.client.get("/ui/sessions/none/export/file").status == 404
    assert pages.client.get(f"/ui/sessions/{session}/export?format=doc").status == 422


def test_everyone_can_use_it(pages: FilledPages, session: str, visit: Visits) -> None:
    page = visit(f"{pages.client.url}/ui/sessions/{session}/export")
    page.get_by_label("Format").select_option("markdown")
    page.get_by_label("Secrets and personal data").select_option("false")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("status").get_by_text("leave as they are").wait_for()
    assert_for_everyone(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download markdown").click()
    assert download.value.suggested_filename == f"{session}.md"
    assert SECRET in Path(download.value.path()).read_text()


def test_without_scripts(pages: FilledPages, session: str, visit: Visits) -> None:
    page = visit(f"{pages.client.url}/ui/sessions/{session}/export", scripts=False)
    page.get_by_label("Format").select_option("html")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Download html").wait_for()
