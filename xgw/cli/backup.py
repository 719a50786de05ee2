"""The command `backup`: a copy of the store as it is at one moment."""

from __future__ import annotations

from pathlib import Path

import click

from xgw import spelling
from xgw.cli.configuration import with_configuration, with_json
from xgw.cli.terminal import write, write_json


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@with_configuration
@with_json
def backup(
    config_path: Path | None, db: str | None, as_json: bool, file: Path, overwrite: bool
) -> None:
    """Copy the store to FILE, all of it as it is at one moment; a server may go on recording.

    FILE is there only once it is whole. It is a store as any other: `--db FILE` reads it.

    \b
    Examples:
      xgw backup /backups/xgw.db
      xgw backup --overwrite /backups/newest.db
    """
    from xgw.cli import reading
    from xgw.upkeep.backup import back_up

    with reading.opened(config_path, db, any_schema=True) as (_, store):
        size = back_up(store, file, overwrite=overwrite)
    if as_json:
        write_json({"file": str(file), "bytes": size})
    else:
        write([f"{file}: {spelling.size(size)}"])
