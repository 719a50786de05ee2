"""How turns end that await tools whose results never come."""

from __future__ import annotations

import datetime
from itertools import chain

from xgw import clock
from xgw.gateway.state import OpenTool, TurnState
from xgw.recording.facts import ToolEnd, TurnEnd
from xgw.recording.requests import Closing


def close_waiting(
    turn: TurnState, ended_by: str, at: datetime.datetime, reason: str = "tool_calls"
) -> Closing:
    """End a turn that awaits tools: its open tool steps get no result.

    `reason` is its finish reason, if it ends well.
    """
    tools = drop_open_tools(turn, at)
    turn.status = "ended"
    finish = reason if ended_by == "finished" else None
    end = TurnEnd(ended_by, at, turn.busy_ms, finish_reason=finish, keep_final=True)
    return Closing(turn.scope, tools, end)


def drop_open_tools(turn: TurnState, at: datetime.datetime) -> tuple[ToolEnd, ...]:
    """Nobody awaits a turn's tools any more; a result that comes all the same is a late one."""
    now, moment = clock.together()
    # They end with the turn: what went by since does not count for either.
    moment -= (now - at).total_seconds()
    tools = list(chain.from_iterable(turn.open_tools.values()))
    turn.ended_tools.update({tool.tool_call_id: tool for tool in tools})
    turn.open_tools.clear()
    return tuple(no_result(tool, at, moment) for tool in tools)


def no_result(tool: OpenTool, at: datetime.datetime, moment: float) -> ToolEnd:
    """The end of a tool step whose result never came; `moment` is `at` by the monotonic clock."""
    return ToolEnd(
        tool.step_id,
        tool.tool_call_id,
        "cancelled",
        None,
        None,
        waited_ms(tool, at, moment),
        at,
        error_type="no_result",
    )


def waited_ms(tool: OpenTool, at: datetime.datetime, moment: float) -> int | None:
    """How long the client took; by the wall clock where a restart lies in between."""
    if tool.began is not None:
        return max(0, round((moment - tool.began) * 1000))
    if tool.began_at is None:
        return None
    return max(0, round((at - clock.from_db(tool.began_at)).total_seconds() * 1000))
