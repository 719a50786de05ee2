"""Tool calls in a stream: which call each delta belongs to, and what of the delta needs repair.

Servers differ in what they say in a delta. Known: no index, index 0 for every call, no id, the id
on every delta, another one on each, an empty name first, the name in pieces or on every delta,
arguments that are null or an object instead of text.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import orjson

from xgw.providers.dialects.loose_json import Members, encodable, json_text
from xgw.values import ToolCall


class Text:
    """A text that arrives in pieces; halves of a surrogate pair that was cut are joined."""

    __slots__ = ("_half", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._half = ""

    def add(self, piece: str) -> str:
        """Take a piece; what it makes visible, fit for UTF-8 (a lone surrogate is U+FFFD)."""
        if self._half:
            piece, self._half = self._half + piece, ""
        if not piece.isascii():
            if "\ud800" <= piece[-1] <= "\udbff":
                piece, self._half = piece[:-1], piece[-1]
            piece = encodable(piece)
        if piece:
            self._pieces.append(piece)
        return piece

    def join(self) -> str:
        """The text so far; safe to ask for while another thread adds to it."""
        text = "".join(self._pieces)
        return text + "\ufffd" if self._half else text


@dataclass(slots=True, eq=False)
class StreamedCall:
    """A tool call as far as it has arrived.

    `index` is its index for the client, `number` its number in the whole answer. `kind` names the
    member that holds name and text: "function", or "custom" with free text.
    """

    index: int
    number: int
    tool_call_id: str | None
    minted: bool = False
    name: str = ""
    kind: str = "function"
    arguments: Text = field(default_factory=Text)
    released: bool = False  # the client has seen it
    waits: bool = False  # its deltas are kept back until the name is known
    held: list[Members] = field(default_factory=list)  # those of them that were taken apart
    extra: dict[str, Any] = field(default_factory=dict)  # unknown fields, for the record

    @property
    def text_key(self) -> str:
        """The member of `kind` that holds the arguments' text."""
        return "input" if self.kind == "custom" else "arguments"

    def add_name(self, piece: str) -> None:
        """A piece of the name, unless it is the name so far: some servers repeat it whole."""
        if piece != self.name:
            self.name += piece

    def is_whole(self) -> bool:
        """Whether its arguments are already one whole JSON object."""
        text = self.arguments.join().rstrip()
        return text.endswith("}") and is_json_object(text)

    def lacks_text(self) -> bool:
        """Whether its name is known, but its arguments have not all come."""
        return bool(self.name) and self.kind == "function" and not self.is_whole()

    def message(self) -> dict[str, Any]:
        """The call as a message of the chat API holds it."""
        body = {"name": self.name, self.text_key: self.arguments.join()}
        return {"id": self.tool_call_id, "type": self.kind, self.kind: body} | self.extra

    def tool_call(self, *, incomplete: bool, choice: int) -> ToolCall:
        """The call as it is recorded."""
        return build_tool_call(
            self.tool_call_id,
            self.name or None,
            self.arguments.join(),
            incomplete=incomplete,
            choice=choice,
        )


@dataclass(slots=True)
class CallEdit:
    """What has to change in one element of `delta.tool_calls`.

    `hold`: keep it from the client; `release`: give out all that was held with it, `arguments` is
    their whole text so far. Else what is set is written: index, tool_call_id, arguments; `drop_id`
    takes the id out.
    """

    call: StreamedCall
    hold: bool = False
    release: bool = False
    index: int | None = None
    tool_call_id: str | None = None
    drop_id: bool = False
    arguments: str | None = None


class CallTracker:
    """The tool calls of one choice; `answer` collects those of all choices."""

    def __init__(self, answer: list[StreamedCall]) -> None:
        self.calls: list[StreamedCall] = []
        self._answer = answer
        self._by_index: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}

    def take(
        self, element: dict[str, Any], seen: list[StreamedCall]
    ) -> tuple[StreamedCall, str, CallEdit | None]:
        """One element of `delta.tool_calls`: its call, the new arguments text, the repair.

        `seen` collects the calls that this delta has named already.
        """
        kind = "custom" if isinstance(element.get("custom"), dict) else "function"
        body = element.get(kind)
        body = body if isinstance(body, dict) else {}
        name = _text(body.get("name")) or ""
        sent = body.get("input" if kind == "custom" else "arguments")
        text = sent if isinstance(sent, str) else "" if sent is None else json_text(sent)

        call = self._find(element, name, text, seen)
        seen.append(call)
        if kind == "custom":
            call.kind = kind
        call.add_name(name)
        for key, value in element.items():
            if key not in ("index", "id", "type", kind) and value is not None:
                call.extra[key] = value
        text = call.arguments.add(text)
        edit = self._edit(call, element)
        if sent is not None and not isinstance(sent, str):
            edit = edit or CallEdit(call)
            edit.arguments = edit.arguments or text
        return call, text, edit

    def open(self, tool_call_id: str | None, index: int | None = None) -> StreamedCall:
        """A new call, under the index asked for unless another call has it."""
        taken = {call.index for call in self.calls}
        free = max(taken, default=-1) + 1
        wanted = free if index is None or index in taken else index
        call = StreamedCall(wanted, len(self._answer), tool_call_id)
        self.calls.append(call)
        self._answer.append(call)
        self._by_index[wanted if index is None else index] = call
        self._by_index.setdefault(wanted, call)
        if tool_call_id is None:
            call.minted, tool_call_id = True, f"call_{secrets.token_hex(12)}"
            call.tool_call_id = tool_call_id
        self._by_id[tool_call_id] = call
        return call

    def unnamed(self) -> list[StreamedCall]:
        """The calls that are still kept from the client."""
        return [call for call in self.calls if call.waits]

    def _find(
        self, element: dict[str, Any], name: str, text: str, seen: list[StreamedCall]
    ) -> StreamedCall:
        index = _index(element.get("index"))
        tool_call_id = _text(element.get("id"))
        last = self.calls[-1] if self.calls else None
        here = last if index is None else self._by_index.get(index)
        if tool_call_id is not None:
            if here is not None and _repeats_id(here, tool_call_id, name, text, seen):
                return self.open(tool_call_id, index)
            return self._find_by_id(tool_call_id, index, here, name, text)
        if here is None or (name and _begins_another(here, name, text, seen)):
            return self.open(None, index)
        return here

    def _find_by_id(
        self, tool_call_id: str, index: int | None, here: StreamedCall | None, name: str, text: str
    ) -> StreamedCall:
        if here is not None and here.tool_call_id == tool_call_id:
            return here
        known = self._by_id.get(tool_call_id)
        if known is not None and not (name and index is not None and here is None):
            return known
        if here is not None and here.minted and not (here.released and name):
            if not here.released:  # the id comes late, but in time
                here.tool_call_id, here.minted = tool_call_id, False
            self._by_id[tool_call_id] = here
            return here
        if here is not None and text and not name and here.lacks_text():
            self._by_id[tool_call_id] = here  # an id of its own for every delta
            return here
        return self.open(tool_call_id, index)

    def _edit(self, call: StreamedCall, element: dict[str, Any]) -> CallEdit | None:
        if not call.name:
            call.waits = True
            return CallEdit(call, hold=True)
        opening, call.released = not call.released, True
        if call.waits:
            call.waits = False
            return CallEdit(call, release=True, arguments=call.arguments.join())
        edit = CallEdit(call)
        sent = element.get("index")
        if sent != call.index or not isinstance(sent, int) or isinstance(sent, bool):
            edit.index = call.index
        if opening and _text(element.get("id")) != call.tool_call_id:
            edit.tool_call_id = call.tool_call_id
        edit.drop_id = not opening and _text(element.get("id")) not in (None, call.tool_call_id)
        changed = edit.index is not None or edit.tool_call_id is not None or edit.drop_id
        return edit if changed else None


def build_tool_call(
    tool_call_id: str | None, name: str | None, arguments: str, *, incomplete: bool, choice: int
) -> ToolCall:
    """A call for the record, of the choice with this index.

    Its arguments are valid as a JSON object. An empty text, which many servers send for a tool
    without parameters, is valid too, unless the call is incomplete.
    """
    if arguments.strip():
        valid = is_json_object(arguments)
    else:
        valid = not incomplete
    return ToolCall(tool_call_id, name, arguments, valid, incomplete, choice)


def is_json_object(text: str) -> bool:
    """Whether `text` is one JSON object, strictly."""
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _begins_another(call: StreamedCall, name: str, text: str, seen: list[StreamedCall]) -> bool:
    """Whether a delta without an id that names a tool is a new call and not more of `call`."""
    if call in seen:
        return True
    return bool(call.name) and (name != call.name or bool(text)) and call.is_whole()


def _repeats_id(
    call: StreamedCall, tool_call_id: str, name: str, text: str, seen: list[StreamedCall]
) -> bool:
    """Whether a delta with the id of `call` is a new call all the same.

    The same arguments once more are none: nobody is to run them twice.
    """
    if call.tool_call_id != tool_call_id or not name or not call.name:
        return False
    if not _begins_another(call, name, text, seen):
        return False
    begins = text.lstrip().startswith("{") and text.strip() != call.arguments.join().strip()
    return name != call.name or begins


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _text(value: Any) -> str | None:
    return encodable(value) if isinstance(value, str) and value else None
