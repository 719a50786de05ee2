"""What the record takes from a model's answer: its texts, its tool calls, none of its secrets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from xgw.frozen import changed
from xgw.masking import Masker
from xgw.recording.elements import text_of
from xgw.values import Answer


def output_of(answer: Answer) -> bytes:
    """A step's output payload, before anything in it is masked."""
    usage = answer.usage.raw if answer.usage is not None else None
    return orjson.dumps({"choices": answer.choices, "usage": usage})


def quotes_secret(answer: Answer, output: bytes, masker: Masker) -> bool:
    """Whether a secret stands in an answer, of which `output` is what would be stored."""
    if masker.body(output, ()) is not output:
        return True
    if not answer.tool_calls:
        return False
    called = orjson.dumps([call.arguments for call in answer.tool_calls])
    return masker.body(called, ()) is not called


def without_secrets(answer: Answer, masker: Masker) -> Answer:
    """The answer as it may be stored, every secret in it masked."""
    calls = [changed(call, arguments=masker.text(call.arguments)) for call in answer.tool_calls]
    return changed(answer, choices=masker.value(answer.choices), tool_calls=tuple(calls))


def texts_of(answer: Answer) -> Iterable[str]:
    """Everything that the model wrote."""
    for choice in answer.choices:
        message = choice["message"]
        for key in ("content", "refusal", "reasoning_content"):
            if text := text_of(message.get(key)):
                yield text
    for call in answer.tool_calls:
        yield f"{call.name or ''}{call.arguments}"


def says_anything(answer: Answer) -> bool:
    """Whether the model wrote something, or ended without doing so."""
    return answer.finish_reason is not None or any(texts_of(answer))


def tool_calls_of(answer: Answer | None) -> list[dict[str, Any]] | None:
    """The tools asked for, as a step keeps them; None if there are none."""
    if answer is None or not answer.tool_calls:
        return None
    return [
        {
            "tool_call_id": call.tool_call_id,
            "name": call.name,
            "arguments": call.arguments,
            "arguments_json_valid": call.arguments_json_valid,
            "incomplete": call.incomplete,
        }
        for call in answer.tool_calls
    ]
