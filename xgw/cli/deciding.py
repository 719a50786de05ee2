"""The commands `approve` and `deny`: a person decides about a tool call that waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson

from xgw.cli.acting import act
from xgw.cli.configuration import with_configuration, with_json
from xgw.errors import UsageError

with_step = click.option(
    "--step", metavar="STEP", help="The answer that asked for it, where two calls have this id."
)


@click.command()
@click.argument("run")
@click.argument("call")
@with_step
@click.option("--arguments", metavar="JSON", help="An object in the place of the model's.")
@click.option("--result", metavar="TEXT", help="What the model gets; the tool is not run.")
@with_configuration
@with_json
def approve(
    config_path: Path | None,
    db: str | None,
    run: str,
    call: str,
    step: str | None,
    arguments: str | None,
    result: str | None,
    as_json: bool,
) -> None:
    """Approve the tool call CALL that RUN waits with: it is run, and the turn goes on.

    RUN is an id, whole or in part, or a turn's, or `last`. After a crash this runs a call again of
    which nobody knows whether it ran. What the turn says from then on is printed as by `xgw chat`.

    \b
    Examples:
      xgw approve run_019a3c5e7d20 call_1
      xgw approve last call_1 --arguments '{"order": "A-17"}'
      xgw approve last call_1 --result "done by hand"
    """
    if arguments is not None and result is not None:
        raise UsageError("--arguments and --result exclude each other: a result is no run")
    decision: dict[str, Any] = {"decision": "approve" if result is None else "result"}
    if arguments is not None:
        decision["arguments"] = _object(arguments)
    if result is not None:
        decision["result"] = result
    _decide(config_path, db, run, {**decision, "tool_call_id": call}, step, as_json=as_json)


@click.command()
@click.argument("run")
@click.argument("call")
@with_step
@click.option("--reason", metavar="TEXT", help="The model is told.")
@with_configuration
@with_json
def deny(
    config_path: Path | None,
    db: str | None,
    run: str,
    call: str,
    step: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Deny the tool call CALL that RUN waits with: the model gets an error, the turn goes on.

    RUN is an id, whole or in part, or a turn's, or `last`.

    \b
    Examples:
      xgw deny run_019a3c5e7d20 call_1
      xgw deny last call_1 --reason "not on a Sunday"
    """
    given = {"tool_call_id": call, "decision": "deny", "reason": reason}
    _decide(config_path, db, run, given, step, as_json=as_json)


def _decide(
    config_path: Path | None,
    db: str | None,
    run: str,
    decision: dict[str, Any],
    step: str | None,
    *,
    as_json: bool,
) -> None:
    def path(id: str) -> str:
        return f"/runs/{id}/approvals"

    named = {} if step is None else {"step_id": ("step", step)}
    act(config_path, db, "run", run, path, decision, as_json=as_json, named=named)


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"--arguments must be JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("--arguments must be a JSON object")
    return value
