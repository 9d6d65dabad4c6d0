"""The past of one job as it is shown: the documented shape of `history --json`, and how it is read.

Knows what an entry tells; must never know Redis, nor how it is drawn. Entries may have been written by another version,
or by anybody: each value is taken if it is of its kind, and is absent if not.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from orchestrator.core.nouns import OpenRun
from orchestrator.core.past import Past
from orchestrator.view import phrases

FAILURES = frozenset({"failed", "timeout", "lost"})
"""Outcomes of runs that did not do what they should."""


@dataclass(frozen=True, slots=True)
class EntryView:
    """What became of one run, or of ticks that did not run. Times are ISO 8601 UTC texts; null: it has none.

    Attributes:
        run: Its id; None: ticks that did not run.
        tick: The tick it ran for, or the one that did not run; None: several ticks, or a run without one.
        ended: When it ended, or when it was decided that the ticks do not run.
        error: Why it failed, in one clause, "" if nothing says so.
        why: Who ordered it and why, or why the ticks did not run; "" if there is nothing to say.
        first, last, count: Of ticks that did not run, and how many they are; None for a run.
        output: The last lines it wrote, oldest first.
    """

    run: str | None
    node: str | None
    token: int | None
    tick: str | None
    attempt: int | None
    reason: str | None
    started: str | None
    ended: str | None
    elapsed_s: float | None
    outcome: str
    exit_code: int | None
    signal: int | None
    error: str
    why: str
    first: str | None
    last: str | None
    count: int | None
    output: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpenView:
    """A run that has not ended, or that is to be tried again.

    Attributes:
        started: When it began, as far as it is known.
        retry: When the next attempt is due, ISO 8601 UTC; None: this one has not ended.
        rerun: The next attempt follows a run that was lost, and not one that failed.
    """

    run: str
    node: str
    token: int
    tick: str | None
    attempt: int
    reason: str
    started: str | None
    retry: str | None
    rerun: bool


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The past of one job instance; the documented shape of `history --json`. Times are ISO 8601 UTC texts.

    Attributes:
        since: Ticks later than this are counted; None: none are (a service, or a cron that nobody held yet).
        settled: They are counted up to here; None as above.
        ticks: ran + skipped + missed, whatever is kept of them.
        open: Runs that have not ended.
        runs: What is kept of the others, and of ticks that did not run; newest first.
    """

    job: str
    since: str | None = None
    settled: str | None = None
    ticks: int = 0
    ran: int = 0
    skipped: int = 0
    missed: int = 0
    open: tuple[OpenView, ...] = ()
    runs: tuple[EntryView, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the documented shape."""
        return asdict(self)


def history_of(job: str, past: Past, *, since: str | None = None) -> HistoryView:
    """Read what the store keeps of a job's past.

    Args:
        job: Its instance name.
        past: What is kept.
        since: When its present run began, ISO 8601 UTC, if that is known.
    """
    lone = sum(1 for run in past.open if not run.retry_ms) == 1
    return HistoryView(
        job=job,
        since=phrases.iso_of(past.since_ms),
        settled=phrases.iso_of(past.settled_ms),
        ticks=past.ran + past.skipped + past.missed,
        ran=past.ran,
        skipped=past.skipped,
        missed=past.missed,
        open=tuple(_open_view(run, since if lone and not run.retry_ms else None) for run in past.open),
        runs=tuple(map(entry_of, past.entries)),
    )


def entry_of(told: Mapping[str, object]) -> EntryView:
    """Read one entry, of whoever wrote it."""
    lines = told.get("output")
    return EntryView(
        run=_text(told.get("run")),
        node=_text(told.get("node")),
        token=_whole(told.get("token")),
        tick=_text(told.get("tick")),
        attempt=_whole(told.get("attempt")),
        reason=_text(told.get("reason")),
        started=_text(told.get("started")),
        ended=_text(told.get("ended")),
        elapsed_s=_seconds(told.get("elapsed_s")),
        outcome=_text(told.get("outcome")) or "",
        exit_code=_whole(told.get("exit_code")),
        signal=_whole(told.get("signal")),
        error=_text(told.get("error")) or "",
        why=_text(told.get("why")) or "",
        first=_text(told.get("first")),
        last=_text(told.get("last")),
        count=_whole(told.get("count")),
        output=tuple(map(str, lines)) if isinstance(lines, list | tuple) else (),
    )


def newest(view: HistoryView, count: int, *, failed: bool) -> HistoryView:
    """Return the past with its newest entries only; `failed`: with those of runs that failed alone."""
    runs = [entry for entry in view.runs if entry.outcome in FAILURES or not failed]
    return replace(view, runs=tuple(runs[:count]))


def counted_span(view: HistoryView) -> tuple[float | None, float | None]:
    """Return after which instant ticks are counted, and up to which; seconds since 1970."""
    return phrases.utc_of(view.since), phrases.utc_of(view.settled)


def _open_view(run: OpenRun, since: str | None) -> OpenView:
    return OpenView(
        run=run.run,
        node=run.node,
        token=run.token,
        tick=None if run.tick_ms is None else phrases.iso_of(run.tick_ms),
        attempt=run.attempt,
        reason=run.reason,
        started=since,
        retry=phrases.iso_of(run.retry_ms),
        rerun=run.rerun,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _seconds(value: object) -> float | None:
    # JSON as Python reads it knows infinity, and JSON as others read it does not.
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if number else None  # type: ignore[return-value] # a number, by the line above
