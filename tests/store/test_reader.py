from collections.abc import AsyncIterator, Callable

import pytest

from orchestrator.core.answers import MembersSeen
from orchestrator.core.nouns import Intent, JobName
from orchestrator.core.snapshot import LeaseReading
from orchestrator.errors import StoreUnreachableError
from orchestrator.store.calls import MAX_LEASES_A_CALL
from orchestrator.store.reader import StoreReader
from tests.servers import Server
from tests.store.node import JOB, TTL_MS, Node, stored

STOP = Intent("stopped", "me@here", "maintenance", 0)
NOBODY = JobName("nobody")


@pytest.fixture
async def reader(server: Server) -> AsyncIterator[StoreReader]:
    reader = StoreReader(server.url, cluster="shop")
    yield reader
    await reader.close()


async def test_a_reading_shows_what_redis_knows_of_a_job(node: Node, reader: StoreReader) -> None:
    value = await node.hold()
    await node.publish(value, '{"state":"running","token":1}')
    await node.record(value.token, '{"outcome":"ok"}')

    reading = await reader.read({JOB: JOB, NOBODY: "nobody"})

    lease = reading.leases[JOB]
    assert lease == LeaseReading(
        key=stored("lease"),
        value=value,
        malformed=False,
        left_ms=lease.left_ms,
        token=value.token,
        released=0,
        state={"state": "running", "token": 1},
        last={"outcome": "ok"},
    )
    assert TTL_MS - 1000 < lease.left_ms <= TTL_MS
    assert reading.leases[NOBODY] == LeaseReading(stored("lease", "nobody"), None, False, 0, 0, 0, None, None)


async def test_a_reading_shows_what_was_released(node: Node, reader: StoreReader) -> None:
    value = await node.hold()
    await node.release(value)

    lease = (await reader.read({JOB: JOB})).leases[JOB]

    assert (lease.value, lease.token, lease.released) == (None, value.token, value.token)


async def test_a_reading_shows_who_lives(server: Server, node: Node, other: Node, reader: StoreReader) -> None:
    await node.keep(info='{"host":"a"}')
    seen = await other.keep(info='{"host":"b"}')
    assert isinstance(seen, MembersSeen)
    server.client.zadd("orchestrator:{shop:m}:nodes", {"n1": server.server_ms() - 1})

    reading = await reader.read({})

    assert [(member.name, member.incarnation, member.info) for member in reading.members] == [
        ("n2", "i2", {"host": "b"})
    ]
    assert reading.members[0].since_ms == seen.server_ms <= reading.server_ms


async def test_many_leases_are_read_in_the_order_asked(reader: StoreReader) -> None:
    jobs = {JobName(f"j{i}"): f"j{i % 3}" for i in range(2 * MAX_LEASES_A_CALL)}

    reading = await reader.read(jobs)

    assert list(reading.leases) == list(jobs)
    assert reading.leases[JobName("j4")].key == stored("lease", "j1")


async def test_an_order_reaches_the_nodes(server: Server, node: Node, reader: StoreReader) -> None:
    before_ms = server.server_ms()

    at_ms = await reader.order([JOB, NOBODY], STOP)

    seen = await node.keep()
    standing = Intent("stopped", "me@here", "maintenance", at_ms)
    assert isinstance(seen, MembersSeen)
    assert (seen.intents, seen.intents_version) == ({JOB: standing, NOBODY: standing}, at_ms)
    assert (await reader.read({})).intents == seen.intents
    assert before_ms <= at_ms <= server.server_ms()


async def test_a_later_order_is_a_greater_version_whatever_the_clock_says(server: Server, reader: StoreReader) -> None:
    ahead_ms = server.server_ms() + 1_000_000
    server.client.set("orchestrator:{shop:m}:intents-version", ahead_ms)

    assert await reader.order([JOB], STOP) == ahead_ms + 1


async def test_an_order_nudges(server: Server, reader: StoreReader) -> None:
    listener = server.client.pubsub()
    listener.subscribe("orchestrator:{shop:m}:nudge")
    assert listener.get_message(timeout=2)["type"] == "subscribe"

    await reader.order([JOB], STOP)

    assert listener.get_message(timeout=2)["data"] == ""
    listener.close()


async def test_a_long_reason_is_cut(reader: StoreReader) -> None:
    await reader.order([JOB], Intent("stopped", "me", "\N{PILE OF POO}" * 5000, 0))

    intents = (await reader.read({})).intents
    assert intents[JOB].why.startswith("\N{PILE OF POO}")
    assert len(intents[JOB].why) < 100


async def test_broken_keys_are_shown_as_nothing(server: Server, reader: StoreReader) -> None:
    for part in ("token", "released", "alive", "tick", "last", "state"):
        server.client.rpush(stored(part), "x")
    server.client.set(stored("lease"), b"\xff\xfe")
    for name in ("nodes", "heads", "infos", "intents"):
        server.client.set(f"orchestrator:{{shop:m}}:{name}", "x")

    reading = await reader.read({JOB: JOB})

    assert reading.leases[JOB] == LeaseReading(stored("lease"), None, True, 0, 0, 0, None, None)
    assert (reading.members, reading.intents) == ((), {})


async def test_a_server_that_is_away_is_told_with_the_reason(start_server: Callable[..., Server]) -> None:
    server = start_server(port=0)
    server.stop()
    reader = StoreReader(f"redis://:secret@127.0.0.1:{server.port}/0", cluster="shop")

    with pytest.raises(StoreUnreachableError, match=f"127.0.0.1:{server.port}/0: connection refused"):
        await reader.read({})
    with pytest.raises(StoreUnreachableError, match="connection refused"):
        await reader.order([JOB], STOP)
    await reader.close()
