"""Where in the text of a TOML file each table and value stands: tomllib does not tell."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable

KeyPath = tuple[str | int, ...]
"""The way to a value: ("server", "port"), ("providers", 0, "name")."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # a multi-line string may end in up to two quotes of its own
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


def find_lines(text: str) -> dict[KeyPath, int]:
    """The line (from 1) of each table, key and array element; `text` must be valid TOML."""
    scan = _Scan(text)
    scan.document()
    return scan.lines


def dotted(path: Iterable[str | int]) -> str:
    """A path as TOML spells it: prices."gpt-4.1".input."""
    keys = (str(key) for key in path)
    return ".".join(key if _BARE_KEY.fullmatch(key) else json.dumps(key) for key in keys)


class _Scan:
    """One walk through the text; `at` is the next character to look at."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        self.tables: dict[KeyPath, int] = {}  # arrays of tables: how many elements there are so far
        self._counted_to = 0
        self._line = 1

    def document(self) -> None:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self.text):
            if self._take("["):
                table = self._header(is_array=self._take("["))
            else:
                self._pair(table)

    def _header(self, is_array: bool) -> KeyPath:
        line = self._line_here()
        keys = self._keys()
        table: KeyPath = ()
        for key in keys[:-1]:
            table = self._newest((*table, key))
            self.lines.setdefault(table, line)
        table = (*table, keys[-1])
        if is_array:
            self.lines.setdefault(table, line)
            self.tables[table] = self.tables.get(table, 0) + 1
            table = self._newest(table)
        self.lines[table] = line
        self.at = self.text.index("]", self.at) + (2 if is_array else 1)
        return table

    def _newest(self, table: KeyPath) -> KeyPath:
        count = self.tables.get(table, 0)
        return (*table, count - 1) if count else table

    def _pair(self, table: KeyPath) -> None:
        line = self._line_here()
        path = table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._take("=")
        self._skip(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        keys = [self._key()]
        while self._take("."):
            keys.append(self._key())
        return keys

    def _key(self) -> str:
        self._skip(_SPACE)
        start = self.at
        if self._skip(_BARE_KEY) > start:
            key = self.text[start : self.at]
        else:
            self._skip(_STRING)
            key = str(tomllib.loads(f"key = {self.text[start : self.at]}")["key"])
        self._skip(_SPACE)
        return key

    def _value(self, path: KeyPath) -> None:
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            self._inline_table(path)
        elif self.text[self.at] in "\"'":
            self._skip(_STRING)
        else:
            self._skip(_SCALAR)

    def _array(self, path: KeyPath) -> None:
        index = 0
        self._skip(_BLANK)
        while not self._take("]"):
            self.lines[(*path, index)] = self._line_here()
            self._value((*path, index))
            index += 1
            self._skip(_BLANK)
            self._take(",")
            self._skip(_BLANK)

    def _inline_table(self, path: KeyPath) -> None:
        self._skip(_BLANK)
        while not self._take("}"):
            self._pair(path)
            self._skip(_BLANK)
            self._take(",")
            self._skip(_BLANK)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.at

    def _take(self, character: str) -> bool:
        found = self.text.startswith(character, self.at)
        self.at += len(character) if found else 0
        return found

    def _line_here(self) -> int:
        self._line += self.text.count("\n", self._counted_to, self.at)
        self._counted_to = self.at
        return self._line
