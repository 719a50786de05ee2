"""A bundle opened to be played: in a store of its own that is gone afterwards."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO

from xgw.portable.intake import take_in
from xgw.portable.refusal import BadBundle
from xgw.portable.replay.recordings import list_recordings, load
from xgw.portable.replay.reel import Reel
from xgw.store.database import Store


@contextlib.contextmanager
def opened(file: IO[bytes], name: str, *, every_try: bool) -> Iterator[Reel]:
    """The reel of a bundle; BadBundle where there is nothing to be played in it."""
    with tempfile.TemporaryDirectory(prefix="xgw-replay-") as folder:
        path = Path(folder) / "bundle.db"
        _, head = take_in(file, name, path)
        store = Store(path)
        try:
            played = list_recordings(store, every_try=every_try)
            if not played.recordings:
                raise BadBundle(_why_nothing(head["redaction"], played.left_out))
            yield Reel(played, partial(load, store))
        finally:
            store.close()


def _why_nothing(redaction: dict[str, object], left_out: int) -> str:
    if redaction.get("bodies") is False:
        return "the bundle was exported without what was said (--no-bodies): nothing can be played"
    if left_out:
        return (
            "every request in the bundle was still under way, or its body is not there (pruned):"
            " nothing can be played"
        )
    return "the bundle has no request to a provider: nothing can be played"
