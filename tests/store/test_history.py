"""The past of a job: entries of runs and of ticks that did not run, bounded, counted, and read by `history`."""

from collections.abc import AsyncIterator

import pytest

from orchestrator.core.answers import LeaseGranted, StoreAnswer, TickClaimed, TickRefused, TicksSettled
from orchestrator.core.nouns import LeaseValue, NodeName, OpenRun, RunId, Token
from orchestrator.core.past import Past
from orchestrator.store.reader import StoreReader
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, Node, stored

SCHEDULE = "every 60s"


@pytest.fixture
async def reader(server: Server) -> AsyncIterator[StoreReader]:
    reader = StoreReader(server.url, cluster="shop")
    yield reader
    await reader.close()


def entries(server: Server) -> list[str]:
    """Return the entries, oldest first; their bytes must be counted right."""
    records = server.client.hgetall(stored("history"))
    assert int(records.pop("bytes", 0)) == sum(len(record.encode()) for record in records.values())
    ages: list[str] = server.client.zrange(stored("ages"), 0, -1)
    assert set(records) == set(ages)
    return ages


# Settled ticks


async def test_skipped_ticks_are_settled_counted_and_told_in_one(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    until_ms = server.server_ms() + 500

    answer = await node.settle(value, until_ms, count=3, entry="e1")

    assert answer == TicksSettled(JOB, value.token, until_ms, until_ms, ASKED_AT)
    assert server.client.hmget(stored("tick"), "last", "skipped", "missed") == [str(until_ms), "3", "0"]
    assert entries(server) == ["e1"]


async def test_settled_ticks_are_never_claimed(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    until_ms = server.server_ms() + 500
    await node.settle(value, until_ms)

    assert isinstance(await node.claim(value, until_ms), TickRefused)
    assert isinstance(await node.claim(value, until_ms + 1), TickClaimed)


async def test_ticks_that_are_settled_already_are_not_counted_again(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)

    for _ in range(2):
        answer = await node.settle(value, tick_ms)

        assert answer == TicksSettled(JOB, value.token, tick_ms, tick_ms, ASKED_AT)
    assert server.client.hmget(stored("tick"), "ran", "skipped") == ["1", "0"]
    assert entries(server) == []


async def test_ticks_are_settled_only_under_the_lease(server: Server, node: Node) -> None:
    await node.hold(schedule=SCHEDULE)
    before = server.client.hgetall(stored("tick"))
    until_ms = server.server_ms()

    answer = await node.settle(LeaseValue(Token(1), NodeName("n1"), "i1"), until_ms)

    assert answer == TickRefused(JOB, Token(1), until_ms, "lost", 0, ASKED_AT)
    assert server.client.hgetall(stored("tick")) == before


async def test_ticks_too_far_ahead_of_the_servers_clock_are_not_settled(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    until_ms = server.server_ms() + 5000

    answer = await node.settle(value, until_ms)

    assert answer == TickRefused(JOB, value.token, until_ms, "ahead", 0, ASKED_AT)
    assert server.client.hget(stored("tick"), "skipped") == "0"


async def test_ticks_in_doubt_are_told_though_the_schedule_begins_behind_them(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    since_ms = int(server.client.hget(stored("tick"), "since"))

    answer = await node.settle(value, since_ms - 60_000, count=3, what="doubt", entry="d1")

    assert answer == TicksSettled(JOB, value.token, since_ms - 60_000, since_ms, ASKED_AT)
    assert server.client.hmget(stored("tick"), "last", "missed") == [str(since_ms), "0"]
    assert entries(server) == ["d1"]


async def test_ticks_in_doubt_that_were_not_settled_are_missed(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)

    await node.settle(value, server.server_ms() + 500, count=3, what="doubt")

    assert server.client.hmget(stored("tick"), "missed", "doubt") == ["3", None]


async def test_an_order_that_is_refused_is_settled_once_and_counts_no_tick(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    last_ms = int(server.client.hget(stored("tick"), "last"))

    async def refuse(entry: str) -> StoreAnswer:
        return await node.settle(value, 0, count=0, order_ms=77, entry=entry)

    assert await refuse("e1") == TicksSettled(JOB, value.token, 0, last_ms, ASKED_AT, order_ms=77)
    assert await refuse("e2") == TicksSettled(JOB, value.token, 0, last_ms, ASKED_AT, order_ms=77)
    assert server.client.hmget(stored("tick"), "obeyed", "skipped") == ["77", "0"]
    assert entries(server) == ["e1"]
    assert isinstance(await node.claim(value, 77, run="m1", order_ms=77), TickRefused)


async def test_ran_skipped_and_missed_are_all_ticks_since_the_schedule_began(
    server: Server, node: Node, reader: StoreReader
) -> None:
    value = await node.hold(schedule=SCHEDULE)
    since_ms = int(server.client.hget(stored("tick"), "since"))
    await node.claim(value, since_ms + 1)
    await node.settle(value, since_ms + 4, count=3)
    await node.settle(value, since_ms + 6, count=2, what="missed")

    past = await reader.past(JOB)

    assert (past.ran, past.skipped, past.missed) == (1, 3, 2)
    assert past.settled_ms - past.since_ms == 6


async def test_another_schedule_counts_anew(server: Server, node: Node, reader: StoreReader) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)

    answer = await node.acquire(schedule="every 30s")

    past = await reader.past(JOB)
    assert isinstance(answer, LeaseGranted)
    assert past.since_ms == past.settled_ms == answer.last_tick_ms == tick_ms
    assert (past.ran, past.skipped, past.missed) == (0, 0, 0)
    assert [run.run for run in past.open] == ["r1"]


async def test_ticks_that_nobody_counted_are_counted_from_the_next_lease_on(server: Server, node: Node) -> None:
    server.client.hset(stored("tick"), mapping={"schedule": SCHEDULE, "last": "5"})

    answer = await node.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == 5
    assert server.client.hmget(stored("tick"), "since", "ran") == ["5", "0"]


# Bounds


async def test_only_the_newest_entries_are_kept(server: Server, node: Node) -> None:
    for number in range(5):
        await node.record(7, "{}", run=f"r{number}", keep=3)

    assert entries(server) == ["r2", "r3", "r4"]


async def test_only_so_many_bytes_are_kept(server: Server, node: Node) -> None:
    for number in range(5):
        await node.record(7, 40 * "x", run=f"r{number}", keep_bytes=100)

    assert entries(server) == ["r3", "r4"]


async def test_bytes_are_counted_as_they_are_stored(server: Server, node: Node) -> None:
    for number in range(3):
        await node.record(7, 20 * "é", run=f"r{number}", keep_bytes=100)

    assert entries(server) == ["r1", "r2"]


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        pytest.param(65_536, ["r2"], id="alone where it is larger than all may be"),
        pytest.param(65_537, [], id="not at all where nobody would write it"),
    ],
)
async def test_a_large_entry_is_kept(server: Server, node: Node, size: int, kept: list[str]) -> None:
    await node.record(7, "{}", run="r1")

    await node.record(7, size * "x", run="r2", keep_bytes=100)

    assert entries(server) == kept


async def test_the_truth_over_a_successors_word_keeps_its_place(server: Server, node: Node) -> None:
    await node.record(7, '{"outcome":"lost"}', run="r1", witness=False)
    await node.record(8, "{}", run="r2")

    await node.record(7, '{"outcome":"ok"}', run="r1")

    assert entries(server) == ["r1", "r2"]


async def test_less_is_kept_as_soon_as_less_is_wanted(server: Server, node: Node) -> None:
    for number in range(30):
        await node.record(7, "{}", run=f"r{number}")

    await node.record(7, "{}", run="r30", keep=2)

    assert entries(server) == ["r29", "r30"]


# Reading it


async def test_the_past_is_told_newest_first(server: Server, node: Node, reader: StoreReader) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    await node.record(value.token, '{"run":"r1"}')
    await node.claim(value, tick_ms + 1, run="r2")
    await node.record(value.token, '{"run":"r2"}', run="r2")
    await node.claim(value, tick_ms + 2, run="r3")

    past = await reader.past(JOB)

    assert [entry["run"] for entry in past.entries] == ["r2", "r1"]
    assert past.open == (OpenRun(RunId("r3"), tick_ms + 2, value.token, NodeName("n1"), 1, "schedule"),)


async def test_a_job_without_a_past_has_an_empty_one(reader: StoreReader) -> None:
    assert await reader.past("nobody") == Past()


async def test_a_service_has_a_past_too(node: Node, reader: StoreReader) -> None:
    await node.record(7, '{"outcome":"failed"}')

    assert await reader.past(JOB) == Past(entries=({"outcome": "failed"},))


# What people do to it


@pytest.mark.parametrize("part", ["history", "ages"])
async def test_history_that_was_half_deleted_is_set_right_by_the_next_record(
    server: Server, node: Node, reader: StoreReader, part: str
) -> None:
    for number in range(3):
        await node.record(7, f'{{"run":{number}}}', run=f"r{number}")
    server.client.delete(stored(part))

    await node.record(7, '{"run":3}', run="r3")

    expected = ["r3"] if part == "history" else ["r0", "r1", "r2", "r3"]
    assert entries(server) == expected
    assert len((await reader.past(JOB)).entries) == len(expected)


@pytest.mark.parametrize("bytes_said", ["nonsense", "-5", "99999999999999999999", "x" * 5000])
async def test_bytes_that_make_no_sense_are_counted_anew(server: Server, node: Node, bytes_said: str) -> None:
    await node.record(7, "{}", run="r1")
    server.client.hset(stored("history"), "bytes", bytes_said)

    await node.record(7, "{}", run="r2")

    assert entries(server) == ["r1", "r2"]


async def test_ages_beyond_all_time_do_not_keep_an_entry_for_ever(server: Server, node: Node) -> None:
    server.client.hset(stored("history"), "forged", "{}")
    server.client.zadd(stored("ages"), {"forged": float("inf")})

    for number in range(3):
        await node.record(7, "{}", run=f"r{number}", keep=2)

    assert "forged" not in entries(server)


async def test_history_is_never_larger_than_anybody_may_want(server: Server, node: Node) -> None:
    server.client.hset(stored("history"), mapping={f"forged{i}": "{}" for i in range(20_001)})

    await node.record(7, "{}", run="r1")

    assert entries(server) == ["r1"]


async def test_what_is_no_entry_is_not_shown(server: Server, node: Node, reader: StoreReader) -> None:
    await node.record(7, '{"run":"r1"}')
    forged: dict[str, str | bytes] = {
        "a": "nonsense",
        "b": b"\xff\xfe",
        "c": "[1]",
        "d": "[" * 50_000,
        "e": "x" * 70_000,
    }
    server.client.hset(stored("history"), mapping=forged)
    server.client.zadd(stored("ages"), {**dict.fromkeys(forged, 1), "nowhere": 2})

    assert (await reader.past(JOB)).entries == ({"run": "r1"},)


@pytest.mark.parametrize("part", ["tick", "history", "ages"])
async def test_a_past_of_another_type_counts_as_none(server: Server, reader: StoreReader, part: str) -> None:
    server.client.rpush(stored(part), "x")

    assert await reader.past(JOB) == Past()


async def test_after_a_loss_of_data_a_living_holder_s_ticks_are_counted_from_its_next_one(
    server: Server, node: Node
) -> None:
    value = await node.hold(schedule="every 60s")
    server.client.delete(stored("tick"))
    now = server.server_ms()

    await node.claim(value, now, "r1")
    await node.settle(value, now + 500, count=3, what="skipped")
    answer = await node.acquire(schedule="every 60s")

    assert isinstance(answer, LeaseGranted)
    counts = server.client.hmget(stored("tick"), "since", "ran", "skipped", "missed", "last")
    assert counts == [str(now - 1), "1", "3", "0", str(now + 500)]


async def test_what_is_settled_first_after_a_loss_of_data_begins_the_counts(server: Server, node: Node) -> None:
    value = await node.hold(schedule="every 60s")
    server.client.delete(stored("tick"))
    now = server.server_ms()

    await node.settle(value, now, count=3)

    assert server.client.hmget(stored("tick"), "since", "ran", "skipped", "missed") == [str(now), "0", "0", "0"]
