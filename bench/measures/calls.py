"""Whole answers: what xgw adds to one client's, and how many it serves to sixteen."""

from __future__ import annotations

from bench.figures import Figure, Limit, Rounds
from bench.load import Calls
from bench.setting import Round, Setting, median

CLIENTS = 16
MORE_DIRECT = 10


def measure_added(setting: Setting) -> list[Figure]:
    """The median latency of a 2 KB request, one client at a time."""
    with setting.serving() as server:
        rounds = setting.side_by_side(server, Calls(0, setting.scale.single_calls))
    both = Rounds()
    for one in rounds:
        both.add(median(one.direct.latencies), median(one.through.latencies))
    return [
        Figure(
            "2 KB request, 1 client: added median",
            both.differences(),
            "ms",
            Limit(1.3, 0.35),
            *both.words("ms"),
        ),
        _cpu_of("2 KB request, 1 client: CPU", rounds),
    ]


def measure_rate(setting: Setting) -> list[Figure]:
    """Requests a second of one worker: by the clock, and by the CPU time that they took."""
    calls = Calls(0, setting.scale.parallel_calls, clients=CLIENTS)
    with setting.serving() as server:
        rounds = setting.side_by_side(server, calls, more_direct=MORE_DIRECT)
    both = Rounds()
    for one in rounds:
        both.add(one.direct.requests_per_second, one.through.requests_per_second)
    name = f"2 KB requests, {CLIENTS} clients"
    limit = Limit(900, 2500, at_least=True)
    served = [len(one.through.latencies) / max(one.cpu, 0.01) for one in rounds]
    return [
        Figure(f"{name}: requests/s", both.through, "/s", limit, *both.words("/s")),
        Figure(f"{name}: share of direct", both.shares(), "%"),
        Figure(f"{name}: requests a CPU second", served, "/s", limit),
        _cpu_of(f"{name}: CPU", rounds),
    ]


def _cpu_of(name: str, rounds: list[Round]) -> Figure:
    spent = [1000 * one.cpu / len(one.through.latencies) for one in rounds]
    return Figure(f"{name} a request", spent, "ms")
