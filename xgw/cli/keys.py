"""The commands `keys create`, `keys list` and `keys revoke`: client keys that the store knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw import clock, spelling
from xgw.cli import reading
from xgw.cli.cancel import commit, writing
from xgw.cli.configuration import load, with_configuration, with_json
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import note, stdout, write, write_json
from xgw.errors import UsageError, WorkError

if TYPE_CHECKING:
    from xgw.queries.pages import Row

SHORTEST_REF = 6
MAX_NAME = 100


@click.group()
def keys() -> None:
    """Client keys: each opens `/v1` and the API within one project.

    A running server takes note within two seconds.

    \b
    Examples:
      xgw keys create laptop
      xgw keys list
    """


@keys.command()
@click.argument("name")
@click.option("--project", default="default", show_default=True, help="The project it opens.")
@click.option("--org", help="The organisation that is noted with its sessions.")
@with_configuration
@with_json
def create(
    config_path: Path | None,
    db: str | None,
    name: str,
    project: str,
    org: str | None,
    as_json: bool,
) -> None:
    """Make a key for NAME and print it, this once.

    \b
    Examples:
      xgw keys create laptop
      export OPENAI_API_KEY=$(xgw keys create ci --project team-a)
    """
    from xgw.recording.keys import issue_key, make_key

    for option, value in (("NAME", name), ("--project", project), ("--org", org)):
        _check(option, value)
    key = make_key(name, project, org)
    _make_store(config_path, db)
    with reading.opened(config_path, db, keys_known=True) as (_, store), writing(store) as writer:
        commit(writer, writer.submit(lambda tx: issue_key(tx, key)))
    if as_json:
        write_json(
            {
                "object": "api_key",
                "id": key.id,
                "name": name,
                "key": key.key,
                "prefix": key.prefix,
                "project_id": project,
                "org_id": org,
            }
        )
        return
    write([key.key])
    note(f"{key.id}: keep the key, it is shown this once. From now on requests need one.")


@keys.command("list")
@with_configuration
@with_json
def list_keys(config_path: Path | None, db: str | None, as_json: bool) -> None:
    """List the keys that were made here; those of the configuration file are in it.

    \b
    Examples:
      xgw keys list
      xgw keys list --json | jq -r '.data[].name'
    """
    from xgw.queries.keys import list_keys as rows_of

    with reading.opened(config_path, db, keys_known=True) as (_, store):
        rows = rows_of(store)
    if as_json:
        write_json({"object": "list", "data": [_json(row) for row in rows]})
    elif rows:
        write(_table(rows))
    else:
        note("No key was made yet: `xgw keys create NAME`")


@keys.command()
@click.argument("key")
@with_configuration
@with_json
def revoke(config_path: Path | None, db: str | None, key: str, as_json: bool) -> None:
    """Revoke KEY: it opens nothing any more.

    KEY is its id, the start of the id or of the key itself.

    \b
    Examples:
      xgw keys revoke xk-ThIsIsWh
      xgw keys revoke key_019a3c5e7d20
    """
    from xgw.queries.keys import find_keys
    from xgw.recording.keys import digest, revoke_key

    with reading.opened(config_path, db, keys_known=True) as (_, store), writing(store) as writer:
        row = _only(key, find_keys(store, key, digest(key)) if len(key) >= SHORTEST_REF else [])
        if row["revoked_at"] is None:
            commit(writer, writer.submit(lambda tx: revoke_key(tx, row["id"])))
        row = _only(row["id"], find_keys(store, row["id"], ""))
    if as_json:
        write_json(_json(row))
    else:
        write([f"{row['id']} ({row['name']}) is revoked"])


def _check(option: str, value: str | None) -> None:
    if value is None:
        return
    if not 1 <= len(value) <= MAX_NAME or not value.isprintable() or value != value.strip():
        raise UsageError(
            f"{option} must be 1 to {MAX_NAME} printable characters, none of them a blank at an end"
        )


def _make_store(config_path: Path | None, db: str | None) -> None:
    """The first key may come before the first start of the server."""
    from xgw.store.database import Store
    from xgw.store.migrations import migrate

    store = Store(load(config_path, db, keys_known=True).config.storage.path)
    if not store.path.exists():
        migrate(store)
        store.close()


def _only(ref: str, rows: list[Row]) -> Row:
    if not rows:
        raise WorkError(f"there is no key {ref!r}: `xgw keys list` has them")
    if len(rows) > 1:
        names = ", ".join(row["id"] for row in rows[:5])
        raise WorkError(f"{ref} fits more than one key: {names}")
    return rows[0]


def _json(row: Row) -> dict[str, Any]:
    times = {
        name: None if row[name] is None else clock.to_rfc3339(row[name])
        for name in ("created_at", "revoked_at")
    }
    return {"object": "api_key", **row, **times}


_COLUMNS = (
    Column("id"),
    Column("name"),
    Column("key", spare=1),
    Column("project", spare=3),
    Column("org", spare=4),
    Column("created", right=True, spare=2),
)


def _table(rows: list[Row]) -> list[str]:
    now = clock.now()
    cells = [
        (
            Cell(row["id"], "name"),
            Cell(row["name"]),
            Cell(f"{row['prefix']}…"),
            Cell(row["project_id"]),
            Cell(row["org_id"] or spelling.UNKNOWN),
            Cell(spelling.ago(row["created_at"], now), "faint"),
            Cell("" if row["revoked_at"] is None else "revoked", "bad"),
        )
        for row in rows
    ]
    return render(stdout(), _COLUMNS, cells, tail="state")
