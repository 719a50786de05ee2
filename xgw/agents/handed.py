"""What agents have said and used in tasks that were handed over to them, as a run finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xgw.agents.lineage import Row, is_others
from xgw.queries import payloads
from xgw.queries.runs import COMPACTION
from xgw.recording.pending import Checkpoint, Task
from xgw.store import payloads as stored
from xgw.store.database import Store


@dataclass(frozen=True, slots=True)
class Usage:
    """What model calls came to: answers asked for, tokens, cost as far as that is known."""

    iterations: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """How far an agent is with its task; `said` are the rows of messages that its context has,
    after the `summary` of what was compacted. `above` is the step that its open calls stand under,
    None where that is the one of the answer that asked for them.
    """

    at: Checkpoint = field(default_factory=Checkpoint)
    said: Sequence[Row] = ()
    summary: str | None = None
    usage: Usage = field(default_factory=Usage)
    sent_before: tuple[bytes, ...] | None = None
    above: str | None = None

    @property
    def text(self) -> str | None:
        """What it said last."""
        texts = (m["content"] for m in self.said[::-1] if m["role"] == "assistant")
        return next(filter(None, texts), None)


NOTHING_DONE = Done()


class Handed:
    """The tasks of a turn's runs: of all their messages and steps, in order."""

    def __init__(
        self, store: Store | None = None, messages: Iterable[Row] = (), steps: Iterable[Row] = ()
    ) -> None:
        self._store = store
        self._messages = [message for message in messages if is_others(message)]
        self._steps = list(steps)

    def find(self, task: Task | None, step_id: str) -> Done:
        """What was done of a task that goes on in the handoff's step `step_id`."""
        if task is None or self._store is None:
            return NOTHING_DONE
        upto = -1 if task.at.messages_upto is None else task.at.messages_upto
        of_task = set(task.step_ids)
        said = [
            m
            for m in self._messages
            if m["metadata"]["handoff"] in of_task and m["message_index"] <= upto
        ]
        inside = list(_below(self._steps, of_task))
        own = [step for step in inside if step["parent_step_id"] in of_task]
        compacted, summary = self._compacted(own)
        is_of_this_run = any(
            s["id"] == task.at.step_id and s["parent_step_id"] == step_id for s in own
        )
        return Done(
            task.at,
            [m for m in said if m["id"] not in compacted],
            summary,
            usage_of(inside),
            self._sent_before(own),
            None if is_of_this_run else step_id,
        )

    def _compacted(self, own: Sequence[Row]) -> tuple[set[str], str | None]:
        """The ids of the messages that were compacted, and what is told of them."""
        ended = [s for s in own if s["name"] == COMPACTION and s["status"] == "success"]
        if not ended or self._store is None:
            return set(), None
        told = payloads.bodies(self._store, {s["output_payload"] for s in ended})
        known = [told[s["output_payload"]] for s in ended if s["output_payload"] in told]
        ids = {one for body in known for one in body["compacted_message_ids"]}
        return ids, known[-1]["summary"] if known else None

    def _sent_before(self, own: Sequence[Row]) -> tuple[bytes, ...] | None:
        keys = [s["input_payload"] for s in own if s["step_type"] == "llm_call"]
        return sent_in(self._store, keys[-1]) if keys and self._store else None


def usage_of(steps: Iterable[Row]) -> Usage:
    """What the model calls among these steps came to."""
    calls = [step for step in steps if step["step_type"] == "llm_call"]
    return Usage(
        sum(1 for call in calls if call["attempt"] == 1 and _counts(call)),
        sum(call["total_tokens"] or 0 for call in calls),
        sum(call["cost_usd"] or 0.0 for call in calls),
    )


def sent_in(store: Store, key: str | None) -> tuple[bytes, ...] | None:
    """The hashes of the elements of a request by its payload; None where it is not kept."""
    if key is None:
        return None
    try:
        return tuple(bytes.fromhex(element) for element in stored.parts(store, [key])[key])
    except LookupError:
        return None


def _counts(call: Row) -> bool:
    """Whether a model call is an iteration: one that was interrupted is made again, and a summary
    is no answer."""
    metadata: dict[str, Any] = call["metadata"] or {}
    return call["error_type"] != "interrupted" and not metadata.get("purpose")


def _below(steps: Iterable[Row], above: Iterable[str]) -> Iterator[Row]:
    """The steps under these, of steps each of which comes after the one above it."""
    known = set(above)
    for step in steps:
        if step["parent_step_id"] in known:
            known.add(step["id"])
            yield step
