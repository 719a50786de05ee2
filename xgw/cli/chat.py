"""The command `chat`: messages to an agent or a model, one, from a pipe, or a conversation."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from xgw.cli import FAILED, INTERRUPTED, reading
from xgw.cli.configuration import load, load_agents, with_configuration, with_json
from xgw.cli.terminal import note, stderr, write_json
from xgw.errors import UsageError

if TYPE_CHECKING:
    from xgw.cli.conversation import Asked
    from xgw.cli.going_on import Answer
    from xgw.cli.speaking import Event
    from xgw.config import Config, Loaded
    from xgw.store.database import Store

Spell = Callable[["Event"], str]


@click.command()
@click.argument("message", required=False)
@click.option("-a", "--agent", metavar="NAME", help="The agent; `xgw agents` lists them.")
@click.option("-s", "--session", metavar="ID", help="A session, by id or key; a new key begins it.")
@click.option("-c", "--continue", "goes_on", is_flag=True, help="Go on in the newest session.")
@click.option("-m", "--model", metavar="MODEL", help="The model; without -a it alone answers.")
@click.option("--mode", type=click.Choice(["chat", "task"]), help="How the agent works.")
@click.option(
    "--details/--no-details",
    default=None,
    help="Tell on stderr what happens in the turn; for one message on a terminal it is told.",
)
@with_configuration
@with_json
def chat(
    config_path: Path | None,
    db: str | None,
    as_json: bool,
    message: str | None,
    details: bool | None,
    **named: Any,
) -> None:
    """Talk to an agent, or to a model alone.

    With MESSAGE there is one turn; what comes in through a pipe is the message, or follows it.
    Without both, on a terminal, it is a conversation: /help tells what it understands. The text is
    printed as it comes. Ctrl-C cancels the turn; what had arrived is kept.

    The running server of the store does the work; without one, this command does. Without -a and
    -m it is the only agent that answers, else the model of the first route.

    \b
    Exit codes: 0 answered, 1 the turn ended in error or waits for an
    approval, 2 bad usage, 130 cancelled.

    \b
    Examples:
      xgw chat "What is the weather in Oslo and 17*23?" --details
      git diff | xgw chat "Explain this change" -a reviewer
      xgw chat -c "And in one sentence?"
      xgw chat -m gpt-4o -s checkout-42
    """
    from xgw.cli.conversation import Asked

    asked = Asked(**named)
    if asked.goes_on and asked.session is not None:
        raise UsageError("-c and -s exclude each other: -c chooses the session itself")
    whole = _message(message)
    if whole is None and as_json:
        raise UsageError("--json needs a message: it prints the answer to one")
    loaded = load(config_path, db)
    load_agents(loaded)  # a mistake in a tool is told here, in the words of `xgw check`
    if whole is None:
        _converse(loaded, asked, bool(details))
    else:
        if details is None:
            details = sys.stderr.isatty() and not as_json
        _ask_once(loaded, asked, whole, details=details, as_json=as_json)


def _message(given: str | None) -> str | None:
    """What is to be said; None where a person is to be asked for it."""
    if sys.stdin.isatty():
        if given is not None and not given.strip():
            raise UsageError("the message is empty")
        return given
    piped = sys.stdin.buffer.read().decode("utf-8", "replace")
    parts = [part for part in (given, piped) if part and part.strip()]
    if not parts:
        raise UsageError("there is no message: give one, or write one into the pipe")
    return "\n\n".join(parts)


def _ask_once(loaded: Loaded, asked: Asked, message: str, *, details: bool, as_json: bool) -> None:
    from xgw.cli.conversation import Conversation
    from xgw.cli.doors import opened_door

    with opened_door(loaded) as (door, store):
        conversation = Conversation(door, store, asked)
        spell = event_speller(loaded.config, store) if details else None
        answer = conversation.say(message, spell, quiet=as_json)
    if as_json:
        write_json(answer)
    code = tell_outcome(answer)
    if code:
        raise SystemExit(code)


def _converse(loaded: Loaded, asked: Asked, details: bool) -> None:
    from xgw.cli.conversation import Conversation
    from xgw.cli.dialogue import Dialogue
    from xgw.cli.doors import opened_door

    with opened_door(loaded) as (door, store):
        conversation = Conversation(door, store, asked)
        spell = event_speller(loaded.config, store)
        export = session_exporter(loaded.config, store)
        Dialogue(conversation, spell, export, store.path, details=details).run()


def event_speller(config: Config, store: Store) -> Spell:
    """A line of each event, as `xgw tail` prints it, for stderr."""
    from xgw.cli.event_lines import EventLines
    from xgw.queries.sessions import find_session

    def session_key(id: str) -> Any:
        found = find_session(store, id)
        return found and found["session_key"]

    return EventLines(stderr(), reading.demos(config), session_key).spell


def session_exporter(config: Config, store: Store) -> Callable[[str, str | None], None]:
    """Writes a bug report of a session into a file, or one of its name."""

    def export(session_id: str, file: str | None) -> None:
        from xgw.cli.exporting import Export
        from xgw.portable.chosen import Root

        whole, roots = Export(config, store), [Root("session", session_id)]
        if file is None:
            whole.place_named(roots)
        else:
            whole.place(roots, file)

    return export


def tell_outcome(answer: Answer) -> int:
    """Say on stderr why a turn did not end well, or what it waits for; its exit code."""
    from xgw.cli.going_on import tell_waiting

    if answer["status"] == "success":
        return 0
    if answer.get("pendingApprovals"):
        tell_waiting(answer)
        return FAILED
    if answer["status"] == "cancelled":
        note(f"xgw: {answer['turnId']} was cancelled")
        return INTERRUPTED
    error = answer["error"] or {"type": "error", "message": "no reason is known"}
    note(f"xgw: {error['type']}: {error['message']}")
    return FAILED
