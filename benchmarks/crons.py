"""Crons that are all due in the same second: how long after the tick was the last command started, and was any dropped?

Ours, APScheduler 3, yacron and supercronic in turns, as far as they can be found, each with its output captured.
The tick is a full minute, since that is what all of them can do. Each command says itself when it began, in the same
way for all: a shell reads /proc/uptime (10 ms) and appends it to one file.

Debian's cron is left out: it reads the system's own crontabs and no others, and those are not ours to write.
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.managers import Manager, Service
from orchestrator import clock

Readings = dict[str, float]

BEFORE_S = 25.0
"""From a manager's start to the tick: with a thousand crons yacron alone needs some seconds to read its file."""
_LIMIT_S = 60.0
_POLL_S = 0.1
_MINUTE_S = 60.0
_QUESTIONS = {
    "last_s": "{count:,} crons due at once: the last started, s after the tick",
    "first_s": "the same: the first started, s after the tick",
    "median_s": "the same: the median started, s after the tick",
    "dropped": "the same: not started at all",
}


_YACRON_JOB = """\
  command: {command}
  schedule: "* * * * *"
  captureStdout: true
  captureStderr: true
"""


class Crons(Manager):
    """Whoever starts commands each minute."""

    def __init__(self, directory: Path, count: int) -> None:
        """Prepare to start so many crons."""
        super().__init__(directory)
        self.stamps = directory / "stamps"
        self._count = count
        self._line = f"read up idle </proc/uptime; echo $up >>{self.stamps}; echo done"

    def prepare(self, services: Sequence[Service] = ()) -> None:  # noqa: ARG002 - there are none here
        """Write its configuration."""
        self._configure()

    def _configure(self) -> None:
        """Write what it reads."""

    def log_of(self, service: Service) -> Path:
        """Return where what it says goes."""
        return self.directory / f"{service.name}.log"


class OurCrons(Crons):
    """One node of ours with the embedded server."""

    def _configure(self) -> None:
        """Write jobs.yaml (JSON is YAML)."""
        jobs = {f"c{number}": {"cron": "* * * * *", "command": self._line} for number in range(self._count)}
        text = json.dumps({"cluster": "bench", "jobs": jobs}, indent=1)
        (self.directory / "jobs.yaml").write_text(text, encoding="utf-8")

    def command(self) -> list[str]:
        """Return `orchestrator up`."""
        up = [sys.executable, "-m", "orchestrator", "up", str(self.directory / "jobs.yaml"), "--node", "bench"]
        return [*up, "--state-dir", str(self.directory / "state")]


class ApschedulerCrons(Crons):
    """A BackgroundScheduler."""

    def command(self) -> list[str]:
        """Return a small program that uses it."""
        return [sys.executable, "-m", "benchmarks.apscheduler_crons", str(self._count), self._line]


class YacronCrons(Crons):
    """`yacron` from PyPI."""

    def _configure(self) -> None:
        """Write its file, in the YAML that it reads."""
        job = _YACRON_JOB.format(command=json.dumps(self._line))
        jobs = "".join(f"- name: c{number}\n{job}" for number in range(self._count))
        (self.directory / "yacron.yaml").write_text(f"jobs:\n{jobs}", encoding="utf-8")

    def command(self) -> list[str]:
        """Return how it is started in the foreground."""
        return [_find("yacron") or "", "-c", str(self.directory / "yacron.yaml")]


class SupercronicCrons(Crons):
    """`supercronic`."""

    def _configure(self) -> None:
        """Write its crontab."""
        (self.directory / "crontab").write_text(f"* * * * * {self._line}\n" * self._count, encoding="utf-8")

    def command(self) -> list[str]:
        """Return how it is started in the foreground."""
        return [_find("supercronic") or "", str(self.directory / "crontab")]


def compare(trials: int, count: int, root: Path) -> None:
    """Measure each of them so many times, in turns, and print the table."""
    ways: dict[str, type[Crons]] = {"ours": OurCrons, "apscheduler": ApschedulerCrons}
    ways |= {"yacron": YacronCrons, "supercronic": SupercronicCrons}
    there = [name for name in ways if name == "ours" or find_spec(name) or _find(name)]
    taken: dict[str, list[Readings]] = {name: [] for name in there}
    for trial in range(trials):
        for name in there if trial % 2 == 0 else reversed(there):
            taken[name].append(_once(ways[name], count, root))
    _show(there, taken, count)
    if missing := [name for name in ways if name not in there]:
        click.echo(f"not found: {' '.join(missing)}")


def _once(way: type[Crons], count: int, root: Path) -> Readings:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=root))
    crons = way(directory, count)
    try:
        crons.prepare()
        return _tick(crons, count)
    finally:
        crons.close()
        shutil.rmtree(directory, ignore_errors=True)


def _tick(crons: Crons, count: int) -> Readings:
    """Start it some time before a full minute, and see who begins after that."""
    now = clock.now()
    ahead_s = _MINUTE_S - (now.utc + BEFORE_S) % _MINUTE_S
    time.sleep(ahead_s)
    crons.start()
    tick = now.boot + ahead_s + BEFORE_S  # on the boot clock, which /proc/uptime shows
    began: list[float] = []
    while len(began) < count and clock.boot() < tick + _LIMIT_S - 1:  # the next minute's are none of ours
        time.sleep(_POLL_S)
        crons.check()
        began = sorted(at - tick for at in _stamps(crons.stamps) if at > tick - _POLL_S)
    if not began:
        raise RuntimeError(f"{crons.command()[0]} started nothing")
    return {
        "last_s": began[-1],
        "first_s": began[0],
        "median_s": statistics.median(began),
        "dropped": float(count - len(began)),
    }


def _stamps(path: Path) -> list[float]:
    try:
        text = path.read_text(encoding="ascii")
    except FileNotFoundError:
        return []
    return [float(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _find(name: str) -> str | None:
    beside = Path(sys.executable).with_name(name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def _show(there: list[str], taken: dict[str, list[Readings]], count: int) -> None:
    peers = [name for name in there if name != "ours"]
    table = Table("what", *there, *(f"ours / {name}" for name in peers), "to reach", box=box.MARKDOWN)
    for reading, asks in _QUESTIONS.items():
        values = {name: [each[reading] for each in taken[name]] for name in there}
        ratios = [
            "-"
            if not all(values[name])
            else _spread([a / b for a, b in zip(values["ours"], values[name], strict=True)])
            for name in peers
        ]
        reach = {"last_s": "ours <= 1.2, then 0.6", "dropped": "0"}.get(reading, "")
        table.add_row(asks.format(count=count), *map(_spread, values.values()), *ratios, reach)
    Console(width=240, soft_wrap=True).print(table)


def _spread(values: Sequence[float]) -> str:
    return " / ".join(f"{value:.3g}" for value in (min(values), statistics.median(values), max(values)))
