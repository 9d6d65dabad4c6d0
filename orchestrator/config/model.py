"""The keys of a jobs.yaml: what there is, what each means, what it is when left out.

Knows the shape of the file, one value at a time (the mappings below a job stand in `sections.py`); must never
relate two keys (`relations.py` does) nor know places. The attribute docstrings are the reference: the JSON
Schema and `docs/jobs-yaml.md` are made of them, so they are written for the people who write jobs.yaml.
Attributes are named as the keys are; durations are seconds, sizes bytes.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Tag

from orchestrator.config import process_values
from orchestrator.config.entry import (
    Account,
    Command,
    Duration,
    DurationOrZero,
    Entry,
    EnvInherit,
    EnvName,
    ExitCode,
    ExpandedName,
    ExpandedPath,
    ExpandedPaths,
    ExpandedText,
    Flag,
    Instant,
    Name,
    RedisUrl,
    Seconds,
    Size,
    Text,
    Umask,
    Zone,
    whole,
)
from orchestrator.config.sections import (
    Backoff,
    Health,
    History,
    HookInShort,
    JobLease,
    Lease,
    Limits,
    Log,
    Reload,
    Retries,
    RetriesInShort,
    Stop,
)
from orchestrator.core.spec import Dst, Misfire, OnCrashLoop, OnLost, OnRedisLoss, OnUnhealthy, Overlap, Restart, Scope

IN_A_WORD, A_LOG = BRANCHES = ("(in a word)", "(a log)")
"""What pydantic puts into the location of an error below `log`, which no key of a file may be mistaken for."""


class JobDefaults(Entry):
    """Keys that `defaults` and every job take. A job's own wins; mappings are merged key by key."""

    PLANNED: ClassVar[frozenset[str]] = frozenset(
        {
            *("nodes", "rebalance", "wait_replicas", "notify"),
        }
    )

    timezone: Zone = "UTC"
    """Cron: IANA name of the zone whose clocks `cron`, `at`, `not_before` and `not_after` mean. Never the host's."""
    dst: Dst = Dst.CRON
    """Cron: how `cron` is read where the clocks are changed. `cron`: a job of a fixed time is neither lost nor run
    twice, one with `*` follows the clock. `literal`: every job runs whenever the clock shows its time, be it twice or
    not at all."""
    jitter: DurationOrZero = 0.0
    """Cron: it starts so much later at most than its tick: by a share that is drawn from the job's name, always the
    same and the same on all nodes. Shorter than the shortest time between two ticks."""
    not_before: Instant | None = None
    """Cron: it does not run for ticks before this instant, written as in `at`."""
    not_after: Instant | None = None
    """Cron: it does not run for ticks after this instant, written as in `at`."""
    misfire: Misfire = Misfire.ONCE
    """Cron: what becomes of ticks that are found late, because nobody held the lease or the job was held up: the
    newest runs (`once`), none that is later than a ttl (`skip`), or each, the oldest first (`all`)."""
    overlap: Overlap = Overlap.SKIP
    """Cron: what becomes of a tick while a run of its job goes on: it does not run (`skip`), it waits for the end, then
    `misfire` decides (`queue`), the run is stopped for it (`replace`), or both run (`allow`)."""
    max_instances: Annotated[int, whole(1, 1000)] = 10
    """Cron, with `overlap: allow`: how many of its runs go on at once; a further tick does not run."""
    on_lost: OnLost = OnLost.SKIP
    """Cron: what becomes of a tick whose run was lost with its node: nothing more (`skip`), or it runs once more
    (`rerun`), under a new token."""
    retries: RetriesInShort = Retries()
    """Cron: how a run that failed is tried again. Default: it is not."""
    pause_after_failures: Annotated[int, whole(1, 1_000_000)] | None = None
    """Cron: after so many failed ticks in a row the job is paused until it is resumed. Default: never."""
    history: History = History()
    """How much of its past is kept in Redis."""
    restart: Restart = Restart.ALWAYS
    """Service: when it is started again after it ended. `never`: it runs once, whichever
    node and however often nodes are restarted; an order to start it, or another command, lets it run once more."""
    success_exit_codes: Annotated[tuple[ExitCode, ...], AfterValidator(process_values.success_exit_codes)] = (0,)
    """Exit codes that count as success; the list replaces [0]."""
    no_restart_exit_codes: tuple[ExitCode, ...] = ()
    """Service: exit codes after which it is not started again, whatever `restart` says."""
    backoff: Backoff = Backoff()
    """Service: how long to wait between failures."""
    healthy_after: DurationOrZero = 10.0
    """Service: a run that lived this long was well; the count of failures starts again. `0s`: never, they add up."""
    max_failures: Annotated[int, whole(1, 1_000_000)] | None = None
    """Service: give up after so many failures in a row. Default: never."""
    on_crash_loop: OnCrashLoop = OnCrashLoop.RELEASE
    """Service: what becomes of its lease when it fails five times in a row and another node could try: `release` (it is
    given back, and this node asks again only if nobody took it for a while) or `keep` (this node goes on trying)."""
    max_age: Seconds | None = None
    """Service: it is started anew after this, give or take a tenth, so that not all are at once. Default: never."""
    max_rss: Size | None = None
    """Service: it is started anew when all its processes together hold more memory than this (the sum of their RSS,
    looked at every 5 seconds). Default: no limit."""
    health: Health | None = None
    """Service: how it is found out whether it does its work. Default: it does while its first process lives."""
    on_unhealthy: OnUnhealthy = OnUnhealthy.RESTART
    """Service: when its health checks fail it is stopped, and then started anew here (`restart`) or, its lease given
    back, wherever a node takes it (`release`)."""
    stop: Stop = Stop()
    """How a run is asked to stop."""
    reload: Reload | None = None
    """Service: how it is told to read its own configuration again. Default: it cannot be told."""
    on_start: HookInShort | None = None
    """A command that runs when a run has started."""
    on_success: HookInShort | None = None
    """A command that runs when a run has ended by itself with one of the `success_exit_codes`."""
    on_failure: HookInShort | None = None
    """A command that runs when a run has failed: another exit code, a signal, a start that was not possible, its
    `timeout`, its health."""
    on_step_down: HookInShort | None = None
    """A command that runs when the lease cannot be renewed, while the job is asked to stop. Both have the time that
    `lease: {step_down_grace}` gives."""
    scope: Scope = Scope.CLUSTER
    """`cluster`: one of it runs in the whole cluster, under a lease. `node`: one of it runs on every node, without a
    lease."""
    lease: Lease = Lease()
    """The numbers of the lease."""
    on_redis_loss: OnRedisLoss = OnRedisLoss.STEP_DOWN
    """When the lease cannot be renewed: `step_down` (stop signal, grace, SIGKILL, all in time), `kill` (SIGKILL at the
    last safe instant) or `keep` (run on: availability over safety, two runs become possible)."""
    priority: Annotated[int, whole(-1000, 1000)] = 0
    """On one node the lower one is started first; among equals, the one that stands first in the file."""
    env: dict[EnvName, ExpandedText] = {}  # noqa: RUF012 - pydantic copies it for each job
    """Variables set for the job. Values are texts exactly as written: `0777` and `no` stay what they are."""
    env_file: ExpandedPaths = ()
    """Files of lines `NAME=value`, relative to the directory of jobs.yaml, read at each start, as the node's user, so
    they may be root's alone. Of two values the later one counts, and `env` wins over all. Blank lines and `#` lines
    count for nothing, `export` is allowed, quotes are as in a shell, and nothing is expanded. One that cannot be read
    fails the run."""
    env_inherit: EnvInherit = "all"
    """Which variables of the node itself the job sees: all, none, or a list of names."""
    cwd: ExpandedPath = None
    """Working directory, relative to the directory of jobs.yaml. Default: that of the node."""
    user: Account | None = None
    """Name or number of the user it runs as, with that user's groups and HOME, USER, LOGNAME and SHELL, unless `env`
    or `env_file` sets them. Another one than the node's is possible only where the node runs as root, and root's
    environment is inherited all the same: see `env_inherit`."""
    group: Account | None = None
    """Name or number of its group; alone it drops all other groups. Default: the first group of `user`."""
    umask: Umask | None = None
    """Permissions that files it makes do not get, in octal digits: `027`. Default: the node's."""
    nice: Annotated[int, whole(-20, 19)] | None = None
    """How much it lets others go first on the CPU, 19 most. Below the node's own only as root. Default: the node's."""
    oom_score_adj: Annotated[int, whole(-1000, 1000)] | None = None
    """How willingly the kernel kills it when memory runs out, 1000 most. Below the node's own only as root. Default:
    the node's."""
    limits: Limits = Limits()
    """What the kernel lets each of its processes have."""
    enabled: Flag = True
    """`false`: the job is known and shown, but not run."""
    timeout: Duration | None = None
    """Cron: a run is stopped after this. Default: never."""
    misfire_grace: Duration = 600.0
    """Cron: a tick found late by more than this is missed, not run."""
    log: Annotated[
        Annotated[Literal["none", "journal"], Tag(IN_A_WORD)] | Annotated[Log, Tag(A_LOG)],
        Discriminator(lambda value: A_LOG if isinstance(value, dict | Log) else IN_A_WORD),
    ] = Log()
    """Where the output goes: a mapping says to which file, `journal` sends it to the node's own stderr, line by line
    with the job's name, `none` drops it."""
    tags: tuple[Name, ...] = ()
    """Words to find jobs by."""


class Job(JobDefaults):
    """One job: a service, which runs all the time, or a cron, which runs at instants.

    `cron`, `every` or `at` makes it a cron, and so does `after` if it names one cron job and nothing else.
    """

    command: Command
    """What runs. A list is executed as it stands; a text goes to `/bin/sh -c` as it stands: no variable of this file
    is replaced in it, the shell does that."""
    cron: Text | None = None
    """When it runs: five fields (minute hour day month weekday), six with seconds first, or `@daily` and the like."""
    every: Seconds | None = None
    """How often it runs, counted from 1970 and not from any start. At least 1s."""
    at: Instant | None = None
    """When it runs, once: `2026-12-24T18:00` on the clocks of `timezone`, `2026-12-24` for its midnight, or with `Z` or
    an offset such as `+01:00`."""
    instances: Annotated[int, whole(1, 1000)] = 1
    """How many of it run in the cluster, each under a lease of its own: `name`, `name.1`, `name.2` ..."""
    after: tuple[Name, ...] = ()
    """Service: names of jobs that must run before it is started. If it names one cron job alone, this job is a cron as
    well: it runs after each success of that one."""
    lease: JobLease = JobLease()
    """The numbers of the lease, and its key."""


class Node(Entry):
    """The node that loads the file."""

    PLANNED: ClassVar[frozenset[str]] = frozenset({"max_jobs", "weight"})

    name: ExpandedName | None = None
    """Its name in the cluster. Default: the host name; `--node` and `ORCHESTRATOR_NODE` win."""
    tags: tuple[Name, ...] = ()
    """What it is or has."""
    max_running: Annotated[int, whole(1, 1_000_000)] | None = None
    """How many runs of crons it has at once; what is due beyond that waits for one of them to end. Default: no limit.
    """


class File(Entry):
    """A jobs.yaml."""

    PLANNED: ClassVar[frozenset[str]] = frozenset({"http", "wait_replicas"})

    cluster: ExpandedName = "default"
    """Prefix of all keys in Redis; the nodes with the same one work together."""
    redis: RedisUrl = None
    """URL of the Redis: `redis://host:6379/0`, `rediss://` (TLS) or `unix:///run/redis.sock?db=0`; `redis+sentinel://`
    and `redis+cluster://` are planned. Default: an embedded server, for this machine only."""
    node: Node = Node()
    """The node that loads the file."""
    defaults: JobDefaults = JobDefaults()
    """What every job takes that does not say otherwise."""
    jobs: dict[Name, Job]
    """The jobs by name."""


def entry_at(path: tuple[str | int, ...]) -> type[Entry] | None:
    """Return the model of the mapping that stands at `path`, None where none does."""
    match path:
        case ("jobs",):
            return None
        case ("jobs", _, *below):
            entry: type[Entry] | None = Job
        case _:
            entry, below = File, list(path)
    for key in below:
        entry = entry.below(str(key)) if entry else None
    return entry
