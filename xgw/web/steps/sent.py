"""What a step sent: messages page by page, the share of each of the tokens, tools, parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw.queries.step_closeup import Body, Choose, Measure, Sent
from xgw.web.steps.said import Part, ToolCall, calls_of, parts_of, reasoning_of
from xgw.web.words import json_text

PAGE = 50
"""Messages that are shown at once, up to twice as many at the end."""

MOST_SHARES = 200
"""Parts of the bar of shares: of more messages some that follow each other are one part."""

_KNOWN = frozenset(
    {"role", "content", "name", "tool_call_id", "tool_calls", "function_call", "refusal"}
    | {"reasoning_content", "reasoning", "thinking"}
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `share` is its percent of all tokens, None where those are not known.

    `number` counts from 1. `size` in bytes is that of the whole, of which `is_cut` says that it is
    not all here. `others` are fields that have no place of their own, as JSON.
    """

    number: int
    role: str
    name: str
    answers: str
    parts: tuple[Part, ...]
    reasoning: str
    refusal: str
    calls: tuple[ToolCall, ...]
    others: str
    tokens: int | None
    share: float | None
    size: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the bar, `x` and `width` in percent: a message, or several (`first` to `last`).

    `role` is that of most of its tokens.
    """

    first: int
    last: int
    role: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that was offered; `schema` is that of its arguments, as JSON."""

    name: str
    description: str
    schema: str


@dataclass(frozen=True, slots=True)
class SentView:
    """A request; `other` is the whole body where it is none that has messages.

    Of `total` messages one page is here; `earlier` and `later` are the numbers that the pages
    beside it begin at, None at the ends.
    """

    messages: tuple[Message, ...]
    total: int
    earlier: int | None
    later: int | None
    shares: tuple[Share, ...]
    tools: tuple[Tool, ...]
    tools_tokens: int | None
    tools_share: float | None
    parameters: tuple[tuple[str, str], ...]
    other: str
    tokens: int | None
    size: int
    is_cut: bool


def view_of(sent: Sent, tools_tokens: int | None) -> SentView:
    """The request; `tools_tokens` are those of its tool definitions."""
    counts = [measure.tokens for measure in sent.measures]
    known = [count for count in counts if count is not None]
    total = sum(known) + (tools_tokens or 0) if len(known) == len(counts) else None
    tools = sent.tools.value if sent.tools is not None else None
    first = sent.messages[0].index if sent.messages else 0
    after = first + len(sent.messages)
    return SentView(
        tuple(_message(sent, at, total) for at in range(len(sent.messages))),
        len(counts),
        first + 1 - PAGE if first > 0 else None,
        after + 1 if after < len(counts) else None,
        tuple(_shares(sent.measures, total, _share(tools_tokens, total) or 0)) if total else (),
        tuple(_tool(tool) for tool in tools) if isinstance(tools, list) else (),
        tools_tokens,
        _share(tools_tokens, total),
        _parameters(sent.parameters),
        json_text(sent.other.value) if sent.other is not None else "",
        total if sent.messages else None,
        sent.size,
        any(b is not None and b.is_cut for b in (sent.tools, sent.parameters, sent.other)),
    )


def page_with(number: int) -> Choose:
    """The page of messages that has this one, counted from 1; the last one for a higher number.

    What would fill no page stands on the one before it.
    """

    def indexes(count: int) -> range:
        last = max(0, count // PAGE - 1)
        page = min(max(0, number - 1) // PAGE, last)
        return range(page * PAGE, count if page == last else (page + 1) * PAGE)

    return indexes


def message_of(request: Sent, index: int) -> Message:
    """One message by itself, of a request that has all of them."""
    return _message(request, index, None)


def _message(request: Sent, at: int, total: int | None) -> Message:
    sent = request.messages[at]
    measure = request.measures[sent.index]
    value = sent.value if isinstance(sent.value, dict) else {"content": sent.value}
    others = {key: inner for key, inner in value.items() if key not in _KNOWN}
    if "role" not in value and "type" in value:
        others, value = value, {}
    return Message(
        sent.index + 1,
        measure.role or str(others.get("type") or "input"),
        _text(value, "name"),
        _text(value, "tool_call_id"),
        parts_of(value.get("content")),
        reasoning_of(value),
        _text(value, "refusal"),
        calls_of(value),
        json_text(others) if others else "",
        measure.tokens,
        _share(measure.tokens, total),
        sent.size,
        sent.is_cut,
    )


def _shares(measures: Sequence[Measure], total: int, x: float) -> Iterator[Share]:
    """The messages in order, after what stands before them."""
    step = -(-len(measures) // MOST_SHARES)
    for at in range(0, len(measures), step):
        together = measures[at : at + step]
        most = max(together, key=lambda measure: measure.tokens or 0)
        width = 100 * sum(measure.tokens or 0 for measure in together) / total
        last = at + len(together)
        yield Share(at + 1, last, most.role or "input", round(x, 2), round(width, 2))
        x += width


def _share(tokens: int | None, total: int | None) -> float | None:
    return round(100 * tokens / total, 2) if tokens is not None and total else None


def _text(value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _tool(tool: Any) -> Tool:
    """Chat Completions nests a function; Responses and Messages have its fields at the top."""
    if not isinstance(tool, dict):
        return Tool("–", "", json_text(tool))
    nested = tool.get("function") or tool.get("custom")
    called: Mapping[str, Any] = nested if isinstance(nested, dict) else tool
    schema = called.get("parameters", called.get("input_schema", tool))
    name = str(called.get("name") or tool.get("type") or "–")
    return Tool(name, _text(called, "description"), json_text(schema))


def _parameters(body: Body | None) -> tuple[tuple[str, str], ...]:
    if body is None or not isinstance(body.value, dict):
        return ()
    return tuple(
        (name, value if isinstance(value, str) else json_text(value))
        for name, value in body.value.items()
    )
