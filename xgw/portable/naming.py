"""How imports are named: by what was imported, so that the same again is the same import."""

from __future__ import annotations

import re

ID = re.compile(r"imp_[0-9a-f]{32}", re.ASCII)


def id_of(hash: str) -> str:
    """The id of an import, from the hash of its bundle."""
    return f"imp_{hash}"
