"""Handing a task over to another agent: what a model is told of that, and where that one works.

The other agent works inside the same turn, under the step of the call: it has the message, its own
instructions, model and tools, and nothing of the conversation. Its answer is the call's result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xgw.agents.spent import Spent

MAX_DEPTH = 4
"""How many tasks may be handed over inside of one another."""

MAX_ANSWER_BYTES = 1 << 20
NO_END_SECONDS = 2_592_000.0


@dataclass(frozen=True, slots=True)
class Inside:
    """Where a task that was handed over is worked on: under this step, by this agent.

    `depth` counts from 1, `spent` is the time of who awaits it. Calls that are taken up stand under
    the step `above`; None is the one of the answer that asked for them.
    """

    step_id: str
    agent_name: str
    depth: int
    spent: Spent
    above: str | None = None


def offer_of(partner: str, description: str) -> Callable[..., Any]:
    """The function that a model calls; who runs the turn does what it stands for."""

    def hand_over(message: str) -> str:
        raise AssertionError("who runs the turn hands the task over")

    told = f": {description.strip().rstrip('.')}" if description.strip() else ""
    hand_over.__doc__ = f"""Hand a task over to the agent {partner}{told}.

        It sees nothing of this conversation. Its answer is the result.

        Args:
            message: The task, with everything that is needed for it.
        """
    return hand_over
