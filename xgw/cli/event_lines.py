"""An event as one line: when, whose, what, and the words that matter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from xgw import clock, spelling
from xgw.cli import event_words, texts
from xgw.cli.event_words import Payload
from xgw.cli.refs import SHORT_DIGITS
from xgw.cli.terminal import Role, Screen
from xgw.queries.wording import joined, served_words

Event = Mapping[str, Any]

TYPE_CELLS = 17
LEAST_WORDS = 16
INDENT = "    "
LONGEST = 4000
REMEMBERED = 10_000

_ROLES: dict[str, Role] = {
    "llm.error": "bad",
    "limit.reached": "waiting",
    "tool.requested": "accent",
    "tool.results_sent": "accent",
    "step.delta": "faint",
    "step.progress": "faint",
    "stream.lagged": "waiting",
}
_STATUS_ROLES: dict[str, Role] = {"success": "good", "error": "bad", "waiting_tool": "waiting"}


class EventLines:
    """Spells events; remembers what steps and sessions are called from their first event on."""

    def __init__(
        self, screen: Screen, demos: frozenset[str], session_key: Callable[[str], str | None]
    ) -> None:
        self._screen = screen
        self._demos = demos
        self._session_key = session_key
        self._steps: OrderedDict[str, str] = OrderedDict()
        self._keys: OrderedDict[str, str] = OrderedDict()

    def spell(self, event: Event) -> str:
        """A line, cut to the terminal, with nothing in it that could do harm.

        Where little room is left for its words, they stand below it.
        """
        type, payload = str(event["type"]), event["payload"]
        words = texts.one_line(self._words(type, event, payload), LONGEST)
        owner = (event["turn_id"] or event["session_id"] or "")[-SHORT_DIGITS:]
        head = f"{spelling.time_of_day(clock.parse_time(event['at']))}  {owner:{SHORT_DIGITS}}  "
        named = f"{texts.one_line(type, LONGEST):<{TYPE_CELLS}}"
        gap, width = "  ", self._screen.width
        if width is not None:
            room = width - len(head) - len(named) - len(gap)
            if room < LEAST_WORDS:
                named = texts.cut(named.rstrip(), width - len(head))
                gap, room = f"\n{INDENT}", width - len(INDENT)
            words = texts.cut(words, room)
        paint = self._screen.paint
        told = f"{paint(head, 'faint')}{paint(named, _role(type, payload))}"
        return f"{told}{gap}{words}".rstrip()

    def _words(self, type: str, event: Event, payload: Payload) -> str:
        spelled = event_words.SPELLED.get(type)
        if spelled is not None:
            return spelled(payload)
        match type:
            case "session.created":
                key = _remember(self._keys, event["session_id"], payload.get("session_key"))
                return joined(key, payload.get("model"), f"named by {payload.get('source')}")
            case "turn.started" | "turn.queued" | "turn.updated":
                return joined(
                    self._turn(event, payload), event_words.quoted(payload.get("user_input"))
                )
            case "turn.completed":
                served = self._served(
                    payload.get("final_provider_name"), payload.get("final_model")
                )
                outcome = event_words.turn_outcome(payload, served)
                return joined(self._turn(event, payload), *outcome)
            case "step.started":
                return self._step_started(event, payload)
            case "step.completed":
                return joined(
                    self._steps.get(event["step_id"] or ""), *event_words.step_outcome(payload)
                )
            case "step.progress":
                return joined(
                    self._steps.get(event["step_id"] or ""), *event_words.progress(payload)
                )
        return orjson.dumps(payload).decode()

    def _turn(self, event: Event, payload: Payload) -> str:
        cause = f"reopened by {payload['cause']}" if payload.get("cause") else None
        if event["session_id"] is None:
            return joined("no session", cause)
        key = self._keys.get(event["session_id"])
        if key is None:
            found = self._session_key(event["session_id"]) or event["session_id"]
            key = _remember(self._keys, event["session_id"], found)
        index = payload.get("turn_index")
        return joined(key if index is None else f"{key} turn {index + 1}", cause)

    def _step_started(self, event: Event, step: Payload) -> str:
        if step.get("step_type") == "llm_call":
            name = self._served(step.get("provider_name"), step.get("model") or step.get("name"))
            agent = f"agent {step['agent_name']}" if step.get("agent_name") else None
            purpose = f"for {step['purpose']}" if step.get("purpose") else None
            attempt = event_words.attempt_words(step)
            words = [agent, purpose, attempt, event_words.input_words(step)]
        else:
            name = f"{step.get('step_type')} {step.get('name')}"
            words = [
                event_words.cut(step.get("arguments")),
                event_words.cut(step.get("tool_call_id")),
            ]
        _remember(self._steps, event["step_id"], name)
        return joined(name, *words)

    def _served(self, provider: Any, model: Any) -> str:
        name = served_words(provider, model)
        return f"{name} (scripted)" if provider in self._demos else name


def _remember(names: OrderedDict[str, str], id: str, name: Any) -> str:
    names[id] = str(name or id)
    if len(names) > REMEMBERED:
        names.popitem(last=False)
    return names[id]


def _role(type: str, payload: Payload) -> Role:
    known = _ROLES.get(type)
    return known if known is not None else _STATUS_ROLES.get(str(payload.get("status")), "plain")
