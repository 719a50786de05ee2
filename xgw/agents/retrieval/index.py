"""The full-text index of a folder: made when it is first searched, mended when files changed."""

from __future__ import annotations

import re
import sqlite3
import threading
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from xgw.agents.retrieval.files import File, list_files, read_text
from xgw.agents.retrieval.passages import cut

MAX_WORDS = 64

_TABLES = """
CREATE TABLE passages (id INTEGER PRIMARY KEY, path TEXT, line INTEGER, text TEXT);
CREATE INDEX by_path ON passages (path);
CREATE VIRTUAL TABLE words USING fts5 (
    path, text, content = '',
    tokenize = 'porter unicode61 remove_diacritics 2'
);
"""
_SEARCH = (
    "SELECT path, line, score, text FROM (SELECT rowid, bm25(words, 0.5, 1.0) AS score FROM words "
    "WHERE words MATCH ? ORDER BY score LIMIT ?) AS hit JOIN passages ON passages.id = hit.rowid "
    "ORDER BY score, path, line"
)
_WORD = re.compile(r"\w+")
_ALONE = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
"""Characters of scripts that do not part words by spaces: each is found by itself."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that fits; the higher its score, the better."""

    path: str
    line: int
    score: float
    text: str


class Index:
    """Searches a folder; for any thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._stamps: dict[str, tuple[int, int]] = {}
        self._connection: sqlite3.Connection | None = None

    def search(self, query: str, most: int) -> list[Hit]:
        """The passages that fit best. OSError if the folder cannot be read."""
        with self._lock:
            connection = self._refreshed()
            wanted = match(query)
            if not wanted:
                return []
            rows = connection.execute(_SEARCH, (wanted, most))
            return [Hit(path, line, round(-score, 3), text) for path, line, score, text in rows]

    def _refreshed(self) -> sqlite3.Connection:
        connection = self._connection or self._open()
        found = {file.path: file for file in list_files(self._folder)}
        stamps = {path: (file.stamp, file.size) for path, file in found.items()}
        changed = [path for path, stamp in stamps.items() if self._stamps.get(path) != stamp]
        with connection:
            _forget(connection, [*changed, *(self._stamps.keys() - stamps.keys())])
            for path in changed:
                _add(connection, found[path])
        self._stamps = stamps
        return connection

    def _open(self) -> sqlite3.Connection:
        """A database of its own that ends with it: in memory, in a nameless file where it is large.

        Refreshing is one transaction: what was abandoned in the middle of it is begun anew.
        """
        connection = sqlite3.connect("", check_same_thread=False)
        connection.executescript(_TABLES)
        weakref.finalize(self, connection.close)
        self._connection = connection
        return connection


def match(query: str) -> str:
    """A query in the language of FTS5: any of its words, none of its signs; "" without a word."""
    words = list(dict.fromkeys(_WORD.findall(query.lower())))[:MAX_WORDS]
    return " OR ".join(f'"{_spaced(word).strip()}"' for word in words)


def _forget(connection: sqlite3.Connection, paths: Iterable[str]) -> None:
    for path in paths:
        rows = connection.execute("SELECT id, path, text FROM passages WHERE path = ?", (path,))
        gone = [(row, _spaced(named), _spaced(text)) for row, named, text in rows]
        connection.executemany(
            "INSERT INTO words (words, rowid, path, text) VALUES ('delete', ?, ?, ?)", gone
        )
        connection.execute("DELETE FROM passages WHERE path = ?", (path,))


def _add(connection: sqlite3.Connection, file: File) -> None:
    text = read_text(file)
    for passage in cut(text or ""):
        row = connection.execute(
            "INSERT INTO passages (path, line, text) VALUES (?, ?, ?)",
            (file.path, passage.line, passage.text),
        ).lastrowid
        connection.execute(
            "INSERT INTO words (rowid, path, text) VALUES (?, ?, ?)",
            (row, _spaced(file.path), _spaced(passage.text)),
        )


def _spaced(text: str) -> str:
    return _ALONE.sub(r" \1 ", text)
