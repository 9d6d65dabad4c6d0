"""The mappings below a job: its lease, stop, reload, health, hooks, limits, log.

As in `model.py`: one value at a time, and the attribute docstrings are the reference, so they are written for the
people who write jobs.yaml. Must never relate two keys (`relations.py` does) nor know places.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from orchestrator.config import process_values
from orchestrator.config.entry import (
    AS_SIZE,
    AnyCommand,
    Command,
    CountLimit,
    DurationOrZero,
    Entry,
    ExpandedFile,
    Flag,
    HttpUrl,
    Name,
    ReloadSignal,
    Size,
    SizeLimit,
    StopSignal,
    TcpAddress,
    Tenths,
    TimeLimit,
    duration,
    number,
    size_between,
    whole,
)
from orchestrator.core.timing import LeaseTiming


class Lease(Entry):
    """The numbers of the lease. Where only `ttl` is given, the others scale with it.

    They must leave room, within one ttl, for two missed heartbeats, a request that times out, an orderly
    step-down, the kill and a late scheduler:
    `ttl x (1 - clock_rate_error) >= 2 x heartbeat + request_timeout + step_down_grace + kill_time + margin`.
    """

    ttl: Annotated[float, duration(LeaseTiming.SHORTEST_TTL_S)] = 15.0
    """How long a lease lives without renewal: the longest gap after a node dies. At least 2s."""
    heartbeat: Tenths | None = None
    """How often the lease is renewed. Default: ttl/5."""
    request_timeout: Tenths | None = None
    """When an unanswered request to Redis counts as failed. Default: 1s, at most ttl/12."""
    step_down_grace: DurationOrZero | None = None
    """From the stop signal to SIGKILL when the lease cannot be renewed. Default: ttl/3."""
    kill_time: Tenths | None = None
    """What killing and reaping the job's processes may take. Default: 1s, at most ttl/15."""
    margin: Tenths | None = None
    """Room for a late scheduler. Default: ttl/30, at least 200ms, at most 500ms."""
    clock_rate_error: Annotated[float, number(0.0, 0.5)] = 0.01
    """By how much the clocks of two machines may differ in speed; 0.01 is one percent."""


class JobLease(Lease):
    """The numbers of the lease, and its key."""

    key: Name | None = None
    """What the lease is called in Redis. Default: the job's name. No two jobs may share one."""


class Stop(Entry):
    """How a run is asked to stop. Not the step-down: that one is `lease: {step_down_grace}`."""

    signal: StopSignal = "SIGTERM"
    """The signal that asks; every process of the run gets it."""
    timeout: DurationOrZero = 10.0
    """How long after the stop began the whole process tree gets SIGKILL."""
    command: Command | None = None
    """What runs first, in place of the signal, such as `nginx -s quit`; `$ORCHESTRATOR_PID` is the process to stop.
    When it has ended, what is left gets the signal. Its time counts into `timeout`. A step-down leaves it out."""


class Reload(Entry):
    """How a running service is told to read its own configuration again: by one of the two."""

    ONE_OF: ClassVar[tuple[str, ...]] = ("signal", "command")

    signal: ReloadSignal | None = None
    """A signal to its first process, such as SIGHUP."""
    command: Command | None = None
    """A command that does it, such as `nginx -s reload`; `$ORCHESTRATOR_PID` is the first process."""


class Backoff(Entry):
    """How long to wait before a failed service is started again: `delay` x `factor`^failures, at random up to that."""

    delay: Tenths = 1.0
    """After the first failure. At least 100ms."""
    factor: Annotated[float, number(1.0, 100.0)] = 2.0
    """How much longer after each further one."""
    max_delay: Tenths = 60.0
    """Never longer than this."""


class Retries(Entry):
    """How a run of a cron that failed is tried again, on whichever node holds the lease then.

    Written as the number alone, or as a mapping. They are attempts at one tick: what counts as failed is only the last
    of them, and the wait between two of them counts as running (see `overlap`).
    """

    count: Annotated[int, whole(0, 1000)] = 0
    """How often, after the first attempt."""
    delay: DurationOrZero = 30.0
    """How long after the first failure."""
    backoff: Annotated[float, number(1.0, 100.0)] = 2.0
    """How much longer after each further one."""
    max_delay: DurationOrZero = 600.0
    """Never longer than this."""


class History(Entry):
    """How much of a job's past is kept in Redis; the older goes first. Its counts of ticks go on."""

    runs: Annotated[int, whole(1, 10_000)] = 100
    """Entries at most: runs, and ticks that did not run."""
    max_size: Annotated[int, size_between(4096, 2**24), AS_SIZE] = 65_536
    """Of all entries together, last lines of output included."""


class Health(Entry):
    """How it is found out whether a running service does its work: by one of `exec`, `http` and `tcp`.

    In `defaults` the three may be missing: then the numbers are those of the jobs that say how they are checked.
    """

    ONE_OF: ClassVar[tuple[str, ...]] = ("exec", "http", "tcp")

    exec: Command | None = None
    """A command, run as the job is (user, environment, directory, limits); exit status 0 is healthy. What it leaves
    behind lives until the run ends: it must not daemonize."""
    http: HttpUrl | None = None
    """A URL to get; a status of 200 to 399 is healthy. Redirects are not followed, and certificates are not looked at:
    the question is whether it works, not who it is."""
    tcp: TcpAddress | None = None
    """`host:port`; a connection that is accepted is healthy."""
    interval: Tenths = 10.0
    """From the end of one check to the next; the first comes this long after the start."""
    timeout: Tenths = 5.0
    """A check without an answer by then has failed."""
    failures: Annotated[int, whole(1, 1000)] = 3
    """So many in a row make the service unhealthy."""
    start_period: DurationOrZero = 0.0
    """Failures in this time after the start do not count, until a first check succeeds."""


class Hook(Entry):
    """A command that runs at a turn of a run's life, as the job runs: same user, environment, directory and limits.

    Written as the command alone, or as a mapping. Its output goes to the job's log. If it fails, that is said in the
    node's log and changes nothing else. It never outlives the lease.
    It sees the job's variables and `ORCHESTRATOR_HOOK` (which one it is), while the job runs `ORCHESTRATOR_PID`,
    and after its end `ORCHESTRATOR_EXIT_CODE` or `ORCHESTRATOR_SIGNAL`.
    """

    command: Command
    """What runs: a list is executed, a text goes to `/bin/sh -c`."""
    timeout: Tenths = 30.0
    """After this it gets SIGKILL, and has failed."""


class Limits(Entry):
    """What the kernel lets each process of the job have (setrlimit, soft and hard alike). Default: as the node's.

    `unlimited` takes a limit away. More than the node's own hard limit can be given only where the node runs as root;
    elsewhere the run fails to start and says so.
    """

    address_space: SizeLimit | None = Field(default=None, alias="as")
    """Virtual memory."""
    core: SizeLimit | None = None
    """Size of a core dump; `0`: none is written."""
    cpu: TimeLimit | None = None
    """Time on a CPU, not on the wall clock; a bare number is seconds. Then SIGKILL."""
    data: SizeLimit | None = None
    """Heap and data segment."""
    fsize: SizeLimit | None = None
    """Size of a file it writes. Not of its log, which the node writes."""
    memlock: SizeLimit | None = None
    """Memory it may lock into RAM."""
    nofile: CountLimit | None = None
    """Open files, sockets and pipes."""
    nproc: CountLimit | None = None
    """Processes and threads of its user, those outside the job included; root is not held to it."""
    rss: SizeLimit | None = None
    """Resident memory; Linux ignores it, `max_rss` works."""
    stack: SizeLimit | None = None
    """Stack of the main thread."""


class Log(Entry):
    """Where the output of a job goes."""

    file: ExpandedFile = None
    """Path of the file, relative to the directory of jobs.yaml; further instances write to `<name>-1.log` and so on.
    Default: `logs/<job>.log` in the state directory."""
    max_size: Size = 10_000_000
    """The file is rotated before it grows past this."""
    backups: Annotated[int, whole(0, 1000)] = 5
    """How many rotated files are kept."""
    stderr: Literal["merge", "separate"] = "merge"
    """`merge`: into the same file, in the order of writing; `separate`: into `<name>.err.log` beside `<name>.log`."""
    timestamps: Flag = False
    """Whether each line begins with the instant at which it was read, such as `2026-11-30T13:07:20.123Z`."""


RetriesInShort = Annotated[
    Retries,
    BeforeValidator(process_values.retries, json_schema_input_type=Annotated[int, Field(ge=0, le=1000)] | Retries),
]
HookInShort = Annotated[Hook, BeforeValidator(process_values.hook, json_schema_input_type=AnyCommand | Hook)]
