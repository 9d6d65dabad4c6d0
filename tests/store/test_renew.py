from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseLost, LeaseRenewed, LeaseSeen, RenewalLate
from orchestrator.core.nouns import JobName, LeaseValue, NodeName, Token
from orchestrator.core.requests import LookAtLease, RenewLease
from orchestrator.store.calls import MAX_LEASES_A_CALL
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, TTL_MS, Node, stored


async def test_a_renewal_moves_the_end(server: Server, node: Node) -> None:
    value = await node.hold(ttl_ms=1000)

    answer = await node.renew(value, ttl_ms=30_000)

    assert answer == LeaseRenewed(JOB, value.token, getattr(answer, "server_ms", 0), put_back=False, asked_at=ASKED_AT)
    assert 29_000 < server.client.pttl(stored("lease")) <= 30_000


async def test_a_lease_that_another_node_holds_is_lost(node: Node, other: Node) -> None:
    theirs = await other.hold()

    answer = await node.renew(LeaseValue(Token(5), node.name, node.incarnation))

    assert isinstance(answer, LeaseLost)
    assert answer.why == f"node n2 holds it with token {theirs.token}"


async def test_our_own_newer_token_is_another_lease(node: Node) -> None:
    value = await node.hold()

    assert isinstance(await node.renew(replace(value, token=Token(value.token - 1))), LeaseLost)


async def test_a_vanished_lease_is_put_back_with_the_same_token(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.flushall()

    answer = await node.renew(value)

    assert isinstance(answer, LeaseRenewed)
    assert answer.put_back
    assert server.client.get(stored("lease")) == str(value)
    assert server.client.get(stored("token")) == str(value.token)
    assert 0 < server.client.pttl(stored("lease")) <= TTL_MS


async def test_a_vanished_lease_is_not_put_back_over_a_newer_token(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.delete(stored("lease"))
    server.client.set(stored("token"), value.token + 1)

    answer = await node.renew(value)

    assert isinstance(answer, LeaseLost)
    assert answer.why == f"token {value.token + 1} was issued"
    assert not server.client.exists(stored("lease"))


async def test_a_late_renewal_does_not_bring_back_what_was_released(server: Server, node: Node) -> None:
    value = await node.hold()
    await node.release(value)

    answer = await node.renew(value)

    assert answer == LeaseLost(JOB, value.token, "it was released", ASKED_AT)
    assert not server.client.exists(stored("lease"))


async def test_a_renewal_past_its_end_changes_nothing(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.delete(stored("lease"))

    answer = await node.renew(value, not_after_ms=server.server_ms() - 1)

    assert isinstance(answer, RenewalLate)
    assert not server.client.exists(stored("lease"))


async def test_each_lease_of_a_call_has_its_own_end(server: Server, node: Node) -> None:
    now_ms = server.server_ms()
    value = LeaseValue(Token(now_ms), node.name, node.incarnation)

    answers = await node.store.serve(
        [
            RenewLease(JobName("a"), "same", value, TTL_MS, now_ms - 1, ASKED_AT),
            RenewLease(JobName("b"), "same", value, TTL_MS, now_ms + TTL_MS, ASKED_AT),
        ]
    )

    assert [type(answer) for answer in answers] == [RenewalLate, LeaseRenewed]


@pytest.mark.parametrize("count", [pytest.param(20, id="some"), pytest.param(3 * MAX_LEASES_A_CALL, id="many")])
async def test_answers_come_in_the_order_of_the_requests(server: Server, node: Node, count: int) -> None:
    now_ms = server.server_ms()
    values = [LeaseValue(Token(now_ms + i), node.name, node.incarnation) for i in range(count)]
    renewals = [
        RenewLease(JobName(f"j{i}"), f"j{i}", value, TTL_MS, now_ms + TTL_MS, ASKED_AT)
        for i, value in enumerate(values)
    ]
    looks = [LookAtLease(JobName(f"j{i}"), f"j{i}", ASKED_AT) for i in range(count)]
    mixed = [request for pair in zip(renewals, looks, strict=True) for request in pair]

    answers = await node.store.serve(mixed)

    assert [answer.job for answer in answers[::2] if isinstance(answer, LeaseRenewed)] == [r.job for r in renewals]
    assert [answer.value for answer in answers[1::2] if isinstance(answer, LeaseSeen)] == values


async def test_all_leases_of_one_bucket_go_in_chunks(server: Server, node: Node) -> None:
    """One call for thousands of leases would stop the server for everybody."""
    now_ms = server.server_ms()
    value = LeaseValue(Token(now_ms), node.name, node.incarnation)
    requests = [RenewLease(JOB, JOB, value, TTL_MS, now_ms + TTL_MS, ASKED_AT)] * (2 * MAX_LEASES_A_CALL + 1)
    await node.store.serve(requests[:1])
    calls = server.client.info("commandstats")["cmdstat_evalsha"]["calls"]

    answers = await node.store.serve(requests)

    assert len(answers) == len(requests)
    assert server.client.info("commandstats")["cmdstat_evalsha"]["calls"] == calls + 3


async def test_no_requests_cost_no_round_trip(node: Node) -> None:
    assert await node.store.serve([]) == []


async def test_a_look_shows_holder_and_what_is_left(node: Node, other: Node) -> None:
    value = await node.hold()

    answer = await other.look()

    assert isinstance(answer, LeaseSeen)
    assert (answer.value, answer.malformed) == (value, False)
    assert TTL_MS - 1000 < answer.left_ms <= TTL_MS


async def test_a_look_tells_a_lease_without_an_expiry(server: Server, node: Node) -> None:
    server.client.set(stored("lease"), "5|n9|i9")

    value = LeaseValue(Token(5), NodeName("n9"), "i9")
    assert await node.look() == LeaseSeen(JOB, value, malformed=False, left_ms=-1, asked_at=ASKED_AT)


async def test_a_look_at_nothing_sees_nothing(node: Node) -> None:
    assert await node.look() == LeaseSeen(JOB, None, malformed=False, left_ms=0, asked_at=ASKED_AT)
