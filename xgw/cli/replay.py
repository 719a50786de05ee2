"""The command `replay`: a bundle answers as a provider, as it was recorded."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Any

import click

from xgw.cli.server import bind, url_of
from xgw.cli.terminal import note

if TYPE_CHECKING:
    from xgw.portable.replay.reel import Reel

STDIN = "-"
FASTEST = "max"


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
@click.argument("file")
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
def replay(file: str, port: int, speed: float, upstream: bool) -> None:
    """Serve a bundle as an OpenAI-compatible provider that answers as it was recorded.

    The requests in FILE (- for stdin) are answered in their order with their status, headers,
    bytes and timing, failures too. A request that is not the recorded one is answered with 409 and
    the first difference; so is one too many. GET /replay tells how far it is.

    An app hears what it heard then from the gateway: what was tried in vain before is waited for
    and not repeated. With --upstream every try is played, to a gateway that is to be tested.

    \b
    Examples:
      xgw replay bug-report.json
      OPENAI_BASE_URL=http://127.0.0.1:4010/v1 python app.py   # xgw replay bug.json --port 4010
      xgw replay bug-report.json --speed max --upstream
    """
    if file == STDIN:
        _play(sys.stdin.buffer, "stdin", port, speed, upstream)
        return
    with open(file, "rb") as opened:
        _play(opened, file, port, speed, upstream)


def _play(file: IO[bytes], name: str, port: int, speed: float, upstream: bool) -> None:
    from xgw.portable.replay.opening import opened
    from xgw.portable.replay.server import HOST, Player

    reel: AbstractContextManager[Reel] = opened(file, name, every_try=upstream)
    with reel as played:
        listener = bind(HOST, port)
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
