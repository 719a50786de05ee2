"""What an MCP server's process writes to its standard error: it goes to the log, line by line."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable

from xgw.masking import Masker

log = logging.getLogger("xgw.agents")

LINE_BYTES = 2000
LAST_CHARACTERS = 200


class Words:
    """A pipe for one process; `last` is the last line that came, "" if there was none."""

    def __init__(self, name: str, secrets: Iterable[str]) -> None:
        self._name = name
        self._masker = Masker(tuple(secrets))
        read, write = os.pipe()
        self.file = os.fdopen(write, "w")
        """For the process; closed once it has it."""
        self.last = ""
        self._thread = threading.Thread(
            target=self._read, args=(read,), name="xgw-mcp-stderr", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float) -> str:
        """The last line, once the process has ended."""
        self.file.close()
        self._thread.join(seconds)
        return self.last

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb") as lines:
            while line := lines.readline(LINE_BYTES):
                said = self._masker.text(line.decode("utf-8", "replace").rstrip())
                if said.strip():
                    self.last = said.strip()[:LAST_CHARACTERS]
                    log.warning("%s: %s", self._name, said)
