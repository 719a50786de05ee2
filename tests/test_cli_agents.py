"""What the commands tell of an agent's own steps: compactions, notes, plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from agents_fixtures import AgentGate, agent, agents, asks
from cli_stores import run
from scripted_model import Row, streams
from xgw import clock
from xgw.cli.event_lines import EventLines
from xgw.cli.terminal import Screen
from xgw.store.models import Event

LONG = "the order A-17 was sent on Monday " * 30
PLAN = {"action": "set", "items": [{"text": "look", "state": "done"}, {"text": "tell"}]}
NOTE = {"key": "order", "value": "A-17"}


@dataclass(frozen=True)
class Worked:
    """A store in which an agent has noted, planned and compacted."""

    gate: AgentGate
    answer: Row

    @property
    def path(self) -> Path:
        return self.gate.gate.store.path

    def show(self, id: str, *options: str) -> str:
        done = run(self.path, "show", id, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def lines(self) -> list[str]:
        """The turn's events as `--details` spells them."""
        spell = EventLines(Screen(None, False), frozenset(), lambda _: "k").spell
        events = self.gate.gate.all(Event, Event.turn_id == self.answer["turnId"])
        return [spell({**event, "at": clock.to_rfc3339(event["at"])}) for event in events]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    named = agent(
        tools=("remember",),
        modes={"task": {"planner": True}},
        context={"window": 1000, "compact_at": 0.6, "keep_last_turns": 0},
    )
    with agents(tmp_path_factory.mktemp("worked"), agents={"a": named}) as gate:
        gate.model.will(streams("noted"))
        session = gate.say(LONG, mode="task")["sessionId"]
        calls = [
            ("c1", "plan", orjson.dumps(PLAN).decode()),
            ("c2", "remember", orjson.dumps(NOTE).decode()),
        ]
        gate.model.will(streams("A-17 was sent"), asks(*calls), streams("done"))
        yield Worked(gate, gate.say("next: " + LONG, session, mode="task"))


def test_a_turn_tells_them_in_words(worked: Worked) -> None:
    shown = worked.show(worked.answer["turnId"])
    assert "memory_write compaction" in shown
    assert "2 messages summarised, context " in shown
    assert "summary   A-17 was sent" in shown
    assert "p1/m-served for compaction" in shown
    assert "planner plan" in shown
    assert "memory_write remember" in shown
    assert "Plan\n  ✓ look\n  · tell\n" in shown


def test_a_step_tells_a_compaction_in_words(worked: Worked) -> None:
    compaction = worked.gate.steps(worked.answer, "memory_write")[0]
    shown = worked.show(compaction["id"])
    assert "Compaction\n  2 messages summarised, context " in shown
    assert "tokens · threshold" in shown
    assert "compacted_message_ids" not in shown
    assert "compacted_message_ids" in worked.show(compaction["id"], "--full")


def test_details_tell_them(worked: Worked) -> None:
    told = "\n".join(worked.lines())
    for words in (
        "step.started       memory_write compaction",
        "step.started       p1/m · for compaction · ~",
        "context.compacted  2 messages summarised, context ",
        " tokens · threshold · “A-17 was sent”",
        'step.started       planner plan · {"action":"set"',
        'step.started       memory_write remember · {"key":"order"',
        "memory_write remember · success · ",
    ):
        assert words in told
