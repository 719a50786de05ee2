"""What turns work with, and where one begins."""

from __future__ import annotations

from dataclasses import dataclass, field

from xgw.agents import context
from xgw.agents.definition import Definition
from xgw.agents.handoff import Inside
from xgw.agents.limits import Bounds, Used
from xgw.agents.pool import Pool
from xgw.agents.settled import Results
from xgw.exchange.attempts import UsageRefusals
from xgw.exchange.means import Means
from xgw.exchange.routing import Router
from xgw.recording.agents import AgentRecord
from xgw.recording.checkpoints import Checkpoint


@dataclass(frozen=True, slots=True)
class Parts:
    """What every turn works with."""

    means: Means
    router: Router
    refusals: UsageRefusals
    record: AgentRecord
    pool: Pool


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run begins: the history before its turn, what its session has used and may use.

    `said` are the turn's own elements so far, its message first; what is still to be done of its
    last answer is in the `checkpoint`, `text` is what the model said last. `earlier` are results
    to be taken instead of running tools. `sent_before` are the hashes of the elements that the
    session's previous call sent.
    """

    definition: Definition
    history: list[context.Element]
    said: list[context.Element]
    sent_before: tuple[bytes, ...] | None
    used: Used
    bounds: Bounds
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    text: str | None = None
    earlier: Results = field(default_factory=Results)
    inside: Inside | None = None
    """Where a task that was handed over is worked on; None for the turn itself."""
