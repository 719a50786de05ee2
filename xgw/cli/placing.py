"""Where a command's document goes: a file that is there whole or not at all, a folder, stdout."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from xgw.errors import WorkError

Write = Callable[[BinaryIO], None]

STDOUT = "-"


def is_folder(given: str) -> bool:
    """Whether this names a folder: one that is there, or by the slash at its end."""
    ends = (os.sep, os.altsep or os.sep)
    return given.endswith(ends) or Path(given).is_dir()


def free_path(stem: str, suffix: str) -> Path:
    """A file in the current folder that is not there yet."""
    path, number = Path(f"{stem}{suffix}"), 1
    while path.exists():
        number += 1
        path = Path(f"{stem}-{number}{suffix}")
    return path


def to_stdout(write: Write) -> None:
    """Nothing leaves before all of it is there."""
    with _whole(write) as whole:
        sys.stdout.flush()
        shutil.copyfileobj(whole, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def to_file(path: Path, write: Write) -> None:
    """Made beside its place and moved there when it is whole; folders to it are made.

    What is no plain file, as a device or a pipe, gets all of it once it is there. WorkError says
    what cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with _whole(write) as whole, path.open("wb") as out:
                shutil.copyfileobj(whole, out)
            return
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        with _beside(path) as out:
            write(out)
    except OSError as error:
        raise WorkError(f"{path} cannot be written: {error.strerror or error}") from None


@contextlib.contextmanager
def _whole(write: Write) -> Iterator[BinaryIO]:
    """All of the document, to be read: writing it goes back and forth, and pipes do not."""
    with tempfile.TemporaryFile() as whole:
        write(whole)
        whole.seek(0)
        yield whole


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[BinaryIO]:
    made, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(made, "wb") as out:
            yield out
        with contextlib.suppress(OSError):
            os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
