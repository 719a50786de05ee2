"""The command `export`: all that was recorded of something, in one file that can be handed on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from xgw.cli import reading
from xgw.cli.configuration import FILE_NAME, with_configuration
from xgw.errors import UsageError, WorkError

if TYPE_CHECKING:
    from xgw.cli.exporting import Export
    from xgw.config import Loaded
    from xgw.portable.chosen import Root
    from xgw.store.database import Store


PYTEST = "pytest"


class _Formats(click.ParamType[str]):
    """The formats there are, looked up when they are asked for."""

    name = "format"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from xgw.portable.writing import FORMATS

        known = (*FORMATS, PYTEST)
        if value not in known:
            self.fail(f"{value!r} is not one of {', '.join(known)}", param, ctx)
        return value


@click.command()
@click.argument("refs", metavar="[ID]...", nargs=-1)
@click.option(
    "--format",
    "format",
    type=_Formats(),
    metavar="FORMAT",
    help="json (if not given), jsonl, markdown, html, curl, python, openai or pytest.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    type=FILE_NAME,
    help="A file, a folder/ for one file each, or - for stdout.",
)
@click.option(
    "--filter", "query", metavar="QUERY", help="Sessions that fit, as `xgw sessions` has it."
)
@click.option(
    "--no-bodies", is_flag=True, help="Leave out what was said: lengths and hashes alone."
)
@click.option("--no-redact", is_flag=True, help="Leave secrets and personal data as they are.")
@with_configuration
def export(
    config_path: Path | None,
    db: str | None,
    refs: tuple[str, ...],
    format: str | None,
    output: str | None,
    query: str | None,
    no_bodies: bool,
    no_redact: bool,
) -> None:
    """Export what was recorded of a session, turn, run, step, message or request: a bug report.

    ID is what `xgw show` takes: an id, whole or in part, a session's key, `last`. Several make one
    document; without any it holds the whole store. Secrets, and what tells who somebody is, are
    masked: [key-1], [email-2]. Without -o it goes to stdout, from a terminal into a file of the
    id's name. What was imported is exported again as it was; an import's own id is all of it.

    \b
    Examples:
      xgw export last
      xgw export checkout-42 -o report.json
      xgw export --filter 'state:error cost>0.1' -o reports/
      xgw export checkout-42 --format pytest -o tests/checkout/
      xgw export --format jsonl -o - | gzip > store.jsonl.gz
    """
    from xgw.cli.exporting import Export
    from xgw.portable.writing import DEFAULT

    if refs and query is not None:
        raise UsageError("give ids or --filter, not both")
    if output == "":
        raise UsageError("-o names no file: give one, a folder/, or - for stdout")
    with opened(config_path, db, refs) as (loaded, store, refs):
        roots = roots_of(store, refs) if query is None else _fitting(store, query)
        filter = None if query is None else {"q": query}
        kept = {"bodies": not no_bodies, "redact": not no_redact}
        if format == PYTEST:
            wanted = Export(loaded.config, store, filter=filter, redact=not no_redact)
            _to_folder(wanted, roots, output, no_bodies)
            return
        wanted = Export(loaded.config, store, format or DEFAULT, filter, **kept)
        wanted.place(roots, output)


def _to_folder(
    wanted: Export, roots: list[Root] | None, output: str | None, no_bodies: bool
) -> None:
    """A test of an app against what was recorded."""
    from xgw.cli import placing

    if no_bodies:
        raise UsageError("a test needs what was said: leave --no-bodies out")
    if output == placing.STDOUT:
        raise UsageError("a test is a folder: name one with -o FOLDER")
    wanted.place_test(roots, output)


@contextlib.contextmanager
def opened(
    config_path: Path | None, db: str | None, refs: tuple[str, ...]
) -> Iterator[tuple[Loaded, Store, tuple[str, ...]]]:
    """The store that has what is named first, and all that is named; an import by its own id."""
    from xgw.cli import places
    from xgw.cli.configuration import load
    from xgw.portable import imports
    from xgw.portable.naming import ID

    if len(refs) == 1 and ID.fullmatch(refs[0]):
        loaded = load(config_path, db)
        one = imports.Imports(loaded.config.storage.path).get(refs[0])
        with imports.opened(one.path) as store:
            yield loaded, store, ()
    elif refs:
        with places.holding(config_path, db, refs[0]) as (loaded, place):
            yield loaded, place.store, refs
    else:
        with reading.opened(config_path, db) as (loaded, store):
            yield loaded, store, ()


def roots_of(store: Store, refs: Iterable[str]) -> list[Root] | None:
    """What is named, each once; None for everything."""
    return list(dict.fromkeys(root_of(store, ref) for ref in refs)) or None


def root_of(store: Store, ref: str) -> Root:
    """What this names; of an event, the turn or the session that it tells of."""
    from xgw.cli import refs
    from xgw.portable.chosen import Root

    found = refs.get(store, ref)
    if found.kind != "event":
        return Root(found.kind, found.row["id"])
    event = found.row
    if event.turn_id is not None:
        return Root("turn", event.turn_id)
    if event.session_id is not None:
        return Root("session", event.session_id)
    raise WorkError(f"the event {ref} tells of no session and no turn")


def _fitting(store: Store, query: str) -> list[Root]:
    from xgw.portable.selection import Selection

    wanted = reading.filters_of("sessions", {"q": query}, "--filter:")
    with reading.refused_as_usage("--filter:"):
        found = list(Selection(store, "sessions", filters=wanted))
    if not found:
        raise WorkError(f"no session fits {query!r}")
    return found
