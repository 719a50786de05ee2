"""What turns work with, how a model is asked for one, and where one begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from xgw import __version__
from xgw.agents.context import Context
from xgw.agents.definition import Definition
from xgw.agents.handed import Handed
from xgw.agents.handoff import Inside
from xgw.agents.limits import Bounds, Used
from xgw.agents.pool import Pool
from xgw.agents.settled import Results
from xgw.exchange.attempts import UsageRefusals
from xgw.exchange.exchange import Exchange
from xgw.exchange.means import Means
from xgw.exchange.order import Order
from xgw.exchange.routing import Router
from xgw.recording.agents import AgentRecord
from xgw.recording.pending import Checkpoint
from xgw.resent import Body

NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Parts:
    """What every turn works with."""

    means: Means
    router: Router
    refusals: UsageRefusals
    record: AgentRecord
    pool: Pool

    def exchange(
        self,
        model: str,
        elements: Sequence[Mapping[str, Any]],
        client: dict[str, Any],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        parameters: Mapping[str, Any] = NOTHING,
        purpose: str | None = None,
        parent_step_id: str | None = None,
        agent_name: str | None = None,
        window: int | None = None,
    ) -> Exchange:
        """The tries for one answer, always asked for as a stream; ApiError 404 without a way."""
        body = {"model": model, "messages": elements, **parameters, "stream": True}
        if tools:
            body["tools"] = tools
        order = Order(
            endpoint="chat.completions",
            model=model,
            way=self.router.find(model, "chat.completions"),
            body=Body.plain(orjson.dumps(body)),
            stream=True,
            wants_usage=False,
            headers=(("user-agent", f"xgw/{__version__}"),),
            query="",
            client=client,
            purpose=purpose,
            parent_step_id=parent_step_id,
            agent_name=agent_name,
            window=window,
        )
        return Exchange(self.means, order, self.refusals)

    def window_of(self, model: str) -> int | None:
        """How many tokens a model takes where it is asked first; None if nobody knows.

        ApiError 404 without a way to it.
        """
        target = self.router.find(model, "chat.completions").targets[0]
        return self.means.prices.context_window(target.model, target.provider)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run begins: its context, what its session has used and may use.

    What is still to be done of its last answer is in the `checkpoint`, `text` is what the model
    said last. `earlier` are results to be taken instead of running tools. `sent_before` are the
    hashes of the elements that the session's previous call sent. `handed` is what was done of tasks
    that were handed over.
    """

    definition: Definition
    context: Context
    sent_before: tuple[bytes, ...] | None
    used: Used
    bounds: Bounds
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    text: str | None = None
    earlier: Results = field(default_factory=Results)
    handed: Handed = field(default_factory=Handed)
    inside: Inside | None = None
    """Where a task that was handed over is worked on; None for the turn itself."""
    since: float | None = None
    """Since when the run works (monotonic seconds), None for from its loop on."""
