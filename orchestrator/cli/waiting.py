"""When is an order carried out? Judges a job's rows before and after; asks nothing and waits for nothing itself.

| order | is carried out when | has failed when |
|---|---|---|
| stop  | nobody holds the lease | |
| start | somebody holds it, and it runs or waits for its tick; or it ran and is done | it ran and did not stay |
| both  | | the opposite was ordered since |

A service that fails at once also runs for a moment: `run_of` says which run is to be seen for `SETTLE_S`.
"""

from dataclasses import dataclass

from orchestrator.cli.picture import DISABLED
from orchestrator.core.nouns import Intent
from orchestrator.core.run import describe_end
from orchestrator.core.snapshot import NOBODY_ALIVE, JobView, State
from orchestrator.core.spec import Kind
from orchestrator.view.phrases import clean

STOP = "stopped"
START = "running"
"""What an order wants (`Intent.want`)."""

VERBS = {STOP: "stop", START: "start"}
"""What an order is called by those who give it."""

SETTLE_S = 0.5
"""So long one run of a service must be seen; a command that cannot start at all ends within milliseconds."""

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
    up = row.holder is not None and row.state in _UP and row.why != NOBODY_ALIVE
    if want == START and ordered != STOP and up:
        return Outcome(good=True, word="started already", name=row.name, how=f"{row.state} on {row.holder}")
    return None


def outcome(want: str, before: JobView, row: JobView) -> Outcome | None:
    """Return how an order came out; None while it is not carried out yet."""
    return _stopped(before, row) if want == STOP else _started(before, row)


def overtaken(want: str, name: str, standing: Intent | None, at_ms: int) -> Outcome | None:
    """Return what became of an order if the opposite was ordered later; None where it stands.

    Args:
        want: What was ordered.
        name: The job.
        standing: The order that stands now, as Redis has it.
        at_ms: When ours was given, by the server's clock.
    """
    if standing is None or standing.want == want or standing.at_ms <= at_ms:
        return None
    verb = VERBS.get(standing.want, standing.want)
    return Outcome(good=False, word="overtaken", name=name, how=f"by a {verb} of {standing.who}")


def run_of(row: JobView) -> tuple[object, ...] | None:
    """Return what tells one run of a service from the next; None where nothing runs, or a cron job."""
    if row.kind != Kind.SERVICE or row.state != State.RUNNING:
        return None
    return row.holder, row.token, row.pid, row.since


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
    ended = _ended_since(before, row)
    if ended and row.state in (State.FAILED, State.BACKOFF):
        return Outcome(good=False, word="failed", name=row.name, how=f"started on {row.holder}: {row.why}")
    if row.last and ended and _tries_again(row):
        how = f"started on {row.holder}: {describe_end(row.last)}"
        return Outcome(good=False, word="failed", name=row.name, how=how)
    if row.state in _UP:
        return Outcome(good=True, word="started", name=row.name, how=f"on {row.holder}")
    if ended and row.state == State.STOPPED:
        return Outcome(good=True, word="started", name=row.name, how=f"on {row.holder}: {row.why}")
    return None


def _ended_since(before: JobView, row: JobView) -> bool:
    """Return whether a run ended that began after the order.

    The holder publishes a state after each change; only another run than before tells an answer to this
    order from what was published before it.
    """
    if not row.last or row.last == before.last:
        return False
    return before.since is None or row.last.get("started") != before.since


def _tries_again(row: JobView) -> bool:
    """Return whether a service is in another try, after one that failed."""
    failed = row.last is not None and row.last.get("outcome") in ("failed", "timeout")
    return failed and row.kind == Kind.SERVICE and row.state in (State.STARTING, State.RUNNING)
