"""Which of the offered tools a prompt calls for, and with which arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from xgw.providers.demo.clues import Clues
from xgw.providers.demo.plans import is_planner, plan_of
from xgw.providers.demo.schema import PLACE_WORDS, SUM_WORDS, Instances, words_of

MAX_CALLS = 4
MAX_TOOLS = 128
MAX_DESCRIPTION = 500

# From this score a tool is called for: one word of its name is enough, one of its description not.
CALLED_FOR = 3

_TOPICS: dict[str, frozenset[str]] = {
    "weather": frozenset({"weather", "forecast", "temperature", "rain", "snow", "umbrella"}),
    "arithmetic": frozenset(
        {
            "calculate",
            "calculator",
            "calculation",
            "calc",
            "compute",
            "arithmetic",
            "math",
            "evaluate",
        }
    ),
    "time": frozenset({"time", "clock", "hour", "date", "datetime", "timezone"}),
    "search": frozenset({"search", "google", "browse", "lookup"}),
    "mail": frozenset({"mail", "email"}),
    "translation": frozenset({"translate", "translation", "translator"}),
}

_OPERATIONS = {
    "add": "+", "sum": "+", "plus": "+",
    "subtract": "-", "minus": "-",
    "multiply": "*", "times": "*", "product": "*",
    "divide": "/", "quotient": "/",
}  # fmt: skip

# Words of tool names and descriptions that say nothing about their purpose.
_FILLERS = """
a all an and any api are as at by call can current data do does execute fetch find for from function
get give given handle in info information is it its list look make new of on one or out perform
provide query read result return returns run set show tell that the this to tool up use used user
value want what when which will with you your
"""
_EMPTY_WORDS = frozenset(_FILLERS.split())


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call that the prompt asks for; `arguments` is JSON text."""

    name: str
    arguments: str


def wanted_calls(prompt: str, functions: Sequence[dict[str, Any]]) -> tuple[Wanted, ...]:
    """The calls that the prompt asks for, best match first, at most `MAX_CALLS`."""
    clues = Clues(prompt)
    scored = sorted(
        ((_score(clues, f), -number, f) for number, f in enumerate(functions[:MAX_TOOLS])),
        key=lambda entry: entry[:2],
        reverse=True,
    )
    chosen: list[dict[str, Any]] = []
    topics: set[str] = set()
    for score, _, function in scored:
        topic = _topic(words_of(_name(function)))
        if score >= CALLED_FOR and (topic is None or topic not in topics):
            chosen.append(function)
            topics.update({topic} if topic else ())
    if (
        not chosen
        and functions
        and re.search(r"\b(use|call|try)\b.*\b(tool|function)", prompt, re.I)
    ):
        chosen = [scored[0][2]]
    calls = (call for function in chosen for call in _calls_of(function, clues))
    return tuple(dict.fromkeys(calls))[:MAX_CALLS]


def forced_call(prompt: str, function: dict[str, Any]) -> Wanted:
    """A call of this very tool, whatever the prompt says."""
    return next(_calls_of(function, Clues(prompt)))


def _name(function: dict[str, Any]) -> str:
    return str(function.get("name") or "")


def _properties(function: dict[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters")
    found = parameters.get("properties") if isinstance(parameters, dict) else None
    return found if isinstance(found, dict) else {}


def _calls_of(function: dict[str, Any], clues: Clues) -> Iterator[Wanted]:
    """One call, or one for each place where the prompt names several and the tool takes one."""
    takes_place = any(
        PLACE_WORDS.intersection(words_of(name)) and _is_text(schema)
        for name, schema in _properties(function).items()
    )
    if not takes_place or len(clues.places) < 2:
        yield _call(function, clues)
        return
    for place in clues.places[:MAX_CALLS]:
        alone = Clues(clues.prompt)
        alone.places = (place,)
        yield _call(function, alone)


def _is_text(schema: object) -> bool:
    return not isinstance(schema, dict) or schema.get("type") not in ("array", "object")


def _call(function: dict[str, Any], clues: Clues) -> Wanted:
    if is_planner(_name(function), _properties(function)):
        arguments: Any = plan_of(clues.prompt)
    else:
        arguments = Instances(function.get("parameters"), clues, whole=False).make()
    text = orjson.dumps(arguments if isinstance(arguments, dict) else {}).decode()
    return Wanted(_name(function), text)


def _score(clues: Clues, function: dict[str, Any]) -> int:
    """How clearly the prompt calls for a tool."""
    named = words_of(_name(function))
    description = str(function.get("description") or "")[:MAX_DESCRIPTION]
    described = set(words_of(description)) - set(named)
    if clues.mentions(_name(function)):
        return 100
    if _is_other_operation(clues, named):
        return 0
    score = 3 * _shared(clues, [w for w in named if w not in _EMPTY_WORDS])
    score += _shared(clues, [w for w in described if w not in _EMPTY_WORDS and len(w) > 3])
    asked = _topics(clues)
    score += 3 if _topic(named) in asked else 0
    score += 2 if asked.intersection(filter(None, map(_topic, ([w] for w in described)))) else 0
    return score + _parameter_score(clues, _properties(function))


def _parameter_score(clues: Clues, properties: dict[str, Any]) -> int:
    words = {word for name in properties for word in words_of(name)}
    score = 1 if clues.places and words & PLACE_WORDS else 0
    return score + (3 if clues.arithmetic and words & SUM_WORDS else 0)


def _topics(clues: Clues) -> set[str]:
    asked = {topic for topic, words in _TOPICS.items() if _shared(clues, tuple(words))}
    return asked | ({"arithmetic"} if clues.arithmetic else set())


def _topic(words: Sequence[str]) -> str | None:
    """The topic of a tool's name or description."""
    if any(word in _OPERATIONS for word in words):
        return "arithmetic"
    return next((topic for topic, known in _TOPICS.items() if known.intersection(words)), None)


def _is_other_operation(clues: Clues, named: list[str]) -> bool:
    """Whether the tool does another operation than the one that the prompt spells."""
    operators = {_OPERATIONS[word] for word in named if word in _OPERATIONS}
    return bool(operators and clues.arithmetic) and not any(
        operator in (clues.arithmetic or "") for operator in operators
    )


def _shared(clues: Clues, words: Sequence[str]) -> int:
    return sum(any(_same(word, said) for said in clues.words) for word in words)


def _same(word: str, said: str) -> bool:
    """Whether two words have one stem: weather/weathers, translate/translation."""
    short, long = sorted((word, said), key=len)
    return short == long or (len(short) >= 4 and long.startswith(short[: max(4, len(short) - 1)]))
