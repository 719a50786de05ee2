"""What the machine gives at this hour: what Python takes for the same work, and what memory takes.

On a shared machine both change within minutes. xgw goes through two to three megabytes for a
request: where others take the processor's cache, each of its figures grows with the second one.
"""

from __future__ import annotations

import random
import time
from array import array

from bench.figures import Figure
from bench.setting import Setting

ADDITIONS = 100_000
STEPS = 500_000
LINE = 64
LITTLE, MUCH = 64 << 10, 8 << 20


def measure(setting: Setting) -> list[Figure]:
    """Both once a round, all before the other measurements."""
    rings = [_ring(LITTLE), _ring(MUCH)]
    adding, walking = [], []
    for _ in range(setting.rounds):
        adding.append(_add())
        little, much = (_walk(ring) for ring in rings)
        walking.append(max(0.0, much - little))
    return [
        Figure("this machine: 100,000 additions in Python", adding, "ms"),
        Figure("this machine: memory, a step at random in 8 MB", walking, "ns"),
    ]


def _add() -> float:
    """Milliseconds."""
    begun, total = time.perf_counter_ns(), 0
    for number in range(ADDITIONS):
        total += number
    return (time.perf_counter_ns() - begun) / 1e6


def _ring(size: int) -> array[int]:
    """So many bytes; from each cache line the index of the next one to look at, in no order."""
    items = array("Q", bytes(size))
    places = list(range(0, len(items), LINE // items.itemsize))
    random.Random(size).shuffle(places)
    for place, following in zip(places, [*places[1:], places[0]], strict=True):
        items[place] = following
    return items


def _walk(ring: array[int]) -> float:
    """Nanoseconds a step, those of Python included."""
    begun, at = time.perf_counter_ns(), 0
    for _ in range(STEPS):
        at = ring[at]
    return (time.perf_counter_ns() - begun) / STEPS
