"""The `xgw` command: which commands there are, and how every one of them ends."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import click

from xgw import __version__
from xgw.errors import UsageError, WorkError

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

COMMANDS: dict[str, tuple[str, str, str]] = {
    "serve": ("xgw.cli.serve", "serve", "Serve: the gateway, its record, the dashboard."),
    "chat": ("xgw.cli.chat", "chat", "Talk to an agent or a model."),
    "sessions": ("xgw.cli.listing", "sessions", "List sessions, the latest first."),
    "show": ("xgw.cli.show", "show", "Tell all about a session, turn, run, step or request."),
    "requests": ("xgw.cli.listing", "requests", "List the requests that went to providers."),
    "export": ("xgw.cli.export", "export", "Export what was recorded: a bug report."),
    "import": ("xgw.cli.importing", "import_", "Open a bundle, to be read."),
    "replay": ("xgw.cli.replay", "replay", "Serve a bundle as a provider that answers again."),
    "tail": ("xgw.cli.tail", "tail", "Follow the events, live."),
    "cancel": ("xgw.cli.cancel", "cancel", "Cancel a turn."),
    "approve": ("xgw.cli.deciding", "approve", "Approve a tool call that waits."),
    "deny": ("xgw.cli.deciding", "deny", "Deny a tool call that waits."),
    "resume": ("xgw.cli.rerunning", "resume", "Go on with a run that was interrupted."),
    "rerun": ("xgw.cli.rerunning", "rerun", "Run a turn once more."),
    "agents": ("xgw.cli.agents", "agents", "List the agents that are defined."),
    "keys": ("xgw.cli.keys", "keys", "Make, list and revoke client keys."),
    "stats": ("xgw.cli.stats", "stats", "Sums, errors, costs and latencies."),
    "check": ("xgw.cli.configuration", "check", "Check the configuration without starting."),
    "config": ("xgw.cli.configuration", "config", "Show the configuration in force."),
    "migrate": ("xgw.cli.migrate", "migrate", "Bring the store to this version's schema."),
    "backfill-turns": (
        "xgw.cli.backfill",
        "backfill_turns",
        "Give messages from before turns existed their turn.",
    ),
    "prune": ("xgw.cli.prune", "prune", "Delete what is old, give room back."),
    "backup": ("xgw.cli.backup", "backup", "Copy the store, while it is written too."),
    "doctor": ("xgw.cli.doctor", "doctor", "Look for what is wrong, and say what to do."),
}
"""Name → (module, attribute, short help). A module is imported when its command is used."""


class Commands(click.Group):
    """The group of all commands, and the edge at which their errors become exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        with _quiet_on_closed_pipe():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        call = partial(super().main, args, prog_name, complete_var, False, **extra)
        if not standalone_mode:
            return call()
        sys.excepthook = _show_fault
        _open_closed_streams()
        _speak_utf8()
        sys.exit(_run(call))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="xgw %(version)s")
def main() -> None:
    """A gateway for LLM applications that records what passes through it."""


def _run(call: Callable[[], Any]) -> int:
    """The exit code of a command; what went wrong is told on stderr, in sentences."""
    try:
        ended = call()
        return ended if isinstance(ended, int) else DONE
    except UsageError as error:
        return _fail(WRONG_USAGE, *error.lines)
    except WorkError as error:
        return _fail(FAILED, str(error))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return _fail(FAILED, f"{error.strerror or error}{where}")


def _fail(code: int, *lines: str) -> int:
    for line in lines:
        click.echo(f"xgw: {line}", err=True)
    return code


@contextlib.contextmanager
def _quiet_on_closed_pipe() -> Iterator[None]:
    """Whoever read our output has enough: end as if all was said (`xgw … | head`)."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # Windows says EINVAL when the reader of a pipe has gone.
        gone = isinstance(error, BrokenPipeError) or (
            os.name == "nt" and error.errno == errno.EINVAL
        )
        if not gone:
            raise
        # Python flushes once more at its end, and must find someone to write to.
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(DONE) from None


def _open_closed_streams() -> None:
    """A standard stream that is closed (`xgw … <&-`) is an empty one.

    In order: each takes the lowest number that is free, which else a store would get.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _speak_utf8() -> None:
    """UTF-8 to pipes and files whatever the locale; a terminal replaces what it cannot show."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="replace")


def _show_fault(
    kind: type[BaseException], fault: BaseException, trace: TracebackType | None
) -> None:
    """A fault of xgw itself in one line that says where to look."""
    frames = traceback.extract_tb(trace)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    click.echo(f"xgw: an internal error occurred: {kind.__name__}: {fault}{where}", err=True)
