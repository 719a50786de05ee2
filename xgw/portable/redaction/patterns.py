"""What `[redact] patterns` of the configuration find: RE2, so that none takes long on any text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from xgw.config.patterns import compiled
from xgw.portable.redaction.finds import Find

_SURROGATE = re.compile("[\ud800-\udfff]")


class Patterns:
    """The configured expressions, together."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = [compiled(pattern) for pattern in patterns]

    def finds(self, text: str) -> Iterator[Find]:
        """Whatever one of them matches."""
        if not self._patterns:
            return
        readable = text if text.isascii() else _SURROGATE.sub("\ufffd", text)
        for pattern in self._patterns:
            for found in pattern.finditer(readable):
                start, stop = found.span()
                if stop > start:
                    yield Find(start, stop, "pattern", text[start:stop])
