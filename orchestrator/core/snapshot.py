"""What people and machines are shown: one shape for `status`, `top`, `lease` and the node's own socket.

Two witnesses know about a job: Redis (who holds the lease, what the holder published) and the local
node (what it holds, why it waits). `cluster_view` lays them side by side; where they speak of the
same thing the holder's own word wins, since it is fresher.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from orchestrator.core.nouns import Intent, JobName, LeaseValue, Member
from orchestrator.core.spec import Scope

NOBODY_ALIVE = "no node is alive, or Redis refuses their writes"
"""Why nothing that a node once published about a job can be relied on."""

OFF = ("stopped", "paused")
"""What may be ordered that keeps a job from running; the words are those of its state as well."""

_View = TypeVar("_View", "NodeView", "JobView")


class State(StrEnum):
    """The one vocabulary of states, everywhere."""

    STANDBY = "standby"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"
    PAUSED = "paused"
    BLOCKED = "blocked"
    FAILED = "failed"
    UNHELD = "unheld"


@dataclass(frozen=True, slots=True)
class LeaseReading:
    """What Redis says of one job.

    Attributes:
        key: Full name of the lease key.
        value: None: nobody holds it, or what stands there is malformed.
        left_ms: Until it runs out, by the server's clock; -1: never (somebody wrote it by hand).
        token: The last token issued, 0 if none.
        released: The token that was last released cleanly, 0 if none.
        state: What the holder published last, parsed; None: nothing.
        last: The record of the last run, parsed; None: none.
    """

    key: str
    value: LeaseValue | None
    malformed: bool
    left_ms: int
    token: int
    released: int
    state: Mapping[str, object] | None
    last: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """What Redis says of a cluster at one instant of its clock."""

    members: tuple[Member, ...]
    intents: Mapping[JobName, Intent]
    leases: Mapping[JobName, LeaseReading]
    server_ms: int


@dataclass(frozen=True, slots=True)
class JobView:
    """One row. Times are ISO 8601 UTC texts.

    Attributes:
        holder: Node that holds the lease, None: nobody.
        token: The holder's fencing token.
        lease_ms: Until the lease runs out if it is not renewed.
        ttl_ms: What a full lease has.
        pid: First process of the run.
        since: When the present state began.
        next: Next tick, or next try of a service in backoff.
        last: How the last run ended: run, node, token, tick, started, ended, outcome, exit_code, signal, ...
        why: One clause: the reason for the state.
        key: Full name of the lease key.
        scope: cluster | node; a job of every node has one row, and no lease.
    """

    name: str
    kind: str
    state: str = State.UNHELD.value
    holder: str | None = None
    token: int | None = None
    lease_ms: int | None = None
    ttl_ms: int | None = None
    pid: int | None = None
    since: str | None = None
    next: str | None = None
    last: Mapping[str, object] | None = None
    why: str = ""
    key: str = ""
    tags: tuple[str, ...] = ()
    scope: str = "cluster"


@dataclass(frozen=True, slots=True)
class NodeView:
    """One live node; `since` is when it joined, ISO 8601 UTC."""

    name: str
    since: str | None = None
    host: str = ""
    pid: int | None = None
    version: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A whole picture.

    Attributes:
        node: The node on this machine that was asked, None: Redis alone speaks.
        redis: {"ok": bool, "problem": str, "since": ISO text}: the node's (or our) luck with Redis.
    """

    cluster: str
    node: str | None = None
    nodes: tuple[NodeView, ...] = ()
    jobs: tuple[JobView, ...] = ()
    redis: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the documented shape of `status --json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "ClusterView":
        """Read the shape back (from the node's socket); unknown keys are left out, missing ones default."""
        return cls(
            cluster=str(data.get("cluster", "")),
            node=_text_or_none(data.get("node")),
            nodes=tuple(_build(NodeView, row) for row in _rows(data.get("nodes"))),
            jobs=tuple(_build(JobView, row) for row in _rows(data.get("jobs"))),
            redis=_mapping(data.get("redis")),
        )

    def job(self, name: str) -> JobView | None:
        """Return the row of a job instance."""
        return next((row for row in self.jobs if row.name == name), None)


def cluster_view(
    cluster: str,
    jobs: Sequence[JobView],
    reading: ClusterReading | None,
    own: ClusterView | None = None,
) -> ClusterView:
    """Lay what Redis says and what the local node says side by side.

    Args:
        cluster: Its name.
        jobs: One bare row a job (name, kind, ttl_ms, tags), from the file or from the members' infos.
        reading: None: Redis did not answer; the node alone speaks.
        own: The local node's view; None: no node runs here.
    """
    if reading is None:
        return own if own is not None else ClusterView(cluster=cluster, jobs=tuple(jobs))
    rows = tuple(
        _merged(_told_by_redis(row, reading), own.job(row.name) if own else None, own.node if own else None)
        for row in jobs
    )
    nodes = tuple(sorted((node_view(member) for member in reading.members), key=lambda node: node.name))
    redis: Mapping[str, object] = own.redis if own else {"ok": True}
    return ClusterView(cluster=cluster, node=own.node if own else None, nodes=nodes, jobs=rows, redis=redis)


def node_view(member: Member) -> NodeView:
    """Return the row of one live node."""
    info = member.info
    pid = info.get("pid")
    return NodeView(
        name=member.name,
        since=iso_utc(member.since_ms / 1000),
        host=str(info.get("host", "")),
        pid=pid if isinstance(pid, int) else None,
        version=str(info.get("version", "")),
        tags=_texts(info.get("tags")),
    )


LAST_UTC = 253_402_300_799.0
"""The last second of the year 9999, which is as far as datetime reaches."""


@lru_cache(maxsize=1024)  # of a thousand crons that are due in one second the same few are asked for
def iso_utc(utc: float) -> str:
    """Return an instant as ISO 8601 text with milliseconds, always in UTC; of what no calendar has its nearest end."""
    # Not isoformat(): its width changes with the fraction, and columns would dance.
    return datetime.fromtimestamp(min(max(0.0, utc), LAST_UTC), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


SEVEREST_FIRST = (
    *(State.FAILED, State.BLOCKED, State.UNHELD, State.BACKOFF, State.STOPPING, State.STARTING),
    *(State.STOPPED, State.PAUSED, State.STANDBY, State.WAITING, State.RUNNING),
)
"""Of a job that runs on every node the row shows the state that most wants looking after."""


def _told_by_nodes(row: JobView, reading: ClusterReading) -> JobView:
    """Return the row of a job of every node, of what each of them tells."""
    told = {member.name: said for member in reading.members if (said := _local(member, row.name)) is not None}
    if not told:
        return replace(row, state=State.UNHELD.value, why="no live node has it" if reading.members else NOBODY_ALIVE)
    node = min(told, key=lambda name: (_severity(told[name][0]), name))
    state, why = told[node]
    alike = [name for name, said in told.items() if said[0] == state]
    where = ", ".join(sorted(alike))
    return replace(row, state=state, why=f"on {where}" + (f": {why}" if why else ""))


def _local(member: Member, job: str) -> tuple[str, str] | None:
    said = _mapping(member.info.get("local")).get(job)
    if isinstance(said, list) and len(said) == 2 and all(isinstance(text, str) for text in said):  # noqa: PLR2004 - state and why
        return said[0], said[1]
    return None


def _severity(state: str) -> int:
    return SEVEREST_FIRST.index(State(state)) if state in SEVEREST_FIRST else -1


def _told_by_redis(row: JobView, reading: ClusterReading) -> JobView:
    if row.scope == Scope.NODE:
        return _told_by_nodes(row, reading)
    lease = reading.leases.get(JobName(row.name))
    intent = reading.intents.get(JobName(row.name))
    ordered_off = intent is not None and intent.want in OFF
    if lease is None:
        return row
    row = replace(row, key=lease.key, last=lease.last)
    if lease.value is None:
        if ordered_off and intent is not None:
            return replace(row, state=intent.want, why=stopped_by(intent))
        why = "no node holds the lease" if reading.members else NOBODY_ALIVE
        if lease.malformed:
            why = "what stands under the lease key is no lease"
        return replace(row, state=State.UNHELD.value, why=why)
    row = replace(row, holder=lease.value.node, token=lease.value.token, lease_ms=lease.left_ms)
    state = lease.state or {}
    if state.get("token") != lease.value.token:
        why = "the holder has published nothing yet" if reading.members else NOBODY_ALIVE
        return replace(row, state=State.STARTING.value, why=why)
    pid = state.get("pid")
    word = str(state.get("state", State.STARTING.value))
    # What is over stays as it was told; everything else wants somebody who lives.
    told = reading.members or word in (State.FAILED, State.STOPPED, State.PAUSED)
    return replace(
        row,
        state=word,
        pid=pid if isinstance(pid, int) else None,
        since=_text_or_none(state.get("since")),
        next=_text_or_none(state.get("next")),
        why=str(state.get("why", "")) if told else NOBODY_ALIVE,
    )


def _merged(told: JobView, own: JobView | None, node: str | None) -> JobView:
    if own is None:
        return told
    if own.scope == Scope.NODE:
        if _severity(told.state) < _severity(own.state):
            return told
        return replace(own, why=told.why if told.state == own.state else f"here: {own.why}" if own.why else "")
    if own.holder is not None and own.holder == node and told.holder in (None, node):
        return replace(own, key=told.key, last=told.last or own.last, lease_ms=told.lease_ms or own.lease_ms)
    if told.holder is None and told.state == State.UNHELD.value:
        state = own.state if own.state in (State.BLOCKED, State.FAILED, *OFF) else told.state
        return replace(told, state=state, why=own.why or told.why, next=own.next)
    return told


def ordered_by(intent: Intent) -> str:
    """Return who gave an order and why, in one clause."""
    return intent.who + (f": {intent.why}" if intent.why else "")


def stopped_by(intent: Intent) -> str:
    """Return what was ordered, a stop or a pause, and by whom, in one clause."""
    return f"{intent.want} by {ordered_by(intent)}"


def _rows(value: object) -> Iterable[Mapping[str, object]]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, (list, tuple)) else []


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _build(view: type[_View], row: Mapping[str, object]) -> _View:
    known = {name: row[name] for name in view.__dataclass_fields__ if name in row}
    if "tags" in known:
        known["tags"] = _texts(known["tags"])
    return view(**known)  # type: ignore[arg-type] # the socket is our own, 0600; its types are the ones asdict wrote
