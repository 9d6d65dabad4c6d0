"""Claims: a start is made at most once, whatever is repeated, comes late, or is asked by a successor."""

import pytest

from orchestrator.core.answers import LeaseGranted, StoreAnswer, TickClaimed, TickRefused
from orchestrator.core.nouns import JobName, LeaseValue, NodeName, OpenRun, RunId, Token
from orchestrator.core.open_runs import mark_of
from orchestrator.core.requests import ClaimTick
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
    assert server.client.hmget(stored("tick"), "last", "ran") == [str(tick_ms), "1"]
    assert server.client.hget(stored("tick"), "run:r1") == node.claiming(value, tick_ms).mark


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


async def test_an_open_run_is_told_to_the_next_holder(server: Server, node: Node, other: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    await node.release(value)

    answer = await other.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert answer.open == (OpenRun(RunId("r1"), tick_ms, value.token, NodeName("n1"), 1, "schedule"),)


async def test_a_mark_that_nobody_can_read_is_left_out(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    await node.claim(value, server.server_ms() + 500)
    server.client.hset(stored("tick"), mapping={"run:r0": "nonsense", "run:r2": "x" * 100_000})

    answer = await node.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert [run.run for run in answer.open] == ["r1"]


async def test_thousands_of_forged_runs_do_not_hide_the_newest_tick(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    server.client.hset(stored("tick"), mapping={f"run:{i}": "x" for i in range(3000)})

    answer = await node.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert (answer.last_tick_ms, answer.open) == (tick_ms, ())


# Ordered starts


async def test_an_ordered_start_is_claimed_and_settles_no_tick(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    before = server.client.hmget(stored("tick"), "last", "ran")

    answer = await node.claim(value, 77, run="m1", order_ms=77)

    assert isinstance(answer, TickClaimed)
    assert server.client.hmget(stored("tick"), "last", "ran") == before
    assert server.client.hget(stored("tick"), "obeyed") == "77"


@pytest.mark.parametrize("order_ms", [pytest.param(77, id="the same"), pytest.param(76, id="an older one")])
async def test_an_order_is_obeyed_once(node: Node, other: Node, order_ms: int) -> None:
    value = await node.hold(schedule=SCHEDULE)
    await node.claim(value, 77, run="m1", order_ms=77)
    await node.record(value.token, "{}", run="m1")
    await node.release(value)

    answer = await other.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert answer.obeyed_ms == 77
    theirs = LeaseValue(answer.token, other.name, other.incarnation)
    assert refusal(await other.claim(theirs, 77, run="m2", order_ms=order_ms))[0] == "duplicate"


async def test_a_claim_of_an_order_whose_answer_was_lost_succeeds_again(node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    first = await node.claim(value, 77, run="m1", order_ms=77)

    assert await node.claim(value, 77, run="m1", order_ms=77) == first


# Other attempts


async def test_another_attempt_takes_the_place_of_the_one_before(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    await node.record(value.token, "{}", mark=node.claiming(value, tick_ms).mark)

    answer = await node.claim(value, tick_ms, run="r1.2", instead="r1")

    known = server.client.hgetall(stored("tick"))
    assert isinstance(answer, TickClaimed)
    assert (known["ran"], {field for field in known if field.startswith("run:")}) == ("1", {"run:r1.2"})
    assert await node.claim(value, tick_ms, run="r1.2", instead="r1") == answer


@pytest.mark.parametrize("keep", [pytest.param(100, id="while history knows it"), pytest.param(1, id="and after it")])
async def test_a_late_copy_of_another_attempts_claim_is_refused_when_it_has_ended(
    server: Server, node: Node, keep: int
) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    await node.claim(value, tick_ms, run="r1.2", instead="r1")
    await node.record(value.token, "{}", run="r1.2", keep=keep)
    await node.record(value.token, '{"of":"another tick"}', run="r9", keep=keep)

    assert refusal(await node.claim(value, tick_ms, run="r1.2", instead="r1")) == ("duplicate", tick_ms)


async def test_another_attempt_goes_on_though_redis_lost_its_memory(server: Server, node: Node) -> None:
    """The holder remembers the run that failed, and nobody else got the lease."""
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    await node.claim(value, tick_ms)
    server.client.flushall()
    await node.renew(value)

    assert isinstance(await node.claim(value, tick_ms, run="r1.2", instead="r1"), TickClaimed)


# Many at once


async def test_claims_of_one_call_do_not_disturb_each_other(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    tick_ms = server.server_ms() + 500
    server.client.rpush(stored("tick", "broken"), "x")
    server.client.set(stored("lease", "broken"), str(value))

    def claiming(key: str, run: str, tick_ms: int) -> ClaimTick:
        return node.claiming(value, tick_ms, run, key=key, job=JobName(key))

    requests = [claiming(JOB, "r1", tick_ms - 2), claiming("broken", "b1", tick_ms), claiming("nobodys", "n1", tick_ms)]
    requests += [claiming(JOB, "r2", tick_ms - 1), claiming(JOB, "r2x", tick_ms - 1)]
    answers = await node.store.serve(requests)

    assert [type(answer).__name__ for answer in answers] == [
        "TickClaimed", "TickClaimed", "TickRefused", "TickClaimed", "TickRefused",
    ]  # fmt: skip
    assert refusal(answers[4]) == ("duplicate", tick_ms - 1)


async def test_a_mark_is_kept_letter_by_letter(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    mark = mark_of(OpenRun(RunId("r1"), None, value.token, NodeName('n"|\\{é'), 1, "manual"))

    assert isinstance(await node.claim(value, 5, order_ms=5, mark=mark), TickClaimed)
    assert server.client.hget(stored("tick"), "run:r1") == mark
