"""What commands are told: `--config` and `--db` of all of them, and the commands that explain."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import orjson

from xgw.errors import UsageError

if TYPE_CHECKING:
    from xgw.agents.definition import Agents
    from xgw.config import Config, Loaded

Command = TypeVar("Command", bound=Callable[..., Any])

KEY_WIDTH = 48
FILE_NAME = click.Path(readable=False)
"""The type of an argument that names a file, which may not be there: it may be any bytes."""


def with_configuration(command: Command) -> Command:
    """Give a command the options that all have; `load` takes their values.

    What it is given is text, files' names alone may be any bytes: UsageError for the rest.
    """

    @functools.wraps(command)
    def checked(*args: Any, **kwargs: Any) -> Any:
        refuse_bytes(click.get_current_context())
        return command(*args, **kwargs)

    db = click.option(
        "--db", metavar="PATH", type=FILE_NAME, help="The store: a file, or sqlite:///path."
    )
    file = click.option(
        "--config",
        "config_path",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The configuration file.",
    )
    return cast(Command, file(db(checked)))


def refuse_bytes(context: click.Context) -> None:
    """UsageError for an argument that is not UTF-8, unless it names a file."""
    for parameter in context.command.params:
        given = context.params.get(parameter.name or "")
        texts = given if isinstance(given, tuple) else (given,)
        if not isinstance(parameter.type, click.Path) and not all(map(is_utf8, texts)):
            name = max(parameter.opts, key=len)
            if isinstance(parameter, click.Argument):
                name = (parameter.metavar or name.upper()).strip("[].")
            raise UsageError(f"{name} must be UTF-8 text")


def is_utf8(value: Any) -> bool:
    """Python has bytes of the command line that are not UTF-8 as lone surrogates."""
    return not isinstance(value, str) or value == value.encode(errors="replace").decode()


def with_json(command: Command) -> Command:
    """Give a command that lists or shows the option `--json` (parameter `as_json`)."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def load(
    config_path: Path | None,
    db: str | None,
    overrides: Mapping[str, object] = MappingProxyType({}),
    *,
    demo: bool = False,
    keys_known: bool = False,
) -> Loaded:
    """The configuration that a command works with; UsageError with all mistakes in it.

    `keys_known` is for commands that make the keys which a server for others must have.
    """
    if db == "":
        # `--db "$STORE"` without that variable must not mean the usual store.
        raise UsageError("--db must name a file, and is empty")
    from xgw import config

    return config.load(
        config_path,
        overrides={"storage.url": db, **overrides},
        demo=demo,
        has_keys=(lambda store: True) if keys_known else _has_keys,
    )


def load_agents(loaded: Loaded) -> Agents:
    """The agents with the functions of their tools; UsageError with all mistakes in them."""
    from xgw.agents.definition import read_agents

    return read_agents(loaded.config, loaded.sources)


def _has_keys(store: Path) -> bool:
    from xgw.queries.keys import has_active

    return has_active(store)


def unasked_words(config: Config) -> str | None:
    """The providers that nothing is asked of yet, and why, on a line; None if there are none."""
    names = ", ".join(provider.name for provider in config.providers if not provider.is_asked)
    return f"{names} (there is no /v1/messages and no /v1/responses yet)" if names else None


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))


@click.command()
@with_configuration
@with_json
def check(config_path: Path | None, db: str | None, as_json: bool) -> None:
    """Check the configuration without starting: every mistake is one line, exit code 2.

    MCP servers are started and asked for their tools.

    \b
    Examples:
      xgw check
      xgw check --config staging.toml
    """
    from xgw.agents.definition import refuse_unavailable

    loaded = load(config_path, db)
    config = loaded.config
    agents = ", ".join(load_agents(loaded)) or "none"
    refuse_unavailable(config, loaded.sources)
    if as_json:
        print_json(
            {
                "path": _text(loaded.path),
                "providers": [provider.name for provider in config.providers],
                "routes": [route.model for route in config.routes],
                "agents": list(config.agents),
                "storage": str(config.storage.path),
            }
        )
        return
    click.echo(f"{_named(loaded)}: no mistakes")
    click.echo(f"providers  {', '.join(provider.label for provider in config.providers)}")
    if unasked := unasked_words(config):
        click.echo(f"not asked  {unasked}")
    click.echo(f"routes     {', '.join(route.model for route in config.routes) or 'none'}")
    click.echo(f"agents     {agents}")
    click.echo(f"store      {config.storage.path}")


@click.command()
@click.option("--show", is_flag=True, help="Print every value and where it comes from.")
@with_configuration
@with_json
def config(config_path: Path | None, db: str | None, show: bool, as_json: bool) -> None:
    """Tell which file holds the configuration; --show prints the values, secrets masked.

    \b
    Examples:
      xgw config
      xgw config --show
      xgw config --show --json | jq -r '.values[].key'
    """
    from xgw.config import show as rows_of

    loaded = load(config_path, db)
    rows = rows_of(loaded) if show else []
    if as_json:
        values = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        print_json({"path": _text(loaded.path)} | ({"values": values} if show else {}))
        return
    if not show:
        click.echo(_named(loaded))
    width = min(KEY_WIDTH, max((len(f"{key} = {value}") for key, value, _ in rows), default=0))
    for key, value, source in rows:
        click.echo(f"{f'{key} = {value}':<{width}}  # {source}")


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _named(loaded: Loaded) -> str:
    return "no configuration file, defaults apply" if loaded.path is None else str(loaded.path)
