"""Conversations as chat JSONL, as fine-tuning and evals take it: a line a conversation.

That is a session, as long as its client sent the same history on, or a turn without one. What was
taken over from an older store and has no turns yet is a conversation too.

What the format has no words for is left out and counted: a call whose result is not there, a result
of no call, an answer that broke off, reasoning, items that are no messages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, BinaryIO

from xgw.portable.formats.offered import tools_offered
from xgw.portable.formats.said import left_out
from xgw.portable.formats.shelf import Row, Shelf, shelved
from xgw.portable.source import Source

Json = dict[str, Any]
LeftOut = Counter[str]

_SPELLED = json.JSONEncoder(ensure_ascii=False)


def write_openai(source: Source, out: BinaryIO) -> Iterator[str]:
    """Every conversation of a source; yields in words what was left out."""
    lost: LeftOut = Counter()
    with shelved(source) as shelf:
        for messages, turns in _conversations(shelf, lost):
            told = _conversation(shelf, _whole(shelf, messages, turns, lost), lost)
            if not any(message["role"] == "assistant" for message in told):
                lost["conversation without an answer"] += 1
                continue
            line: Json = {"messages": told}
            if tools := tools_offered(shelf, turns, lost):
                line["tools"] = tools
            for piece in _SPELLED.iterencode(line):
                out.write(piece.encode("utf-8", "replace"))
            out.write(b"\n")
    if lost:
        yield "left out: " + ", ".join(f"{count:,} × {what}" for what, count in lost.items())


def _conversations(shelf: Shelf, lost: LeftOut) -> Iterator[tuple[Iterable[Row], list[str]]]:
    """The messages of each conversation, turn by turn, and the ids of its turns."""
    for session in shelf.rows("sessions"):
        if _is_of_orphans(session):
            yield from ((messages, []) for messages in _apart(shelf, session["id"]))
            continue
        has_older = any(message["role"] == "user" for message in shelf.of_no_turn(session["id"]))
        if has_older:
            yield shelf.of_no_turn(session["id"]), []
        elif count := sum(1 for _ in shelf.of_no_turn(session["id"])):
            lost["message of no turn"] += count
        for turns in _going_on(shelf, session["id"]):
            if turns or not has_older:
                yield (message for turn in turns for message in shelf.rows("messages", turn)), turns
    for turn in shelf.rows("turns", ""):
        yield shelf.rows("messages", turn["id"]), [turn["id"]]


def _is_of_orphans(session: Row) -> bool:
    """Whether its messages are of conversations that an older store did not have."""
    return bool(_legacy(session).get("orphans"))


def _apart(shelf: Shelf, session_id: str) -> Iterator[list[Row]]:
    """The messages of a session of orphans by the conversation that each was in."""
    owned = [shelf.rows("messages", turn["id"]) for turn in shelf.rows("turns", session_id)]
    found: dict[str, list[Row]] = {}
    for message in chain(shelf.of_no_turn(session_id), *owned):
        found.setdefault(json.dumps(_legacy(message).get("conversation")), []).append(message)
    yield from found.values()


def _legacy(row: Row) -> Json:
    """What the metadata of a row from an older store says of that."""
    metadata = row["metadata"]
    legacy = metadata.get("legacy") if isinstance(metadata, dict) else None
    return legacy if isinstance(legacy, dict) else {}


def _going_on(shelf: Shelf, session_id: str) -> Iterator[list[str]]:
    """The turns of a session, apart where a request came without what had been said before."""
    together: list[str] = []
    for turn in shelf.rows("turns", session_id):
        if together and turn["endpoint"] is not None and _begins_anew(shelf, turn["id"]):
            yield together
            together = []
        together.append(turn["id"])
    yield together


def _begins_anew(shelf: Shelf, turn_id: str) -> bool:
    for run in shelf.rows("runs", turn_id):
        for step in shelf.rows("steps", run["id"]):
            if step["step_type"] == "llm_call":
                return bool(step["history"] == "rewritten")
    return False


def _whole(
    shelf: Shelf, messages: Iterable[Row], turns: Iterable[str], lost: LeftOut
) -> Iterator[Row]:
    """The messages without answers that broke off."""
    steps = (
        s for t in turns for run in shelf.rows("runs", t) for s in shelf.rows("steps", run["id"])
    )
    broken = {s["id"] for s in steps if s["step_type"] == "llm_call" and s["status"] != "success"}
    for message in messages:
        if message["step_id"] in broken:
            lost["answer that broke off"] += 1
        else:
            yield message


def _conversation(shelf: Shelf, messages: Iterable[Row], lost: LeftOut) -> list[Json]:
    said = [(row["message_index"], _message(shelf, row, lost)) for row in messages]
    said.sort(key=lambda one: one[0])
    told = _with_results([message for _, message in said if message is not None], lost)
    while told and told[-1]["role"] != "assistant":
        lost["message behind the last answer"] += 1
        told.pop()
    return told


# -- one message -----------------------------------------------------------------------------------


def _message(shelf: Shelf, row: Row, lost: LeftOut) -> Json | None:
    if row["kind"] not in ("message", "tool_call", "tool_result"):
        lost[f"{row['kind']} that is no message"] += 1
        return None
    role = "tool" if row["kind"] == "tool_result" else row["role"]
    if role not in ("system", "developer", "user", "assistant", "tool"):
        lost["message of an unknown role"] += 1
        return None
    content = _content(shelf, row, role, lost)
    calls = _calls(row["tool_calls"], lost) if role == "assistant" else []
    refusal = _refusal(row["parts"]) if role == "assistant" else None
    if content is None and not calls and refusal is None:
        lost["message without content"] += 1
        return None
    told: Json = {"role": role, "content": content}
    if calls:
        told["tool_calls"] = calls
    if refusal is not None:
        told["refusal"] = refusal
    if role == "tool":
        told["tool_call_id"] = row["tool_call_id"]
    if row["name"] and role in ("user", "assistant", "system"):
        told["name"] = row["name"]
    return told


def _refusal(parts: Any) -> str | None:
    """What a model said in the place of an answer."""
    told = parts.get("refusal") if isinstance(parts, dict) else None
    return told if isinstance(told, str) else None


def _content(shelf: Shelf, row: Row, role: str, lost: LeftOut) -> Any:
    content, parts = row["content"], row["parts"]
    if left_out(content) or left_out(parts):
        lost["content that is not in the export"] += 1
        return None
    if not isinstance(parts, list):
        return content
    kept = [part for part in (_part(shelf, part, lost) for part in parts) if part is not None]
    if role != "user" or all(part["type"] == "text" for part in kept):
        texts = [part["text"] for part in kept if part["type"] == "text"]
        lost_parts = len(kept) - len(texts)
        if lost_parts:
            lost["part that this role cannot have"] += lost_parts
        return content if content is not None else "\n".join(texts) or None
    return kept


_PARTS = ("text", "image_url", "input_audio", "file")


def _part(shelf: Shelf, part: Any, lost: LeftOut) -> Json | None:
    """A part of a content as the format has it."""
    whole = _whole_part(shelf, part)
    if isinstance(whole, str):
        return {"type": "text", "text": whole}
    kind = whole.get("type") if isinstance(whole, dict) else None
    if kind in ("input_text", "output_text") and isinstance(whole.get("text"), str):
        return {"type": "text", "text": whole["text"]}
    if kind in _PARTS and whole.get(kind) is not None:
        return {"type": kind, kind: whole[kind]}
    lost["reasoning" if kind in ("reasoning", "thinking") else "part of another kind"] += 1
    return None


def _whole_part(shelf: Shelf, part: Any) -> Any:
    """A part with what it refers to in the place of the reference."""
    if isinstance(part, list):
        return [_whole_part(shelf, inner) for inner in part]
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("payload"), str):
        text = shelf.text(part["payload"])
        try:
            return json.loads(text or "null")
        except ValueError:
            return text
    return {name: _whole_part(shelf, inner) for name, inner in part.items()}


def _calls(calls: Any, lost: LeftOut) -> list[Json]:
    told = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        named = function if isinstance(function, dict) else {}
        arguments, name = named.get("arguments"), named.get("name")
        if not isinstance(arguments, str) or not name or not call.get("id"):
            lost["tool call without id, name or arguments"] += 1
            continue
        told_function = {"name": name, "arguments": arguments}
        told.append({"id": call["id"], "type": "function", "function": told_function})
    return told


# -- calls and their results -----------------------------------------------------------------------


def _with_results(messages: list[Json], lost: LeftOut) -> list[Json]:
    """The messages with each call's result right behind it; either of them alone is left out."""
    results: dict[str, Json] = {}
    for message in messages:
        if message["role"] == "tool":
            results[str(message["tool_call_id"])] = message
    told: list[Json] = []
    used = 0
    for message in messages:
        if message["role"] == "tool":
            continue
        calls = message.get("tool_calls", [])
        answered = [call for call in calls if call["id"] in results]
        lost["tool call without a result"] += len(calls) - len(answered)
        if calls:
            message = _with_calls(message, answered)
        if message["content"] is None and not answered and "refusal" not in message:
            continue
        told.append(message)
        told += [results.pop(call["id"]) for call in answered]
        used += len(answered)
    count = sum(message["role"] == "tool" for message in messages)
    lost["tool result without a call"] += count - used
    for what in ("tool call without a result", "tool result without a call"):
        if not lost[what]:
            del lost[what]
    return told


def _with_calls(message: Json, calls: list[Json]) -> Json:
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest
