"""The vocabulary between the core and its shell: what is ordered (actions), what is told (events).

Everything is frozen data. What concerns the store stands in `core/requests.py` and `core/answers.py`;
here stand the orders for runs, the words of the leashes and of people, and the two closed unions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.core.answers import StoreAnswer
from orchestrator.core.nouns import Deadlines, JobName, RunId, Token
from orchestrator.core.requests import StoreRequest
from orchestrator.core.spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start one run of a job under a leash.

    Attributes:
        deadlines: From the lease; None for a run without one.
        env: ORCHESTRATOR_* for the child, over what the job's spec says.
        lane: Which of the runs of this job that are alive at once it is, from 0: each lane has log files of its own.
        last_attempt: No other attempt follows if it fails: only then the hook for failures runs.
    """

    job: JobName
    run: RunId
    token: Token
    deadlines: Deadlines | None
    env: Mapping[str, str]
    lane: int = 0
    last_attempt: bool = True


@dataclass(frozen=True, slots=True)
class ExpectRuns:
    """So many starts are due soon: make ready for them. The next one replaces what this one said.

    Attributes:
        count: How many.
        at: The boot instant of the first of them.
    """

    count: int
    at: float


@dataclass(frozen=True, slots=True)
class ExtendRun:
    """Move a run's deadlines; they only ever move later."""

    run: RunId
    deadlines: Deadlines


@dataclass(frozen=True, slots=True)
class StopRun:
    """Stop a run in order: the stop signal, then SIGKILL after the grace. A repeated one may shorten the grace.

    Attributes:
        failure: It is stopped because it failed (its time limit, its health): the hook for failures runs.
    """

    run: RunId
    grace_s: float
    why: str
    failure: bool = False


@dataclass(frozen=True, slots=True)
class KillRun:
    """SIGKILL a run's whole tree now."""

    run: RunId
    why: str


@dataclass(frozen=True, slots=True)
class RememberToken:
    """Keep the highest token seen for a job in the state directory (the floor of the next acquire)."""

    job: JobName
    token: Token


@dataclass(frozen=True, slots=True)
class Say:
    """Log one line; the message is an event name, the facts are fields."""

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)
    level: str = "info"


@dataclass(frozen=True, slots=True)
class QuitNode:
    """The node is done: everything is stopped and released, or its name is refused.

    Attributes:
        problem: Why it had to, "" after an ordered end.
        exit_status: What the process ends with where there is no problem (see `up --exit-on-failure`).
    """

    problem: str = ""
    exit_status: int = 0


Action = StoreRequest | StartRun | ExpectRuns | ExtendRun | StopRun | KillRun | RememberToken | Say | QuitNode


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The command runs.

    Attributes:
        pid: Of its first process.
    """

    job: JobName
    run: RunId
    pid: int


@dataclass(frozen=True, slots=True)
class RunStuck:
    """Something of a run cannot be killed; the leash keeps trying and the lease is never released meanwhile."""

    job: JobName
    run: RunId
    pids: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class RunUnproven:
    """The leash is gone or does not answer: whether the tree still lives is not known yet."""

    job: JobName
    run: RunId
    why: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The whole tree is gone, and there is proof of it.

    Attributes:
        exit_code: Of the first process; None if a signal ended it or it never started.
        signal: What ended it, 0 if it exited by itself.
        error: Why it could not start, in one clause; "" if it did.
        cause: exit | stop | deadline | killed | abandoned (main was gone) | unproven (the leash died).
        elapsed_s: From exec to the end of the tree.
        tail: Its last lines of output, oldest first.
    """

    job: JobName
    run: RunId
    exit_code: int | None
    signal: int
    error: str
    cause: str
    elapsed_s: float
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunChecked:
    """A health check of a run has come to its end.

    Attributes:
        why: Why it failed, in one clause: "HTTP 503", "exit 1", "no answer within 5 s"; "" if it did not.
    """

    job: JobName
    run: RunId
    healthy: bool
    why: str


@dataclass(frozen=True, slots=True)
class RunExited:
    """The command has ended by itself, and nothing of its tree is left; only its last hook still runs."""

    job: JobName
    run: RunId


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """How much memory the processes of a run hold together; told of runs whose job has `max_rss`."""

    job: JobName
    run: RunId
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class Nudged:
    """Something changed in the store: look now instead of at the next beat."""

    job: JobName | None


@dataclass(frozen=True, slots=True)
class LeaveOrdered:
    """This node is to stop everything and go.

    Attributes:
        urgency: 0: every job's own stop timeout; 1: the step-down grace; 2: kill.
    """

    urgency: int


@dataclass(frozen=True, slots=True)
class FileReloaded:
    """The file was read anew, and is in order."""

    spec: ClusterSpec


RunEvent = RunStarted | RunStuck | RunUnproven | RunExited | RunEnded | RunChecked | RunMeasured

Event = StoreAnswer | RunEvent | Nudged | LeaveOrdered | FileReloaded
