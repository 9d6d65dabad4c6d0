import pytest

from orchestrator.core.answers import RunRecorded, StatePublished, StoreAnswer, TickClaimed, TickRefused
from orchestrator.core.nouns import LeaseValue, NodeName, RunId, Token
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, Node, stored

SCHEDULE = "every 60s"


def refusal(answer: StoreAnswer) -> tuple[str, int]:
    assert isinstance(answer, TickRefused), answer
    return answer.reason, answer.last_tick_ms


async def test_a_due_tick_is_claimed_by_the_holder(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500

    answer = await node.claim(value, tick_ms)

    assert answer == TickClaimed(JOB, value.token, tick_ms, RunId("r1"), ASKED_AT)
    assert server.client.hgetall(stored("tick")) == {
        "schedule": SCHEDULE,
        "last": str(tick_ms),
        "cur": f"{tick_ms}|{value.token}|r1",
    }


async def test_the_same_claim_succeeds_again_since_its_answer_may_have_been_lost(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    first = await node.claim(value, tick_ms)

    assert await node.claim(value, tick_ms) == first


async def test_another_run_never_gets_a_claimed_tick(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)

    assert refusal(await node.claim(value, tick_ms, run="r2")) == ("duplicate", tick_ms)


async def test_the_next_holder_never_gets_a_claimed_tick(server: Server, node: Node, other: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    await node.release(value)

    theirs = await other.hold(schedule=SCHEDULE)

    assert refusal(await other.claim(theirs, tick_ms)) == ("duplicate", tick_ms)


async def test_an_older_tick_than_the_last_is_a_duplicate(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)

    assert refusal(await node.claim(value, tick_ms - 1, run="r0")) == ("duplicate", tick_ms)


async def test_a_tick_too_far_ahead_of_the_servers_clock_is_refused(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)

    assert refusal(await node.claim(value, server.server_ms() + 5000)) == ("ahead", 0)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(LeaseValue(Token(1), NodeName("n1"), "i1"), id="an older token of ours"),
        pytest.param(LeaseValue(Token(2), NodeName("n2"), "i2"), id="another node's"),
    ],
)
async def test_a_tick_is_claimed_only_under_the_lease(server: Server, node: Node, value: LeaseValue) -> None:
    await node.hold(schedule=SCHEDULE)

    assert refusal(await node.claim(value, server.server_ms() + 500)) == ("lost", 0)


async def test_a_claim_after_lost_data_leaves_the_next_holder_a_floor(server: Server, node: Node) -> None:
    """The schedule is gone too, so that the next acquire takes it for new and fires nothing of the past."""
    value = await node.hold(schedule=SCHEDULE)
    server.client.delete(stored("tick"))
    tick_ms = server.server_ms() + 500

    assert isinstance(await node.claim(value, tick_ms), TickClaimed)
    assert server.client.hget(stored("tick"), "schedule") is None


async def test_a_run_is_recorded_without_the_lease(server: Server, node: Node) -> None:
    answer = await node.record(7, '{"outcome":"ok"}')

    assert answer == RunRecorded(JOB, RunId("r1"), ASKED_AT)
    assert server.client.hgetall(stored("last")) == {"token": "7", "run": "r1", "record": '{"outcome":"ok"}'}


@pytest.mark.parametrize(
    ("token", "stands"),
    [
        pytest.param(6, "first", id="an older token's run does not overwrite it"),
        pytest.param(7, "second", id="the same holder's next run does"),
        pytest.param(8, "second", id="a newer token's run does"),
    ],
)
async def test_a_record_is_fenced_by_its_token(server: Server, node: Node, token: int, stands: str) -> None:
    await node.record(7, "first")

    answer = await node.record(token, "second", run="r2")

    assert answer == RunRecorded(JOB, RunId("r2"), ASKED_AT)
    assert server.client.hget(stored("last"), "record") == stands


async def test_the_holder_publishes_its_state(server: Server, node: Node) -> None:
    value = await node.hold()

    answer = await node.publish(value, '{"state":"running"}')

    assert answer == StatePublished(JOB, was_ours=True, asked_at=ASKED_AT)
    assert server.client.get(stored("state")) == '{"state":"running"}'


async def test_nobody_else_publishes(server: Server, node: Node) -> None:
    await node.hold()

    answer = await node.publish(LeaseValue(Token(1), NodeName("n1"), "i1"), "{}")

    assert answer == StatePublished(JOB, was_ours=False, asked_at=ASKED_AT)
    assert not server.client.exists(stored("state"))
