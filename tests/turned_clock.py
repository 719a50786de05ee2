"""`xgw` on a machine whose wall clock is turned: by the seconds that the file CLOCK_FILE says."""

from __future__ import annotations

import datetime
import os
import sys
from pathlib import Path

from xgw import clock
from xgw.cli import main

TURNED = Path(os.environ["CLOCK_FILE"])


class Turned(datetime.datetime):
    """The system's time, turned; the monotonic clock goes on as it does then."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        turned = datetime.timedelta(seconds=float(TURNED.read_text()))
        return datetime.datetime.now(tz) + turned


if __name__ == "__main__":
    vars(clock)["datetime"] = Turned
    sys.exit(main())
