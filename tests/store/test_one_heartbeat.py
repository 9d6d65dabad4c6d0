"""What a heartbeat costs on the wire, counted by a proxy that only looks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from orchestrator.core.answers import StoreSilent, TickRefused
from orchestrator.core.nouns import Bucket, JobName, LeaseValue, NodeName, RunId, Token
from orchestrator.core.requests import (
    ClaimTick,
    KeepMembership,
    LookAtLease,
    MeetServer,
    RecordRun,
    RenewLease,
    SettleTicks,
    StoreRequest,
)
from orchestrator.core.spec import BUCKETS
from orchestrator.store.store import Store
from tests.servers import Server

HELD, STANDBY = 1000, 1000
MOST_CALLS = 3 * BUCKETS + 1
"""Renew, look and meet once a bucket, and the membership; each call has at most 250 leases."""


class Wire:
    """A proxy on a unix socket that counts connections and round trips."""

    def __init__(self, path: Path, server: Server) -> None:
        """Stand between a client and a server."""
        self.path = path
        self.connections = 0
        self.round_trips = 0
        self._server = server.socket

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Listen; yield the URL."""
        server = await asyncio.start_unix_server(self._pass_on, self.path)
        async with server:
            yield f"unix://{self.path}"

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        from_server, to_server = await asyncio.open_unix_connection(self._server)
        answered = True

        async def answers() -> None:
            nonlocal answered
            while data := await from_server.read(1 << 20):
                answered = True
                writer.write(data)
            writer.close()

        answering = asyncio.create_task(answers())
        while data := await reader.read(1 << 20):
            self.round_trips += answered
            answered = False
            to_server.write(data)
        to_server.close()
        await answering


def heartbeat() -> list[StoreRequest]:
    """Return the batch of a node that holds a thousand leases and stands by for a thousand more."""
    requests: list[StoreRequest] = [KeepMembership(NodeName("n1"), "i1", "s1", 60_000, "{}", 0, asked_at=0.0)]
    requests += [MeetServer(Bucket(bucket), asked_at=0.0) for bucket in range(BUCKETS)]
    for number in range(HELD):
        name = JobName(f"held-{number}")
        value = LeaseValue(Token(7), NodeName("n1"), "i1")
        requests.append(RenewLease(name, name, value, 60_000, 2**52, asked_at=0.0))
    requests += [LookAtLease(JobName(f"seen-{n}"), f"seen-{n}", asked_at=0.0) for n in range(STANDBY)]
    return requests


def script_calls(server: Server) -> int:
    """Return how many scripts the server has run by their SHA."""
    return int(server.client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"])


async def test_a_heartbeat_is_one_pipeline_on_one_connection_however_many_jobs(server: Server, tmp_path: Path) -> None:
    wire = Wire(tmp_path / "wire", server)
    async with wire.open() as url:
        store = Store(url, cluster="shop", node="n1", request_timeout_s=5.0)
        await store.serve(heartbeat())  # the scripts are loaded, the member's info is read
        before, calls_before = wire.round_trips, script_calls(server)

        answers = await store.serve(heartbeat())

        assert not any(isinstance(answer, StoreSilent) for answer in answers)
        assert wire.round_trips - before <= 2  # the batch is larger than a socket's buffer: it may arrive in parts
        assert wire.connections == 1
        assert script_calls(server) - calls_before <= MOST_CALLS
        await store.close()


async def test_a_thousand_ticks_due_at_once_are_a_few_calls(server: Server) -> None:
    store = Store(server.url, cluster="shop", node="n1", request_timeout_s=5.0)
    value = LeaseValue(Token(7), NodeName("n1"), "i1")
    names = [JobName(f"cron-{number}") for number in range(1000)]
    requests: list[StoreRequest] = [ClaimTick(name, name, value, 5, RunId("r"), "{}", 0, 0.0) for name in names]
    requests += [SettleTicks(name, name, value, 4, 1, "skipped", "e", "{}", 100, 1000, 0, 0.0) for name in names]
    requests += [RecordRun(name, name, value.token, RunId("r"), "{}", 0.0) for name in names]
    await store.serve([RenewLease(name, name, value, 60_000, 2**52, asked_at=0.0) for name in names])
    await store.serve(requests[:1] + requests[-1:] + requests[1000:1001])  # the scripts are loaded
    before = script_calls(server)

    answers = await store.serve(requests)

    assert not any(isinstance(answer, (StoreSilent, TickRefused)) for answer in answers)
    assert script_calls(server) - before == 3 * BUCKETS
    await store.close()
