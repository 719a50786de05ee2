"""Opening the dashboard in the browser of whoever starts the server."""

from __future__ import annotations

import contextlib
import http.client
import os
import sys
import threading
import webbrowser
from urllib.parse import urlsplit

import click

ANSWER_SECONDS = 10.0


def open_once_it_answers(url: str) -> None:
    """Have a browser show `url`, from a thread; a line on stderr says so if there is none."""
    threading.Thread(target=_open, args=(url,), name="browser", daemon=True).start()


def _open(url: str) -> None:
    _wait_for_answer(url)
    if not (_has_screen() and _show(url)):
        with contextlib.suppress(OSError):
            click.echo(f"no browser can be opened here: the dashboard is at {url}", err=True)


def _wait_for_answer(url: str) -> None:
    """The server listens already, so that one request waits until it is answered."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, ANSWER_SECONDS)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("HEAD", parts.path)
        connection.getresponse()


def _has_screen() -> bool:
    """Without one Python would offer the browsers that draw in a terminal: in this one."""
    if sys.platform in ("win32", "darwin"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _show(url: str) -> bool:
    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
