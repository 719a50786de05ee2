"""The texts of a step under way, as a page shows them when it is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xgw.recording.live import LiveSteps
from xgw.web.live.messages import stream_id


@dataclass(frozen=True, slots=True)
class Stream:
    """One text that grows: `id` is its element's, `length` counts characters (code points).

    `kind`: text, reasoning, refusal, or tool_arguments; `index` is that of the choice or the call.
    """

    id: str
    kind: str
    index: int
    text: str

    @property
    def length(self) -> int:
        """How much of it is there."""
        return len(self.text)


ALWAYS = (("text", 0),)
"""A place for these is there before anything has come."""

ORDER = ("reasoning", "text", "refusal", "tool_arguments")


@dataclass(frozen=True, slots=True)
class Growth:
    """How a step under way grows: its texts, and what `step.progress` says of it."""

    streams: tuple[Stream, ...] = ()
    progress: Mapping[str, Any] | None = None


def growth_of(live: LiveSteps, step: Mapping[str, Any]) -> Growth:
    """How a step grows; nothing of one that has ended."""
    if step["status"] != "running":
        return Growth()
    return Growth(tuple(streams_of(live, step)), live.progress_of(step["id"]))


def streams_of(live: LiveSteps, step: Mapping[str, Any]) -> list[Stream]:
    """The texts of a running step in ORDER; [] for one that has ended.

    What another process relays is known as far as it has been stored.
    """
    if step["status"] != "running" or step["step_type"] != "llm_call":
        return []
    known = live.texts(step["id"])
    if not known and step["partial_output"]:
        known = {("text", 0): step["partial_output"]}
    keys = sorted({*ALWAYS, *known}, key=lambda key: (ORDER.index(key[0]), key[1]))
    return [Stream(stream_id(step["id"], *key), *key, known.get(key, "")) for key in keys]
