"""The scripts of others are what their authors published, each listed with version and licence."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("static/vendor", "tests/vendor")
OUR_OWN = {"README.md", "vendored.json"}


def listed(folder: Path) -> list[dict[str, Any]]:
    libraries: list[dict[str, Any]] = json.loads((folder / "vendored.json").read_text())
    return libraries


def checksums(folder: Path) -> dict[str, str]:
    """Every file below the folder but our own, with its SHA-256."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*")}
    return {
        name: hashlib.sha256(file.read_bytes()).hexdigest()
        for name, file in files.items()
        if file.is_file() and name not in OUR_OWN
    }


@pytest.mark.parametrize("name", FOLDERS)
def test_every_file_is_listed_and_is_what_was_published(name: str) -> None:
    folder = ROOT / name
    expected: dict[str, str] = {}
    for library in listed(folder):
        expected |= library["files"]
    assert checksums(folder) == expected


@pytest.mark.parametrize("name", FOLDERS)
def test_every_library_has_its_version_and_licence(name: str) -> None:
    for library in listed(ROOT / name):
        assert set(library) == {"name", "version", "licence", "package", "files"}
        assert all(library.values())
        home = f"{library['name']}-{library['version']}/"
        assert all(file.startswith(home) for file in library["files"])
        assert f"{home}LICENSE" in library["files"]
