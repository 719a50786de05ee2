"""Older stores: how fast they are taken over and get their turns, and what a server feels of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench import older, processes
from bench.figures import Figure, Limit, Rounds, number
from bench.load import Calls, Load
from bench.server import Server
from bench.setting import Setting, median

SPEED = Limit(20_000, at_least=True)
FELT = Limit(2)
COMMANDS = {"migrate": "migrate", "backfill": "backfill-turns"}
PART = 25
"""Requests between two looks at whether the command is still under way."""


class _Command:
    """A command under way; once it has ended, its `seconds` and those of its CPU time."""

    def __init__(self, name: str, store: Path, *options: str) -> None:
        line = [sys.executable, "-m", "xgw", COMMANDS[name], "--db", str(store), *options]
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            line, cwd=processes.ROOT, env=processes.environment(), stdout=subprocess.DEVNULL
        )
        self.seconds = self.cpu = 0.0

    def has_ended(self, *, wait: bool = False) -> bool:
        """Whether it has; SystemExit if it failed."""
        if self.seconds:
            return True
        pid, status, used = os.wait4(self._process.pid, 0 if wait else os.WNOHANG)
        if not pid:
            return False
        self.seconds = time.monotonic() - self._begun
        self.cpu = used.ru_utime + used.ru_stime
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode:
            raise SystemExit(f"bench: {self._process.args!r} ended with {self._process.returncode}")
        return True


def _run(name: str, store: Path, *options: str) -> _Command:
    command = _Command(name, store, *options)
    command.has_ended(wait=True)
    return command


def measure(setting: Setting) -> list[Figure]:
    """Messages a CPU second without a server, and the added median beside one."""
    speeds: list[Figure] = []
    felt: dict[str, list[float]] = {name: [] for name in COMMANDS}
    words: dict[str, Rounds] = {name: Rounds() for name in COMMANDS}
    for shape in older.SHAPES:
        old = setting.folder / f"{shape.replace(' ', '-')}.db"
        messages = older.write(old, shape, setting.scale.older_sessions)
        speeds += _speeds(setting, shape, old, messages)
    for _ in range(setting.rounds):
        _beside(setting, old, felt, words)
    return [*speeds, *_felt(felt, words)]


def _speeds(setting: Setting, shape: str, old: Path, messages: int) -> list[Figure]:
    figures = {name: Rounds() for name in COMMANDS}
    for turn in range(setting.rounds):
        store = setting.folder / f"{old.stem}-{turn}-new.db"
        _run("migrate", store)
        starting = {name: _run(name, store).cpu for name in COMMANDS}
        for name in COMMANDS:
            command = _run(name, store, *_options(name, old))
            spent = max(0.01, command.cpu - starting[name])
            figures[name].add(messages / command.seconds, messages / spent)
    return [
        Figure(
            f"{name} {shape}: messages a CPU second",
            rounds.through,
            "/s",
            SPEED,
            "",
            f"{number(median(rounds.direct))} /s by the clock",
        )
        for name, rounds in figures.items()
    ]


def _options(name: str, old: Path) -> tuple[str, ...]:
    return ("--from-legacy", str(old)) if name == "migrate" else ()


def _beside(
    setting: Setting, old: Path, felt: dict[str, list[float]], words: dict[str, Rounds]
) -> None:
    with setting.serving() as server:
        usual = setting.side_by_side(server, Calls(0, setting.scale.single_calls))[-1]
        direct = median(usual.direct.latencies)
        before = median(usual.through.latencies) - direct
        for name in COMMANDS:
            command = _Command(name, server.store, *_options(name, old))
            load = Load()
            for part in _parts(setting, server, command):
                load.add(part)
            meanwhile = median(load.latencies) - direct
            felt[name].append(meanwhile / before)
            words[name].add(before, meanwhile)


def _parts(setting: Setting, server: Server, command: _Command) -> Iterator[Load]:
    """Requests of one client for as long as the command runs, some in any case."""
    while True:
        yield setting.loader.call(Calls(server.port, PART))
        if command.has_ended():
            return


def _felt(felt: dict[str, list[float]], words: dict[str, Rounds]) -> list[Figure]:
    return [
        Figure(
            f"beside {name}: added median over the usual one",
            felt[name],
            "×",
            FELT,
            f"{words[name].words('ms')[0]} usually",
            words[name].words("ms")[1],
        )
        for name in COMMANDS
    ]
