"""`[redact] patterns`: expressions in RE2's syntax, which take linear time on any text.

They look into model output and tool results, so an expression that backtracks would let whoever
writes these stop an export.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from xgw.config.rules import quoted


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The expression, ready to search; `ValueError` says what is wrong with it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        because = _told(error)
        raise ValueError(
            f"must be an expression in RE2, not {quoted(pattern)}: {because}"
        ) from None


def check_pattern(pattern: str) -> str:
    """An expression that finds something: one that matches an empty text would stand everywhere."""
    if compiled(pattern).search("") is not None:
        raise ValueError(f"must not match an empty text, as {quoted(pattern)} does")
    return pattern


def _told(error: Exception) -> str:
    told = error.args[0] if error.args else ""
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
