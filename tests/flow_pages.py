"""The scripted session as a person goes through it in a browser, and what has to stand where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from agents_fixtures import AgentGate
from flow_script import (
    ANSWER,
    COMPACTED,
    FIRST,
    INTRODUCTION,
    ITERATIONS,
    KEY,
    LAST,
    MESSAGES,
    NAME,
    SECOND,
    SPENT,
    SUMMARY,
    Message,
    Script,
)
from scripted_model import Row
from servers import eventually
from visits import Visits

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOOT = r"Turn {0} (done|error) (done|error)"
PANEL = r"Turn {0} trace \S+ (done|error) (Done in|Failed after)"
MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+00:00"
CLOCK = r"\d\d:\d\d:\d\d\.\d{3}"
TOOK = r"[\d.]+ m?s"
PACE = rf"first token {TOOK}(?: · \d+ tokens/s)?"

SHOWN: dict[str, dict[str, tuple[str, ...]]] = {
    "1.1": {
        "agents": ("guide Knows the weather m 4 tools",),
        "agent": ("Instructions Be brief.", "modelm providerp1", "Mode task .* most iterations2"),
    },
    "1.2": {"agent": ("Start a chat", "No input yet guide · m · debugging-flow")},
    "1.3": {"before": ("guide · chat · .* · m · key debugging-flow", r"idsess_\S+")},
    "2.1": {
        "before": ("0messages – / –tokens in / out",),
        "answered": ("6messages 300 / 32tokens in / out 192cached",),
    },
    "2.2": {
        "before": ("390 tokensbudget left", "– of 4,000"),
        "answered": ("58 tokensbudget left", "5 %192 of 4,000"),
    },
    "2.3": {"tools": ("look Look at the weather.", '"description": "The name of a city."', "note")},
    "3.1": {"speaking": (rf"user {CLOCK} · ~13 tokens {MESSAGES[FIRST].text[:-1]}",)},
    "3.2": {"speaking": ("Turn 1 trace .* running Running", "Turn 1 is under way")},
    "3.3": {"speaking": (f"started{MOMENT}",)},
    "4.1": {"speaking": (r"Running [\d:]+ · llm_call m, 2nd attempt",)},
    "4.2": {"speaking": (rf"assistant {CLOCK} · m at p1 · 2nd attempt",)},
    "4.3": {"speaking": (r"~\d+input tokens",)},
    "4.4": {"speaking": (INTRODUCTION[:9], r"~\d+ tokens · \d+/s", r"~\d+output, so far")},
    "4.5": {"asking call": (f"Done in {TOOK} · p1/m-served", "finish reason tool_calls")},
    "4.6": {"asking call": ("20output tokens",), "working": (r"m-served at p1 .* · 20 tokens",)},
    "4.7": {"usage": ("from the cache .hit.64", "not from the cache .miss.56")},
    "4.8": {
        "asking call": (f"took{TOOK} · first token {TOOK}",),
        "page of turn 1": (f"Done in {TOOK} · {PACE} · p1/m-served",),
    },
    "5.1": {"working": ("One moment. look ok",), "asking call": ("look call_look",)},
    "5.2": {"working": ("look .* boom .* stuck",)},
    "5.3": {"working": (r'\{"city": "Oslo"\}', 'Arguments{ "city": "Oslo" }')},
    "5.4": {"working": ("call_look .* call_boom .* call_stuck",)},
    "6.1": {"working": ("stuck running", "· tool_call stuck")},
    "6.2": {"working": (f"stuck running {TOOK}",), "tool stuck": (f"Done in {TOOK}",)},
    "6.3": {"answered": (f"stuck ok {TOOK} · call_stuck",)},
    "6.4": {"answered": ('→ {"city":"Oslo","degrees":21,"unit":"c"}', "→ late")},
    "6.5": {"answered": ("look ok", "boom error", "stuck ok")},
    "6.6": {
        "answered": ("RuntimeError: disk on fire",),
        "tool boom": ("Failed after .* tool error",),
    },
    "7.1": {
        "answered": (rf"Resultlate assistant {CLOCK}",),
        "answering call": ("history ?appended",),
    },
    "7.2": {"answered": ("context window180 of 4,000",), "answering call": ("context180 tokens",)},
    "8.1": {"answered": ("Turn 1 trace .* done Done in .* finish reason stop",)},
    "8.2": {"answered": (rf"12 tokens · {TOOK} · {PACE} {ANSWER}",), "page of turn 1": (ANSWER,)},
    "8.3": {"page of turn 1": (f"ended{MOMENT}",)},
    "9.1": {"page of turn 1": (r"300 in \(192 cached\) → 32 out = 332",)},
    "9.2": {"page of turn 1": ("tool calls3",)},
    "9.3": {"page of turn 1": (r"2round-trips \+1 failed",)},
    "9.4": {"page of turn 1": (f"Done in {TOOK}",)},
    "9.5": {"answered": ("300 / 32tokens in / out",), "turn 2": ("307 / 35tokens in / out",)},
    "10.1": {"after": (MESSAGES[FIRST].text[:-1], ANSWER, SECOND, LAST, MESSAGES[SPENT].text)},
    "10.2": {"after": ("user .* assistant .* look ok .* assistant",)},
    "10.3": {"after": (f"user {CLOCK} · ~13 tokens", f"assistant {CLOCK} .* · 12 tokens")},
    "10.4": {"after": (f"user {CLOCK}", f"assistant {CLOCK}")},
    "10.5": {"after": (f"look ok {TOOK} · call_look", f"boom error {TOOK} · call_boom")},
    "11.1": {"after": (f"created{MOMENT}",)},
    "11.2": {"after": (f"last activity{MOMENT}",)},
    "11.3": {"after": (r"\d+messages",)},
    "11.4": {"after": ("341 / 51tokens in / out 192cached",)},
    "11.5": {"after": ("· m-served at p1 ·",)},
    "12.1": {"speaking": ("upstream rate limit · 429 · slow down",), "failed call": ("HTTP 429",)},
    "12.2": {
        "speaking": (f"2nd attempt · after a wait of {TOOK}",),
        "attempts": ("2 attempts at one answer", f"2nd p1/m-served retry {TOOK}"),
    },
    "12.3": {
        "turn 5": ("limit reached: session_tokens|limit session tokens", "0 tokensbudget left"),
        "page of turn 5": ("the turn reached its limit of 390",),
    },
    "12.4": {"page of turn 3": ("a limit was reached", "limit of 2 .iterations.")},
    "13.1": {
        "page of turn 4": ("Compacted", "messages summarised, context"),
        "compaction": ("threshold",),
    },
    "13.2": {
        "page of turn 4": (r"2,\d{3} → ~?1,\d{3} tokens",),
        "compaction": (r'"before_tokens": 2\d{3}', r'"after_tokens": 1\d{3}'),
    },
    "13.3": {
        "compaction": (r'"compacted_message_ids": \[ "msg_', f'"summary": "{SUMMARY}"'),
        "after": (rf"user {CLOCK} · ~13 tokens · compacted", f"Latest summary{SUMMARY}"),
    },
}
"""For each item: where it stands, and as what."""


class Walk:
    """Goes from page to page and keeps what stood there: `texts`, by the place's name."""

    def __init__(self, gate: AgentGate, page: Page) -> None:
        self._gate = gate
        self._page = page
        self.texts: dict[str, str] = {}

    def keep(self, place: str, *patterns: str) -> None:
        """What stands on the page now, or once all of these do."""
        found = ""

        def stands() -> bool:
            nonlocal found
            found = " ".join((self._page.text_content("body") or "").split())
            return all(re.search(pattern, found) for pattern in patterns)

        eventually(stands)
        self.texts[place] = found

    def go(self, place: str, path: str) -> None:
        """Another page, as it is now."""
        self._page.goto(f"{self._gate.gate.url}{path}")
        self.keep(place)

    def say(self, message: Message) -> None:
        """Fill the form in and send it."""
        self._page.fill("#message", message.text)
        self._page.select_option("#mode", message.mode)
        self._page.get_by_role("button", name="Send").click()


def walk(gate: AgentGate, visits: Visits, session: Row) -> Mapping[str, str]:
    """The whole script, then the pages that look back at it; what stood on each of them."""
    script = Script(gate)
    page = visits(f"{gate.gate.url}/ui/agents")
    walk = Walk(gate, page)
    walk.keep("agents")
    page.get_by_role("link", name=NAME, exact=True).click()
    walk.keep("agent", "Start a chat")
    page.goto(f"{gate.gate.url}/ui/sessions/{KEY}")
    walk.keep("before")
    page.get_by_text("Tools", exact=True).click()
    walk.keep("tools", "Look at the weather")
    walk.say(MESSAGES[FIRST])
    walk.keep("speaking", INTRODUCTION[:9], r"~\d+ tokens · \d+/s")
    script.saw_words()
    walk.keep(
        "working", r"One moment\. look ok .* boom error", r"Running [\d.: ]+s? · tool_call stuck"
    )
    script.saw_tools()
    walk.keep("answered", ANSWER, "Done in")
    for number, message in enumerate(MESSAGES):
        if number != FIRST:
            walk.say(message)
        walk.keep(f"turn {number + 1}", FOOT.format(number + 1), PANEL.format(number + 1))
    walk.go("after", f"/ui/sessions/{session['id']}")
    look_back(gate, walk)
    return walk.texts


def look_back(gate: AgentGate, walk: Walk) -> None:
    """The pages of turns and of steps."""
    turns = gate.gate.turns(KEY)
    for number in (FIRST, ITERATIONS, COMPACTED, SPENT):
        walk.go(f"page of turn {number + 1}", f"/ui/turns/{turns[number]['id']}")
    first = gate.gate.steps(turns[FIRST])
    calls = [step for step in first if step["step_type"] == "llm_call"]
    for name, call in zip(("failed", "asking", "answering"), calls, strict=True):
        walk.go(f"{name} call", f"/ui/steps/{call['id']}")
    walk.go("usage", f"/ui/steps/{calls[1]['id']}?tab=usage")
    walk.go("attempts", f"/ui/steps/{calls[1]['id']}?tab=attempts")
    for tool in first[-5:]:
        if tool["step_type"] == "tool_call":
            walk.go(f"tool {tool['name']}", f"/ui/steps/{tool['id']}")
    (compaction,) = gate.gate.steps(turns[COMPACTED], "memory_write")
    walk.go("compaction", f"/ui/steps/{compaction['id']}")


def check(texts: Mapping[str, str], number: str) -> None:
    """That an item stands where it has to."""
    for place, patterns in SHOWN[number].items():
        for pattern in patterns:
            assert re.search(pattern, texts[place]), f"{number}: no {pattern!r} in {place!r}"
