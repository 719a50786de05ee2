"""`xgw` on a machine whose wall clock is turned: by the seconds that the file CLOCK_FILE says."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from xgw import clock
from xgw.cli import main

TURNED = Path(os.environ["CLOCK_FILE"])


class Turned:
    """What the product's clock asks, the wall clock turned; the others go on as they do then."""

    thread_time = staticmethod(time.thread_time)

    @staticmethod
    def time() -> float:
        return time.time() + float(TURNED.read_text())


if __name__ == "__main__":
    vars(clock)["time"] = Turned
    sys.exit(main())
