"""Reading the store from a command: opened if it can be read, filters as options, bodies."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from xgw import clock, spelling
from xgw.cli import room
from xgw.cli.configuration import load
from xgw.errors import ApiError, UsageError, WorkError

if TYPE_CHECKING:
    from xgw.config import Config, Loaded
    from xgw.queries.filters import Filters
    from xgw.queries.pages import Page, Row
    from xgw.store.database import Store
    from xgw.web.serialize import Payloads

Command = TypeVar("Command", bound=Callable[..., Any])

_TIMES = ("since", "until")
_FLAGS = ("has_error", "running")
QUERY = "q"
_SPELLINGS = {"session_id": ("-s", "--session"), "turn_id": ("--turn",)}


@contextlib.contextmanager
def opened(
    config_path: Path | None, db: str | None, *, keys_known: bool = False, any_schema: bool = False
) -> Iterator[tuple[Loaded, Store]]:
    """The configuration and its store, to be read; UsageError if there is none that can be.

    `keys_known` as `load` has it; `any_schema` takes stores of other versions of xgw.
    """
    import peewee

    from xgw.store.database import Store

    loaded = load(config_path, db, keys_known=keys_known)
    store = Store(loaded.config.storage.path)
    _refuse_missing(store)
    try:
        _refuse_foreign(store, any_schema=any_schema)
        yield loaded, store
    except peewee.DatabaseError as error:
        raise WorkError(f"the store {store.path} cannot be read: {error}") from None
    finally:
        store.close()


def open_file(path: str) -> BinaryIO:
    """A file that was named, to be read; UsageError if it is not there."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None


def _refuse_missing(store: Store) -> None:
    if not store.path.exists():
        raise UsageError(f"there is no store {store.path} yet: `xgw serve` creates it")
    if not store.path.is_file():
        raise UsageError(f"{store.path} is no store but a folder: name another with --db PATH")


def _refuse_foreign(store: Store, *, any_schema: bool) -> None:
    """UsageError unless the store has exactly the schema that this xgw knows, or any of xgw's."""
    import peewee

    from xgw.store import migrations

    known = {path.stem for path in migrations.DIRECTORY.glob("[0-9]*.py")}
    try:
        applied = {row[0] for row in store.sql(f"SELECT name FROM {migrations.HISTORY}")}
    except peewee.DatabaseError as error:
        from xgw.upkeep.store_checks import can_be_read

        if room.is_full(store.path):
            message = f"the disk of {store.path} is full: free some of it, 64 KiB to read the store"
            raise WorkError(message) from None
        if not can_be_read(store.path):
            words = f"{store.path} cannot be read: {os.strerror(errno.EACCES)}"
            raise UsageError(words) from None
        _refuse_older(store)
        words = f"{store.path} is no store of xgw ({error}): name another with --db PATH"
        raise UsageError(words) from None
    if any_schema:
        return
    if newer := sorted(applied - known):
        words = f"{store.path} was written by a newer xgw (schema {newer[-1]}): upgrade xgw"
        raise UsageError(words)
    if known - applied:
        words = f"{store.path} was written by an older xgw: `xgw migrate` brings it forward"
        raise UsageError(words)


def _refuse_older(store: Store) -> None:
    """UsageError for the store of an older program, which can be taken over."""
    import sqlite3

    import peewee

    from xgw.store import migrations

    with (
        contextlib.suppress(sqlite3.DatabaseError, peewee.DatabaseError),
        store.reading() as database,
    ):
        connection = database.connection()  # type: ignore[no-untyped-call]
        migrations.refuse_old_tables(connection, store.path)


# -- filters and pages as options ------------------------------------------------------------------


def with_filters(**helps: str) -> Callable[[Command], Command]:
    """Give a command an option for each named filter; `filters_of` takes their values.

    Those that are true or false become a pair of flags, the others may be given several times.
    """

    def decorate(command: Command) -> Command:
        for name, text in reversed(helps.items()):
            options = _SPELLINGS.get(name, (_spelled(name),))
            if name in _FLAGS:
                no = options[0].replace("--", "--no-").replace("has-", "")
                command = click.option(f"{options[0]}/{no}", name, default=None, help=text)(command)
            elif name in _TIMES:
                command = click.option(*options, name, metavar="TIME", help=text)(command)
            else:
                several = click.option(*options, name, multiple=True, metavar="X", help=text)
                command = several(command)
        return command

    return decorate


def filters_of(noun: str, given: Mapping[str, Any], query: str = "the query:") -> Filters:
    """The filters of a list from a command's options; UsageError names the option.

    `query` as `refused_as_usage` has it.
    """
    from xgw.queries import filters

    with refused_as_usage(query):
        return filters.parse(noun, pairs_of(given))


def pairs_of(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The same as names and texts, as the API takes them."""
    return [(name, text) for name, value in given.items() for text in _texts(name, value)]


def time_of(name: str, text: str | None) -> Any:
    """The moment that an option names, None without one; UsageError."""
    try:
        return None if text is None else spelling.since(text)
    except ValueError as error:
        raise UsageError(f"{_spelled(name)}: {error}") from None


def with_page(command: Command) -> Command:
    """Give a command that lists the options of a page; `page_of` takes their values."""
    limit = click.option(
        "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="How many rows."
    )
    cursor = click.option(
        "--cursor", metavar="X", help="Go on: the next_cursor of the page before."
    )
    order = click.option(
        "--order", type=click.Choice(["desc", "asc"]), default="desc", help="Newest first, or last."
    )
    return limit(cursor(order(command)))


def page_of(limit: int, cursor: str | None, order: Any) -> Page:
    """The page that a command's options ask for."""
    from xgw.queries.pages import Page

    return Page(limit, cursor, order)


@contextlib.contextmanager
def refused_as_usage(query: str = "the query:") -> Iterator[None]:
    """What the API refuses in a request is a mistake on the command line here.

    `query` is what a query in the filter language is given by.
    """
    try:
        yield
    except ApiError as error:
        option = query if error.param == QUERY else _spelled(error.param or "")
        if error.message.startswith(f"{error.param} "):
            option = option.removesuffix(":")  # the sentence goes on
        named = f"{option} " if error.param else ""
        message = error.message.removeprefix(f"{error.param}: ").removeprefix(f"{error.param} ")
        raise UsageError(f"{named}{message}") from None


def _texts(name: str, value: Any) -> Iterable[str]:
    if value is None:
        return ()
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if name in _TIMES:
        return (clock.to_rfc3339(time_of(name, value)),)
    return (value,) if isinstance(value, str) else value


def _spelled(name: str) -> str:
    return _SPELLINGS[name][-1] if name in _SPELLINGS else f"--{name.replace('_', '-')}"


# -- what rows alone do not say --------------------------------------------------------------------


def windows(config: Config) -> Callable[[Row], int | None]:
    """How many tokens fit into a session's context, as the API tells it.

    But of the model that an agent asks only by its name, without the routes that may stand for it.
    """
    from xgw.accounting.prices import PriceBook

    prices = PriceBook(config.prices)
    providers = {provider.name: provider for provider in config.providers}

    @functools.cache
    def of_model(model: str | None, provider: str | None) -> int | None:
        return prices.context_window(model, providers.get(provider or ""))

    def of_session(row: Row) -> int | None:
        agent, provider = config.agents.get(row["agent_name"] or ""), row["provider_name"]
        if agent is not None and agent.context.window is not None:
            return agent.context.window
        found = of_model(row["model"], provider)
        if found is None and agent is not None:
            return of_model(agent.model.removeprefix(f"{provider}/"), provider)
        return found

    return of_session


def demos(config: Config) -> frozenset[str]:
    """The names of providers behind which there is no model; `demo` too, if it is no other one."""
    kinds = {provider.name: provider.kind for provider in config.providers}
    return frozenset(n for n, kind in {"demo": "demo", **kinds}.items() if kind == "demo")


def payloads_of(store: Store, rows: Iterable[Row], *, bodies: bool) -> Payloads:
    """How the payload columns of these rows are shown: as hash and size, or as bodies."""
    from xgw.queries import payloads
    from xgw.web.serialize import Payloads

    hashes = payloads.hashes_of(rows)
    found = payloads.known(store, hashes)
    shown = payloads.bodies(store, found.sizes) if bodies else {}
    return Payloads(found.sizes, shown, found.pruned)
