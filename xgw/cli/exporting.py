"""Writing an export where it is wanted: a file, a folder, stdout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from xgw.cli import placing
from xgw.cli.terminal import note
from xgw.config import Config
from xgw.portable.chosen import Root
from xgw.portable.definitions import definitions, redactor_of
from xgw.portable.source import Asked, Json
from xgw.portable.writing import DEFAULT, FORMATS, write
from xgw.store.database import Store

SEVERAL = "xgw-export"
"""What a file is called that is not of one thing alone."""


class Export:
    """What is written, and how."""

    def __init__(
        self,
        config: Config,
        store: Store,
        format: str = DEFAULT,
        filter: Json | None = None,
        *,
        bodies: bool = True,
        redact: bool = True,
    ) -> None:
        self.store = store
        self._config = config
        self._definition_of = definitions(config)
        self._format = format
        self._suffix = FORMATS[format].suffix
        self._filter = filter
        self._bodies = bodies
        self._redact = redact

    def place(self, roots: list[Root] | None, output: str | None) -> None:
        """Write it where it is wanted; None is stdout, on a terminal a file of the thing's name."""
        if output == placing.STDOUT or (output is None and not sys.stdout.isatty()):
            placing.to_stdout(self._writing(roots))
        elif output is None:
            self.place_named(roots)
        elif not placing.is_folder(output):
            self._to_file(Path(output), roots)
        elif roots is None:
            self._to_file(Path(output, f"{SEVERAL}{self._suffix}"), None)
        else:
            for root in roots:
                self._to_file(Path(output, f"{root.id}{self._suffix}"), [root])

    def place_named(self, roots: list[Root] | None) -> None:
        """Write it into a new file in the current folder, named after what it is of."""
        self._to_file(placing.free_path(self._stem(roots), self._suffix), roots)

    def place_test(self, roots: list[Root] | None, output: str | None) -> None:
        """Write a folder with a test, if not named one of the thing's name."""
        from xgw.portable.regression import write_folder

        folder = Path(output) if output else placing.free_path(f"{self._stem(roots)}-test", "")
        write_folder(folder, self._writing(roots))
        note(f"Wrote {folder}: its README says where to call your app")

    def write(self, roots: list[Root] | None, out: BinaryIO) -> None:
        """Write it there."""
        self._writing(roots)(out)

    def _stem(self, roots: list[Root] | None) -> str:
        return roots[0].id if roots and len(roots) == 1 else SEVERAL

    def _to_file(self, path: Path, roots: list[Root] | None) -> None:
        placing.to_file(path, self._writing(roots))
        note(f"Wrote {path}")

    def _writing(self, roots: list[Root] | None) -> placing.Write:
        redactor = redactor_of(self._config, on=self._redact)
        asked = Asked(roots, self._definition_of, self._filter, self._bodies, redactor)

        def writing(out: BinaryIO) -> None:
            for told in write(self.store, asked, self._format, out):
                note(told)

        return writing
