"""When is an order carried out? Judges a job's rows before and after; asks nothing and waits for nothing itself.

| order | is carried out when | has failed when |
|---|---|---|
| stop  | nobody holds the lease | |
| start | somebody holds it, and it runs or waits for its tick; or it ran and is done | it ran and did not stay |
"""

from dataclasses import dataclass

from orchestrator.cli.picture import DISABLED
from orchestrator.core.snapshot import JobView, State
from orchestrator.view.phrases import clean

STOP = "stopped"
START = "running"
"""What an order wants (`Intent.want`)."""

_UP = (State.RUNNING, State.WAITING)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an order for one job came out.

    Attributes:
        good: It was carried out.
        word: What became of the job.
        how: The circumstances.
    """

    good: bool
    word: str
    name: str
    how: str

    def line(self, took_s: float | None = None) -> str:
        """Return it for people, with the time it took."""
        took = "" if took_s is None else f", {took_s:.1f} s"
        return clean(f"{self.word}: {self.name} ({self.how}{took})")


def already(want: str, row: JobView, ordered: str | None) -> Outcome | None:
    """Return the outcome of an order that changes nothing; None for one that must be given.

    Args:
        want: What is ordered.
        row: The job before it.
        ordered: What the last order wants; None where there never was one.
    """
    if want == STOP and ordered == STOP and row.holder is None:
        return Outcome(good=True, word="stopped already", name=row.name, how=row.why)
    if want == START and row.holder is None and row.why == DISABLED:
        return Outcome(good=False, word="not started", name=row.name, how=f"{DISABLED}; write `enabled: true` there")
    if want == START and ordered != STOP and row.holder is not None and row.state in _UP:
        return Outcome(good=True, word="started already", name=row.name, how=f"{row.state} on {row.holder}")
    return None


def outcome(want: str, before: JobView, row: JobView) -> Outcome | None:
    """Return how an order came out; None while it is not carried out yet."""
    return _stopped(before, row) if want == STOP else _started(before, row)


def pending(row: JobView) -> str:
    """Return what a job is waited for in, for people."""
    where = f" on {row.holder}" if row.holder else ""
    why = f": {row.why}" if row.why else ""
    return clean(f"{row.name} ({row.state}{where}{why})")


def _stopped(before: JobView, row: JobView) -> Outcome | None:
    if row.holder is not None:
        return None
    how = f"was on {before.holder}" if before.holder else "no node held it"
    return Outcome(good=True, word="stopped", name=row.name, how=how)


def _started(before: JobView, row: JobView) -> Outcome | None:
    if row.holder is None:
        return None
    if row.state in _UP:
        return Outcome(good=True, word="started", name=row.name, how=f"on {row.holder}")
    # The holder publishes a state after each change; only another run than before tells an answer to this
    # order from what was published before it.
    if not row.last or row.last == before.last:
        return None
    if row.state in (State.FAILED, State.BACKOFF):
        return Outcome(good=False, word="failed", name=row.name, how=f"started on {row.holder}: {row.why}")
    if row.state == State.STOPPED:
        return Outcome(good=True, word="started", name=row.name, how=f"on {row.holder}: {row.why}")
    return None
