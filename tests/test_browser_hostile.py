"""What others wrote, in a real browser: text while it comes and afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from gateway_fixtures import Gate, a_test_of, gate_and_model, provider
from page_width import assert_fits
from scripted_model import Model, Row, call, chat, delta, result, said, user, whole
from spoken import Talk
from visits import NARROW, WIDE, Visits
from xgw.config import Retry, Route
from xgw.web.steps.view import TABS

if TYPE_CHECKING:
    from playwright.sync_api import Dialog, Page

ELSEWHERE = "http://elsewhere.test"
HOSTILE = "".join(
    (
        "</div></pre></textarea></title></details>",
        "<script>window.hacked=1;alert(1)</script>",
        f'<img src="{ELSEWHERE}/a.png" onerror="window.hacked=1">',
        "<svg onload=window.hacked=1><script>window.hacked=1</script></svg>",
        '<p hx-get="/ui/health" hx-trigger="load" hx-target="body">a</p>',
        f'<div hx-ws:connect="{ELSEWHERE}/ws"></div>',
        '<hx-partial hx-target="body" hx-swap="innerHTML">gone</hx-partial>',
        '<p id="main" hx-swap-oob="outerHTML">gone</p>',
        f'<meta http-equiv="refresh" content="0;url={ELSEWHERE}/">',
        f'<link rel="stylesheet" href="{ELSEWHERE}/a.css"><style>*{{display:none}}</style>',
        f'<iframe src="{ELSEWHERE}/"></iframe><base href="{ELSEWHERE}/">',
        f'<form action="{ELSEWHERE}/"><button>Go</button></form>',
        "{{ 7 * 7 }} {% raw %} ${7*7} &lt;b&gt; ",
        "\u202eright to left\u202c \u0007\u001b[31m\u200b\ufeff",
    )
)
MARKDOWN = "\n\n".join(
    (
        "[a link](javascript:alert(1)) [another](data:text/html,<script>alert(1)</script>)",
        f"![an image]({ELSEWHERE}/a.png) [ours](vbscript:x) <javascript:alert(1)>",
        f"[ref]: {ELSEWHERE}/b.png\n\n![ref]",
        '```html"><script>window.hacked=1</script>\n</code></pre><script>window.hacked=1</script>\n```',
        "| <img src=x onerror=hacked=1> | b |\n|---|---|\n| </td></table> | `<b>` |",
    )
)
HOSTILE_WORDS = "<script>window.hacked=1;alert(1)</script>"
LONG = "W" * 5000
TOOL = {"type": "function", "function": {"name": "look", "description": HOSTILE, "parameters": {}}}
FAILURE = {"error": {"message": HOSTILE, "type": HOSTILE, "code": HOSTILE}}
NAME = "<b>x</b>\"'><script>hacked=1</script>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    model = Model()
    with gate_and_model(
        tmp_path_factory.mktemp("hostile"),
        model,
        providers=(provider(model), provider(model, "p2")),
        routes=(Route(model="m", targets=("p1/m", "p2/m"), retry=Retry(max_attempts=1)),),
    ) as gate:
        yield gate


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


class Guard:
    """A page that must stay what it was."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._dialogs: list[str] = []
        page.once("dialog", self._see)
        self._names = self._globals()
        self._url = page.url

    def _see(self, dialog: Dialog) -> None:
        self._dialogs.append(dialog.message)
        dialog.dismiss()

    def _globals(self) -> set[str]:
        return set(self.page.evaluate("Object.keys(window)"))

    def check(self) -> None:
        """No dialog, no new name, no element of theirs, no way elsewhere, no scrolling sideways."""
        page = self.page
        assert self._dialogs == []
        assert self._globals() == self._names
        assert page.evaluate("typeof window.hacked") == "undefined"
        assert page.url == self._url
        assert len(page.context.pages) == 1
        foreign = (
            "main :is(script, iframe, img, base, link, style, meta, hx-partial, object, embed)"
        )
        assert page.locator(foreign).count() == 0
        assert page.locator("body script, body link, body style, body iframe").count() == 0
        assert page.locator("main :is([onerror], [onload], [style], [hx-swap-oob])").count() == 0
        # A link leads elsewhere, if somebody follows it, and says nothing of where it stood.
        leads = page.locator(f":is([href^='{ELSEWHERE}'], [src^='{ELSEWHERE}'])")
        assert leads.count() == page.locator("a[rel~=noreferrer][rel~=noopener]").count()
        for scheme in ("javascript", "data", "vbscript"):
            assert page.locator(f"[href^='{scheme}:' i]").count() == 0
        assert page.locator("#main").count() == 1
        assert_fits(page)


def live(page: Page) -> Page:
    page.locator("#connection", has_text="live").wait_for()
    return page


def asked(text: str) -> Row:
    """A request all of whose names and texts are hostile."""
    tools = [TOOL, {"type": "function", "function": {"name": NAME[:60], "parameters": {}}}]
    history = [
        {"role": "system", "content": HOSTILE},
        user(HOSTILE + LONG),
        said(
            HOSTILE, call("c<0>", NAME, '{"a": "' + "<script>" + '"}'), call("c1", "look", HOSTILE)
        ),
        result("c<0>", HOSTILE + LONG),
        result("c1", '{"html": "<img src=x onerror=alert(1)>"}'),
    ]
    metadata = {"agent_name": HOSTILE[:200], "note": HOSTILE, "user": NAME}
    body = chat(*history, user(text), tools=tools, user=NAME)
    return {**body, "metadata": {**metadata, "session_id": f"s-{NAME}"}}


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_what_others_wrote_stays_text(gate: Gate, visit: Visits, width: int) -> None:
    hostile_failure = whole(FAILURE, status="503 Bad")
    gate.model.will(hostile_failure)
    talk = Talk(gate, None, HOSTILE, body={**asked(HOSTILE), "model": "m"})
    guards = [
        Guard(live(visit(gate.url + path, width=width)))
        for path in ("/ui/", talk.session_path, talk.turn_path, f"/ui/steps/{talk.step}")
    ]
    talk.say(LONG, MARKDOWN, delta(reasoning_content=HOSTILE))
    arguments = call("c9", NAME, '{"a": "' + HOSTILE.replace('"', "'"))
    talk.say(delta(tool_calls=[{"index": 0, **arguments}]))
    for guard in guards[1:]:
        place = guard.page.locator(talk.place)
        place.filter(has_text="</td></table>").wait_for()
        streamed = "".join(guard.page.locator(f"{talk.place} > div").all_text_contents())
        assert "".join(streamed.split()) == "".join((HOSTILE + LONG + MARKDOWN).split())
        guard.page.locator(f"#stream-{talk.step}-tool_arguments-0", has_text="<script>").wait_for()
    for guard in guards:
        guard.check()
    talk.end("tool_calls")
    for guard in guards[1:]:
        guard.page.locator(".prose", has_text="window.hacked").first.wait_for()
        guard.page.locator(".stream").first.wait_for(state="detached")
    guards[0].page.locator("[data-row]", has_text="<script>").first.wait_for()
    for guard in guards:
        open_all(guard.page)
        guard.check()
    for guard in guards:
        guard.page.reload()
        live(guard.page)
        open_all(guard.page)
        guard.check()
    assert HOSTILE_WORDS in guards[2].page.locator(".entry.is-user").last.inner_text()


def open_all(page: Page) -> None:
    """Everything that can be opened."""
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    if page.locator("[id^=tools-of-]").count():
        page.locator(".session-details .tool").first.wait_for(state="attached")


def test_so_it_does_on_every_other_screen(gate: Gate, visit: Visits) -> None:
    gate.model.will(whole(FAILURE, status="503 <b>Bad</b>"), whole(FAILURE, status="500 Bad"))
    failed = gate.turn(gate.post(asked(HOSTILE)))
    gate.model.always(whole(FAILURE, status="400 Bad"))
    gate.post(chat(HOSTILE, model="m", user=NAME))
    gate.post(chat(HOSTILE, model=NAME))
    steps = gate.steps(failed, "llm_call")
    request = gate.requests(failed)[0]["id"]
    ours = f"/ui/sessions/{failed['session_id']}"
    paths = [
        "/ui/",
        f"/ui/?q={quote(HOSTILE[:500])}",
        f"/ui/?q={quote('model:' + NAME)}",
        "/ui/turns",
        f"/ui/turns?model={quote(NAME)}",
        "/ui/requests",
        f"/ui/requests/{request}",
        "/ui/health",
        f"/ui/find?q={quote(HOSTILE[:300])}",
        ours,
        f"{ours}/tools",
        f"/ui/turns/{failed['id']}",
        *(f"/ui/steps/{steps[0]['id']}?tab={tab}" for tab in TABS),
    ]
    page = visit(f"{gate.url}/ui/", width=NARROW)
    for path in paths:
        page.goto(gate.url + path)
        open_all(page)
        Guard(page).check()
    for path in (f"/ui/sessions/{quote(NAME)}", f"/ui/{quote(HOSTILE[:400])}"):
        page.goto(gate.url + path)
        Guard(page).check()
    # Filters that mean nothing are told so, as is what is not there.
    visit.allow("status of 422", "status of 404")
