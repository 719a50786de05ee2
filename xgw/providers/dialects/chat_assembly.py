"""One choice of a chat answer, put together from the deltas of a stream."""

from __future__ import annotations

from typing import Any

from xgw.providers.dialects.chat_calls import CallEdit, CallTracker, StreamedCall, Text
from xgw.providers.dialects.chat_merge import merge, merge_parts, text_of
from xgw.providers.dialects.chat_usage import finish_reason_as_given, normalise_finish_reason
from xgw.providers.dialects.loose_json import json_text
from xgw.values import Delta, ToolCall

_REASONING = ("reasoning_content", "reasoning", "thinking")
_CHOICE_FIELDS = frozenset({"index", "delta", "finish_reason", "logprobs"})


class ChoiceState:
    """What has arrived of one choice. `calls` of all choices are collected in `answer_calls`."""

    def __init__(self, index: int, answer_calls: list[StreamedCall]) -> None:
        self.index = index
        self.content = Text()
        self.refusal = Text()
        self.reasoning = Text()  # of the first field where a server uses several
        self.finish_reason: str | None = None  # as given
        self.calls = CallTracker(answer_calls)
        self._answer_calls = answer_calls
        self._role = "assistant"
        self._parts: list[Any] | None = None  # content, where it is more than text
        self._reasoning: dict[str, Text] = {}  # by field; "content" for thinking parts
        self._function_call: StreamedCall | None = None
        self._logprobs: dict[str, Any] | None = None
        self._unknown: dict[str, list[Any]] = {}  # fields of the deltas, all values
        self._own: dict[str, Any] = {}  # fields of the choice beside the delta

    def take_choice(self, choice: dict[str, Any]) -> bool:
        """Everything of a chunk's choice beside its delta; whether it tells a finish reason."""
        finish = finish_reason_as_given(choice.get("finish_reason"))
        if finish is not None:
            self.finish_reason = finish
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict):
            self._take_logprobs(logprobs)
        for key, value in choice.items():
            if key not in _CHOICE_FIELDS and value is not None:
                self._own[key] = value
        return finish is not None

    def take_delta(self, delta: dict[str, Any], found: list[Delta]) -> bool:
        """A delta, but for its tool calls; whether it holds anything but a role."""
        said = False
        for key, value in delta.items():
            if not value or key == "tool_calls":
                if value == 0:  # False too: an unknown field says something by it
                    self._unknown.setdefault(key, []).append(value)
                continue
            if key == "role":
                self._role = value if isinstance(value, str) else self._role
                continue
            said = True
            if key == "content" and isinstance(value, str):
                self._take_content(value, found)
            else:
                self._take_other(key, value, found)
        return said

    def take_calls(self, sent: list[Any], found: list[Delta]) -> list[CallEdit | None]:
        """The elements of `delta.tool_calls`; for each what has to change in it."""
        edits: list[CallEdit | None] = []
        seen: list[StreamedCall] = []
        for element in sent:
            edit = None
            if isinstance(element, dict):
                call, text, edit = self.calls.take(element, seen)
                if text:
                    found.append(Delta("tool_arguments", call.number, text))
            edits.append(edit)
        return edits

    def message(self) -> dict[str, Any]:
        """The message so far, reasoning under its documented name."""
        return self._message({"reasoning_content": self.reasoning.join() or None})

    def client_message(self) -> dict[str, Any]:
        """The message so far, reasoning under the names that the upstream used."""
        named = {key: text.join() for key, text in self._reasoning.items() if key != "content"}
        return self._message(named)

    def describe(self, message: dict[str, Any]) -> dict[str, Any]:
        """The choice as a chat completion holds it."""
        return {
            "index": self.index,
            "message": message,
            "finish_reason": self.finish_reason,
            "logprobs": self._logprobs,
        } | self._own

    def tool_calls(self, *, broken: bool) -> list[ToolCall]:
        """The calls in order; the last is incomplete if the answer broke off or was cut short."""
        cut = normalise_finish_reason(self.finish_reason) == "length" or (
            broken and self.finish_reason is None
        )
        calls = list(self.calls.calls)
        if self._function_call is not None:
            calls.append(self._function_call)
        return [
            call.tool_call(incomplete=cut and call is calls[-1], choice=self.index)
            for call in calls
        ]

    def _message(self, reasoning: dict[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {
            "role": self._role,
            "content": self._content(),
            "refusal": self.refusal.join() or None,
        } | reasoning
        if self.calls.calls:
            message["tool_calls"] = [call.message() for call in self.calls.calls]
        if self._function_call is not None:
            message["function_call"] = self._function_call.message()["function"]
        unknown = {k: merge(v, k) for k, v in self._unknown.items() if k not in message}
        return message | unknown

    def _content(self) -> str | list[Any] | None:
        if self._parts is None:
            return self.content.join() or None
        parts = merge_parts(self._parts)
        only_text = all(isinstance(p, dict) and p.get("type") == "text" for p in parts)
        return self.content.join() or None if only_text else parts

    def _take_content(self, value: str, found: list[Delta]) -> None:
        text = self.content.add(value)
        if text:
            found.append(Delta("text", self.index, text))
        if self._parts is not None:
            self._parts.append({"type": "text", "text": text})

    def _take_other(self, key: str, value: Any, found: list[Delta]) -> None:
        if key == "content" and isinstance(value, list):
            self._take_parts(value, found)
        elif key in _REASONING and isinstance(value, str):
            self._take_reasoning(key, value, found)
        elif key == "refusal" and isinstance(value, str):
            text = self.refusal.add(value)
            if text:
                found.append(Delta("refusal", self.index, text))
        elif key == "function_call" and isinstance(value, dict):
            self._take_function_call(value, found)
        else:
            self._unknown.setdefault(key, []).append(value)

    def _take_reasoning(self, key: str, value: str, found: list[Delta]) -> None:
        known = self._reasoning.get(key)
        if known is None:
            known = self._reasoning[key] = Text() if self._reasoning else self.reasoning
        text = known.add(value)
        if text and known is self.reasoning:
            found.append(Delta("reasoning", self.index, text))

    def _take_parts(self, parts: list[Any], found: list[Delta]) -> None:
        if self._parts is None:
            said = self.content.join()
            self._parts = [{"type": "text", "text": said}] if said else []
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind == "text" and isinstance(part.get("text"), str):
                text = self.content.add(part["text"])
                part = part | {"text": text}
                if text:
                    found.append(Delta("text", self.index, text))
            elif kind == "thinking":
                self._take_reasoning("content", text_of(part.get("thinking")), found)
            self._parts.append(part)

    def _take_function_call(self, value: dict[str, Any], found: list[Delta]) -> None:
        if self._function_call is None:
            self._function_call = StreamedCall(0, len(self._answer_calls), None)
            self._answer_calls.append(self._function_call)
        name, sent = value.get("name"), value.get("arguments")
        if isinstance(name, str):
            self._function_call.add_name(name)
        if sent is not None:
            arguments = sent if isinstance(sent, str) else json_text(sent)
            text = self._function_call.arguments.add(arguments)
            if text:
                found.append(Delta("tool_arguments", self._function_call.number, text))

    def _take_logprobs(self, logprobs: dict[str, Any]) -> None:
        if self._logprobs is None:
            self._logprobs = {}
        for key, value in logprobs.items():
            known = self._logprobs.get(key)
            if isinstance(known, list) and isinstance(value, list):
                known.extend(value)
            elif value is not None or key not in self._logprobs:
                self._logprobs[key] = list(value) if isinstance(value, list) else value
