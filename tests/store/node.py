"""A node as the store sees it: short words for requests, against a real server."""

import asyncio
from dataclasses import replace
from typing import Any

from orchestrator.core.answers import LeaseGranted, ServerMet, StoreAnswer, StoreSilent
from orchestrator.core.nouns import Bucket, JobName, LeaseValue, NodeName, OpenRun, RunId, Token
from orchestrator.core.open_runs import mark_of
from orchestrator.core.requests import (
    AcquireLease,
    ClaimTick,
    KeepMembership,
    LeaveCluster,
    LookAtLease,
    MeetServer,
    PublishState,
    RecordRun,
    ReleaseLease,
    RenewLease,
    SettleTicks,
    StoreRequest,
)
from orchestrator.core.spec import bucket_of
from orchestrator.store.keys import Keys
from orchestrator.store.store import Store
from tests.servers import Server

TTL_MS = 10_000
JOB = JobName("beat")
KEYS = Keys("shop")
ASKED_AT = 7.0


def stored(part: str, key: str = JOB) -> str:
    """Return the full name of one key of a job."""
    return KEYS.parts(key)[part]


class Node:
    """One node; its requests are right unless a test changes them."""

    def __init__(self, server: Server, name: str = "n1", incarnation: str = "i1", *, timeout_s: float = 2.0) -> None:
        """Prepare its store."""
        self.server = server
        self.name = NodeName(name)
        self.incarnation = incarnation
        self.store = Store(server.url, cluster="shop", node=name, request_timeout_s=timeout_s)

    async def ask(self, request: StoreRequest) -> StoreAnswer:
        """Send one request and return its answer."""
        (answer,) = await self.store.serve([request])
        return answer

    async def ask_until_answered(self, request: StoreRequest) -> StoreAnswer:
        """Ask again and again until the store is not silent: a node's first try may meet a connection that died."""
        async with asyncio.timeout(10):
            while isinstance(answer := await self.ask(request), StoreSilent):  # noqa: ASYNC110 - no event tells it
                await asyncio.sleep(0.01)
        return answer

    async def epoch(self, bucket: Bucket | None = None) -> str:
        """Meet the server and return its epoch."""
        answer = await self.ask(MeetServer(bucket_of(JOB) if bucket is None else bucket, ASKED_AT))
        assert isinstance(answer, ServerMet)
        return answer.epoch

    async def acquiring(self, **changes: Any) -> AcquireLease:
        """Return a request for the lease, under the server's present epoch and clock."""
        request = AcquireLease(
            job=JOB,
            key=JOB,
            node=self.name,
            incarnation=self.incarnation,
            ttl_ms=TTL_MS,
            longest_ttl_ms=TTL_MS,
            floor=Token(0),
            seen=Token(0),
            ran=Token(0),
            epoch=await self.epoch(),
            expected_ms=self.server.server_ms(),
            tolerance_ms=1000,
            quarantined=False,
            schedule="",
            tick_floor_ms=self.server.server_ms() + 60_000,  # the server's clock is the earlier one
            asked_at=ASKED_AT,
        )
        return replace(request, **changes)

    async def acquire(self, **changes: Any) -> StoreAnswer:
        """Ask for the lease."""
        return await self.ask(await self.acquiring(**changes))

    async def hold(self, **changes: Any) -> LeaseValue:
        """Get the lease."""
        answer = await self.acquire(**changes)
        assert isinstance(answer, LeaseGranted), answer
        return LeaseValue(answer.token, self.name, self.incarnation)

    async def renew(self, value: LeaseValue, **changes: Any) -> StoreAnswer:
        """Renew the lease."""
        request = RenewLease(JOB, JOB, value, TTL_MS, self.server.server_ms() + TTL_MS, ASKED_AT)
        return await self.ask(replace(request, **changes))

    async def release(self, value: LeaseValue, **changes: Any) -> StoreAnswer:
        """Give the lease back."""
        request = ReleaseLease(JOB, JOB, value, await self.epoch(), "", 0, 2 * TTL_MS, ASKED_AT)
        return await self.ask(replace(request, **changes))

    async def look(self) -> StoreAnswer:
        """Look at the lease."""
        return await self.ask(LookAtLease(JOB, JOB, ASKED_AT))

    def claiming(self, value: LeaseValue, tick_ms: int, run: str = "r1", **changes: Any) -> ClaimTick:
        """Return the claim of a tick that may lie up to a second ahead."""
        mark = mark_of(OpenRun(RunId(run), tick_ms, value.token, self.name, 1, "schedule"))
        return replace(ClaimTick(JOB, JOB, value, tick_ms, RunId(run), mark, 1000, ASKED_AT), **changes)

    async def claim(self, value: LeaseValue, tick_ms: int, run: str = "r1", **changes: Any) -> StoreAnswer:
        """Claim a tick."""
        return await self.ask(self.claiming(value, tick_ms, run, **changes))

    async def settle(self, value: LeaseValue, until_ms: int, **changes: Any) -> StoreAnswer:
        """Say that a tick was skipped."""
        request = SettleTicks(
            JOB, JOB, value, until_ms, 1, "skipped", f"skipped@{until_ms}", "{}", 100, 1000, 1000, ASKED_AT
        )
        return await self.ask(replace(request, **changes))

    async def record(self, token: int, record: str, run: str = "r1", **changes: Any) -> StoreAnswer:
        """Record the end of a run."""
        return await self.ask(replace(RecordRun(JOB, JOB, Token(token), RunId(run), record, ASKED_AT), **changes))

    async def publish(self, value: LeaseValue, state: str) -> StoreAnswer:
        """Show a state."""
        return await self.ask(PublishState(JOB, JOB, value, state, ASKED_AT))

    async def keep(self, **changes: Any) -> StoreAnswer:
        """Beat as a member."""
        request = KeepMembership(self.name, self.incarnation, "state1", TTL_MS, '{"host":"h","pid":1}', 0, ASKED_AT)
        return await self.ask(replace(request, **changes))

    async def leave(self) -> StoreAnswer:
        """Leave the cluster."""
        return await self.ask(LeaveCluster(self.name, self.incarnation, ASKED_AT))
