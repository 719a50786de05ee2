"""The versions of bundles that are read, and how an older one becomes the present one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xgw.frozen import frozen
from xgw.portable.refusal import BadBundle

Piece = tuple[str, Any]
"""A part of a bundle: a field's name and its value, or a table's name and one of its rows."""

Converter = Callable[[Piece], Iterator[Piece]]
"""What a piece is one version later: itself, another, several, or nothing."""


@frozen
class Versions:
    """The version that is read as it is, and a converter for each older one."""

    current: int
    converters: Mapping[int, Converter]

    def check(self, version: object) -> int:
        """The version that a bundle says it has; BadBundle where none of that is read."""
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise BadBundle("this is no bundle of xgw: xgw_bundle is no version")
        if version > self.current:
            raise BadBundle(
                f"this bundle has version {version}, and this xgw reads versions up to "
                f"{self.current}: upgrade xgw"
            )
        if version < self.current and version not in self.converters:
            raise BadBundle(f"bundles of version {version} are not read any more")
        return version

    def brought_forward(self, piece: Piece, version: int) -> Iterator[Piece]:
        """What a piece of that version is in the current one."""
        if version >= self.current:
            yield piece
            return
        for later in self.converters[version](piece):
            yield from self.brought_forward(later, version + 1)


VERSIONS = Versions(1, {})
"""Version 1 is the first: there is nothing to convert yet."""
