"""The page of a step: its head, each of its tabs, what grows while it runs, bodies in whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from filled_pages import FilledPages, by_target, filled_pages
from filled_store import at
from gateway_fixtures import Gate, a_test_of, gate_and_model
from live_pages import Element, open_page, parse, socket_path, watching
from scripted_model import DONE, call, chat, delta, finish, named, stream, usage, user
from servers import eventually
from xgw import ids
from xgw.config import Price
from xgw.events import Envelope
from xgw.web.steps.view import TABS
from xgw.web.words import SHOWN_BYTES

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&<!--<hx-partial>"
SYSTEM: dict[str, Any] = {"role": "system", "content": "Be brief."}
HELLO: dict[str, Any] = user("Hello")
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "order_status",
        "description": "Where an order is",
        "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}},
    },
}


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[FilledPages]:
    prices = {"openai/gpt-4o": Price(input=2.0, cached_input=1.0, output=10.0)}
    with filled_pages(tmp_path, prices=prices) as opened:
        yield opened


def step_page(pages: FilledPages, step: str, tab: str = "", more: str = "") -> Element:
    """The main part of the page, with one tab open."""
    page = pages.open(f"/ui/steps/{step}{f'?tab={tab}' if tab else ''}{more}")
    assert page.reply.status == 200
    return page.tree.one("main")


def shown(pages: FilledPages, step: str, tab: str = "") -> Element:
    """What a tab shows."""
    return step_page(pages, step, tab).one("section", id=f"step-{step}")


def fields(part: Element) -> dict[str, str]:
    """The names and values of all lists of fields in it."""
    names, values = part.all("dt"), part.all("dd")
    return {name.text: value.text for name, value in zip(names, values, strict=True)}


def texts(part: Element, tag: str | None = None, **attributes: str) -> list[str]:
    return [element.text for element in part.all(tag, **attributes)]


def cells(table: Element) -> list[list[str]]:
    rows = table.all("tr")
    return [[c.text for c in row.walk() if c.tag in ("td", "th")] for row in rows]


def asked(pages: FilledPages, *messages: Any, **parameters: Any) -> str:
    """The hash of a request with these messages."""
    return pages.filled.body({"model": "gpt-4o", "messages": list(messages), **parameters})


def answered(pages: FilledPages, message: Any, finish_reason: str = "stop", **more: Any) -> str:
    """The hash of an answer with this message, or the text of one."""
    said = message if isinstance(message, dict) else {"role": "assistant", "content": message}
    choice = {"index": 0, "message": said, "finish_reason": finish_reason} | more
    return pages.filled.body({"choices": [choice]})


# -- the head --------------------------------------------------------------------------------------


def a_turn_of_three(pages: FilledPages, session: str | None = None) -> list[str]:
    """A call that fails, its second attempt, a tool: the ids of the steps."""
    filled = pages.filled
    turn = filled.turn(session, user_input="Where is my order?", turn_index=4)
    run = filled.run(turn)
    common = {"provider_name": "openai", "model": "gpt-4o", "model_requested": "gpt-4o"}
    failed = filled.step(
        run,
        turn,
        session_id=session,
        status="error",
        error_type="upstream_rate_limit",
        error_message="slow down",
        http_status=429,
        latency_ms=300,
        ended_at=at(0.005),
        **common,
    )
    retried = filled.step(
        run,
        turn,
        start=0.1,
        step_index=1,
        session_id=session,
        attempt=2,
        attempt_reason="retry",
        waited_ms=1200,
        latency_ms=2000,
        ttft_ms=500,
        finish_reason="tool_calls",
        **common,
    )
    tool = filled.step(
        run,
        turn,
        start=0.2,
        step_index=2,
        session_id=session,
        step_type="tool_call",
        name="order_status",
        attempt=None,
        attempt_reason=None,
        tool_call_id="call_1",
        latency_ms=40,
        metadata={"arguments": '{"order": 1042}', "side": "client"},
        output_payload=filled.body(b'{"state":"in transit"}'),
    )
    return [failed, retried, tool]


def test_it_says_where_it_is_and_leads_to_what_is_beside_it(pages: FilledPages) -> None:
    session = pages.filled.session()
    failed, retried, tool = a_turn_of_three(pages, session)
    head = step_page(pages, retried, "timing").one("header", class_="step-head")
    crumbs = head.one(class_="crumbs")
    assert crumbs.text == "Session › Turn 5 Where is my order? › Step 2"
    turn = pages.services.store.sql("SELECT turn_id FROM steps WHERE id = ?", (tool,))[0][0]
    assert [link.attributes["href"] for link in crumbs.all("a")] == [
        f"/ui/sessions/{session}?turn={turn}",
        f"/ui/turns/{turn}",
    ]
    assert head.one("h1").text == "llm_call gpt-4o"
    assert head.one(rel="prev").attributes["href"] == f"/ui/steps/{failed}?tab=timing"
    assert head.one(rel="next").attributes["href"] == f"/ui/steps/{tool}?tab=timing"
    assert head.one(data_key="prev-error").attributes["href"] == f"/ui/steps/{failed}?tab=timing"
    assert head.all(data_key="next-error") == []
    assert head.one(class_="truth").text == (
        "Done in 2.00 s · openai/gpt-4o, 2nd attempt · finish reason tool_calls"
    )
    assert "Attempts 2" in head.one(class_="tabs").text


def test_each_tab_has_its_url_and_key(pages: FilledPages) -> None:
    step = pages.filled.call()
    tabs = step_page(pages, step).one(class_="tabs").all("a")
    assert [tab.text for tab in tabs] == list(TABS.values())
    for number, name in enumerate(TABS):
        href = tabs[number].attributes["href"]
        assert href == (f"/ui/steps/{step}?tab={name}" if number else f"/ui/steps/{step}")
        page = step_page(pages, step, name)
        current = [tab.text for tab in page.all("a") if tab.attributes.get("aria-current")]
        assert current == [TABS[name]]
    assert "Details" in step_page(pages, step, "no-such-tab").text


def test_a_step_without_a_session_says_so(pages: FilledPages) -> None:
    crumbs = step_page(pages, pages.filled.call()).one(class_="crumbs")
    assert crumbs.text == "Without a session › Turn 1 › Step 1"


@pytest.mark.parametrize("rest", ["", "?tab=raw", "/sent", "/sent/1", "/received"])
def test_a_step_that_there_is_not(pages: FilledPages, rest: str) -> None:
    page = pages.open(f"/ui/steps/step_{'0' * 32}{rest}")
    assert page.reply.status == 404
    assert "There is no step 'step_000" in page.tree.text


# -- summary ---------------------------------------------------------------------------------------


def test_the_summary_of_a_call(pages: FilledPages) -> None:
    step = pages.filled.call(
        pages.filled.session(),
        provider_name="openai",
        model="gpt-4o",
        model_requested="best",
        attempt=2,
        attempt_reason="fallback",
        waited_ms=250,
        http_status=200,
        latency_ms=1900,
        ttft_ms=800,
        input_tokens=1200,
        cached_tokens=1000,
        output_tokens=44,
        reasoning_tokens=4,
        total_tokens=1244,
        usage_source="estimated",
        cost_usd=0.0123,
        context_tokens=1200,
        finish_reason="stop",
        finish_reason_raw="end_turn",
        history="rewritten",
        metadata={"region": "eu", "spans": [1]},
        output_payload=answered(pages, "It is **on its way**."),
    )
    summary = shown(pages, step)
    assert texts(summary.one(class_="boxes"), class_="figure") == [
        "~1,200 input tokens · 1,000 cached",
        "~44 output tokens · 4 reasoning",
        "800 ms first token",
        "$0.0123 cost",
    ]
    bar = summary.one(class_="time-bar")
    assert bar.text == "wait before it 250 ms to the first token 800 ms stream 1.10 s"
    assert texts(summary, class_="prose") == ["It is on its way."]
    told = fields(summary.one(class_="step-facts"))
    assert (
        told
        | {
            "state": "done",
            "provider": "openai",
            "model asked for": "best",
            "model that served": "gpt-4o",
            "attempt": "2nd, fallback after a wait of 250 ms",
            "HTTP status": "200",
            "took": "1.90 s · first token 800 ms · stream 1.10 s",
            "tokens": "~1,200 in (1,000 cached) → ~44 out (4 reasoning) = ~1,244, estimated",
            "context": "~1,200 tokens were sent",
            "cost": "$0.0123",
            "finish reason": "stop the provider said end_turn",
            "history": "rewritten since the call before",
            "region": "eu",
            "spans": "[1]",
        }
        == told
    )
    assert told["started"].startswith("2026-01-02 ")
    assert told["started"][-6] in "+-"


def test_an_error_stands_on_top_and_leads_to_what_followed(pages: FilledPages) -> None:
    failed, retried, _ = a_turn_of_three(pages)
    summary = shown(pages, failed)
    box = summary.one(class_="step-main").all()[1]
    assert box.text == (
        "upstream rate limit · HTTP 429 slow down"
        " Then came the 2nd attempt, after a wait of 1.20 s, at openai/gpt-4o"
    )
    assert box.one("a").attributes["href"] == f"/ui/steps/{retried}"
    assert "Nothing came back." in summary.text
    assert fields(summary.one(class_="step-facts"))["tokens"] == "–"


def test_the_summary_of_a_tool(pages: FilledPages) -> None:
    tool = a_turn_of_three(pages)[2]
    summary = shown(pages, tool)
    assert summary.one(class_="asked").text == 'order_status call_1{ "order": 1042 }'
    assert summary.one("pre", class_="body").text == '{ "state": "in transit" }'
    told = fields(summary.one(class_="step-facts"))
    assert told | {"name": "order_status", "call id": "call_1", "side": "client"} == told
    assert "arguments" not in told
    assert shown(pages, tool, "sent").one(class_="asked").text.startswith("order_status")
    assert "in transit" in shown(pages, tool, "received").text


def test_a_tool_under_way_has_no_result_yet(pages: FilledPages) -> None:
    turn = pages.filled.turn(status="running", ended_at=None)
    run = pages.filled.run(turn, status="waiting_tool")
    step = pages.filled.step(
        run, turn, step_type="tool_call", name="look", status="running", ended_at=None
    )
    summary = shown(pages, step).text
    assert "They were not kept." in summary
    assert "None yet." in summary


# -- sent ------------------------------------------------------------------------------------------


def test_what_was_sent_message_by_message_with_its_share(pages: FilledPages) -> None:
    pages.services.counter.load()
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 400}}
    linked = {"type": "image_url", "image_url": {"url": "https://x.test/cat.png"}}
    step = pages.filled.call(
        model="gpt-4o",
        input_payload=asked(
            pages,
            SYSTEM,
            {"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture, linked]},
            {"role": "assistant", "content": None, "tool_calls": [call("c1", "look", '{"a":1}')]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
            tools=[TOOL],
            temperature=0.2,
            stop=["\n"],
        ),
    )
    sent = shown(pages, step, "sent")
    assert sent.one(class_="tab-line").text.startswith("4 messages · 1 tool · ~")
    heads = texts(sent, "header", class_="sent-head")
    assert [head.partition("~")[0].strip() for head in heads] == [
        "1 system",
        "2 user",
        "3 assistant",
        "4 tool answers c1",
    ]
    shares = [float(r.attributes["width"][:-1]) for r in sent.one(class_="shares").all("rect")]
    assert len(shares) == 5  # the tools first
    assert sum(shares) == pytest.approx(100, abs=0.1)
    assert max(shares) == shares[2]  # two images
    bodies = sent.all("li")
    assert "What is it?" in bodies[1].text
    assert texts(bodies[1], class_="part-other") == [
        "image: image/png, 422 B in the request, not loaded",
        "image: https://x.test/cat.png, not loaded",
    ]
    assert sent.all("img") == []
    assert bodies[2].one(class_="asked").text == 'look c1{ "a": 1 }'
    tool = sent.one("details", class_="tool")
    assert tool.one("summary").text == "order_status Where an order is"
    assert orjson.loads(tool.one("pre").text) == TOOL["function"]["parameters"]
    parameters = fields(sent)
    assert parameters == {"model": "gpt-4o", "temperature": "0.2", "stop": '[ "\\n" ]'}


def test_tokens_that_cannot_be_counted_yet_are_unknown(pages: FilledPages) -> None:
    step = pages.filled.call(input_payload=asked(pages, HELLO))
    pages.services.counter.count_message = lambda *_, **__: None  # type: ignore[method-assign]
    sent = shown(pages, step, "sent")
    assert sent.one("header").text == "1 user – tokens – %"
    assert sent.all(class_="shares") == []


def test_a_long_message_is_folded_and_a_longer_one_cut(pages: FilledPages) -> None:
    step = pages.filled.call(
        input_payload=asked(pages, user("word " * 400), user("x" * (SHOWN_BYTES + 5)))
    )
    first, second = shown(pages, step, "sent").all("li")
    assert first.one("details").one("summary").text.endswith("… (2,000 characters)")
    assert first.one(class_="text").text == " ".join(["word"] * 400)
    assert second.one(class_="cut-note").text.startswith("Cut: it has 262.2 kB.")
    link = second.one(class_="cut-note").one("a").attributes["href"]
    assert link == f"/ui/steps/{step}/sent/2"
    reply = pages.client.get(link)
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert orjson.loads(reply.body)["content"] == "x" * (SHOWN_BYTES + 5)


LONG = [SYSTEM, *(user(f"message {number}") for number in range(2, 1002))]


def numbers(sent: Element) -> list[int]:
    return [int(head.text.split()[0]) for head in sent.all("header", class_="sent-head")]


def links(part: Element) -> dict[str, str]:
    return {link.text: link.attributes["href"] for link in part.all("a")}


def test_many_messages_are_shown_page_by_page(pages: FilledPages) -> None:
    pages.services.counter.load()
    step = pages.filled.call(model="gpt-4o", input_payload=asked(pages, *LONG, tools=[TOOL]))
    path = f"/ui/steps/{step}?tab=sent"
    sent = shown(pages, step, "sent")
    assert sent.one(class_="tab-line").text.startswith("1,001 messages · 1 tool · ~")
    assert numbers(sent) == list(range(1, 51))
    assert "Earlier messages" not in sent.text
    assert links(sent)["Later messages"] == f"{path}&from=51"
    # The bar is of all of them; the parameters stand below every page.
    assert 100 < len(sent.one(class_="shares").all("rect")) <= 202
    assert fields(sent)["model"] == "gpt-4o"
    seen = numbers(sent)
    while href := links(sent).get("Later messages"):
        sent = pages.open(href).tree.one("section", id=f"step-{step}")
        seen += numbers(sent)
    assert seen == list(range(1, 1002))
    assert links(sent)["Earlier messages"] == f"{path}&from=901"
    newest = pages.open(links(shown(pages, step, "sent"))["Newest messages"])
    assert numbers(newest.tree) == list(range(951, 1002))
    assert links(newest.tree)["From the start"] == f"{path}&from=1"


@pytest.mark.parametrize(
    ("number", "first"),
    [
        ("37", 1),
        ("50", 1),
        ("51", 51),
        ("120", 51),
        ("99999999", 51),
        ("0", 1),
        ("-1", 1),
        ("x", 1),
        ("", 1),
    ],
)
def test_a_page_of_messages_is_found_by_any_message_on_it(
    pages: FilledPages, number: str, first: int
) -> None:
    step = pages.filled.call(input_payload=asked(pages, *LONG[:120]))
    page = step_page(pages, step, "sent", f"&from={number}")
    assert numbers(page)[0] == first
    assert page.all("li", id=f"sent-{step}-{first}")
    assert len(numbers(page)) == (50 if first == 1 else 70)


def test_messages_that_fit_one_page_lead_nowhere(pages: FilledPages) -> None:
    step = pages.filled.call(input_payload=asked(pages, *LONG[:99]))
    sent = shown(pages, step, "sent")
    assert len(numbers(sent)) == 99
    assert list(links(sent)) == ["Show the whole request"]


@pytest.mark.parametrize("number", ["0", "2", "-1"])
def test_a_message_that_was_not_sent(pages: FilledPages, number: str) -> None:
    step = pages.filled.call(input_payload=asked(pages, HELLO))
    assert pages.open(f"/ui/steps/{step}/sent/{number}").reply.status == 404


def test_bodies_in_whole_are_plain_text(pages: FilledPages) -> None:
    body = b'{"model":"m", "messages":[{"role":"user","content":"<b>"}]}'
    answer = answered(pages, HOSTILE)
    step = pages.filled.call(input_payload=pages.filled.body(body), output_payload=answer)
    reply = pages.client.get(f"/ui/steps/{step}/sent")
    assert (reply.body, reply.headers["content-type"]) == (body, "text/plain; charset=utf-8")
    reply = pages.client.get(f"/ui/steps/{step}/received")
    assert reply.json["choices"][0]["message"]["content"] == HOSTILE
    broken = pages.filled.call(partial_output="so f")
    assert pages.client.get(f"/ui/steps/{broken}/received").body == b"so f"
    assert pages.client.get(f"/ui/steps/{broken}/sent").status == 404


def test_what_is_not_in_the_store_any_more(pages: FilledPages) -> None:
    key, answer = asked(pages, HELLO), answered(pages, "ok")
    step = pages.filled.call(pages.filled.session(), input_payload=key, output_payload=answer)
    pages.filled.forget(key)
    pages.filled.forget(answer)
    assert "not in the store any more" in shown(pages, step, "sent").text
    assert "Nothing came back." in shown(pages, step, "received").text
    assert "not in the store any more" in shown(pages, step, "changes").text


def test_a_body_that_has_no_messages_is_shown_as_it_is(pages: FilledPages) -> None:
    vectors = {"object": "list", "data": [{"embedding": [0.5]}]}
    step = pages.filled.call(
        input_payload=pages.filled.body({"model": "e", "input": ["one", "two"]}),
        output_payload=pages.filled.body(vectors),
    )
    assert texts(shown(pages, step, "sent"), class_="text") == ["one", "two"]
    assert orjson.loads(shown(pages, step, "received").one("pre").text) == vectors
    odd = pages.filled.call(input_payload=pages.filled.body(b"not { json"))
    assert shown(pages, odd, "sent").one("pre").text == "not { json"


# -- received --------------------------------------------------------------------------------------


def test_an_answer_is_markdown_and_can_be_read_as_it_was_written(pages: FilledPages) -> None:
    step = pages.filled.call(
        finish_reason="stop", output_payload=answered(pages, "# Title\n**bold** <b>not</b>")
    )
    received = shown(pages, step, "received")
    assert [e.tag for e in received.one(class_="prose").all() if e.tag] == [
        "div",
        "h4",
        "p",
        "strong",
    ]
    raw = next(a for a in received.all("a") if "as it was written" in a.text)
    assert raw.attributes["href"] == f"/ui/steps/{step}?tab=received&raw=1"
    as_it_is = pages.open(raw.attributes["href"]).tree.one("main")
    assert as_it_is.one(class_="text").text == "# Title **bold** <b>not</b>"
    assert as_it_is.all(class_="prose") == []


def test_every_part_of_an_answer_has_its_place(pages: FilledPages) -> None:
    message = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Let me think",
        "refusal": "I will not",
        "tool_calls": [
            call("c1", "good", '{"a":[1,2]}'),
            call("c2", "bad", "{'a'}"),
            call("c3", "broken", '{"a'),
        ],
        "annotations": [{"type": "url"}],
    }
    told = {"arguments_json_valid": False}
    step = pages.filled.call(
        finish_reason="length",
        output_payload=answered(pages, message, "length", logprobs={"content": [1]}),
        tool_calls=[
            {"tool_call_id": "c2", **told, "incomplete": False},
            {"tool_call_id": "c3", **told, "incomplete": True},
        ],
    )
    received = shown(pages, step, "received")
    assert received.one(class_="broke-off").text == (
        "The answer was cut off: the limit of tokens was reached."
    )
    assert received.all("details")[0].text == "reasoning (12 characters) Let me think"
    assert "refused · I will not" in received.text
    assert texts(received, class_="asked") == [
        'good c1{ "a": [ 1, 2 ] }',
        "bad c2 its arguments are not valid JSON{'a'}",
        'broken c3 its arguments broke off{"a',
    ]
    others = orjson.loads(received.all("details")[1].one("pre").text)
    assert others == {"annotations": [{"type": "url"}], "logprobs": {"content": [1]}}


def test_every_choice_is_shown(pages: FilledPages) -> None:
    choices = [
        {"index": 0, "message": {"content": "first"}, "finish_reason": "stop"},
        {"index": 1, "message": {"content": None}, "finish_reason": "content_filter"},
    ]
    step = pages.filled.call(output_payload=pages.filled.body({"choices": choices}))
    received = shown(pages, step, "received")
    assert texts(received, "h3") == [
        "Choice 1 finish reason stop",
        "Choice 2 finish reason content_filter",
    ]
    assert texts(received, class_="choice")[0].endswith("first")
    assert texts(received, class_="choice")[1].endswith("It says nothing.")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("error", "The answer broke off; this is what had arrived."),
        ("cancelled", "The call was cancelled; this is what had arrived."),
    ],
)
def test_what_had_arrived_is_shown_and_marked(pages: FilledPages, status: str, words: str) -> None:
    step = pages.filled.call(status=status, partial_output="It was a dark")
    received = shown(pages, step, "received")
    assert received.one(class_="broke-off").text == words
    assert received.one(class_="prose").text == "It was a dark"


# -- changes ---------------------------------------------------------------------------------------


def two_calls(pages: FilledPages, before: list[Any], now: list[Any], **more: Any) -> Element:
    """What the second of two calls of one session shows of its changes."""
    pages.services.counter.load()
    session = pages.filled.session()
    common = {"provider_name": "openai", "model": "gpt-4o"}
    pages.filled.call(session, input_payload=asked(pages, *before), **common)
    columns = {"start": 1.0, "input_payload": asked(pages, *now), **common, **more}
    return shown(pages, pages.filled.call(session, **columns), "changes")


def kinds(changes: Element) -> list[str]:
    return texts(changes, "header")


def test_a_history_that_goes_on_keeps_the_cache(pages: FilledPages) -> None:
    before = [SYSTEM, HELLO]
    now = [SYSTEM, HELLO, {"role": "assistant", "content": "Hi"}, user("And now?")]
    changes = two_calls(pages, before, now, input_tokens=40, cached_tokens=16)
    assert texts(changes.one(class_="cache-words"), "p") == [
        "All 2 messages of the call before come first, unchanged (~12 tokens):"
        " they can come from the prompt cache.",
        "The provider says that 16 of 40 input tokens came from its cache.",
    ]
    assert kinds(changes) == ["Added 3 assistant", "Added 4 user"]
    assert "2 of 4 messages were sent before." in changes.text
    assert [r.attributes["width"] for r in changes.one(class_="shares").all("rect")] == [
        "50.0%",
        "50.0%",
    ]


def test_it_says_where_the_prefix_broke(pages: FilledPages) -> None:
    middle = {"role": "assistant", "content": "line one\nline two"}
    edited = {"role": "assistant", "content": "line one\nline 2"}
    changes = two_calls(
        pages, [SYSTEM, HELLO, middle, user("a")], [SYSTEM, HELLO, edited, user("a"), user("b")]
    )
    [said] = texts(changes.one(class_="cache-words"), "p")
    assert said.startswith("The first 2 messages are the same (~12 tokens): they can come from")
    assert "The prefix breaks at message 3 (assistant), which changed: 3 messages from" in said
    assert said.endswith("had to be read anew.")
    assert kinds(changes) == ["Changed 3 assistant", "Added 5 user"]
    diff = changes.one("pre", class_="diff").all("span")
    assert [(line.attributes["class"], line.text) for line in diff] == [
        ("is-same", "line one"),
        ("is-was", "- line two"),
        ("is-now", "+ line 2"),
    ]


def test_a_message_that_was_dropped(pages: FilledPages) -> None:
    changes = two_calls(pages, [SYSTEM, HELLO, user("a")], [SYSTEM, user("a")])
    assert "at message 2 (user), since what stood before it was dropped" in changes.text
    assert kinds(changes) == ["Dropped 2 user of the call before"]
    assert "Hello" in changes.one("li").text


def test_a_changed_beginning_leaves_nothing_of_the_cache(pages: FilledPages) -> None:
    changes = two_calls(pages, [SYSTEM, HELLO], [{**SYSTEM, "content": "Be long."}, HELLO])
    assert texts(changes.one(class_="cache-words"), "p") == [
        "The prefix breaks at once, at message 1 (system), which changed:"
        " none of the messages can come from the cache."
    ]


def test_tools_model_and_parameters_are_compared_too(pages: FilledPages) -> None:
    session = pages.filled.session()
    pages.filled.call(
        session, provider_name="a", model="m", input_payload=asked(pages, HELLO, temperature=0.2)
    )
    step = pages.filled.call(
        session,
        start=1,
        provider_name="b",
        model="m",
        input_payload=asked(pages, HELLO, tools=[TOOL], top_p=1, temperature=0.7),
    )
    changes = shown(pages, step, "changes")
    said = texts(changes.one(class_="cache-words"), "p")
    assert said[0] == "Another model was asked, b/m after a/m: each has a cache of its own."
    assert said[1].startswith("The tools are not the same.")
    assert said[2].startswith("The one message of the call before")
    assert "can come from the prompt cache" not in said[2]
    settings = fields(changes)
    assert settings["temperature"] == "0.2 → 0.7"
    assert settings["top_p"] == "not there → 1"
    assert settings["tools"].startswith("added")
    assert "No message was added, changed or dropped." in changes.text


def test_a_changed_word_in_a_long_line_changes_its_sentence_alone(pages: FilledPages) -> None:
    said = "One is one. " * 20
    changes = two_calls(pages, [user(said + "It ends.")], [user(said + "It goes on.")])
    diff = texts(changes.one("pre", class_="diff"), "span")
    assert diff[3] == "… 14 lines the same"
    assert diff[-2:] == ["- It ends.", "+ It goes on."]


def test_calls_that_are_not_compared_say_why(pages: FilledPages) -> None:
    alone = pages.filled.call(input_payload=asked(pages, HELLO))
    first = pages.filled.call(pages.filled.session(), input_payload=asked(pages, HELLO))
    tool = a_turn_of_three(pages)[2]
    assert "Calls without a session are not compared" in shown(pages, alone, "changes").text
    assert "There is no earlier call of this session" in shown(pages, first, "changes").text
    assert "Only what is sent to a model is compared." in shown(pages, tool, "changes").text


# -- attempts, timing, usage, raw ------------------------------------------------------------------


def test_all_attempts_with_the_waits_between_them_and_why_they_failed(pages: FilledPages) -> None:
    failed, retried, tool = a_turn_of_three(pages)
    attempts = shown(pages, failed, "attempts")
    assert attempts.one(class_="tab-line").text == (
        "2 attempts at one answer, served by the 2nd, openai/gpt-4o"
    )
    first, second = cells(attempts.one("table"))[1:]
    assert first[:4] == ["1st", "openai/gpt-4o", "initial", "–"]
    assert first[5:] == ["–", "300 ms", "error · upstream rate limit 429 slow down"]
    assert second[:4] == ["2nd", "openai/gpt-4o", "retry", "1.20 s"]
    assert second[5:] == ["500 ms", "2.00 s", "done"]
    rows = attempts.one("tbody").all("tr")
    assert [row.attributes.get("aria-current") for row in rows] == ["true", None]
    assert rows[1].one("a").attributes["href"] == f"/ui/steps/{retried}?tab=attempts"
    assert len(attempts.one(class_="waterfall").all("line", class_="wait")) == 1
    assert "Only calls of a model" in shown(pages, tool, "attempts").text


def test_the_timing_of_a_stream(pages: FilledPages) -> None:
    step = pages.filled.call(
        waited_ms=1000, latency_ms=4000, ttft_ms=1000, output_tokens=90, usage_source="provider"
    )
    pages.filled.request(
        step_id=step,
        first_byte_at=at(0.0168),
        bytes_received=1000,
        chunks=4,
        frames=[[0, 1000], [250, 2000], [500, 3000], [750, 4000]],
    )
    timing = shown(pages, step, "timing")
    parts = timing.one(class_="time-bar").all("svg")[0]
    assert parts.attributes["aria-label"] == (
        "wait before it 1.00 s, to the first token 1.00 s, stream 3.00 s"
    )
    assert [e.attributes["width"] for e in parts.all("rect")] == ["20.0%", "60.0%"]
    assert fields(timing) == {
        "wait before it": "1.00 s",
        "first byte": "1.00 s",  # as its timing has it, not the wall clock
        "first token": "1.00 s",
        "stream": "3.00 s",
        "in all": "4.00 s",
        "speed": "30 tokens/s",
    }
    chart = timing.one("figure", class_="chart")
    assert chart.one(class_="chart-top").text == "~90 tokens"
    points = chart.one("polyline").attributes["points"].split()
    assert points[:3] == ["0.00,100.00", "25.00,100.00", "25.00,75.00"]
    assert points[-1] == "100.00,0.00"
    assert "4 reads from 1.00 s to 4.00 s, longest silence 1.00 s" in chart.text


def test_a_stream_of_very_many_reads_is_drawn_by_some_of_them(pages: FilledPages) -> None:
    step = pages.filled.call(latency_ms=60_000, ttft_ms=1)
    frames = [[number, number] for number in range(50_000)]
    pages.filled.request(step_id=step, bytes_received=50_001, frames=frames)
    chart = shown(pages, step, "timing").one("figure", class_="chart")
    assert 600 < len(chart.one("polyline").attributes["points"].split()) < 900
    assert chart.one(class_="chart-top").text == "50.0 kB"


def test_a_timing_that_was_not_kept(pages: FilledPages) -> None:
    step = pages.filled.call(latency_ms=20)
    timing = shown(pages, step, "timing")
    assert "no token 20 ms" in timing.text
    assert "its timing was not kept" in timing.text


def test_usage_and_cost_at_its_price(pages: FilledPages) -> None:
    step = pages.filled.call(
        provider_name="openai",
        model="gpt-4o",
        input_tokens=1000,
        cached_tokens=600,
        output_tokens=100,
        reasoning_tokens=30,
        total_tokens=1100,
        usage_source="provider",
        usage_raw={"prompt_tokens": 1000},
        cost_usd=0.0024,
    )
    tab = shown(pages, step, "usage")
    assert "As the provider reported it." in tab.text
    counts, price = tab.all("table")
    assert cells(counts) == [
        ["input", "1,000"],
        ["from the cache (hit)", "600"],
        ["not from the cache (miss)", "400"],
        ["written to the cache", "–"],
        ["output", "100"],
        ["reasoning", "30"],
        ["in all", "1,100"],
    ]
    assert cells(price) == [
        ["Part", "Tokens", "$ a million", "Cost"],
        ["input", "400", "$2.00", "$0.0008"],
        ["input, cached", "600", "$1.00", "$0.0006"],
        ["output", "100", "$10.00", "$0.0010"],
        ["in all", "", "", "$0.0024"],
    ]
    assert "the prices of now" not in tab.text
    assert orjson.loads(tab.one("pre").text) == {"prompt_tokens": 1000}


def test_a_price_that_has_changed_and_one_that_is_not_known(pages: FilledPages) -> None:
    common = {"output_tokens": 10, "usage_source": "estimated"}
    dear = pages.filled.call(provider_name="openai", model="gpt-4o", cost_usd=7.0, **common)
    assert "They were others".lower() in shown(pages, dear, "usage").text.lower()
    free = pages.filled.call(provider_name="mine", model="my-model", **common)
    tab = shown(pages, free, "usage")
    assert "no price of mine/my-model is known" in tab.text
    assert "Estimated here" in tab.text
    assert ["output", "~10"] in cells(tab.one("table"))
    assert "It reported nothing." in tab.text


def test_the_exchange_as_it_was(pages: FilledPages) -> None:
    step = pages.filled.call()
    request = pages.filled.request(
        step_id=step,
        url="https://api.openai.com/v1/chat/completions",
        request_headers=[["content-type", "application/json"]],
        response_headers=[["x-request-id", HOSTILE]],
        request_payload=pages.filled.body(b'{"a": 1}'),
        response_body=pages.filled.body(b"data: {}\n\n"),
        bytes_sent=8,
        bytes_received=10,
    )
    raw = shown(pages, step, "raw")
    assert raw.all(class_="tab-line")[0].text == (
        "200 POST https://api.openai.com/v1/chat/completions"
    )
    copied = raw.one("button", class_="copy").attributes["data-copy"]
    assert copied.startswith("curl https://api.openai.com/v1/chat/completions \\\n")
    assert "--data-raw '{\"a\": 1}'" in copied
    assert texts(raw, "pre", class_="body") == ['{ "a": 1 }', "data: {}"]
    assert HOSTILE in raw.text
    links = [link.attributes["href"] for link in raw.all("a")]
    assert f"/ui/requests/{request}/request" in links
    assert f"/ui/requests/{request}/response" in links
    assert "No exchange" in shown(pages, pages.filled.call(), "raw").text


# -- all of them -----------------------------------------------------------------------------------


def a_hostile_step(pages: FilledPages) -> str:
    session = pages.filled.session()
    pages.filled.call(session, input_payload=asked(pages, user(HOSTILE)))
    said = {
        "content": HOSTILE,
        "reasoning": HOSTILE,
        "refusal": HOSTILE,
        "tool_calls": [call(HOSTILE, HOSTILE, HOSTILE)],
        HOSTILE: HOSTILE,
    }
    tool = {"function": {"name": HOSTILE, "description": HOSTILE, "parameters": {HOSTILE: HOSTILE}}}
    turn = pages.filled.turn(session, 1, turn_index=9, user_input=HOSTILE)
    step = pages.filled.step(
        pages.filled.run(turn),
        turn,
        1,
        session_id=session,
        name=HOSTILE,
        provider_name=HOSTILE,
        model=HOSTILE,
        model_requested=HOSTILE,
        status="error",
        error_type=HOSTILE,
        error_message=HOSTILE,
        finish_reason=HOSTILE,
        finish_reason_raw=HOSTILE * 2,
        metadata={HOSTILE: HOSTILE},
        usage_raw={HOSTILE: HOSTILE},
        input_payload=asked(
            pages, user(HOSTILE), {"role": HOSTILE, **said}, tools=[tool], **{HOSTILE: HOSTILE}
        ),
        output_payload=answered(pages, said, HOSTILE),
    )
    body = pages.filled.body(HOSTILE.encode())
    pages.filled.request(
        turn,
        step_id=step,
        url=HOSTILE,
        method=HOSTILE,
        request_headers=[[HOSTILE, HOSTILE]],
        response_headers=[[HOSTILE, HOSTILE]],
        request_payload=body,
        response_body=body,
        error_body=HOSTILE + "!",
        error_type=HOSTILE,
        error_message=HOSTILE,
    )
    return step


@pytest.mark.parametrize("tab", TABS)
def test_hostile_words_stay_words(pages: FilledPages, tab: str) -> None:
    step = a_hostile_step(pages)
    for more in ("", "&raw=1"):
        page = step_page(pages, step, tab, more)
        assert "<script>alert(1)</script>" in page.text
        for element in page.walk():
            assert element.tag not in ("script", "img", "hx-partial", "style")
            assert not [n for n in element.attributes if n.startswith("on") or n == "style"]


@pytest.mark.parametrize(
    ("tab", "most"),
    [
        ("summary", 3),
        ("sent", 2),
        ("received", 2),
        ("changes", 3),
        ("attempts", 2),
        ("timing", 3),
        ("usage", 2),
        ("raw", 3),
    ],
)
@pytest.mark.parametrize("count", [1, 40, 2000])
def test_a_tab_takes_so_many_statements_whatever_its_size(
    pages: FilledPages, tab: str, most: int, count: int
) -> None:
    session = pages.filled.session()
    history = [user(f"message {number}") for number in range(count)]
    pages.filled.call(session, input_payload=asked(pages, *history[:-1]))
    turn = pages.filled.turn(session, 1, turn_index=5)
    run = pages.filled.run(turn)
    said, brought = asked(pages, *history), answered(pages, "ok " * 2000)
    for number in range(40):
        step = pages.filled.step(
            run,
            turn,
            1 + number / 100,
            step_index=number,
            attempt=1 if number == 0 else 2,
            model_requested=None,
            session_id=session,
            input_payload=said,
            output_payload=brought,
        )
        pages.filled.request(turn, step_id=step, request_payload=said, response_body=brought)
    found = pages.statements(f"/ui/steps/{step}?tab={tab}")
    assert len(found) == most, [text for text, _ in found]


# -- live ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with gate_and_model(tmp_path_factory.mktemp("steps")) as gate:
        yield gate
        # Sockets that were left are noticed within a second: waited for once, not by each test.
        eventually(lambda: gate.services.watchers.count == 0)


@pytest.fixture
def gate(served: Gate) -> Iterator[Gate]:
    with a_test_of(served):
        yield served


def running_step(gate: Gate, session: str) -> str:
    """The id of the step that is under way in a session, once something has come of it."""
    eventually(lambda: gate.turns(session) and gate.steps(gate.turns(session)[-1]))
    step: str = gate.steps(gate.turns(session)[-1])[-1]["id"]
    eventually(lambda: gate.services.recorder.live.texts(step))
    return step


@pytest.mark.parametrize("tab", ["summary", "received"])
def test_an_answer_under_way_grows_and_is_the_same_afterwards(gate: Gate, tab: str) -> None:
    middle, end = threading.Event(), threading.Event()
    gate.model.will(
        stream(
            delta(reasoning_content="hmm "),
            delta("Once é😀 "),
            middle,
            delta("**upon**"),
            delta(tool_calls=[{"index": 0, **call("c1", "look", '{"a"')}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
            end,
            finish("tool_calls"),
            usage(7, 3),
            DONE,
        )
    )
    reading = gate.open(chat("go", stream=True, **named(f"grows-{tab}")))
    step = running_step(gate, f"grows-{tab}")
    eventually(lambda: len(gate.services.recorder.live.texts(step)) == 2)
    path = f"/ui/steps/{step}?tab={tab}"
    page = open_page(gate, path)
    grown = page.one(id=f"stream-{step}-text-0")
    assert (grown.text, grown.attributes["data-length"]) == ("Once é😀", "8")
    assert "hx-morph-skip-children" in grown.attributes
    assert page.one(id=f"stream-{step}-reasoning-0").text == "hmm"
    with watching(gate, page) as socket:
        socket.texts = {f"stream-{step}-text-0": "Once é😀 "}
        middle.set()
        socket.until(lambda: socket.texts.get(f"stream-{step}-tool_arguments-0") == '{"a":1}')
        assert socket.texts[f"stream-{step}-text-0"] == "Once é😀 **upon**"
        # The place for the arguments came before their first piece.
        assert any(e.all(id=f"stream-{step}-tool_arguments-0") for _, _, e in socket.swaps)
        end.set()
        reading.rest()
        final = socket.until_swap("Once é😀 upon", f"step-{step}")
        socket.until_swap("Done in", f"head-{step}")
    assert final.all(class_="stream") == []
    assert final.one(class_="asked").text == 'look c1{ "a": 1 }'
    again = open_page(gate, path)
    assert again.one(id=f"step-{step}").text == final.text


def test_how_far_a_call_is_and_what_comes_after_it(gate: Gate) -> None:
    end = threading.Event()
    gate.model.will(stream(delta("so far"), end, finish(), usage(7, 3), DONE))
    reading = gate.open(chat("go", stream=True, **named("progress")))
    step = running_step(gate, "progress")
    page = open_page(gate, f"/ui/steps/{step}")
    assert page.one(class_="truth").text.startswith("Running 00:")
    with watching(gate, page) as socket:
        socket.until_swap("first token", f"now-{step}")
        socket.until_swap("~1", f"sofar-{step}")
        socket.until_swap("ms", f"first-{step}")
        end.set()
        reading.rest()
        socket.until_swap("Done in", f"head-{step}")


def event(type: str, turn: str, step: str, **payload: Any) -> Envelope:
    return Envelope(1, type, at(0), "default", None, turn, None, step, payload)


def test_what_happens_beside_the_step_changes_its_head_alone(pages: FilledPages) -> None:
    failed, retried, _ = a_turn_of_three(pages)
    turn = pages.services.store.sql("SELECT turn_id FROM steps WHERE id = ?", (failed,))[0][0]
    screen = pages.screen("step", id=failed, turn=turn, tab="sent")
    assert list(by_target(screen.drawn(event("step.started", turn, retried)))) == [f"head-{failed}"]
    assert screen.drawn(event("tool.requested", turn, retried)) == []
    assert screen.drawn(event("step.started", ids.mint("turn"), retried)) == []
    delta_of = event("step.delta", turn, failed, kind="text", index=0, text="a", text_length=1)
    assert screen.drawn(delta_of) == []  # nothing grows in this tab
    screen = pages.screen("step", id=failed, turn=turn, tab="attempts")
    drawn = by_target(screen.drawn(event("step.completed", turn, retried)))
    assert list(drawn) == [f"head-{failed}", f"step-{failed}"]
    assert "2 attempts" in parse(drawn[f"step-{failed}"].html).text


def test_a_step_that_is_deleted_meanwhile_draws_nothing(pages: FilledPages) -> None:
    turn, step = ids.mint("turn"), ids.mint("step")
    screen = pages.screen("step", id=step, turn=turn)
    assert screen.drawn(event("step.completed", turn, step)) == []


def test_the_socket_of_a_page_names_what_it_shows(pages: FilledPages) -> None:
    step = pages.filled.call()
    path = socket_path(pages.open(f"/ui/steps/{step}?tab=received&raw=1").tree)
    assert f"id={step}" in path
    assert "tab=received" in path
    assert "raw=1" in path


def test_a_step_that_took_no_time(pages: FilledPages) -> None:
    step = pages.filled.call(latency_ms=0)
    assert "It took less than a millisecond." in shown(pages, step, "timing").text
