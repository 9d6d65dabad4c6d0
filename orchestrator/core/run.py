"""One run of a job as the core sees it, and how it is told to the child and to the record."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.core.fitness import Verdict
from orchestrator.core.messages import KillRun, RunEnded, StopRun
from orchestrator.core.nouns import Moment, NodeName, RunId, Token
from orchestrator.core.reload import substance
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, Scope

MOST_OUTPUT_LINES = 10
MOST_OUTPUT_CHARACTERS = 1500
"""Of the last output that goes into a run's record: enough to see a traceback's end, small enough for Redis."""


class Stage(StrEnum):
    """How far a run is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


class Reason(StrEnum):
    """Why a run was started; the child reads it as ORCHESTRATOR_REASON."""

    START = "start"
    SCHEDULE = "schedule"
    CATCH_UP = "catch_up"


@dataclass(slots=True)
class Run:
    """A run that has not been proven to be over.

    Attributes:
        token: The fencing token it was started under.
        tick_ms: The tick it runs for, None for a service.
        grace_s: What the last order to stop allowed; a later order may only shorten it.
        stop_why: Why it is being stopped, "" while it is not.
        killed: SIGKILL was ordered.
        exited: Its command is over; only a hook still runs, which no time limit of the command concerns.
        unfit: Why it must not go on, None while it may.
        unproven: Why nobody knows whether it still lives, "" while somebody does.
        stuck: What of it cannot be killed, "" if nothing.
    """

    id: RunId
    token: Token
    tick_ms: int | None
    reason: Reason
    started: Moment
    stage: Stage = Stage.STARTING
    pid: int | None = None
    grace_s: float = field(default=float("inf"))
    stop_why: str = ""
    killed: bool = False
    exited: bool = False
    unfit: Verdict | None = None
    unproven: str = ""
    stuck: str = ""

    def stop(self, grace_s: float, why: str, *, failure: bool = False) -> Iterator[StopRun]:
        """Have it stopped in order; again only if that makes it sooner."""
        if grace_s < self.grace_s:
            self.stage = Stage.STOPPING
            self.grace_s = grace_s
            self.stop_why = self.stop_why or why
            yield StopRun(self.id, grace_s, why, failure)

    def kill(self, why: str) -> Iterator[KillRun]:
        """Have it killed, once."""
        if not self.killed:
            self.stage = Stage.STOPPING
            self.killed = True
            self.stop_why = self.stop_why or why
            yield KillRun(self.id, why)


def child_environment(spec: JobSpec, run: Run, node: NodeName) -> Mapping[str, str]:
    """Return what every child may rely on."""
    env = {
        "ORCHESTRATOR_JOB": spec.job,
        "ORCHESTRATOR_RUN_ID": run.id,
        "ORCHESTRATOR_NODE": node,
        "ORCHESTRATOR_INSTANCE": str(spec.instance),
        "ORCHESTRATOR_ATTEMPT": "1",
        "ORCHESTRATOR_REASON": run.reason.value,
    }
    if spec.scope is Scope.CLUSTER:
        env["ORCHESTRATOR_FENCING_TOKEN"] = str(run.token)
    if run.tick_ms is not None:
        env["ORCHESTRATOR_TICK"] = iso_utc(run.tick_ms / 1000)
    return env


def outcome(spec: JobSpec, run: Run, ended: RunEnded) -> str:
    """Return how a run came out, in one word: ok | failed | timeout | stopped | lost.

    `lost`: its lease could not be renewed or was taken, its leash died, or its tick never came to a start.
    """
    if ended.cause == "exit" and not run.killed:
        return "ok" if not ended.error and ended.exit_code in spec.success_exit_codes else "failed"
    if run.stop_why == TIMED_OUT:
        return "timeout"
    if run.unfit is not None and run.unfit.failure and ended.cause in ("stop", "killed"):
        return "failed"
    if ended.cause in ("deadline", "unproven") or run.stop_why == LEASE_LOST:
        return "lost"
    return "lost" if run.tick_ms is not None and never_started(run, ended) else "stopped"


def never_started(run: Run, ended: RunEnded) -> bool:
    """Say whether a run was ended before its command could run at all."""
    return run.pid is None and ended.exit_code is None and not ended.signal


def ended_by_itself(run: Run, ended: RunEnded) -> bool:
    """Say whether an end counts for restarts: the command ended, could not start, or took its leash with it."""
    return (ended.cause == "exit" and not run.killed) or (ended.cause == "unproven" and not run.stop_why)


TIMED_OUT = "its time limit is over"

LEASE_LOST = "its lease is lost"


def record_of(
    spec: JobSpec, run: Run, ended: RunEnded, node: NodeName, now: Moment, *, order_ms: int
) -> dict[str, object]:
    """Return the `last` object that `status` shows; `order_ms`: when the last order that the run knew was given."""
    return {
        "run": run.id,
        "node": node,
        "token": run.token,
        "tick": None if run.tick_ms is None else iso_utc(run.tick_ms / 1000),
        "reason": run.reason.value,
        "started": iso_utc(run.started.utc),
        "ended": iso_utc(now.utc),
        "elapsed_s": round(ended.elapsed_s, 3),
        "outcome": outcome(spec, run, ended),
        "exit_code": ended.exit_code,
        "signal": ended.signal or None,
        "error": ended.error or run.stop_why or ("its leash died" if ended.cause == "unproven" else ""),
        "by_itself": ended_by_itself(run, ended),
        "output": _last_of(ended.tail),
        "substance": substance(spec),
        "order_ms": order_ms,
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


def exit_status_of(record: Mapping[str, object]) -> int:
    """Return what a shell would say of a run that failed: its exit code, 128 + its signal, else 1; never 0."""
    code, signal = record.get("exit_code"), record.get("signal")
    if isinstance(signal, int) and signal:
        return 128 + signal
    return code if isinstance(code, int) and code else 1


def describe_end(record: Mapping[str, object]) -> str:
    """Return the end of a run in one clause: `exit 1`, `signal 9`, `no such file: x`, `it never started: ...`."""
    error, signal, code = record.get("error"), record.get("signal"), record.get("exit_code")
    if error and record.get("outcome") not in ("ok", "stopped"):
        return str(error)
    if signal:
        return f"signal {signal}"
    if code:
        return f"exit {code}, expected" if record.get("outcome") == "ok" else f"exit {code}"
    return f"exit {code}" if code is not None else f"it never started: {error}" if error else "it never started"
