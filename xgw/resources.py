"""The folders `templates` and `static`: where they lie in an installation and in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent


def resource_folder(name: Literal["templates", "static"]) -> Path:
    """The absolute path of the folder `name`.

    An installation has it inside the package, a checkout (an editable installation too) beside it:
    `importlib.resources` sees only the first of the two. Raises FileNotFoundError if neither is
    there.
    """
    for parent in (_PACKAGE, _PACKAGE.parent):
        folder = parent / name
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"xgw is not completely installed: {_PACKAGE / name} is missing")
