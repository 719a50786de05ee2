"""The text files of a folder. Links are not followed: nothing outside the folder is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

MAX_FILES = 10_000
MAX_FILE_BYTES = 2 << 20
MAX_DEPTH = 32

_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is now: `path` from the folder, with slashes; `stamp` is another if it changed.

    `size` is in bytes.
    """

    place: str
    path: str
    stamp: int
    size: int


def list_files(folder: str) -> Iterator[File]:
    """The files that may count, in order of their names; hidden ones do not. OSError without it."""
    for number, file in enumerate(_walk(folder, "", MAX_DEPTH)):
        if number >= MAX_FILES:
            return
        yield file


def read_text(file: File) -> str | None:
    """What it holds; None if that is no UTF-8 text, or cannot be read."""
    try:
        descriptor = os.open(file.place, _FLAGS)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        try:
            content = opened.read(MAX_FILE_BYTES + 1)
        except OSError:
            return None
    if len(content) > MAX_FILE_BYTES or b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _walk(folder: str, prefix: str, depth: int) -> Iterator[File]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = f"{prefix}{_printable(entry.name)}"
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth:
                    yield from _inside(entry.path, f"{path}/", depth - 1)
            elif entry.is_file(follow_symlinks=False):
                told = entry.stat(follow_symlinks=False)
                if told.st_size <= MAX_FILE_BYTES:
                    yield File(entry.path, path, told.st_mtime_ns, told.st_size)
        except OSError:  # it is gone again
            continue


def _inside(folder: str, prefix: str, depth: int) -> Iterator[File]:
    try:
        yield from _walk(folder, prefix, depth)
    except OSError:  # it may not be looked into
        return


def _printable(name: str) -> str:
    """A name as text: what is none, or would break a line, is replaced."""
    text = name.encode("utf-8", "replace").decode()
    return "".join(char if char.isprintable() else "�" for char in text)
