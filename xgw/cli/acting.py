"""Having a run go on: by the running server of the store, or by a server's parts in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xgw.cli.chat import tell_outcome
from xgw.cli.configuration import load, load_agents
from xgw.cli.terminal import write_json
from xgw.errors import UsageError, WorkError

if TYPE_CHECKING:
    from xgw.store.database import Store

Named = Mapping[str, tuple[str, str]]


def act(
    config_path: Path | None,
    db: str | None,
    kind: str,
    ref: str,
    path_of: Callable[[str], str],
    body: dict[str, Any],
    *,
    as_json: bool,
    named: Named | None = None,
) -> None:
    """POST to the path of what `ref` names, and say what its turn says until it is over or waits.

    `named` are fields of the body whose value names something of that kind.
    """
    from xgw.cli.doors import opened_door
    from xgw.cli.going_on import answer_of, follow
    from xgw.cli.speaking import Speaker
    from xgw.queries import events

    loaded = load(config_path, db)
    load_agents(loaded)  # a mistake in a tool is told here, in the words of `xgw check`
    if not loaded.config.storage.path.exists():
        path = loaded.config.storage.path
        raise UsageError(f"there is no store {path} yet: `xgw serve` creates it")
    with opened_door(loaded) as (door, store):
        id = _id_of(store, kind, ref)
        given = {**body, **{name: _id_of(store, *what) for name, what in (named or {}).items()}}
        after = events.newest(store)
        run = door.ask("POST", path_of(id), given)
        if run["status"] == "waiting_tool":
            answer = answer_of(door.ask("GET", f"/turns/{run['turn_id']}"))
        else:
            answer, _ = follow(door, run, after, Speaker(None, quiet=as_json))
        if as_json:
            write_json(door.ask("GET", f"/runs/{run['id']}"))
    code = tell_outcome(answer)
    if code:
        raise SystemExit(code)


def _id_of(store: Store, kind: str, ref: str) -> str:
    """The id of what is named; of a turn its newest run, where a run is wanted."""
    from xgw.cli import refs
    from xgw.queries.runs import newest_of_turn

    found = refs.get(store, ref)
    if kind == "run" and found.kind == "turn":
        run = newest_of_turn(store, found.row["id"])
        if run is not None:
            return str(run["id"])
    if found.kind != kind:
        raise WorkError(f"{ref!r} names a {found.kind}, not a {kind}")
    return str(found.row["id"])
