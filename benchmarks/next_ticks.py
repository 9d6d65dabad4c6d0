"""The next ticks of 10,000 crons, recomputed: here, by croniter and by APScheduler's CronTrigger, in turns.

A library that cannot be imported is left out. Expressions are those that all three read alike, and the instants
are ordinary ones: where clocks are changed the three differ on purpose, and no time says who is right.
What is measured is processor time: nothing here waits, and who else uses the machine shall not count.
"""

import functools
import gc
import itertools
import random
import resource
import statistics
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import click
from rich import box
from rich.console import Console
from rich.table import Table

from orchestrator.core.schedule import Schedule
from orchestrator.core.spec import ScheduleSpec

COUNT = 10_000
START = datetime(2026, 12, 1, 9, 17, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
LINES = (
    *("* * * * *", "*/5 * * * *", "{minute} * * * *", "{minute} {hour} * * *", "{minute} {hour} * * mon-fri"),
    *("{minute} {hour} 1 * *", "0 9-17 * * mon-fri", "*/15 {hour} * * *", "{minute} {hour} * * sun", "0 0 1 1 *"),
)
"""What stands in crontabs."""

_Result = TypeVar("_Result")
Ask = Callable[[datetime], datetime | None]
"""When one cron is due next, strictly later than an instant."""


def ours(line: str, zone: str) -> Ask:
    schedule = Schedule(ScheduleSpec(cron=line, timezone=zone))

    def ask(after: datetime) -> datetime | None:
        tick = schedule.next_after(after.timestamp())
        return None if tick is None else datetime.fromtimestamp(tick, UTC)

    return ask


def of_croniter(line: str, zone: str) -> Ask:
    where = ZoneInfo(zone)
    walker: Any = import_module("croniter").croniter(line, START.astimezone(where))
    return lambda after: walker.get_next(datetime, start_time=after.astimezone(where))


def of_apscheduler(line: str, zone: str) -> Ask:
    trigger: Any = import_module("apscheduler.triggers.cron").CronTrigger.from_crontab(line, ZoneInfo(zone))
    moment = timedelta(microseconds=1)  # it takes an instant that is a tick itself for the next one
    return lambda after: trigger.get_next_fire_time(None, after + moment)


WAYS = {"ours": ours, "croniter": of_croniter, "apscheduler": of_apscheduler}


def compare(trials: int) -> None:
    """Measure each library so many times, in turns, and print the table."""
    there = [name for name in WAYS if name == "ours" or find_spec(name)]
    crons = _crons()
    built: dict[str, list[Ask]] = {}
    build_s: dict[str, list[float]] = {}
    for name in there:
        built[name], took_s = _timed(functools.partial(_read, WAYS[name], crons))
        build_s[name] = [took_s]
    next_s: dict[str, list[float]] = {name: [] for name in there}
    differing = dict.fromkeys(there, 0)
    for trial in range(trials):
        after = START + timedelta(hours=7 * trial)
        found = {}
        for name in there if trial % 2 == 0 else reversed(there):
            found[name], took_s = _timed(functools.partial(_ask_all, built[name], after))
            next_s[name].append(took_s)
        for name in there:
            differing[name] += sum(mine != theirs for mine, theirs in zip(found["ours"], found[name], strict=True))
    _show(
        there, {f"next ticks of {COUNT:,}, cpu s": next_s, f"reading {COUNT:,} expressions, cpu s": build_s}, differing
    )


def _crons() -> list[tuple[str, str]]:
    chance = random.Random(1)  # noqa: S311 - the same crons in each run
    drawn = itertools.islice(itertools.cycle(itertools.product(LINES, ZONES)), COUNT)
    return [(line.format(minute=chance.randrange(60), hour=chance.randrange(24)), zone) for line, zone in drawn]


def _read(way: Callable[[str, str], Ask], crons: list[tuple[str, str]]) -> list[Ask]:
    return [way(line, zone) for line, zone in crons]


def _ask_all(asks: list[Ask], after: datetime) -> list[datetime | None]:
    return [ask(after) for ask in asks]


def _timed(work: Callable[[], _Result]) -> tuple[_Result, float]:
    gc.collect()
    began_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    result = work()
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_utime - began_s


def _show(there: list[str], rows: dict[str, dict[str, list[float]]], differing: dict[str, int]) -> None:
    peers = [name for name in there if name != "ours"]
    table = Table("what", *there, *(f"ours / {name}" for name in peers), box=box.MARKDOWN)
    for asks, taken in rows.items():
        ratios = [statistics.median(taken["ours"]) / statistics.median(taken[name]) for name in peers]
        table.add_row(asks, *(_spread(taken[name]) for name in there), *(f"{ratio:.3g}" for ratio in ratios))
    table.add_row("ticks that differ from ours", *(f"{differing[name]}" for name in there))
    Console(width=150, soft_wrap=True).print(table)
    if missing := [name for name in WAYS if name not in there]:
        click.echo(f"not installed: {' '.join(missing)}")


def _spread(taken_s: list[float]) -> str:
    return " / ".join(f"{value:.3g}" for value in (min(taken_s), statistics.median(taken_s), max(taken_s)))
