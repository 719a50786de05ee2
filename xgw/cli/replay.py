"""The command `replay`: a bundle answers as a provider, as it was recorded."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from xgw.cli.configuration import FILE_NAME, is_utf8, with_configuration
from xgw.cli.reading import open_file
from xgw.cli.server import bind, listen, url_of
from xgw.cli.terminal import note

if TYPE_CHECKING:
    from xgw.portable.replay.reel import Reel

STDIN = "-"
FASTEST = "max"
SUFFIXES = frozenset({".json", ".jsonl", ".gz"})


class _Speed(click.ParamType[float]):
    name = "speed"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """A factor; `max` and 0 are without waits."""
        if value == FASTEST:
            return 0.0
        try:
            speed = float(value)
        except ValueError:
            speed = -1.0
        if not 0 <= speed <= 1_000_000:
            self.fail(f"{value!r} is neither a factor such as 1 or 2.5 nor {FASTEST}", param, ctx)
        return speed


@click.command()
@click.argument("source", metavar="FILE|ID", type=FILE_NAME)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="0, the default: a free one."
)
@click.option(
    "--speed",
    type=_Speed(),
    default=1.0,
    metavar="FACTOR",
    help="2 is twice as fast as recorded; 0 or max without any wait.",
)
@click.option("--upstream", is_flag=True, help="Play every try, as the upstream answered it.")
@with_configuration
def replay(
    config_path: Path | None, db: str | None, source: str, port: int, speed: float, upstream: bool
) -> None:
    """Serve a bundle as an OpenAI-compatible provider that answers as it was recorded.

    The requests in FILE (- for stdin), or of what was recorded or imported here (any ID that `xgw
    export` takes), are answered in their order with their status, headers,
    bytes and timing, failures too. A request that is not the recorded one is answered with 409 and
    the first difference; so is one too many. GET /replay tells how far it is.

    An app hears what it heard then from the gateway: what was tried in vain before is waited for
    and not repeated. With --upstream every try is played, to a gateway that is to be tested.

    \b
    Examples:
      xgw replay bug-report.json
      OPENAI_BASE_URL=http://127.0.0.1:4010/v1 python app.py   # xgw replay bug.json --port 4010
      xgw replay last
      xgw replay bug-report.json --speed max --upstream
    """
    if source == STDIN:
        _play(sys.stdin.buffer, "stdin", port, speed, upstream)
    elif _is_file(source):
        with open_file(source) as file:
            _play(file, source, port, speed, upstream)
    else:
        with _recorded(config_path, db, source) as bundle:
            _play(bundle, source, port, speed, upstream)


def _is_file(source: str) -> bool:
    """Whether a file is meant, there or not: no id has a folder, a bundle's suffix or odd bytes."""
    path = Path(source)
    named = len(path.parts) > 1 or path.suffix in SUFFIXES or not is_utf8(source)
    return named or path.is_file()


@contextmanager
def _recorded(config_path: Path | None, db: str | None, ref: str) -> Iterator[IO[bytes]]:
    """What is recorded of this here, as a bundle; it is for this machine: nothing is masked."""
    from xgw.cli.export import opened, roots_of
    from xgw.cli.exporting import Export

    with tempfile.TemporaryFile() as bundle:
        with opened(config_path, db, (ref,)) as (loaded, store, refs):
            Export(loaded.config, store, redact=False).write(roots_of(store, refs), bundle)
        bundle.seek(0)
        yield bundle


def _play(file: IO[bytes], name: str, port: int, speed: float, upstream: bool) -> None:
    from xgw.portable.replay.opening import opened
    from xgw.portable.replay.server import HOST, Player

    reel: AbstractContextManager[Reel] = opened(file, name, every_try=upstream)
    with reel as played:
        listener = bind(HOST, port)
        listen(listener)
        player = Player(played, listener, speed=speed, as_upstream=upstream)
        ended = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        player.start()
        status = played.status()
        click.echo(f"xgw plays {_counted(status['total'])} of {name}. Base URL for clients:")
        click.echo(f"  {url_of(listener)}/v1")
        sys.stdout.flush()
        if status["left_out"]:
            note(f"left out: {_counted(status['left_out'])} under way then, or without a body")
        ended.wait()
        player.stop()
        note(_summary(played.status()))


def _summary(status: dict[str, Any]) -> str:
    words = f"Played {status['played']} of {_counted(status['total'])}"
    refused = status["refused"]
    return f"{words}; {refused} refused." if refused else f"{words}."


def _counted(count: int) -> str:
    return f"{count} request{'' if count == 1 else 's'}"
