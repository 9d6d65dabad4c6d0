"""The keys of a jobs.yaml: what there is, what each means, what it is when left out.

Knows the shape of the file, one value at a time; must never relate two keys (`resolve.py` does) nor
know places. The attribute docstrings are the reference: the JSON Schema and `docs/jobs-yaml.md` are made
of them, so they are written for the people who write jobs.yaml. Attributes are named as the keys are;
durations are seconds, sizes bytes.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, PlainSerializer, Tag

from orchestrator.config import values
from orchestrator.core.spec import LeaseTiming, OnRedisLoss, Restart

NO_LOG, A_LOG = BRANCHES = ("(no log)", "(a log)")
"""What pydantic puts into the location of an error below `log`, which no key of a file may be mistaken for."""

_AnyScalar = str | int | float | bool
"""How the schema shows a text: YAML reads `PORT: 8080` as a number, we as the text it is."""
_DurationText = Annotated[str, Field(pattern=values.DURATION_PATTERN, examples=["500ms", "15s", "2m", "1h30m"])]
_SizeText = Annotated[str, Field(pattern=values.SIZE_PATTERN, examples=["10MB", "512KiB"])]
_AS_DURATION = PlainSerializer(values.written, return_type=str, when_used="json")
_AS_SIZE = PlainSerializer(values.written_size, return_type=str, when_used="json")


def _duration(at_least: float, at_most: float = values.LONGEST_S) -> BeforeValidator:
    return BeforeValidator(values.duration(at_least, at_most), json_schema_input_type=_DurationText)


def _whole(at_least: int, at_most: int) -> BeforeValidator:
    return BeforeValidator(
        values.whole(at_least, at_most), json_schema_input_type=Annotated[int, Field(ge=at_least, le=at_most)]
    )


def _number(at_least: float, at_most: float) -> BeforeValidator:
    return BeforeValidator(
        values.number(at_least, at_most), json_schema_input_type=Annotated[float, Field(ge=at_least, le=at_most)]
    )


Duration = Annotated[float, _duration(0.001), _AS_DURATION]
DurationOrZero = Annotated[float, _duration(0.0), _AS_DURATION]
Tenths = Annotated[float, _duration(0.1), _AS_DURATION]
Size = Annotated[int, BeforeValidator(values.size, json_schema_input_type=_SizeText), _AS_SIZE]
Flag = Annotated[bool, BeforeValidator(values.flag, json_schema_input_type=bool)]
Name = Annotated[
    str, BeforeValidator(values.name, json_schema_input_type=Annotated[str, Field(pattern=values.NAME_PATTERN)])
]
ExpandedPath = Annotated[str | None, BeforeValidator(values.expanded_path, json_schema_input_type=str)]
ExpandedName = Annotated[str, BeforeValidator(values.expanded_name, json_schema_input_type=str)]


class Entry(BaseModel):
    """A mapping of the file: its keys and no others.

    Attributes:
        PLANNED: Keys that later versions will know; they are refused in other words than a mistyped one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    PLANNED: ClassVar[frozenset[str]] = frozenset()


class Lease(Entry):
    """The numbers of the lease. Where only `ttl` is given, the others scale with it.

    They must leave room, within one ttl, for two missed heartbeats, a request that times out, an orderly
    step-down, the kill and a late scheduler:
    `ttl x (1 - clock_rate_error) >= 2 x heartbeat + request_timeout + step_down_grace + kill_time + margin`.
    """

    ttl: Annotated[float, _duration(LeaseTiming.SHORTEST_TTL_S), _AS_DURATION] = 15.0
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
    clock_rate_error: Annotated[float, _number(0.0, 0.5)] = 0.01
    """By how much the clocks of two machines may differ in speed; 0.01 is one percent."""


class JobLease(Lease):
    """The numbers of the lease, and its key."""

    key: Name | None = None
    """What the lease is called in Redis. Default: the job's name. No two jobs may share one."""


class Stop(Entry):
    """How a run is asked to stop. Not the step-down: that one is `lease: {step_down_grace}`."""

    PLANNED = frozenset({"command"})

    signal: Annotated[str, BeforeValidator(values.stop_signal, json_schema_input_type=str)] = "SIGTERM"
    """The signal that asks."""
    timeout: DurationOrZero = 10.0
    """How long after it the whole process tree gets SIGKILL."""


class Backoff(Entry):
    """How long to wait before a failed service is started again: `delay` x `factor`^failures, at random up to that."""

    delay: Tenths = 1.0
    """After the first failure. At least 100ms."""
    factor: Annotated[float, _number(1.0, 100.0)] = 2.0
    """How much longer after each further one."""
    max_delay: Tenths = 60.0
    """Never longer than this."""


class Log(Entry):
    """Where the output of a job goes."""

    PLANNED = frozenset({"stderr", "timestamps"})

    file: ExpandedPath = None
    """Path of the file, relative to the directory of jobs.yaml; further instances write to `<name>-1.log` and so on.
    Default: `logs/<job>.log` in the state directory."""
    max_size: Size = 10_000_000
    """The file is rotated before it grows past this."""
    backups: Annotated[int, _whole(0, 1000)] = 5
    """How many rotated files are kept."""


class JobDefaults(Entry):
    """Keys that `defaults` and every job take. A job's own wins; mappings are merged key by key."""

    PLANNED = frozenset(
        {
            *("at", "after", "scope", "nodes", "rebalance", "priority", "wait_replicas", "on_crash_loop", "on_lost"),
            *("misfire", "overlap", "max_instances", "retries", "jitter", "dst", "not_before", "not_after"),
            *("pause_after_failures", "reload", "health", "on_unhealthy", "max_age", "max_rss", "user", "group"),
            *("umask", "env_file", "nice", "limits", "oom_score_adj", "on_start", "on_success", "on_failure"),
            *("on_step_down", "notify"),
        }
    )

    timezone: Annotated[str, BeforeValidator(values.zone, json_schema_input_type=str)] = "UTC"
    """IANA name of the zone that `cron` is read in. Never the host's."""
    restart: Restart = Restart.ALWAYS
    """Service: when it is started again after it ended. `never`: it runs once each time a node gets the lease, and so
    again at every hand-over and at every restart of the node."""
    success_exit_codes: Annotated[tuple[Annotated[int, _whole(0, 255)], ...], AfterValidator(values.exit_codes)] = (0,)
    """Exit codes that count as success; the list replaces [0]."""
    backoff: Backoff = Backoff()
    """Service: how long to wait between failures."""
    healthy_after: Duration = 10.0
    """Service: a run that lived this long was well; the count of failures starts again."""
    max_failures: Annotated[int, _whole(1, 1_000_000)] | None = None
    """Service: give up after so many failures in a row. Default: never."""
    stop: Stop = Stop()
    """How a run is asked to stop."""
    lease: Lease = Lease()
    """The numbers of the lease."""
    on_redis_loss: OnRedisLoss = OnRedisLoss.STEP_DOWN
    """When the lease cannot be renewed: `step_down` (stop signal, grace, SIGKILL, all in time), `kill` (SIGKILL at the
    last safe instant) or `keep` (run on: availability over safety, two runs become possible)."""
    env: dict[
        Annotated[str, BeforeValidator(values.env_name)],
        Annotated[str, BeforeValidator(values.expanded, json_schema_input_type=_AnyScalar)],
    ] = {}
    """Variables set for the job. Values are texts exactly as written: `0777` and `no` stay what they are."""
    env_inherit: Annotated[
        str | tuple[str, ...],
        BeforeValidator(values.env_inherit, json_schema_input_type=Literal["all", "none"] | list[str]),
    ] = "all"
    """Which variables of the node itself the job sees: all, none, or a list of names."""
    cwd: ExpandedPath = None
    """Working directory, relative to the directory of jobs.yaml. Default: that of the node."""
    enabled: Flag = True
    """`false`: the job is known and shown, but not run."""
    timeout: Duration | None = None
    """Cron: a run is stopped after this. Default: never."""
    misfire_grace: Duration = 600.0
    """Cron: a tick found late by more than this is missed, not run."""
    log: Annotated[
        Annotated[Literal["none"], Tag(NO_LOG)] | Annotated[Log, Tag(A_LOG)],
        Discriminator(lambda value: A_LOG if isinstance(value, dict | Log) else NO_LOG),
    ] = Log()
    """Where the output goes: a mapping, or `none` to drop it."""
    tags: tuple[Name, ...] = ()
    """Words to find jobs by."""


class Job(JobDefaults):
    """One job: a service, which runs all the time, or with `cron` or `every` one that runs at instants."""

    command: Annotated[
        tuple[str, ...], BeforeValidator(values.command, json_schema_input_type=_AnyScalar | list[_AnyScalar])
    ]
    """What runs. A list is executed as it stands; a text goes to `/bin/sh -c` as it stands: no variable of this file
    is replaced in it, the shell does that."""
    cron: Annotated[str, BeforeValidator(values.text, json_schema_input_type=str)] | None = None
    """When it runs: five fields (minute hour day month weekday), six with seconds first, or `@daily` and the like."""
    every: Annotated[float, _duration(1.0), _AS_DURATION] | None = None
    """How often it runs, counted from 1970 and not from any start. At least 1s."""
    instances: Annotated[int, _whole(1, 1000)] = 1
    """How many of it run in the cluster, each under a lease of its own: `name`, `name.1`, `name.2` ..."""
    lease: JobLease = JobLease()
    """The numbers of the lease, and its key."""


class Node(Entry):
    """The node that loads the file."""

    PLANNED = frozenset({"max_jobs", "max_running", "weight"})

    name: ExpandedName | None = None
    """Its name in the cluster. Default: the host name; `--node` and `ORCHESTRATOR_NODE` win."""
    tags: tuple[Name, ...] = ()
    """What it is or has."""


class File(Entry):
    """A jobs.yaml."""

    PLANNED = frozenset({"http", "wait_replicas"})

    cluster: ExpandedName = "default"
    """Prefix of all keys in Redis; the nodes with the same one work together."""
    redis: Annotated[str | None, BeforeValidator(values.redis_url, json_schema_input_type=str)] = None
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
        case ():
            return File
        case ("node",):
            return Node
        case ("defaults",):
            return JobDefaults
        case ("jobs", _):
            return Job
        case ("jobs", _, "lease"):
            return JobLease
        case ("defaults", str(key)) | ("jobs", _, str(key)):
            below: Mapping[str, type[Entry]] = {"lease": Lease, "stop": Stop, "backoff": Backoff, "log": Log}
            return below.get(key)
        case _:
            return None
