"""The commands `resume` and `rerun`: an interrupted run goes on, a turn is run once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import orjson

from xgw.cli.acting import act
from xgw.cli.configuration import with_configuration, with_json
from xgw.errors import UsageError


@click.command()
@click.argument("run")
@with_configuration
@with_json
def resume(config_path: Path | None, db: str | None, run: str, as_json: bool) -> None:
    """Resume RUN, which was interrupted: a new run goes on from its checkpoint.

    RUN is an id, whole or in part, or a turn's, or `last`. Tools that had ended are not run again.
    Where nobody knows whether one ran, the new run waits for `xgw approve` or `xgw deny`.

    \b
    Examples:
      xgw resume last
      xgw resume run_019a3c5e7d20
    """
    act(config_path, db, "run", run, lambda id: f"/runs/{id}/resume", {}, as_json=as_json)


@click.command()
@click.argument("turn")
@click.option("-m", "--model", metavar="MODEL", help="Another model.")
@click.option("--message", metavar="TEXT", help="Another message.")
@click.option("--instructions", metavar="TEXT", help="Other instructions.")
@click.option("--from-step", metavar="STEP", help="What was before this step stays as it was.")
@click.option(
    "--reuse",
    type=click.Choice(["results", "none"]),
    help="Whether tools give the results that they gave (if not given), or are run anew.",
)
@click.option("--param", "params", metavar="K=V", multiple=True, help="A parameter of the model.")
@with_configuration
@with_json
def rerun(
    config_path: Path | None,
    db: str | None,
    turn: str,
    from_step: str | None,
    params: tuple[str, ...],
    as_json: bool,
    **wanted: Any,
) -> None:
    """Run TURN once more, beside what it did before.

    TURN and STEP are ids, whole or in part, or `last` for a turn. It has to be over, and no other
    turn of its session under way.

    \b
    Examples:
      xgw rerun last --model gpt-4o-mini
      xgw rerun last --from-step step_019a3c5e7d20 --reuse none
      xgw rerun turn_019a3c5e7d20 --message "In one sentence?" --param temperature=0
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    if params:
        given["parameters"] = dict(_parameter(one) for one in params)
    named = {"from_step_id": ("step", from_step)} if from_step is not None else {}
    act(
        config_path,
        db,
        "turn",
        turn,
        lambda id: f"/turns/{id}/runs",
        given,
        as_json=as_json,
        named=named,
    )


def _parameter(text: str) -> tuple[str, Any]:
    """`k=v`: the value is JSON, or a text where it is none."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--param must be of the form name=value, not {text!r}")
    try:
        return name, orjson.loads(value)
    except orjson.JSONDecodeError:
        return name, value
