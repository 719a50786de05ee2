"""What recording costs: xgw beside one that relays in the same way and keeps nothing."""

from __future__ import annotations

from dataclasses import replace

from bench import processes
from bench.figures import Figure, Limit, Rounds
from bench.load import Calls, Load
from bench.measures.calls import CLIENTS
from bench.server import Server
from bench.setting import WARMING, Setting


def measure(setting: Setting) -> list[Figure]:
    """The loss in requests a second and the CPU time, with sixteen clients."""
    rates, cpu = Rounds(), Rounds()
    with setting.serving("bench.unrecorded") as without, setting.serving() as recorded:
        for server in (without, recorded):
            _load(setting, server, setting.scale.parallel_calls // WARMING)
        for _ in range(setting.rounds):
            free, free_cpu = _alternate(setting, without, recorded)
            rates.add(free[0].requests_per_second, free[1].requests_per_second)
            cpu.add(*free_cpu)
    losses = [100 - share for share in rates.shares()]
    name = f"recording, {CLIENTS} clients"
    return [
        _figure(f"{name}: loss in requests/s", losses, "%", Limit(40, 25), rates.words("/s")),
        _figure(f"{name}: CPU a request", cpu.differences(), "ms", None, cpu.words("ms")),
    ]


def _figure(
    name: str, values: list[float], unit: str, limit: Limit | None, words: tuple[str, str]
) -> Figure:
    """Here it is not a direct call that stands beside."""
    return Figure(name, values, unit, limit, f"{words[0]} without", words[1])


def _alternate(
    setting: Setting, without: Server, recorded: Server
) -> tuple[tuple[Load, Load], tuple[float, float]]:
    """Both loads of a round, and the CPU milliseconds that a request took in each."""
    part = setting.scale.parallel_calls // setting.scale.alternations
    loads, spent = (Load(), Load()), [0.0, 0.0]
    for _ in range(setting.scale.alternations):
        for place, server in enumerate((without, recorded)):
            before = processes.cpu_seconds(server.pid)
            loads[place].add(_load(setting, server, part))
            spent[place] += processes.cpu_seconds(server.pid) - before
    free, full = (1000 * s / len(x.latencies) for s, x in zip(spent, loads, strict=True))
    return loads, (free, full)


def _load(setting: Setting, server: Server, requests: int) -> Load:
    calls = Calls(server.port, max(CLIENTS, requests), clients=CLIENTS)
    return setting.loader.call(replace(calls, port=server.port))
