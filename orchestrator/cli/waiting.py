"""When is an order carried out? Judges a job's rows before and after; asks nothing and waits for nothing itself.

| order  | is carried out when | has failed when |
|--------|---|---|
| stop   | nobody holds the lease | |
| start  | somebody holds it, and it runs or waits for its tick; or it ran and is done | it ran and did not stay |
| pause  | it is shown as paused; a run that goes on is left alone | |
| resume | somebody holds the lease, and it is shown as paused no more | |
| all    | | the opposite was ordered since |

A service that fails at once also runs for a moment: `run_of` says which run is to be seen for `SETTLE_S`.
What became of a `trigger` is told by the job's past and not by its row: `triggered.py`.
"""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.cli.picture import DISABLED
from orchestrator.core.ends import describe_end
from orchestrator.core.nouns import Intent
from orchestrator.core.snapshot import NOBODY_ALIVE, JobView, State, stopped_by
from orchestrator.core.spec import Kind, Scope
from orchestrator.view.phrases import clean


class Verb(StrEnum):
    """What is ordered, as it is typed."""

    STOP = "stop"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"

    @property
    def want(self) -> str:
        """What Redis keeps of it (`Intent.want`)."""
        return _WANTS[self]

    @property
    def done(self) -> str:
        """What is said of a job for which it was carried out."""
        return _DONE[self]


_WANTS = {Verb.STOP: "stopped", Verb.START: "running", Verb.PAUSE: "paused", Verb.RESUME: "running"}
_DONE = {Verb.STOP: "stopped", Verb.START: "started", Verb.PAUSE: "paused", Verb.RESUME: "resumed"}
_VERBS = {"stopped": Verb.STOP, "running": Verb.START, "paused": Verb.PAUSE}
"""What another's order is called, of which only the want is known."""

SETTLE_S = 0.5
"""So long one run of a service must be seen; a command that cannot start at all ends within milliseconds."""

PAUSED_BY = "paused by "
"""How the holder begins the reason of a job that is paused while a run of it goes on."""

_UP = (State.RUNNING, State.WAITING)


EVERY_NODE = "every node"


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


def already(verb: Verb, row: JobView, standing: Intent | None) -> Outcome | None:
    """Return the outcome of an order that changes nothing, or may not be given; None for one that must be given.

    Args:
        verb: What is ordered.
        row: The job before it.
        standing: The last order for it; None where there never was one.
    """
    wanted = "" if standing is None else standing.want
    if verb is Verb.STOP:
        off = wanted == "stopped" and row.holder is None
        return Outcome(good=True, word="stopped already", name=row.name, how=row.why) if off else None
    if verb is Verb.PAUSE:
        return _paused_already(row, standing)
    if row.holder is None and row.why == DISABLED:
        how = f"{DISABLED}; write `enabled: true` there"
        return Outcome(good=False, word=f"not {verb.done}", name=row.name, how=how)
    if verb is Verb.RESUME:
        return _resumed_already(row, standing)
    up = row.holder is not None and row.state in _UP and row.why != NOBODY_ALIVE
    if up and wanted in ("", "running"):
        return Outcome(good=True, word="started already", name=row.name, how=f"{row.state} on {row.holder}")
    return None


def outcome(verb: Verb, before: JobView, row: JobView) -> Outcome | None:
    """Return how an order came out; None while it is not carried out yet."""
    match verb:
        case Verb.STOP:
            return _stopped(before, row)
        case Verb.START:
            return _started(before, row)
        case Verb.PAUSE:
            return _paused(row)
        case Verb.RESUME:
            return _resumed(row)


def overtaken(verb: Verb, name: str, standing: Intent | None, at_ms: int) -> Outcome | None:
    """Return what became of an order if another thing was ordered later; None where it stands.

    Args:
        verb: What was ordered.
        name: The job.
        standing: The order that stands now, as Redis has it.
        at_ms: When ours was given, by the server's clock.
    """
    if standing is None or standing.want == verb.want or standing.at_ms <= at_ms:
        return None
    other = _VERBS.get(standing.want, standing.want)
    return Outcome(good=False, word="overtaken", name=name, how=f"by a {other} of {standing.who}")


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


def _paused_already(row: JobView, standing: Intent | None) -> Outcome | None:
    if standing is not None and standing.want == "stopped":
        # A pause in its place would give the job back to a node: less than what was ordered before.
        return Outcome(good=False, word="not paused", name=row.name, how=f"it is {stopped_by(standing)}")
    if standing is not None and standing.want == "paused" and _is_paused(row):
        return Outcome(good=True, word="paused already", name=row.name, how=row.why)
    return None


def _resumed_already(row: JobView, standing: Intent | None) -> Outcome | None:
    if standing is not None and standing.want == "stopped":
        how = f"it is {stopped_by(standing)}; `orchestrator start {row.name}` starts it"
        return Outcome(good=False, word="not resumed", name=row.name, how=how)
    if (standing is None or standing.want != "paused") and not _is_paused(row):
        where = f" on {row.holder}" if row.holder else ""
        return Outcome(good=True, word="resumed already", name=row.name, how=f"{row.state}{where}")
    return None


def _stopped(before: JobView, row: JobView) -> Outcome | None:
    if row.holder is not None:
        return None
    how = f"was on {before.holder}" if before.holder else "no node held it"
    return Outcome(good=True, word="stopped", name=row.name, how=how)


def _started(before: JobView, row: JobView) -> Outcome | None:
    if not _is_held(row):
        return None
    ended = _ended_since(before, row)
    if ended and row.state in (State.FAILED, State.BACKOFF):
        return Outcome(good=False, word="failed", name=row.name, how=f"started on {row.holder}: {row.why}")
    if row.last and ended and _tries_again(row):
        how = f"started on {row.holder}: {describe_end(row.last)}"
        return Outcome(good=False, word="failed", name=row.name, how=how)
    if row.state in _UP:
        return Outcome(good=True, word="started", name=row.name, how=f"on {row.holder or EVERY_NODE}")
    if ended and row.state == State.STOPPED:
        return Outcome(good=True, word="started", name=row.name, how=f"on {row.holder}: {row.why}")
    return None


def _paused(row: JobView) -> Outcome | None:
    if not _is_paused(row):
        return None
    how = f"on {row.holder}" if row.holder else f"on {EVERY_NODE}" if row.scope == Scope.NODE else "no node holds it"
    if row.state != State.PAUSED:
        how += "; its run goes on"
    return Outcome(good=True, word="paused", name=row.name, how=how)


def _resumed(row: JobView) -> Outcome | None:
    if not _is_held(row) or _is_paused(row):
        return None
    return Outcome(good=True, word="resumed", name=row.name, how=f"{row.state} on {row.holder or EVERY_NODE}")


def _is_held(row: JobView) -> bool:
    """Return whether a node has it; of a job of every node the row shows the one that most wants looking after."""
    nobody = (State.STOPPED, State.PAUSED, State.UNHELD)
    return row.holder is not None or (row.scope == Scope.NODE and row.state not in nobody)


def _is_paused(row: JobView) -> bool:
    return row.state == State.PAUSED or row.why.startswith(PAUSED_BY)


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
