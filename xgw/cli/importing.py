"""The command `import`: a bundle becomes a store of its own beside the user's, to be read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from xgw import clock, spelling
from xgw.cli.configuration import FILE_NAME, load, with_configuration, with_json
from xgw.cli.reading import open_file
from xgw.cli.tables import Cell, Column, render
from xgw.cli.terminal import note, stdout, write, write_json
from xgw.errors import UsageError

if TYPE_CHECKING:
    from xgw.portable.imports import Imports

STDIN = "-"

_COLUMNS = (
    Column("import"),
    Column("exported", right=True, spare=1),
    Column("by", spare=5),
    Column("sessions", right=True, spare=3),
    Column("turns", right=True, spare=4),
    Column("imported", right=True, spare=2),
)


@click.command("import")
@click.argument("file", required=False, type=FILE_NAME)
@click.option("--list", "is_list", is_flag=True, help="List what was imported.")
@click.option("--remove", "removed", metavar="ID", help="Remove an import, for good.")
@with_configuration
@with_json
def import_(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    file: str | None,
    is_list: bool,
    removed: str | None,
) -> None:
    """Open a bundle that `xgw export` wrote, to be read: FILE, or - for stdin.

    It may be JSON or JSON lines, packed by gzip or not. It stays apart from the store, in a folder
    beside it, with all its ids; the same bundle twice is one import. The dashboard lists it under
    Imported; `xgw show` and `xgw export` find what is in it.

    \b
    Examples:
      xgw import bug-report.json
      curl -s https://example.com/bundle.json.gz | xgw import -
      xgw import --list
      xgw import --remove imp_0123abcd
    """
    from xgw.portable.imports import Imports

    if sum((file is not None, is_list, removed is not None)) != 1:
        raise UsageError("give one of FILE, --list and --remove ID")
    if file == "":
        raise UsageError("FILE is empty: name a bundle, or - for stdin")
    imports = Imports(load(config_path, db).config.storage.path)
    if is_list:
        _list(imports, as_json)
    elif removed is not None:
        one = imports.get(removed)
        imports.remove(one.id)
        note(f"Removed {one.id}.")
    elif file == STDIN:
        _add(imports, sys.stdin.buffer, "stdin", as_json)
    else:
        assert file is not None
        with open_file(file) as opened:
            _add(imports, opened, file, as_json)


def _add(imports: Imports, file: IO[bytes], name: str, as_json: bool) -> None:
    one, is_new = imports.add(file, name)
    if as_json:
        write_json(one.to_json())
        return
    write([one.id])
    counts = [_counted(one.counts[noun], word) for noun, word in _TOLD]
    note(f"{'Imported' if is_new else 'Imported already'}: {', '.join(counts)}.")
    note("Look at it with `xgw sessions --imported`, or in the dashboard under Imported.")


_TOLD = (("sessions", "session"), ("turns", "turn"), ("request_logs", "request"))


def _counted(count: int, word: str) -> str:
    return f"{spelling.count(count)} {word}{'' if count == 1 else 's'}"


def _list(imports: Imports, as_json: bool) -> None:
    found = imports.list()
    if as_json:
        write_json({"object": "list", "data": [one.to_json() for one in found]})
        return
    if not found:
        note("Nothing was imported yet: `xgw import FILE` does.")
        return
    now = clock.now()
    cells = [
        (
            Cell(one.id, "name"),
            Cell(spelling.ago(one.exported_at, now), "faint"),
            Cell(f"xgw {one.version}"),
            Cell(spelling.count(one.counts["sessions"])),
            Cell(spelling.count(one.counts["turns"])),
            Cell(spelling.ago(one.imported_at, now), "faint"),
            Cell(one.file),
        )
        for one in found
    ]
    write(render(stdout(), _COLUMNS, cells, tail="file"))
