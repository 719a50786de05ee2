"""A session as a regression test: a folder with the bundle, and a test of an app against it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import orjson

from xgw.errors import WorkError
from xgw.portable.replay.opening import opened
from xgw.resources import resource_folder

NAME = "pytest"
BUNDLE, REQUESTS = "bundle.json", "requests.json"
KEPT = ".txt"
"""Behind the names of Python files here: an installation would compile them."""

WriteBundle = Callable[[BinaryIO], None]


def write_folder(folder: Path, write_bundle: WriteBundle) -> None:
    """Make the folder; WorkError where something stands there already, or nothing can be played."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WorkError(f"{folder} is there already: name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".xgw-", dir=folder.parent) as place:
        made = Path(place) / "folder"
        made.mkdir()
        with open(made / BUNDLE, "wb") as out:
            write_bundle(out)
        (made / REQUESTS).write_bytes(_requests(made / BUNDLE))
        for file in sorted((resource_folder("templates") / NAME).iterdir()):
            if file.is_file():
                shutil.copyfile(file, made / file.name.removesuffix(KEPT))
        if folder.exists():
            folder.rmdir()
        os.replace(made, folder)


def _requests(bundle: Path) -> bytes:
    """What is to be asked, in order."""
    with open(bundle, "rb") as file, opened(file, bundle.name, every_try=False) as reel:
        asked = [{"path": path, "body": body} for path, body in reel.asked()]
    return orjson.dumps(asked, option=orjson.OPT_INDENT_2) + b"\n"
