"""Measures what xgw adds to a call, beside direct calls to the same upstream in the same run.

Figures of one run compare with each other, not with those of another machine or hour.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.load import Load, run_load
from bench.upstream import MODEL

ROOT = Path(__file__).resolve().parent.parent
READY_SECONDS = 30
STOP_SECONDS = 20
CLIENTS = 16
CONFIG = """\
[[providers]]
name = "bench"
kind = "openai"
base_url = "http://127.0.0.1:{port}/v1"
api_key = "bench"

[[routes]]
model = "*"
targets = ["bench/{model}"]
"""


def request_body(size: int = 2048) -> bytes:
    """A chat completion request of exactly `size` bytes."""

    def body(text: str) -> bytes:
        return json.dumps(
            {"model": MODEL, "messages": [{"role": "user", "content": text}]}
        ).encode()

    return body("x" * (size - len(body(""))))


@contextlib.contextmanager
def process(*arguments: str, output: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """A Python process in the checkout, without the user's XGW_* variables, ended on leaving."""
    command = [sys.executable, *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith("XGW_")}
    with subprocess.Popen(command, cwd=ROOT, env=own, stdout=output, text=True) as started:
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                started.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


async def wait_until_ready(server: subprocess.Popen[str], port: int) -> float:
    """Seconds until `/health` answered."""
    started = time.perf_counter()
    while time.perf_counter() - started < READY_SECONDS:
        if server.poll() is not None:
            raise SystemExit(f"xgw serve ended with exit code {server.returncode}")
        with contextlib.suppress(OSError):
            get_json(port, "/health")
            return time.perf_counter() - started
        await asyncio.sleep(0.02)
    raise SystemExit(f"xgw serve was not ready within {READY_SECONDS} s")


def get_json(port: int, path: str) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        body: dict[str, object] = json.load(answer)
        return body


def cpu_seconds(root: int) -> float | None:
    """User and system time of a process and those below it; None where there is no /proc."""
    times: dict[int, tuple[int, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            ticks = int(fields[11]) + int(fields[12])
            times[int(stat.parent.name)] = int(fields[1]), ticks / os.sysconf("SC_CLK_TCK")

    def below(pid: int) -> bool:
        return pid == root or (pid in times and below(times[pid][0]))

    return sum(spent for pid, (_, spent) in times.items() if below(pid)) if times else None


@dataclass(frozen=True)
class Rounds:
    """The same load several times, direct and through xgw in turn."""

    direct: list[Load]
    through: list[Load]
    cpu_ms: float | None

    def medians(self, figure: str) -> tuple[float, float]:
        """The medians over the rounds of a figure of `Load`: direct, through xgw."""
        direct, through = (
            statistics.median(getattr(load, figure) for load in loads)
            for loads in (self.direct, self.through)
        )
        return direct, through


async def run_rounds(
    upstream: int, xgw: int, pid: int, *, clients: int, requests: int, rounds: int
) -> Rounds:
    """`rounds` pairs of loads after one that only warms both sides up."""
    body = request_body()
    for port in (upstream, xgw):
        await run_load(port, body, clients=clients, requests=max(clients, requests // 10))
    direct, through, cpu = [], [], 0.0
    for _ in range(rounds):
        direct.append(await run_load(upstream, body, clients=clients, requests=requests))
        before = cpu_seconds(pid)
        through.append(await run_load(xgw, body, clients=clients, requests=requests))
        cpu += (cpu_seconds(pid) or 0.0) - (before or 0.0)
    return Rounds(direct, through, cpu * 1000 / (requests * rounds) if cpu else None)


def print_table(one: Rounds, many: Rounds, ready: float, recorded: object) -> None:
    """The figures, a line each: direct, through xgw, and how the two compare."""
    direct_ms, through_ms = one.medians("median_ms")
    direct_rps, through_rps = many.medians("requests_per_second")
    rows = [("", "direct", "through xgw", "compared")]
    compared = f"+{through_ms - direct_ms:.2f} ms"
    rows.append(("2 KB, 1 client, median", f"{direct_ms:.2f} ms", f"{through_ms:.2f} ms", compared))
    name, compared = f"2 KB, {CLIENTS} clients", f"x {through_rps / direct_rps:.3f}"
    rows.append((name, f"{direct_rps:,.0f} /s", f"{through_rps:,.0f} /s", compared))
    for rounds, clients in ((one, 1), (many, CLIENTS)):
        spent = "–" if rounds.cpu_ms is None else f"{rounds.cpu_ms:.2f} ms"
        rows.append((f"CPU a request, {clients} client{'s' * (clients > 1)}", "", spent, ""))
    rows.append(("server ready", "", f"{ready:.2f} s", ""))
    for row in rows:
        print(f"{row[0]:<26}{row[1]:>12}{row[2]:>14}{row[3]:>12}")
    print(f"\nRecorded durably while measuring: {recorded} requests.")


async def measure(folder: Path, requests: int, rounds: int) -> None:
    """Starts upstream and server, runs both loads, prints the table."""
    with process("-m", "bench.upstream", output=subprocess.PIPE) as upstream:
        assert upstream.stdout is not None
        upstream_port, port = int(upstream.stdout.readline()), free_port()
        config = folder / "xgw.toml"
        config.write_text(CONFIG.format(port=upstream_port, model=MODEL), encoding="utf-8")
        serve = ("-m", "xgw", "serve", "--port", str(port), "--config", str(config))
        with process(*serve, "--db", str(folder / "xgw.db"), output=subprocess.DEVNULL) as server:
            ready = await wait_until_ready(server, port)
            ports = (upstream_port, port, server.pid)
            one = await run_rounds(*ports, clients=1, requests=requests, rounds=rounds)
            many = await run_rounds(*ports, clients=CLIENTS, requests=requests * 4, rounds=rounds)
            totals = get_json(port, "/stats")["totals"]
            assert isinstance(totals, dict)
            print_table(one, many, ready, totals["requests"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="a load of one client")
    parser.add_argument("--rounds", type=int, default=3, help="loads of which the median counts")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xgw-bench-") as folder:
        asyncio.run(measure(Path(folder), chosen.requests, chosen.rounds))


if __name__ == "__main__":
    main()
