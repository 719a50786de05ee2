"""What a model gets to see of a session: its instructions, then the history, always valid.

Every call of an assistant message is followed by one result; where none was recorded (the process
ended in between) one that says so stands for it. What belongs together is a block, and a compaction
takes whole blocks out: the oldest turns first, then the oldest rounds of the turn under way.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from xgw.agents.definition import Definition
from xgw.agents.desk import Desk

Element = dict[str, Any]
Row = Mapping[str, Any]
PartName = Literal["instructions", "working_memory", "plan", "summary", "turn"]

LOST = "Error: no result: the call was interrupted"
SUMMARY = (
    "Summary of the earlier conversation, whose messages are not shown any more. It is a record of "
    "what was said and done, not a new request:"
)


@dataclass(frozen=True, slots=True)
class Block:
    """Elements of one turn that stay together, and the ids of their messages in the record."""

    turn_id: str
    elements: tuple[Element, ...]
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """One part of what is sent; `turn_id` is set of a turn's."""

    name: PartName
    elements: tuple[Element, ...]
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a compaction takes out: so many of the earlier turns, so many rounds of this one."""

    turns: int
    rounds: int = 0


@dataclass(slots=True)
class Context:
    """What the next call of a session sends.

    `turns` are the earlier ones, `own` is the message of the one under way (None outside of a
    turn), `rounds` are the model's messages in it with the results that they got. One that
    `is_apart` is that of a turn that runs once more after it was compacted: all of it is there
    again, and what is compacted now concerns this run alone.
    """

    instructions: str
    desk: Desk
    summary: str | None = None
    turns: list[Block] = field(default_factory=list)
    own: Block | None = None
    rounds: list[Block] = field(default_factory=list)
    is_apart: bool = False

    def parts(self) -> Iterator[Part]:
        """Everything in its order."""
        if self.instructions:
            yield Part("instructions", (system(self.instructions),))
        for name, text in self.desk.texts():
            yield Part("plan" if name == "plan" else "working_memory", (system(text),))
        if self.summary:
            yield Part("summary", (user(f"{SUMMARY}\n\n{self.summary}"),))
        for block in self.turns:
            yield Part("turn", block.elements, block.turn_id)
        if self.own is not None:
            blocks = [self.own, *self.rounds]
            elements = tuple(element for block in blocks for element in block.elements)
            yield Part("turn", elements, self.own.turn_id)

    def elements(self) -> list[Element]:
        """The messages as they are sent."""
        return [element for part in self.parts() for element in part.elements]

    def say(self, said: Block) -> None:
        """The model said something in this turn, and asks for tools."""
        self.rounds.append(said)

    def answer(self, results: Block) -> None:
        """The results of what it asked for last."""
        said = self.rounds.pop()
        elements = (*said.elements, *results.elements)
        self.rounds.append(Block(said.turn_id, elements, (*said.message_ids, *results.message_ids)))

    def without(self, choice: Choice) -> Context:
        """The same without what is chosen; the summary stays."""
        return replace(self, turns=self.turns[choice.turns :], rounds=self.rounds[choice.rounds :])

    def chosen(self, choice: Choice) -> list[Block]:
        """What is chosen, in order."""
        return [*self.turns[: choice.turns], *self.rounds[: choice.rounds]]

    def compact(self, choice: Choice, summary: str | None) -> None:
        """Take out what is chosen; `summary` is what is told of all that is not shown."""
        del self.turns[: choice.turns], self.rounds[: choice.rounds]
        self.summary = summary
        self.desk.plan.is_told = False


def build_context(
    definition: Definition,
    desk: Desk,
    summary: str | None,
    rows: Iterable[Row],
    *,
    is_apart: bool = False,
) -> Context:
    """The context before a turn's own message, of the rows of the session's messages in order.

    Those that were compacted are in the summary, and stay out.
    """
    shown = rows if is_apart else (row for row in rows if row["compacted_by_step_id"] is None)
    of_turns = itertools.groupby(shown, lambda row: str(row["turn_id"]))
    blocks = [_block(turn_id, list(of_turn)) for turn_id, of_turn in of_turns]
    turns = [block for block in blocks if block.elements]
    known = None if is_apart else summary
    return Context(definition.instructions, desk, known, turns, is_apart=is_apart)


def take_up(context: Context, rows: Sequence[Row], still_open: Collection[str]) -> None:
    """The turn under way as far as it is, of its rows in order, its message first.

    Calls that are `still_open` at the end may be without a result.
    """
    shown = [row for row in rows if context.is_apart or row["compacted_by_step_id"] is None]
    context.own, *rounds = _rounds(shown, still_open)
    context.rounds = [block for block in rounds if block.elements]


def take_up_task(
    context: Context, message: Block, rows: Sequence[Row], still_open: Collection[str]
) -> None:
    """The same of a task that was handed over by a message; the rows are what was said then."""
    context.own = message
    context.rounds = [block for block in _rounds(rows, still_open) if block.elements]


def elements_of(rows: Iterable[Row], still_open: Collection[str] = ()) -> list[Element]:
    """Messages as they are sent; calls that are `still_open` at the end may be without a result."""
    elements: list[Element] = []
    open_calls: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            if row["tool_call_id"] in open_calls:
                open_calls.remove(row["tool_call_id"])
                elements.append(result(row["tool_call_id"], row["content"] or ""))
            continue
        elements += (result(call_id, LOST) for call_id in open_calls)
        element = _element(row)
        open_calls = [call["id"] for call in element.get("tool_calls", ())]
        if element.get("content") or open_calls:
            elements.append(element)
    elements += (result(call_id, LOST) for call_id in open_calls if call_id not in still_open)
    return elements


def last_results(elements: Sequence[Element]) -> list[str]:
    """The ids of the calls whose results stand last: they go to the model with the next call."""
    tail = itertools.takewhile(lambda element: element["role"] == "tool", reversed(elements))
    return [element["tool_call_id"] for element in tail][::-1]


def system(text: str) -> Element:
    """What is told to the model about its work."""
    return {"role": "system", "content": text}


def user(text: str) -> Element:
    """A person's message."""
    return {"role": "user", "content": text}


def result(call_id: str, text: str) -> Element:
    """A tool's result."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def assistant(message: Mapping[str, Any]) -> Element:
    """A model's message as it is sent back: everything that it said, nothing that is empty."""
    kept = {key: value for key, value in message.items() if value not in (None, "", [])}
    return {"role": "assistant", "content": message.get("content"), **kept}


def _rounds(rows: Sequence[Row], still_open: Collection[str]) -> list[Block]:
    """Each message with the results that follow it."""
    starts = [n for n, row in enumerate(rows) if n and row["role"] != "tool"]
    parts = [list(rows[a:b]) for a, b in itertools.pairwise([0, *starts, len(rows)])]
    return [_block(part[0]["turn_id"], part, still_open) for part in parts if part]


def _block(turn_id: str, rows: list[Row], still_open: Collection[str] = ()) -> Block:
    ids = tuple(row["id"] for row in rows)
    return Block(turn_id, tuple(elements_of(rows, still_open)), ids)


def _element(row: Row) -> Element:
    """A message as it was said; of one that broke off only the text."""
    if row["role"] != "assistant":
        return {"role": row["role"], "content": row["content"]}
    element: Element = {"role": "assistant", "content": row["content"]}
    if (row["metadata"] or {}).get("partial"):
        return element
    parts = row["parts"] if isinstance(row["parts"], dict) else {}
    element |= {key: part for key, part in parts.items() if not _is_elsewhere(key, part)}
    if row["tool_calls"]:
        element["tool_calls"] = row["tool_calls"]
    return element


def _is_elsewhere(key: str, part: Any) -> bool:
    """Whether a part is a reference to a long text, which is not sent again."""
    return key == "content" or (isinstance(part, dict) and "payload" in part)
