"""Measures xgw beside direct calls to the same upstream, in one run: medians of several rounds.

Upstream, load and server are processes of their own on the loopback interface. Figures of one run
compare with each other, not with those of another machine or hour.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import xgw
from bench import event_loop
from bench.figures import Figure, render_table
from bench.measures import MEASURES
from bench.scale import FULL, SHORT, USUAL
from bench.setting import Setting, prepared


def main() -> None:
    """Measure what the command line asks for."""
    chosen = _arguments()
    scale = FULL if chosen.full else SHORT if chosen.short else USUAL
    load_before = os.getloadavg()[0]
    begun = time.monotonic()
    with prepared(scale, chosen.rounds) as setting:
        figures = _measure(setting, chosen.only)
    print(render_table(figures))
    took = time.monotonic() - begun
    print(
        f"\nxgw {xgw.__version__}, Python {platform.python_version()}, {os.cpu_count()} CPUs, "
        f"{event_loop.NAME}; medians of {chosen.rounds} rounds in {took:.0f} s; "
        f"load average before {load_before:.1f}, after {os.getloadavg()[0]:.1f}."
    )
    if chosen.json:
        _write_json(chosen.json, figures, chosen.rounds, load_before)


def _measure(setting: Setting, names: Sequence[str]) -> list[Figure]:
    figures: list[Figure] = []
    for name in names:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        figures += MEASURES[name](setting)
    return figures


def _write_json(path: Path, figures: Sequence[Figure], rounds: int, load_before: float) -> None:
    report = {
        "version": xgw.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "event_loop": event_loop.NAME,
        "load_average": [load_before, os.getloadavg()[0]],
        "rounds": rounds,
        "figures": [figure.to_json() for figure in figures],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=_count, default=3, help="of which the median counts (3)")
    parser.add_argument(
        "--only", type=_names, default=list(MEASURES), metavar="NAME,…", help=", ".join(MEASURES)
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round there, too")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="pages of a store of 1,000,000 turns")
    size.add_argument("--short", action="store_true", help="a quick look: too few to judge by")
    return parser.parse_args()


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = sorted(set(names) - set(MEASURES))
    if unknown:
        raise argparse.ArgumentTypeError(f"no such measurement: {', '.join(unknown)}")
    return names


if __name__ == "__main__":
    main()
