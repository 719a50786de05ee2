"""Where an agent begins with a task that was handed over to it, or goes on with it."""

from __future__ import annotations

from xgw.agents import context
from xgw.agents.asked import Handoff
from xgw.agents.desk import Desk
from xgw.agents.handed import Done
from xgw.agents.handoff import Inside
from xgw.agents.limits import Used, bounds_of
from xgw.agents.parts import Parts, Start
from xgw.agents.planner import Plan


def begin_task(
    parts: Parts, turn_id: str, start: Start, handoff: Handoff, done: Done, inside: Inside
) -> Start:
    """As `start` is for the agent that hands it over; `done` is what was done of it before."""
    other = start.definition.others[handoff.partner]
    desk = Desk(start.context.desk.memory, Plan(mask=parts.means.masker.text))
    equipped = desk.equip(other)
    # What is compacted in it is no message of the session's context.
    apart = context.build_context(equipped, desk, None, (), is_apart=True)
    apart.summary = done.summary
    message = context.Block(turn_id, (context.user(handoff.message),))
    context.take_up_task(apart, message, done.said, {one.id for one in done.at.pending})
    usage, outer = done.usage, (start.used, start.bounds)
    return Start(
        definition=equipped,
        context=apart,
        sent_before=done.sent_before,
        used=Used(0, 0.0, usage.iterations, usage.tokens, usage.cost, outer),
        bounds=bounds_of(other, "chat", {}),
        checkpoint=done.at,
        text=done.text,
        handed=start.handed,
        inside=inside,
    )
