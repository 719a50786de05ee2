"""What the demo answers: texts, tool calls and structured answers, from a script and not a model.

Everything follows from the request alone: the same request gets the same text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import orjson

from xgw.providers.demo import texts
from xgw.providers.demo.clues import Clues
from xgw.providers.demo.request import ChatRequest
from xgw.providers.demo.schema import Instances
from xgw.providers.demo.tools import Wanted, forced_call, wanted_calls

RESULT_CHARS = 600
SHORT_LENGTH = 12

_PIECE = re.compile(r"\s*\S{1,6}|\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of an answer; `call` is the number of the tool call that its arguments are for."""

    kind: str
    text: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """One choice: its pieces in the order in which they are streamed."""

    pieces: tuple[Piece, ...]
    calls: tuple[Wanted, ...]
    finish_reason: str

    def text(self, kind: str, call: int = 0) -> str:
        """What all pieces of a kind (`text`, `reasoning`, `refusal`, `arguments`) say together."""
        return "".join(p.text for p in self.pieces if p.kind == kind and p.call == call)


def compose(request: ChatRequest, fault: str | None, index: int) -> Reply:
    """The answer for choice `index`; `stop` and `max_tokens` applied."""
    calls = () if fault in _SPOKEN_FAULTS else _calls(request)
    if calls:
        pieces = [
            Piece("arguments", text, number)
            for number, call in enumerate(calls)
            for text in _PIECE.findall(call.arguments)
        ]
        return _within(pieces, request.max_tokens, calls, "tool_calls")
    text, reason = _stopped(_text(request, fault, index), request.stop), "stop"
    pieces = [Piece("refusal" if fault == "refuse" else "text", t) for t in _PIECE.findall(text)]
    if fault == "reason":
        pieces = [Piece("reasoning", t) for t in _PIECE.findall(texts.REASONING)] + pieces
    if fault == "length":
        return Reply(tuple(pieces[:SHORT_LENGTH]), (), "length")
    if fault == "filter":
        pieces, reason = pieces[:SHORT_LENGTH], "content_filter"
    return _within(pieces, request.max_tokens, (), reason)


_SPOKEN_FAULTS = frozenset({"empty", "length", "filter", "refuse", "long"})


def _within(
    pieces: Sequence[Piece], limit: int | None, calls: tuple[Wanted, ...], reason: str
) -> Reply:
    if limit is None or len(pieces) <= limit:
        return Reply(tuple(pieces), calls, reason)
    kept = tuple(pieces[:limit])
    begun = max((piece.call for piece in kept), default=0) + 1
    return Reply(kept, calls[:begun], "length")


def _stopped(text: str, stops: Sequence[str]) -> str:
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def _calls(request: ChatRequest) -> tuple[Wanted, ...]:
    """The tool calls of this answer: those that the prompt wants and that were not made yet."""
    if not request.functions or request.tool_choice == "none":
        return ()
    functions = [f for f in request.functions if request.forced in (None, f.get("name"))]
    wanted = wanted_calls(request.prompt, functions)
    if request.tool_choice == "required":
        wanted = wanted or (forced_call(request.prompt, functions[0]),)
    else:
        wanted = tuple(call for call in wanted if call not in _made(request))
        if request.parallel and request.results:
            wanted = ()
    return wanted if request.parallel else wanted[:1]


def _made(request: ChatRequest) -> list[Wanted]:
    """The calls that were asked for since the last user message."""
    return [Wanted(name, arguments) for name, arguments in request.asked.values()]


def _text(request: ChatRequest, fault: str | None, index: int) -> str:
    if fault == "empty":
        return ""
    if fault == "refuse":
        return texts.REFUSAL
    if fault == "long":
        return texts.long_text()
    if request.schema is not None:
        return _structured(request)
    if request.results:
        return texts.from_results([(*_call_of(request, r), _cut(r.text)) for r in request.results])
    return _spoken(request, _seed(request) + index)


def _structured(request: ChatRequest) -> str:
    """An instance of the schema that the response format asks for."""
    clues = Clues(request.prompt)
    made = Instances(request.schema, clues, whole=True).make()
    if request.schema == {}:
        made = {"answer": texts.SCRIPTED, "question": clues.prompt}
    return orjson.dumps(made).decode()


def _spoken(request: ChatRequest, seed: int) -> str:
    """An answer in prose to the last user message."""
    turn, prompt = len(request.said), request.prompt
    known = texts.find_answer(prompt, request.said[:-1], turn)
    if known is not None:
        return known
    return texts.echo(prompt, request.images, request.said[:-1], turn, seed)


def _call_of(request: ChatRequest, result: Any) -> tuple[str, str]:
    return request.asked.get(result.tool_call_id, ("a tool", ""))


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_CHARS else f"{text[:RESULT_CHARS]} …"


def _seed(request: ChatRequest) -> int:
    """A number from the prompt and its place in the conversation."""
    words = f"{len(request.said)}\n{request.prompt}".encode("utf-8", "replace")
    return blake2b(words, digest_size=2).digest()[0]
