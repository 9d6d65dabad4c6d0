"""What a jobs.yaml means, after every complaint has been made: frozen, complete, in seconds and tuples.

`config/` builds these; nothing here reads a file. The numbers of a lease stand in `timing.py`.
"""

import functools
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.core.nouns import Bucket, JobName
from orchestrator.core.timing import LeaseTiming

BUCKETS = 16
"""Hash tags a cluster's lease keys are spread over: one script call renews all leases of a bucket."""


@functools.lru_cache(maxsize=1 << 16)
def bucket_of(key: str) -> Bucket:
    """Return the bucket of a lease key's `<job>` segment."""
    return Bucket(zlib.crc32(key.encode()) % BUCKETS)


class Kind(StrEnum):
    """A job runs all the time, or at instants."""

    SERVICE = "service"
    CRON = "cron"


class Restart(StrEnum):
    """When an ended service is started again."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class OnRedisLoss(StrEnum):
    """What becomes of a run whose lease cannot be renewed.

    STEP_DOWN: the stop signal, the step-down grace, SIGKILL, all before the lease can run out.
    KILL: SIGKILL at the latest safe instant, no grace.
    KEEP: nothing; availability over safety, two runs become possible.
    """

    STEP_DOWN = "step_down"
    KILL = "kill"
    KEEP = "keep"


class Scope(StrEnum):
    """How many of a job run: one in the whole cluster, under a lease, or one on every node, without one."""

    CLUSTER = "cluster"
    NODE = "node"


class OnCrashLoop(StrEnum):
    """What becomes of the lease of a service that fails again and again, where another node could try.

    RELEASE: it is given back; this node asks again only if nobody took it for a while.
    KEEP: this node goes on trying.
    """

    RELEASE = "release"
    KEEP = "keep"


class OnUnhealthy(StrEnum):
    """What becomes of a service whose health checks fail: started anew here, or its lease given back, too."""

    RESTART = "restart"
    RELEASE = "release"


class Misfire(StrEnum):
    """What becomes of ticks that are found late, within `misfire_grace`.

    ONCE: of several the newest runs. SKIP: none that is later than a ttl. ALL: each, oldest first, one at a time.
    """

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while a run of its job goes on.

    SKIP: it does not run. QUEUE: it waits for the end. REPLACE: the run is stopped for it. ALLOW: both run.
    """

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class OnLost(StrEnum):
    """What becomes of a tick whose run was lost with its node: nothing more, or it runs once more."""

    SKIP = "skip"
    RERUN = "rerun"


class Dst(StrEnum):
    """How a fixed-time expression is read where the clocks are changed.

    CRON: as cron(8) does, neither lost nor twice. LITERAL: whenever the wall clock matches, so it may be either.
    """

    CRON = "cron"
    LITERAL = "literal"


@dataclass(frozen=True, slots=True)
class Backoff:
    """How a failing run is tried again: `delay_s` x `factor`^n, at most `max_delay_s`, with full jitter.

    Attributes:
        healthy_after_s: A run that lived this long counts as well; the count of failures starts again.
        max_failures: Give up after so many failures in a row; None: never.
    """

    delay_s: float = 1.0
    factor: float = 2.0
    max_delay_s: float = 60.0
    healthy_after_s: float = 10.0
    max_failures: int | None = None


@dataclass(frozen=True, slots=True)
class StopSpec:
    """How a run is asked to stop: the signal, and how long until SIGKILL.

    Attributes:
        command: Run first; when it has ended, what is left gets the signal. Its time counts into `timeout_s`.
    """

    signal: str = "SIGTERM"
    timeout_s: float = 10.0
    command: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReloadSpec:
    """How a running job is told to read its own configuration again: a signal to its first process, or a command."""

    signal: str | None = None
    command: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hook:
    """A command that runs at a turn of a run's life, under the run's leash and its deadlines."""

    command: tuple[str, ...]
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class HealthSpec:
    """How it is found out whether a running service does its work; exactly one of `exec`, `http`, `tcp` is set.

    Attributes:
        exec: A command; exit status 0 is healthy. It runs under the run's leash.
        http: URL; a status of 200 to 399 is healthy.
        tcp: `host:port`; a connection that is accepted is healthy.
        interval_s: From the end of one check to the next; the first comes this long after the start.
        timeout_s: A check without an answer by then has failed.
        failures: So many in a row make the service unhealthy.
        start_period_s: Failures in this time after the start do not count, until a first check succeeds.
    """

    exec: tuple[str, ...] | None = None
    http: str | None = None
    tcp: str | None = None
    interval_s: float = 10.0
    timeout_s: float = 5.0
    failures: int = 3
    start_period_s: float = 0.0


@dataclass(frozen=True, slots=True)
class LogSpec:
    """Where the output of a job's runs goes.

    Attributes:
        file: Absolute path; None: `<state directory>/logs/<job>.log`; "none" as mode drops it.
        mode: file | journal (the node's own stderr, line by line) | none.
        max_bytes: A file is rotated at the end of a line when it would grow past this.
        backups: How many rotated files are kept.
        stderr: merge (into the same file) | separate (`<name>.err.log` beside `<name>.log`).
        timestamps: Each line begins with the instant at which it was read, ISO 8601 UTC.
    """

    mode: str = "file"
    file: str | None = None
    max_bytes: int = 10_000_000
    backups: int = 5
    stderr: str = "merge"
    timestamps: bool = False


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """How a run that failed is tried again: after `delay_s` x `backoff`^n, at most `max_delay_s`.

    Attributes:
        count: How often, after the first attempt; 0: never.
    """

    count: int = 0
    delay_s: float = 30.0
    backoff: float = 2.0
    max_delay_s: float = 600.0


@dataclass(frozen=True, slots=True)
class HistorySpec:
    """How much of a job's past is kept in Redis; the older goes first.

    Attributes:
        runs: Entries at most.
        max_bytes: Of all entries together.
    """

    runs: int = 100
    max_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """When a cron job is due: exactly one of `cron`, `every_s`, `at_utc` and `after` is given.

    Attributes:
        cron: Cron expression.
        every_s: Period in seconds, anchored to 1970-01-01T00:00Z and not to any start.
        timezone: IANA name: where `cron` is read, and every tick is shown.
        at_utc: One instant.
        after: Name of a cron job: each of its successes is a tick.
        dst: How `cron` is read where the clocks are changed.
        not_before_utc: Nothing before this instant is a tick; None: no such bound.
        not_after_utc: Nothing after this instant is a tick; None: no such bound.
    """

    cron: str = ""
    every_s: float = 0.0
    timezone: str = "UTC"
    at_utc: float | None = None
    after: str = ""
    dst: Dst = Dst.CRON
    not_before_utc: float | None = None
    not_after_utc: float | None = None

    @property
    def identity(self) -> str:
        """Text that changes when the schedule does."""
        if self.after:
            said = f"after {self.after}"
        elif self.at_utc is not None:
            said = f"at {self.at_utc:.3f}"
        else:
            said = f"{self.cron}@{self.timezone}" if self.cron else f"every {self.every_s:g}s"
        if self.dst is not Dst.CRON:
            said += f" dst {self.dst}"
        if self.not_before_utc is not None:
            said += f" from {self.not_before_utc:.3f}"
        if self.not_after_utc is not None:
            said += f" until {self.not_after_utc:.3f}"
        return said


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job instance, ready to run.

    Attributes:
        name: Instance name: the job's, or `<job>.<n>` from the second instance on.
        job: The job's name in the file.
        instance: Counts from 0.
        key: The `<job>` segment of its lease key.
        argv: What is exec'd.
        env: What the file sets for the child.
        env_inherit: all | none | names of the variables taken from main's environment.
        env_files: Absolute paths of files of variables, read at each start; `env` wins over them, a later one
            over an earlier one.
        timeout_s: A cron run is stopped after this; None: never.
        misfire_grace_s: A tick found late by more than this is missed.
        max_instances: Runs at once with `overlap: allow`; more are skipped.
        jitter_s: A run starts so much later at most than its tick: always the same share of it (see `schedule.py`).
        pause_after_failures: So many failed ticks in a row pause the job until it is resumed; None: never.
        history: How much of its past is kept.
        no_restart_exit_codes: A service that ends with one of them is not started again, whatever `restart` says.
        max_age_s: A service is started anew after this, give or take a tenth; None: never.
        max_rss_bytes: A service whose processes hold more memory together is started anew; None: no limit.
        user, group: Name or number; HOME, USER, LOGNAME and SHELL are the user's, unless set by name.
        umask, nice, oom_score_adj: None: as the node's.
        limits: (name, value) of setrlimit, soft and hard alike, -1 unlimited; names as in `nofile`, `core`.
        priority: On one node the lower one is started first.
        after: Names of jobs that must run before this service is started; of a cron see `schedule`.
        definition: Short hash of the whole definition; differs where two nodes' files do.
    """

    name: JobName
    job: str
    kind: Kind
    argv: tuple[str, ...]
    lease: LeaseTiming
    key: str
    definition: str
    instance: int = 0
    schedule: ScheduleSpec | None = None
    restart: Restart = Restart.ALWAYS
    success_exit_codes: frozenset[int] = frozenset({0})
    backoff: Backoff = Backoff()
    stop: StopSpec = StopSpec()
    log: LogSpec = LogSpec()
    on_redis_loss: OnRedisLoss = OnRedisLoss.STEP_DOWN
    env: Mapping[str, str] = field(default_factory=dict)
    env_inherit: str | tuple[str, ...] = "all"
    env_files: tuple[str, ...] = ()
    cwd: str | None = None
    enabled: bool = True
    timeout_s: float | None = None
    misfire_grace_s: float = 600.0
    tags: tuple[str, ...] = ()
    scope: Scope = Scope.CLUSTER
    no_restart_exit_codes: frozenset[int] = frozenset()
    on_crash_loop: OnCrashLoop = OnCrashLoop.RELEASE
    max_age_s: float | None = None
    max_rss_bytes: int | None = None
    health: HealthSpec | None = None
    on_unhealthy: OnUnhealthy = OnUnhealthy.RESTART
    reload: ReloadSpec | None = None
    on_start: Hook | None = None
    on_success: Hook | None = None
    on_failure: Hook | None = None
    on_step_down: Hook | None = None
    user: str | None = None
    group: str | None = None
    umask: int | None = None
    nice: int | None = None
    oom_score_adj: int | None = None
    limits: tuple[tuple[str, int], ...] = ()
    priority: int = 0
    after: tuple[str, ...] = ()
    misfire: Misfire = Misfire.ONCE
    overlap: Overlap = Overlap.SKIP
    max_instances: int = 10
    on_lost: OnLost = OnLost.SKIP
    retries: RetrySpec = RetrySpec()
    jitter_s: float = 0.0
    pause_after_failures: int | None = None
    history: HistorySpec = HistorySpec()

    @property
    def bucket(self) -> Bucket:
        """The bucket of its lease key."""
        return bucket_of(self.key)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A whole jobs.yaml.

    Attributes:
        cluster: Prefix of all keys; the nodes with the same one work together.
        redis: URL; None: the embedded server.
        node: Node name from the file; None: the host's.
        node_tags: Tags of the node that loaded the file.
        max_running: Runs of cron jobs at once on the node that loaded the file; None: no limit.
        source: Absolute path of the file, "" if there was none.
    """

    cluster: str
    jobs: tuple[JobSpec, ...]
    redis: str | None = None
    node: str | None = None
    node_tags: tuple[str, ...] = ()
    max_running: int | None = None
    source: str = ""
