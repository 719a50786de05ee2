"""The file xgw.toml: where it is looked for, its values, and the line of each.

`${NAME}` and `${NAME:-default}` inside any text value are read from the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from xgw.config import positions, rules
from xgw.config.mistakes import Mistake
from xgw.config.table import Text
from xgw.errors import UsageError

FILE_NAME = "xgw.toml"

_REFERENCE = re.compile(
    r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<fallback>:-(?P<default>[^}]*))?\}"
)
_WRITTEN = re.compile(r"\$\{[^}]*\}?")


@dataclass
class Document:
    """A file that was read, or none: then `path` is None and it is empty.

    `name` is the file as it was given, `variables` the environment variables of each value.
    """

    name: str = FILE_NAME
    path: Path | None = None
    tree: dict[str, Any] = field(default_factory=dict)
    lines: dict[positions.KeyPath, int] = field(default_factory=dict)
    variables: dict[positions.KeyPath, list[str]] = field(default_factory=dict)

    def line(self, path: positions.KeyPath) -> int:
        """The line of the value at `path` or of the nearest table around it, 0 if there is none."""
        starts = (path[:length] for length in range(len(path), 0, -1))
        return next((self.lines[start] for start in starts if start in self.lines), 0)

    def place(self, path: positions.KeyPath) -> str:
        """Where that is: "xgw.toml:12"."""
        line = self.line(path)
        return f"{self.name}:{line}" if line else self.name

    def holds(self, path: positions.KeyPath) -> bool:
        """Whether the file has a value at `path`."""
        value: Any = self.tree
        for key in path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return False
        return True

    def expand(self, env: Mapping[str, str]) -> list[Mistake]:
        """Replace the references to the environment in all values; the mistakes made in them."""
        expansion = _Expansion(env, self.variables)
        self.tree = expansion.of(self.tree, ())
        return expansion.mistakes


def read(given: Path | None, env: Mapping[str, str], folder: Path) -> Document:
    """The configuration file in force: `given`, $XGW_CONFIG, ./xgw.toml, the user's own, or none.

    UsageError if it cannot be read or is not TOML.
    """
    if given is not None:
        return _read_file(folder / given.expanduser(), str(given), "--config ")
    if named := env.get("XGW_CONFIG"):
        return _read_file(folder / Path(named).expanduser(), named, "environment XGW_CONFIG, ")
    for path in (
        folder / FILE_NAME,
        platformdirs.user_config_path("xgw", appauthor=False) / FILE_NAME,
    ):
        if os.path.exists(path):  # where Path.exists raises, there is nothing to read
            return _read_file(path, FILE_NAME if path.parent == folder else str(path), "")
    return Document()


def _read_file(path: Path, name: str, from_where: str) -> Document:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{from_where}{name}: there is no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{from_where}{name}: is a folder, not a file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{from_where}{name}: cannot be read: {reason}") from None
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name}:{line}: not UTF-8 text") from None
    try:
        return Document(name, path.absolute(), tomllib.loads(text), positions.find_lines(text))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(_syntax_error(name, text, str(error))) from None
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None


def _syntax_error(name: str, text: str, message: str) -> str:
    reason, _, place = message.partition(" (at ")
    at = re.match(r"line (\d+), column (\d+)", place)
    line = at[1] if at else str(text.rstrip("\n").count("\n") + 1)
    column = f" (column {at[2]})" if at else ""
    reason = reason.replace("Cannot overwrite a value", "this key or table stands twice")
    reason = re.sub(r"\('(.+?)',?\)", _as_header, reason)
    return f"{name}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}{column}"


def _as_header(keys: re.Match[str]) -> str:
    """tomllib's ('server', 'x') as people write it: [server.x]."""
    return "[" + keys[1].replace("', '", ".") + "]"


class _Expansion:
    """One walk through a tree of values; `mistakes` and `variables` are filled on the way."""

    def __init__(
        self, env: Mapping[str, str], variables: dict[positions.KeyPath, list[str]]
    ) -> None:
        self.env = env
        self.variables = variables
        self.mistakes: list[Mistake] = []

    def of(self, value: Any, path: positions.KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: self.of(part, (*path, key)) for key, part in value.items()}
        if isinstance(value, list):
            return [self.of(part, (*path, index)) for index, part in enumerate(value)]
        if isinstance(value, str) and not isinstance(value, Text) and "${" in value:
            return self._text(value, path)
        return value

    def _text(self, value: str, path: positions.KeyPath) -> str:
        written = _WRITTEN.findall(value)
        if bad := next((one for one in written if not _REFERENCE.fullmatch(one)), None):
            text = f"holds {rules.quoted(bad)}: write ${{NAME}} or ${{NAME:-default}}"
            self.mistakes.append(Mistake(path, text))
            return value
        return Text(_REFERENCE.sub(lambda reference: self._value_of(reference, path), value))

    def _value_of(self, reference: re.Match[str], path: positions.KeyPath) -> str:
        name, value = reference["name"], self.env.get(reference["name"])
        if reference["fallback"] and not value:
            return reference["default"]
        if value is None:
            self.mistakes.append(
                Mistake(path, f"needs the environment variable {name}, which is not set")
            )
            return ""
        self.variables.setdefault(path, []).append(name)
        return value
