"""A node for clients to look at: what it says is real, in Redis and on its socket; it runs nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator import paths
from orchestrator.control import Answer, ControlServer
from orchestrator.core.nouns import JobName, LeaseValue, RunId
from orchestrator.core.requests import PublishState, RecordRun
from orchestrator.core.snapshot import ClusterView
from orchestrator.core.spec import bucket_of
from tests.servers import Server
from tests.store.node import Node

JOBS = ("beat", "invoices", "worker", "worker.1", "off")


@dataclass(frozen=True, slots=True)
class Result:
    """What a command did.

    Attributes:
        out: Its data.
        err: Its talk.
    """

    status: int
    out: str
    err: str


class Played:
    """One node, as others see it."""

    def __init__(self, server: Server, name: str, *, runtime: Path) -> None:
        """Prepare; nobody sees it before `join` or `listen`."""
        self.name = name
        self._server = server
        self._node = Node(server, name, f"i-{name}")
        self._runtime = runtime
        self._control: ControlServer | None = None

    async def join(self, jobs: Mapping[str, object] | None = None) -> None:
        """Become a member that knows some jobs, each with its lease key."""
        info = {
            "host": "host",
            "pid": 1,
            "version": "0",
            "tags": [],
            "jobs": dict(jobs or {job: job for job in JOBS}),
            "kinds": {"invoices": "cron"},
        }
        await self._node.keep(info=json.dumps(info), state_id=self.name)

    async def leave(self) -> None:
        """Be a member no more."""
        await self._node.leave()

    async def hold(self, job: str, **state: object) -> LeaseValue:
        """Take a job's lease and publish a state of it."""
        value = await self._node.hold(job=JobName(job), key=job, epoch=await self._node.epoch(bucket_of(job)))
        await self.publish(job, value, **state)
        return value

    async def publish(self, job: str, value: LeaseValue, **state: object) -> None:
        """Publish what became of a job."""
        shown = {"token": value.token, "state": "running", "pid": 4711, "since": None, "next": None, "why": ""} | state
        await self._node.ask(PublishState(JobName(job), job, value, json.dumps(shown), asked_at=0.0))

    async def record(self, job: str, value: LeaseValue, **record: object) -> None:
        """Write how a run of a job ended."""
        run = RunId(f"{job}@{value.token}.1")
        await self._node.ask(
            RecordRun(JobName(job), job, value.token, run, json.dumps({"run": run} | record), asked_at=0.0)
        )

    async def release(self, job: str, value: LeaseValue) -> None:
        """Give a lease back."""
        await self._node.release(value, job=JobName(job), key=job, epoch=await self._node.epoch(bucket_of(job)))

    async def listen(
        self, view: ClusterView, *, file: str = "", redis: str | None = None, cluster: str = "shop"
    ) -> None:
        """Answer on the node's own socket."""
        where: dict[str, object] = {
            "cluster": cluster,
            "node": self.name,
            "file": file,
            "redis": redis,
            "pid": 1,
            "state_dir": "",
        }

        async def said(question: Mapping[str, object]) -> Mapping[str, object]:
            return where if question["op"] == "where" else view.to_json()

        answers: dict[str, Answer] = {"where": said, "status": said}
        self._control = ControlServer(paths.socket_path(self._runtime, cluster, self.name), answers)
        await self._control.open()

    async def close(self) -> None:
        """Be gone."""
        if self._control is not None:
            await self._control.close()
        await self._node.store.close()
