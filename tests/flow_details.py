"""What `xgw chat --details` tells of the scripted session's turns, item by item."""

from __future__ import annotations

import re

import pytest

from flow_script import ANSWER, INTRODUCTION, KEY, MESSAGES, SUMMARY, Seen
from xgw.cli.event_lines import EventLines
from xgw.cli.speaking import Speaker
from xgw.cli.terminal import Screen

AT = r"^\d\d:\d\d:\d\d\.\d{3}  \w{8}  "
TOOK = r"[\d.]+ m?s"
SECOND_TRY = f"step.started +p1/m · attempt 2, retry after {TOOK}"
ENDED = r"step.completed +p1/m · success · tool_calls · 120 \(64 cached\) → 20 tokens"
TURN = f"turn.completed +{KEY} turn 1 · success · stop · p1/m-served"

TOLD = {
    "3.1": rf"turn.started +{KEY} turn 1 · “{MESSAGES[0].text[:-1]}",
    "3.2": "run.started +run 1 · running",
    "3.3": f"{AT}turn.started",
    "4.1": f"{AT}step.started +p1/m",
    "4.2": "step.started +p1/m",
    "4.3": rf"{SECOND_TRY} · ~\d+ tokens in",
    "4.5": ENDED,
    "4.6": ENDED,
    "4.7": ENDED,
    "4.8": f"{ENDED} · first token {TOOK} · {TOOK}",
    "5.1": f"{AT}tool.requested",
    "5.2": "tool.requested +look .* · boom .* · stuck ",
    "5.3": r'tool.requested +look \{"city": "Oslo"\}',
    "5.4": r"look .*\(call_look\) · boom .*\(call_boom\) · stuck .*\(call_stuck\)",
    "6.1": r"step.started +tool_call stuck · \{\} · call_stuck",
    "6.2": f"step.completed +tool_call stuck · success · {TOOK}",
    "6.3": "step.completed +tool_call look",
    "6.4": "tool_call look · success · .* · “.*degrees.*21",
    "6.5": "tool_call boom · error",
    "6.6": "tool_call boom · error · .* · tool_error: RuntimeError: disk on fire",
    "7.1": "tool.results_sent +3 results to the model",
    "7.2": r"3 results to the model · context ~\d+ of 4,000 tokens",
    "8.1": TURN,
    "8.3": f"{AT}turn.completed",
    "9.1": rf"{TURN} · 300 \(192 cached\) → 32 tokens",
    "9.2": f"{TURN} .* · 3 tools",
    "9.3": f"{TURN} .* · 2 calls · 3 attempts",
    "9.4": f"{TURN} · .* tokens · {TOOK}",
    "9.5": f"{TURN} .* · session 332 tokens",
    "12.1": "llm.error +attempt 1 · HTTP 429 · upstream_rate_limit: slow down",
    "12.2": f"retry with p1/m after {TOOK}",
    "12.3": "limit.reached +session_tokens: 392 of 390",
    "12.4": "limit.reached +iterations: 2 of 2",
    "13.1": f"{AT}context.compacted",
    "13.2": r"context ~?2,\d{3} → ~?1,\d{3} tokens · threshold",
    "13.3": f"context.compacted +8 messages summarised.*“{SUMMARY}”",
}


def told_by_details(seen: Seen, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The first turn's text, as on stdout, and what stands on stderr of all of them."""
    spell = EventLines(Screen(None, False), frozenset(), lambda _: KEY).spell
    for number, turn_id in enumerate(seen.turn_ids):
        speaker = Speaker(spell, quiet=number > 0)
        for event in seen.events:
            if event["turn_id"] == turn_id:
                speaker.hear(event)
        speaker.finish(seen.turn(number)["final_output"])
    written = capsys.readouterr()
    return written.out, written.err


def check(out: str, err: str, number: str) -> None:
    """That an item is told."""
    assert out == f"{INTRODUCTION}\n{ANSWER}\n"  # 4.4 and 8.2: the text goes to stdout
    assert re.search(TOLD[number], err, re.MULTILINE), f"{number}: no {TOLD[number]!r} in {err}"
