"""What a model call sent compared with the session's call before it, and what broke the cache."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xgw import spelling
from xgw.queries.step_closeup import Sent
from xgw.queries.steps import Changes
from xgw.queries.wording import counted
from xgw.web.steps.sent import Message, message_of
from xgw.web.words import json_text

Row = Mapping[str, Any]

_LINE, _SENTENCE = re.compile(r"\n"), re.compile(r"(?<=[.!?;]) +|\n")

LONG_LINE = 160
MOST_LINES = 400
CONTEXT = 3
"""Lines: from how many characters on they are long, how many of a text are compared at most, how
many that are the same are shown before and after a change."""

MOST_CHANGES = 200
"""Messages that are shown, the last ones: what is new stands at the end of a conversation."""


@dataclass(frozen=True, slots=True)
class Change:
    """One message that is added, changed or dropped; `message` is the newer one.

    `lines` of a change are pairs of a mark (`-`, `+` or a blank) and a line; without them it stands
    before (`was`) and after.
    """

    kind: str
    message: Message
    was: Message | None = None
    lines: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """A parameter that differs; "" where one of the two calls did not have it."""

    name: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class ChangesView:
    """What changed since `previous_id`; `cache` says in words what that means for the cache.

    Of `total` messages `same` were in the call before too, the first `prefix` in the same place.
    Of very many changes the first `left_out` are not here.
    """

    previous_id: str
    prefix: int
    same: int
    total: int
    cache: tuple[str, ...]
    changes: tuple[Change, ...]
    left_out: int
    settings: tuple[Setting, ...]


def view_of(found: Changes, step: Row, previous: Row, now: Sent, before: Sent) -> ChangesView:
    """Two requests compared: `now` of `step`, `before` of `previous`."""
    places = sorted(
        [
            *((new, "changed", old) for old, new in found.changed),
            *((new, "added", new) for new in found.added),
            *((old, "dropped", old) for old in found.dropped),
        ],
        key=lambda place: place[0],
    )
    shown = places[-MOST_CHANGES:]
    return ChangesView(
        found.previous_step_id,
        found.common_prefix,
        len(now.messages) - len(found.added) - len(found.changed),
        len(now.messages),
        tuple(_cache_words(found, step, previous, now, before)),
        tuple(_change(now, before, *place) for place in shown),
        len(places) - len(shown),
        tuple(_settings(now, before)),
    )


def _change(now: Sent, before: Sent, index: int, kind: str, old: int) -> Change:
    if kind != "changed":
        return Change(kind, message_of(before if kind == "dropped" else now, index))
    was, message = message_of(before, old), message_of(now, index)
    if was.is_cut or message.is_cut:
        return Change(kind, message, was)
    texts = _text(before.messages[old].value), _text(now.messages[index].value)
    return Change(kind, message, was, _compared(*texts))


def _text(value: Any) -> str:
    """What a message says, if that is all there is to it, else its JSON."""
    if isinstance(value, dict) and set(value) == {"role", "content"}:
        value = value["content"]
    return value if isinstance(value, str) else json_text(value)


def _compared(was: str, now: str) -> tuple[tuple[str, str], ...]:
    """Line by line; long lines by their sentences, or one word would have all of it changed."""
    is_long = any(len(line) > LONG_LINE for text in (was, now) for line in text.split("\n"))
    parted = _SENTENCE if is_long else _LINE
    old, new = parted.split(was), parted.split(now)
    if max(len(old), len(new)) > MOST_LINES:
        return ()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    found: list[tuple[str, str]] = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            found += _equal(new[j1:j2])
        else:
            found += (("-", line) for line in old[i1:i2])
            found += (("+", line) for line in new[j1:j2])
    return tuple(found)


def _equal(lines: list[str]) -> list[tuple[str, str]]:
    """Lines that are the same; of many the first and last few."""
    if len(lines) <= 2 * CONTEXT + 1:
        return [(" ", line) for line in lines]
    left_out = f"… {counted(len(lines) - 2 * CONTEXT, 'line')} the same"
    return [(" ", line) for line in (*lines[:CONTEXT], left_out, *lines[-CONTEXT:])]


# -- settings --------------------------------------------------------------------------------------


def _settings(now: Sent, before: Sent) -> list[Setting]:
    new, old = _fields(now), _fields(before)
    return [
        Setting(name, old.get(name, ""), new.get(name, ""))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _fields(sent: Sent) -> dict[str, str]:
    value = sent.parameters.value if sent.parameters is not None else None
    fields = dict(value) if isinstance(value, dict) else {}
    if sent.tools is not None:
        fields["tools"] = sent.tools.value
    return {k: v if isinstance(v, str) else json_text(v) for k, v in fields.items()}


# -- the cache -------------------------------------------------------------------------------------


def _cache_words(
    found: Changes, step: Row, previous: Row, now: Sent, before: Sent
) -> Sequence[str]:
    said = _breaks(step, previous, now, before)
    said.append(_prefix_words(found, now, before, can_be_read=not said))
    if step["cached_tokens"] is not None and step["input_tokens"]:
        told = f"{step['cached_tokens']:,} of {spelling.count(step['input_tokens'])}"
        said.append(f"The provider says that {told} input tokens came from its cache.")
    return said


def _breaks(step: Row, previous: Row, now: Sent, before: Sent) -> list[str]:
    """What stands before the messages in a prompt: if it differs, no prefix is shared."""
    served = [f"{row['provider_name'] or '–'}/{row['model'] or '–'}" for row in (previous, step)]
    said = []
    if served[0] != served[1]:
        told = f"Another model was asked, {served[1]} after {served[0]}"
        said.append(f"{told}: each has a cache of its own.")
    tools = [None if sent.tools is None else sent.tools.value for sent in (before, now)]
    if tools[0] != tools[1]:
        told = "The tools are not the same. They stand before the messages in a prompt"
        said.append(f"{told}, so that none of it could come from the cache.")
    return said


def _prefix_words(found: Changes, now: Sent, before: Sent, *, can_be_read: bool) -> str:
    """How far the messages are the same; `can_be_read`: nothing before them broke the prefix."""
    same, total = found.common_prefix, len(before.messages)
    which = "it" if same == 1 else "they"
    cached = f": {which} can come from the prompt cache" if can_be_read else ""
    if same == len(now.messages) == total:
        return (
            f"{_all_of(total)} of the call before were sent again{_tokens(now, 0, same)}{cached}."
        )
    if same == total:
        told = f"{_all_of(total)} of the call before come first, unchanged"
        return f"{told}{_tokens(now, 0, same)}{cached}."
    if same == len(now.messages):
        told = "The call before went on where the messages of this one end"
        return f"{told}{_tokens(now, 0, same)}{cached}."
    broke = f"message {same + 1} ({now.measures[same].role or 'input'}), {_why(found, same)}"
    if same == 0:
        return (
            f"The prefix breaks at once, at {broke}: none of the messages can come from the cache."
        )
    behind = len(now.messages) - same
    lost = f"{counted(behind, 'message')} from there on{_tokens(now, same, len(now.messages))}"
    first = "The first message is" if same == 1 else f"The first {same:,} messages are"
    kept = f"{first} the same{_tokens(now, 0, same)}{cached}"
    return f"{kept}. The prefix breaks at {broke}: {lost} had to be read anew."


def _all_of(count: int) -> str:
    return "The one message" if count == 1 else f"All {count:,} messages"


def _why(found: Changes, index: int) -> str:
    if any(new == index for _, new in found.changed):
        return "which changed"
    if index in found.added:
        return "which is new there"
    return "since what stood before it was dropped"


def _tokens(sent: Sent, start: int, end: int) -> str:
    counts = [measure.tokens for measure in sent.measures[start:end]]
    known = [count for count in counts if count is not None]
    return f" (~{sum(known):,} tokens)" if known and len(known) == len(counts) else ""
