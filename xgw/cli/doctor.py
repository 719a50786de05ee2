"""The command `doctor`: everything is looked at, and for what is wrong it is said what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import spelling
from xgw.cli.asking import Silent, ask
from xgw.cli.configuration import load, load_agents, with_configuration, with_json
from xgw.cli.server import find_server
from xgw.cli.terminal import Role, Screen, stdout, write, write_json
from xgw.errors import UsageError, WorkError

if TYPE_CHECKING:
    from xgw.config import Loaded
    from xgw.upkeep.findings import Finding

ROLES: dict[str, Role] = {"fine": "good", "note": "waiting", "wrong": "bad"}
NAME_WIDTH = 16
FIX = "see docs/configuration.md, or `xgw check`"


@click.command()
@click.option("--offline", is_flag=True, help="Do not ask the providers.")
@with_configuration
@with_json
@click.pass_context
def doctor(
    ctx: click.Context, config_path: Path | None, db: str | None, as_json: bool, offline: bool
) -> None:
    """Look at configuration, store, open turns, server and providers, and say what to do.

    It changes nothing. The exit code is 0 when all is fine, 1 when something is wrong.

    \b
    Examples:
      xgw doctor
      xgw doctor --json | jq '.findings[] | select(.standing == "wrong")'
    """
    loaded, found = _configuration(config_path, db)
    path = _store_path(loaded, db)
    findings, screen = [], stdout()
    sizes = None if path is None else _sizes(path)
    for finding in _all(found, loaded, path, offline):
        findings.append(finding)
        if not as_json:
            write(_lines(screen, finding))
    is_fine = all(finding.standing != "wrong" for finding in findings)
    if as_json:
        write_json(
            {
                "object": "doctor",
                "fine": is_fine,
                "findings": list(map(_json, findings)),
                "sizes": sizes,
            }
        )
    elif sizes is not None:
        write(_size_lines(sizes))
    ctx.exit(0 if is_fine else 1)


def _all(
    found: list[Finding], loaded: Loaded | None, path: Path | None, offline: bool
) -> Iterator[Finding]:
    from xgw.store.database import Store
    from xgw.upkeep import provider_checks, store_checks

    yield from found
    if path is not None:
        store = Store(path)
        yield from store_checks.check(store)
        store.close()
        yield _server(path)
    if loaded is not None and not offline:
        yield from provider_checks.check(loaded.config)


def _configuration(config_path: Path | None, db: str | None) -> tuple[Loaded | None, list[Finding]]:
    """What is configured, None if nothing can begin with it, and every mistake."""
    from xgw.upkeep.findings import fine, wrong

    try:
        loaded = load(config_path, db)
    except UsageError as error:
        return None, [wrong("configuration", line, FIX) for line in error.lines]
    named = "no file, defaults apply" if loaded.path is None else str(loaded.path)
    try:
        load_agents(loaded)
    except UsageError as error:
        return loaded, [wrong("configuration", line, FIX) for line in error.lines]
    return loaded, [fine("configuration", f"{named}: no mistakes")]


def _store_path(loaded: Loaded | None, db: str | None) -> Path | None:
    """The store; without a configuration only what the command line names is known."""
    from xgw.config import Storage

    if loaded is not None:
        return loaded.config.storage.path
    return None if db is None else Storage(url=db).path


def _server(path: Path) -> Finding:
    from xgw.upkeep.findings import fine, wrong

    server = find_server(path)
    if server is None:
        return fine("server", "none runs on this store")
    try:
        health = ask(server, "GET", "/health")
    except Silent as silent:
        return wrong("server", silent.says, silent.hint)
    except WorkError as error:
        return wrong("server", str(error), f"end process {server.pid} and start `xgw serve` anew")
    troubles: list[Any] = health.get("reasons") or []
    where = f"runs at {server.url} (process {server.pid})"
    if troubles:
        words = f"{where}, but {'; '.join(map(str, troubles))}"
        return wrong("server", words, "see what is said of the store")
    return fine("server", where)


def _sizes(path: Path) -> list[dict[str, Any]] | None:
    """What takes the room; None where it cannot be measured."""
    import peewee

    from xgw.queries.sizes import measure
    from xgw.store.database import Store

    if not os.path.isfile(path):
        return None
    store = Store(path)
    try:
        found = measure(store)
    except peewee.DatabaseError:
        return None
    finally:
        store.close()
    kinds = [
        {"kind": kind.table, "rows": kind.rows, "bytes": kind.bytes, "exact": kind.is_exact}
        for kind in found.kinds
    ]
    rest = {"kind": "indexes and the rest", "rows": None, "bytes": found.rest_bytes, "exact": False}
    free = {"kind": "free", "rows": None, "bytes": found.free_bytes, "exact": True}
    return [*kinds, rest, free]


def _json(finding: Finding) -> dict[str, Any]:
    return {
        "check": finding.check,
        "standing": finding.standing,
        "says": finding.says,
        "advice": finding.advice,
    }


def _lines(screen: Screen, finding: Finding) -> Iterator[str]:
    from xgw.cli.texts import one_line

    role = ROLES[finding.standing]
    head = screen.paint(f"{finding.standing:<6}", role)
    yield f"{head} {one_line(finding.check):<{NAME_WIDTH}} {one_line(finding.says)}"
    if finding.advice is not None:
        yield f"{'':<6} {'':<{NAME_WIDTH}} → {one_line(finding.advice)}"


def _size_lines(sizes: list[dict[str, Any]]) -> Iterator[str]:
    yield "what takes the room:"
    for one in sizes:
        rows = "" if one["rows"] is None else spelling.count(one["rows"])
        mark = "" if one["exact"] else "~"
        yield f"  {one['kind']:<22}{rows:>12} {mark + spelling.size(one['bytes']):>10}"
