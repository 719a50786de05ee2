"""Placeholders in a record: what they may stand for in a request that is sent now.

A placeholder stands for whatever would be masked as it was: the request is masked like a document
of its own, and the numbers in the placeholders count for nothing. What a pattern of the user's
masked stands for anything, for the pattern need not be known here.
"""

from __future__ import annotations

import re
from typing import Any

from xgw.portable.redaction import Redactor
from xgw.portable.redaction.names import PLACEHOLDER

_AT = ("request", "", "body")
_OF_PATTERN = "[pattern-"
_NUMBER = re.compile(r"-\d+\]$")


def as_masked(sent: Any) -> Any:
    """The request as an export would tell it."""
    return Redactor().value(sent, _AT)


def stands_for(recorded: str, sent: str) -> bool:
    """Whether a text with placeholders in it may stand for one that is sent."""
    if recorded == sent:
        return True
    found = PLACEHOLDER.search(recorded)
    if found is None:
        return False
    return _unnumbered(recorded) == _unnumbered(sent) or (
        (_OF_PATTERN in recorded or found[0] == "[masked]") and _fits(recorded, sent)
    )


def _unnumbered(text: str) -> str:
    return PLACEHOLDER.sub(lambda found: _NUMBER.sub("]", found[0]), text)


def _fits(recorded: str, sent: str) -> bool:
    """Whether what is around the placeholders is there, in order."""
    first, *others = PLACEHOLDER.split(recorded)
    if not sent.startswith(first):
        return False
    at = len(first)
    *between, last = others
    for text in between:
        found = sent.find(text, at)
        if found < 0:
            return False
        at = found + len(text)
    return sent.endswith(last) and len(sent) - len(last) >= at
