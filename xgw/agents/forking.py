"""What a fork takes over of turns that were run several times: what counts of the shown run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xgw.agents.lineage import shown_of
from xgw.queries import messages, runs
from xgw.store.database import Store


def find_shown(store: Store, session_id: str) -> Mapping[str, Sequence[str]]:
    """The messages that count of each turn of a session with several runs: their ids in order."""
    several = runs.of_turns_with_several(store, session_id)
    if not several:
        return {}
    found: dict[str, list[str]] = {run["turn_id"]: [] for run in several}
    for message in shown_of(messages.of_agent_turns(store, session_id, ""), several):
        if message["turn_id"] in found:
            found[message["turn_id"]].append(message["id"])
    return found
