"""The files of `static/`: each under a URL that holds the hash of its content, kept for a year."""

from __future__ import annotations

import functools
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from xgw.resources import resource_folder

PREFIX = "/ui/static"
FOREVER = "public, max-age=31536000, immutable"
_HASH = 12
_TEXT = ("text/", "application/javascript", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file: its `name` below `static/`, its bytes, its media type and its `url`."""

    name: str
    content: bytes
    media_type: str
    url: str


class Assets:
    """All files of a folder, read once; only what was there then can be asked for."""

    def __init__(self, folder: Path) -> None:
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        self._by_name = {asset.name: asset for asset in (_read(folder, path) for path in files)}
        self._by_url = {asset.url: asset for asset in self._by_name.values()}

    def url(self, name: str) -> str:
        """Where the file is; KeyError if there is none."""
        return self._by_name[name].url

    def at(self, url: str) -> Asset | None:
        """The file of a URL that `url` gave out."""
        return self._by_url.get(url)

    def named(self, name: str) -> Asset | None:
        """The file with this name, whatever its content was when the name was learnt."""
        return self._by_name.get(name)


@functools.cache
def assets() -> Assets:
    """The files of this installation."""
    return Assets(resource_folder("static"))


def _read(folder: Path, path: Path) -> Asset:
    name, content = path.relative_to(folder).as_posix(), path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:_HASH]
    return Asset(name, content, _media_type(path), f"{PREFIX}/{digest}/{name}")


def _media_type(path: Path) -> str:
    # What a machine's own tables say of .js may be anything; browsers refuse most of it.
    known = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    kind = known.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "text/plain"
    return f"{kind}; charset=utf-8" if kind.startswith(_TEXT) else kind
