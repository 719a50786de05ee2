"""Repairs of the tool-call deltas of a streamed chunk; every other byte stays as it was sent."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from xgw.providers.dialects.chat_calls import CallEdit, StreamedCall
from xgw.providers.dialects.loose_json import (
    Members,
    elements,
    hide_lone_surrogates,
    members,
    raw,
    show_lone_surrogates,
)

_NULL = b"null"


@dataclass(slots=True)
class ChoiceRepair:
    """What to change in one choice of a chunk.

    `edits` go with the elements of `delta.tool_calls`; `late` are calls that never got a name and
    go out at the choice's end as they are.
    """

    edits: list[CallEdit | None] = field(default_factory=list)
    late: list[StreamedCall] = field(default_factory=list)


def repair_chunk(chunk: bytes, repairs: dict[int, ChoiceRepair]) -> bytes:
    """The chunk's JSON with `repairs`, by the place of the choice in `choices`.

    What cannot be taken apart comes back as it is.
    """
    try:
        return _repair(chunk, repairs)
    except msgspec.DecodeError:
        hidden = hide_lone_surrogates(chunk)
    except RecursionError:
        return chunk
    try:
        return _repair(hidden, repairs)
    except (msgspec.DecodeError, RecursionError):
        return chunk


def _repair(chunk: bytes, repairs: dict[int, ChoiceRepair]) -> bytes:
    top = members(chunk)
    choices = elements(top["choices"])
    for place, repair in repairs.items():
        choice = members(choices[place])
        sent = choice.get("delta")
        delta = members(sent) if sent is not None and bytes(sent) != _NULL else {}
        calls = _calls(delta.get("tool_calls"), repair)
        if calls:
            delta["tool_calls"] = raw(calls)
        else:
            delta.pop("tool_calls", None)
        choice["delta"] = raw(delta)
        choices[place] = raw(choice)
    top["choices"] = raw(choices)
    # Parts of earlier chunks, held until now, may have surrogates hidden too.
    return show_lone_surrogates(msgspec.json.encode(top))


def _calls(sent: msgspec.Raw | None, repair: ChoiceRepair) -> list[msgspec.Raw]:
    calls = [] if sent is None or bytes(sent) == _NULL else elements(sent)
    edits = repair.edits or [None] * len(calls)
    repaired = [_apply(call, edit) for call, edit in zip(calls, edits, strict=True)]
    repaired += [raw(_opening(c, c.held, c.arguments.join())) for c in repair.late]
    for call in repair.late:
        call.held, call.waits = [], False
    return [call for call in repaired if call is not None]


def _apply(sent: msgspec.Raw, edit: CallEdit | None) -> msgspec.Raw | None:
    if edit is None:
        return sent
    call, fields = edit.call, members(sent)
    if edit.hold:
        call.held.append({key: value.copy() for key, value in fields.items()})
        return None
    if edit.release:
        opening = _opening(call, [*call.held, fields], edit.arguments or "")
        call.held = []
        return raw(opening)
    if edit.index is not None:
        fields = _with(fields, "index", edit.index)
    if edit.tool_call_id is not None:
        fields = _with(fields, "id", edit.tool_call_id)
    if edit.drop_id:
        del fields["id"]
    if edit.arguments is not None:
        body = members(fields[call.kind])
        body[call.text_key] = raw(edit.arguments)
        fields[call.kind] = raw(body)
    return raw(fields)


def _opening(call: StreamedCall, parts: list[Members], arguments: str) -> Members:
    """The first delta that the client sees of a call: all of `parts`, the `arguments` so far."""
    fields: Members = {"index": raw(call.index), "id": raw(call.tool_call_id)}
    fields["type"] = raw(call.kind)
    body: Members = {"name": raw(call.name)}
    for part in parts:
        for key, value in part.items():
            if key == call.kind and bytes(value) != _NULL:
                body |= members(value)
            elif key not in ("index", "id", call.kind) and bytes(value) != _NULL:
                fields[key] = value
    if call.name:
        body["name"] = raw(call.name)
    body[call.text_key] = raw(arguments)
    fields[call.kind] = raw(body)
    return fields


def _with(fields: Members, key: str, value: int | str | None) -> Members:
    """`fields` with a value in its place, or in front where there was none."""
    if key in fields:
        fields[key] = raw(value)
        return fields
    return {key: raw(value)} | fields
