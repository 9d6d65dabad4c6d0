"""Paired trials, and the table they end in.

A machine is never the same twice, so the two managers take turns, and which goes first alternates too: what is
compared is always two neighbours in time.
"""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.managers import Manager, Orchestrator, Supervisord

Readings = dict[str, float]

_WHOLE_FROM = 100


@dataclass(frozen=True, slots=True)
class Question:
    """One row of the table.

    Attributes:
        reading: Its name in what a trial returns.
        asks: What is measured, for people, with its unit.
        reach: What was aimed at, "" if nothing was.
    """

    reading: str
    asks: str
    reach: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """The readings of two neighbouring trials."""

    ours: Readings
    theirs: Readings


def take_turns(trial: Callable[[Manager], Readings], *, trials: int, supervisord: str, root: Path) -> list[Pair]:
    """Run a trial so many times with each manager, in turns."""
    pairs = []
    for number in range(trials):
        both: dict[bool, Readings] = {}
        for is_ours in (True, False) if number % 2 == 0 else (False, True):
            both[is_ours] = _once(trial, is_ours=is_ours, supervisord=supervisord, root=root)
        pairs.append(Pair(both[True], both[False]))
    return pairs


def _once(trial: Callable[[Manager], Readings], *, is_ours: bool, supervisord: str, root: Path) -> Readings:
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=root))
    manager: Manager = Orchestrator(directory) if is_ours else Supervisord(directory, supervisord)
    try:
        return trial(manager)
    finally:
        manager.close()
        shutil.rmtree(directory, ignore_errors=True)


class Results:
    """The rows of the table."""

    def __init__(self) -> None:
        """Begin without rows."""
        columns = ("what", "ours", "supervisord", "ours / theirs", "to reach")
        self._table = Table(*columns, box=box.MARKDOWN)

    def add(self, questions: Iterable[Question], pairs: Sequence[Pair]) -> None:
        """Add the answers of some trials."""
        for question in questions:
            ours = [pair.ours[question.reading] for pair in pairs]
            theirs = [pair.theirs[question.reading] for pair in pairs]
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True) if other]
            self._table.add_row(question.asks, _spread(ours), _spread(theirs), _spread(ratios), question.reach)

    def show(self) -> None:
        """Print the table: minimum / median / maximum in each cell; it is Markdown."""
        Console(width=150, soft_wrap=True).print(self._table)


def _spread(values: Sequence[float]) -> str:
    if not values or not any(values):
        return "0" if values else "-"
    return " / ".join(_short(value) for value in (min(values), statistics.median(values), max(values)))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"
