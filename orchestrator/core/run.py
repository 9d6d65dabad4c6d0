"""One run of a job as the core sees it, how it is told to the child, and how it came out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.core.fitness import Verdict
from orchestrator.core.messages import (
    Event,
    KillRun,
    RunEnded,
    RunExited,
    RunStarted,
    RunStuck,
    RunUnproven,
    Say,
    StopRun,
)
from orchestrator.core.nouns import Moment, NodeName, RunId, Token
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, Scope


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
    MANUAL = "manual"
    AFTER = "after"
    RETRY = "retry"
    RERUN = "rerun"


@dataclass(slots=True)
class Run:
    """A run that has not been proven to be over.

    Attributes:
        token: The fencing token it was started under.
        tick_ms: The tick it runs for, None for a service or an ordered run without one.
        attempt: Counts from 1.
        first_reason: Why the first attempt was made.
        lane: Which of the runs of its job that are alive at once it is, from 0.
        last_attempt: No other one follows if it fails.
        note: Who ordered it and why, "" if nobody did.
        grace_s: What the last order to stop allowed; a later order may only shorten it.
        stop_why: Why it is being stopped, "" while it is not.
        killed: SIGKILL was ordered.
        exited: Its command is over; only a hook still runs, which no time limit of the command concerns.
        unfit: Why it must not go on, None while it may.
        unproven: Why nobody knows whether it still lives, "" while somebody does.
        stuck: What of it cannot be killed, "" if nothing.
        reruns: How many of the attempts up to this one follow a lost run.
    """

    id: RunId
    token: Token
    tick_ms: int | None
    reason: Reason
    started: Moment
    attempt: int = 1
    first_reason: Reason = Reason.START
    lane: int = 0
    last_attempt: bool = True
    note: str = ""
    stage: Stage = Stage.STARTING
    pid: int | None = None
    grace_s: float = field(default=float("inf"))
    stop_why: str = ""
    killed: bool = False
    exited: bool = False
    unfit: Verdict | None = None
    unproven: str = ""
    stuck: str = ""
    reruns: int = 0

    def learn(self, event: Event) -> Iterator[Say]:
        """Take in what its leash tells of it, and say what people must know."""
        match event:
            case RunStarted():
                self.pid = event.pid
                self.stage = Stage.RUNNING if self.stage is Stage.STARTING else self.stage
                yield Say("run.started", {"job": event.job, "run": self.id, "pid": event.pid, "token": self.token})
            case RunExited():
                self.exited = True
            case RunUnproven():
                self.unproven = event.why
                yield Say("run.unproven", {"job": event.job, "run": self.id, "why": event.why}, "warning")
            case RunStuck():
                self.stuck = f"{event.why} (pid {', '.join(map(str, event.pids))})"
                yield Say("run.stuck", {"job": event.job, "run": self.id, "why": self.stuck}, "error")
            case _:
                pass

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
        "ORCHESTRATOR_ATTEMPT": str(run.attempt),
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
    if run.stop_why.startswith(REPLACED):
        return "stopped"
    return "lost" if run.tick_ms is not None and never_started(run, ended) else "stopped"


def never_started(run: Run, ended: RunEnded) -> bool:
    """Say whether a run was ended before its command could run at all."""
    return run.pid is None and ended.exit_code is None and not ended.signal


def ended_by_itself(run: Run, ended: RunEnded) -> bool:
    """Say whether an end counts for restarts: the command ended, could not start, or took its leash with it."""
    return (ended.cause == "exit" and not run.killed) or (ended.cause == "unproven" and not run.stop_why)


TIMED_OUT = "its time limit is over"

LEASE_LOST = "its lease is lost"

REPLACED = "replaced by"
