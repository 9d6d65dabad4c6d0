"""What is written down of a run that ended, and of ticks that did not run: the entries of `history`.

Knows the words and the bounds of a record; must never know who reads it. The `last` object of `status` is a run's.
Every entry has the same keys, so that whoever reads them as JSON need not ask which there are.
"""

from collections.abc import Mapping

from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import LeaseValue, Moment, NodeName, OpenRun
from orchestrator.core.reload import substance
from orchestrator.core.run import Run, ended_by_itself, outcome
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, Kind
from orchestrator.core.ticks import Fate, Passed

MOST_OUTPUT_LINES = 10
MOST_OUTPUT_CHARACTERS = 1500
"""Of the last output that goes into a run's record: enough to see a traceback's end, small enough for Redis."""

_EMPTY: Mapping[str, object] = {
    **dict.fromkeys(("run", "node", "token", "tick", "attempt", "reason", "started", "ended", "elapsed_s", "outcome")),
    **dict.fromkeys(("exit_code", "signal")),
    "error": "",
    "why": "",
    "output": [],
    **dict.fromkeys(("first", "last", "count")),
}


_UNTOLD = {"unproven": "its leash died", "deadline": "its lease was not renewed in time"}
"""Why a run ended that nobody ordered to."""


def record_of(
    spec: JobSpec, run: Run, ended: RunEnded, node: NodeName, now: Moment, *, order_ms: int
) -> dict[str, object]:
    """Return what is told of a run that ended; `order_ms`: when the last order that the run knew was given."""
    return {
        **_EMPTY,
        "run": run.id,
        "node": node,
        "token": run.token,
        "tick": None if run.tick_ms is None else iso_utc(run.tick_ms / 1000),
        "attempt": run.attempt,
        "reason": run.reason.value,
        "started": iso_utc(run.started.utc),
        "ended": iso_utc(now.utc),
        "elapsed_s": round(ended.elapsed_s, 3),
        "outcome": outcome(spec, run, ended),
        "exit_code": ended.exit_code,
        "signal": ended.signal or None,
        "error": ended.error or run.stop_why or _UNTOLD.get(ended.cause, ""),
        "why": run.note,
        "by_itself": ended_by_itself(run, ended),
        "output": _last_of(ended.tail),
        "substance": substance(spec) if spec.kind is Kind.SERVICE else "",  # only of services it is ever asked
        "order_ms": order_ms,
    }


def lost_record(run: OpenRun, now: Moment) -> dict[str, object]:
    """Return what a successor tells of a run whose node told no end of it."""
    return {
        **_EMPTY,
        "run": run.run,
        "node": run.node,
        "token": run.token,
        "tick": None if run.tick_ms is None else iso_utc(run.tick_ms / 1000),
        "attempt": run.attempt,
        "reason": run.reason,
        "ended": iso_utc(now.utc),
        "outcome": "lost",
        "error": f"node {run.node} died or lost the lease, and did not tell how it ended",
        "by_itself": False,
    }


def passed_record(passed: Passed, value: LeaseValue, now: Moment) -> dict[str, object]:
    """Return what is told of ticks that did not run."""
    return {
        **_EMPTY,
        "node": value.node,
        "token": value.token,
        "tick": iso_utc(passed.last) if passed.count == 1 else None,
        "ended": iso_utc(now.utc),
        "outcome": "missed" if passed.fate is Fate.DOUBT else passed.fate.value,
        "why": passed.why,
        "first": iso_utc(passed.first),
        "last": iso_utc(passed.last),
        "count": passed.count,
    }


def refused_record(run: str, tick_ms: int | None, why: str, value: LeaseValue, now: Moment) -> dict[str, object]:
    """Return what is told of an order that was not obeyed."""
    return {
        **_EMPTY,
        "run": run,
        "node": value.node,
        "token": value.token,
        "tick": None if tick_ms is None else iso_utc(tick_ms / 1000),
        "reason": "manual",
        "ended": iso_utc(now.utc),
        "outcome": "skipped",
        "why": why,
    }


def _last_of(tail: tuple[str, ...]) -> list[str]:
    """Return the last lines that fit into a record."""
    kept: list[str] = []
    room = MOST_OUTPUT_CHARACTERS
    for line in reversed(tail[-MOST_OUTPUT_LINES:]):
        if room <= 0:
            break
        kept.append(line[-room:])
        room -= len(line)
    return kept[::-1]
