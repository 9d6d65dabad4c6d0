"""Takes a picture of a cluster: Redis and the nodes of this machine, asked at once and laid side by side.

Redis away and a local node alive: the node's own truth, and why. Neither: `StoreUnreachableError`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from orchestrator.cli.target import LocalNode, Target
from orchestrator.core.nouns import JobName
from orchestrator.core.snapshot import ClusterReading, ClusterView, JobView, State, cluster_view
from orchestrator.core.spec import Kind, Scope
from orchestrator.errors import StoreUnreachableError
from orchestrator.store.reader import StoreReader

DISABLED = "it is disabled in the file"


@dataclass(frozen=True, slots=True)
class Picture:
    """What was seen.

    Attributes:
        reading: What Redis said; None: it did not answer.
        problem: Why it did not, "" if it did.
    """

    view: ClusterView
    reading: ClusterReading | None
    problem: str = ""


class Camera:
    """Takes pictures of one cluster, over one connection."""

    def __init__(self, target: Target) -> None:
        """Prepare; nothing is asked yet.

        Raises:
            ConfigError: The Redis URL is wrong.
        """
        self._target = target
        self.reader = StoreReader(target.redis, cluster=target.cluster) if target.redis else None

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        if self.reader is not None:
            await self.reader.close()

    async def take(self) -> Picture:
        """Take one picture.

        Raises:
            StoreUnreachableError: Neither Redis nor a local node answers.
        """
        told, own = await asyncio.gather(self._told(), self._own())
        if isinstance(told, ClusterReading):
            rows = _bare_rows(self._target, told, own)
            first = own[0] if own else None
            view = cluster_view(self._target.cluster, rows, told, first)
            return Picture(_settled(view, self._target), told)
        if not own:
            raise told
        view = _together(own)
        redis = dict(view.redis) if not view.redis.get("ok", True) else {"ok": False, "problem": str(told)}
        return Picture(replace(view, redis=redis), None, str(told))

    async def _told(self) -> ClusterReading | StoreUnreachableError:
        if self.reader is None:
            return StoreUnreachableError(
                "the file names no redis and the embedded server of this machine does not run;"
                " start a node with `orchestrator up`"
            )
        try:
            known = dict(self._target.keys)
            reading = await self.reader.read(known)
            wanted = _keys(self._target, reading)
            return reading if wanted == known else await self.reader.read(wanted)
        except StoreUnreachableError as error:
            return error

    async def _own(self) -> list[ClusterView]:
        # In threads: a frozen node must cost a second once, and not once a node.
        answers = await asyncio.gather(*(asyncio.to_thread(LocalNode.view, node) for node in self._target.nodes))
        return [view for view in answers if view is not None and view.cluster == self._target.cluster]


async def take(target: Target) -> Picture:
    """Take a single picture; as `Camera.take`."""
    async with Camera(target) as camera:
        return await camera.take()


def _keys(target: Target, reading: ClusterReading) -> dict[JobName, str]:
    """Return each known job's lease key: the file's jobs and the nodes'; the word of who joined first counts.

    A node decides alike (`core/node.py`): a job is run under one key, whatever other files say.
    """
    keys: dict[JobName, str] = {}
    for member in sorted(reading.members, key=lambda member: (member.since_ms, member.name)):
        for job, key in _texts(member.info.get("jobs")).items():
            keys.setdefault(JobName(job), key)
    return {job: keys.get(job, key) for job, key in target.keys.items()} | keys


def _bare_rows(target: Target, reading: ClusterReading, own: list[ClusterView]) -> list[JobView]:
    rows = {row.name: row for view in own for row in view.jobs}
    kinds = {job: kind for member in reading.members for job, kind in _texts(member.info.get("kinds")).items()}
    local = {job: Scope.NODE.value for member in reading.members for job in _names(member.info.get("local"))}
    if target.spec is not None:
        rows |= {
            job.name: JobView(
                job.name,
                job.kind.value,
                ttl_ms=job.lease.ttl_ms if job.scope is Scope.CLUSTER else None,
                tags=job.tags,
                scope=job.scope.value,
            )
            for job in target.spec.jobs
        }
    # A node on this machine knows its jobs also while Redis takes no word of any node (OOM, MISCONF).
    names = dict.fromkeys([*target.keys, *reading.leases, *rows, *local])
    return [
        JobView(name, row.kind, ttl_ms=row.ttl_ms, tags=row.tags, scope=row.scope)
        if (row := rows.get(name))
        else JobView(name, kinds.get(name, Kind.SERVICE.value), scope=local.get(name, Scope.CLUSTER.value))
        for name in names
    ]


def _settled(view: ClusterView, target: Target) -> ClusterView:
    """Tell the jobs that nobody holds because the file switched them off from those that somebody should hold."""
    disabled = {str(job.name) for job in target.spec.jobs if not job.enabled} if target.spec else set()
    rows = (
        replace(row, state=State.STOPPED.value, why=DISABLED)
        if row.name in disabled and row.holder is None and row.state == State.UNHELD
        else row
        for row in view.jobs
    )
    return replace(view, jobs=tuple(rows))


def _together(own: list[ClusterView]) -> ClusterView:
    """Lay the truths of several nodes of this machine together: each speaks for what it holds itself."""
    first = own[0]
    held = {row.name: row for view in own for row in view.jobs if row.holder is not None and row.holder == view.node}
    return replace(first, jobs=tuple(held.get(row.name, row) for row in first.jobs))


def _texts(value: object) -> dict[str, str]:
    """Read names and texts from what somebody wrote of itself; whatever is none is left out."""
    pairs = value.items() if isinstance(value, Mapping) else ()
    return {name: text for name, text in pairs if _is_text(name) and _is_text(text)}


def _names(value: object) -> list[str]:
    return [name for name in value if _is_text(name)] if isinstance(value, Mapping) else []


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:  # half a character, which JSON lets pass and Redis cannot be asked about
        return False
