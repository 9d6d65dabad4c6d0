"""`python -m benchmarks [NAME ...]`: this package against supervisord, its schedules against other crons, as ratios.

It prints tables and leaves nothing behind. Nothing here is a test: a time says something only beside another one of
the same machine and minute.
"""

import functools
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click

from benchmarks import crons, log_pump, next_ticks, services
from benchmarks.managers import Manager
from benchmarks.trials import Pair, Question, Readings, Results, take_turns

_LIVES = {
    "start": [
        Question("start_s", "start of {count}: until all run, s", "<= 0.4"),
        Question("start_cpu_s", "start of {count}: processor time, Redis included, s"),
    ],
    "stop": [
        Question("stop_s", "stop of {count}: until no service is left, s", "<= 1"),
        Question("gone_s", "stop of {count}: until the manager has ended, s"),
    ],
    "idle": [
        Question("idle_percent", "idle with {count}: % of one processor", "<= 1"),
        Question("idle_redis_percent", "idle with {count}: Redis beside it, %"),
    ],
    "memory": [Question("pss_kib", "memory with {count}: PSS in KiB a service", "ours <= 1536")],
}
_PUMP = [
    Question("megabytes_a_second", "log pump: MB/s", ">= 1"),
    Question("cpu_s_a_gigabyte", "log pump: cpu s/GB", "<= 1"),
    Question("wrong_lines", "log pump: lines lost, doubled or disordered", "0"),
    Question("cut_lines", "log pump: lines cut by a rotation", "0"),
]
_FEW = 100
"""Services of the second reading of the memory: what is shared by few shows what is not shared by many."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice([*_LIVES, "pump", "next", "crons"]))
@click.option("--trials", default=3, show_default=True, help="Trials of each manager.")
@click.option("--count", default=1000, show_default=True, help="Services, or crons, of one manager.")
@click.option("--idle", "idle_s", default=30.0, show_default=True, help="Seconds for which an idle manager is watched.")
@click.option("--megabytes", default=1000, show_default=True, help="What the log pump is given, in 10^6 bytes.")
@click.option("--supervisord", default=None, help="The rival's command; else beside this Python, else on PATH.")
@click.option("--directory", default=tempfile.gettempdir(), help="Where states and logs go meanwhile.")
def main(
    names: tuple[str, ...],
    trials: int,
    count: int,
    idle_s: float,
    megabytes: int,
    supervisord: str | None,
    directory: str,
) -> None:
    """Compare with supervisord (start, stop, idle, memory, pump), and with other schedulers (next, crons).

    Without a name all of them.
    """
    chosen = set(names or (*_LIVES, "pump", "next", "crons"))
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))  # what was started is ended then, too
    _raise_open_files()
    if "next" in chosen:
        next_ticks.compare(trials)
    if "crons" in chosen:
        crons.compare(trials, count, Path(directory))
    if chosen & {*_LIVES, "pump"}:
        turns = functools.partial(
            take_turns, trials=trials, supervisord=supervisord or _find_supervisord(), root=Path(directory)
        )
        _against_supervisord(chosen, turns, count, idle_s, megabytes)
    cores, load = os.cpu_count(), os.getloadavg()[2]
    click.echo(f"minimum / median / maximum of {trials}; {cores} processors, load {load:.1f} (15 minutes)")


def _against_supervisord(
    chosen: set[str],
    turns: Callable[[Callable[[Manager], Readings]], list[Pair]],
    count: int,
    idle_s: float,
    megabytes: int,
) -> None:
    results = Results()
    watched_s = idle_s if {"idle", "memory"} & chosen else 0.0
    if chosen & set(_LIVES):
        pairs = turns(functools.partial(services.live, count=count, idle_s=watched_s))
        for name, questions in _LIVES.items():
            if name in chosen:
                results.add(_with(count, questions), pairs)
    if "memory" in chosen:
        pairs = turns(functools.partial(services.live, count=_FEW, idle_s=1.0))
        results.add(_with(_FEW, _LIVES["memory"]), pairs)
    if "pump" in chosen:
        results.add(_PUMP, turns(functools.partial(log_pump.pump, megabytes=megabytes)))
    results.show()


def _with(count: int, questions: list[Question]) -> list[Question]:
    return [Question(each.reading, each.asks.format(count=f"{count:,}"), each.reach) for each in questions]


def _find_supervisord() -> str:
    beside = Path(sys.executable).with_name("supervisord")
    found = str(beside) if beside.exists() else shutil.which("supervisord")
    if found is None:
        raise click.UsageError("there is no supervisord beside this Python or on PATH: `pip install supervisor`")
    return found


def _raise_open_files() -> None:
    """A descriptor a service is held while it stops."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
