"""What a bundle is refused with."""

from __future__ import annotations

from xgw.errors import WorkError


class BadBundle(WorkError):
    """A file that cannot be taken in; one sentence that says why."""
