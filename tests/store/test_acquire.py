from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseGranted, LeaseRefused, LeaseRenewed, StoreSilent
from orchestrator.core.nouns import LeaseValue, NodeName, Token
from orchestrator.core.spec import bucket_of
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, KEYS, TTL_MS, Node, stored

HOUR_MS = 3_600_000


def refusal(answer: object) -> str:
    assert isinstance(answer, LeaseRefused), answer
    return answer.reason


async def test_a_free_lease_is_granted_with_the_servers_time_as_its_token(server: Server, node: Node) -> None:
    before_ms = server.server_ms()

    answer = await node.acquire()

    assert isinstance(answer, LeaseGranted)
    assert before_ms <= answer.token == answer.server_ms <= server.server_ms()
    assert (answer.adopted, answer.last_tick_ms, answer.asked_at) == (False, 0, ASKED_AT)
    assert server.client.get(stored("lease")) == f"{answer.token}|n1|i1"
    assert TTL_MS - 1000 < server.client.pttl(stored("lease")) <= TTL_MS


async def test_a_held_lease_is_refused_with_its_holder_and_what_is_left(node: Node, other: Node) -> None:
    value = await node.hold()

    answer = await other.acquire()

    assert isinstance(answer, LeaseRefused)
    assert (answer.reason, answer.value) == ("held", value)
    assert TTL_MS - 1000 < answer.wait_ms <= TTL_MS


async def test_an_acquire_whose_answer_was_lost_is_adopted_with_the_same_token(node: Node) -> None:
    value = await node.hold()

    answer = await node.acquire()

    assert isinstance(answer, LeaseGranted)
    assert (answer.token, answer.adopted) == (value.token, True)


async def test_a_token_that_was_run_already_is_replaced_in_place(node: Node) -> None:
    value = await node.hold()

    answer = await node.acquire(ran=value.token)

    assert isinstance(answer, LeaseGranted)
    assert answer.token > value.token
    assert not answer.adopted


async def test_our_own_lease_with_a_token_that_was_run_may_be_a_stale_replicas(node: Node) -> None:
    value = await node.hold()

    assert refusal(await node.acquire(ran=value.token, quarantined=True)) == "quarantine"
    assert refusal(await node.acquire(ran=value.token, seen=Token(value.token + 1))) == "vanished"


async def test_another_incarnation_of_the_same_node_is_a_stranger(node: Node) -> None:
    await node.hold()

    answer = await node.acquire(incarnation="i1-restarted")

    assert refusal(answer) == "held"


@pytest.mark.parametrize(
    ("last", "floor"),
    [
        pytest.param(HOUR_MS, 0, id="the clock was set back behind the last token"),
        pytest.param(None, HOUR_MS, id="data lost and the clock set back, but a node saw the old token"),
        pytest.param(2 * HOUR_MS, HOUR_MS, id="the last token is above what the node saw"),
    ],
)
async def test_a_new_token_is_above_every_one_known(server: Server, node: Node, last: int | None, floor: int) -> None:
    now_ms = server.server_ms()
    if last is not None:
        server.client.set(stored("token"), now_ms + last)

    value = await node.hold(floor=now_ms + floor if floor else 0)

    assert value.token == now_ms + max(last or 0, floor) + 1


async def test_a_token_of_more_than_15_digits_is_never_issued(node: Node) -> None:
    answer = await node.acquire(floor=Token(999_999_999_999_999))

    assert isinstance(answer, StoreSilent)
    assert "15 digits" in answer.problem


async def test_another_epoch_than_the_callers_refuses(server: Server, node: Node) -> None:
    answer = await node.acquire(epoch="1|a|b")

    assert refusal(answer) == "epoch"
    assert not server.client.exists(stored("lease"), stored("token"))


@pytest.mark.parametrize(
    "off_ms", [pytest.param(-1500, id="the server's clock is ahead"), pytest.param(1500, id="and behind")]
)
async def test_a_clock_that_is_not_what_the_caller_expects_refuses(server: Server, node: Node, off_ms: int) -> None:
    answer = await node.acquire(expected_ms=server.server_ms() + off_ms, tolerance_ms=1000)

    assert refusal(answer) == "clock"


async def test_a_vanished_lease_that_cannot_have_run_out_is_not_taken(server: Server, node: Node, other: Node) -> None:
    value = await node.hold(ttl_ms=1, longest_ttl_ms=1)
    server.client.delete(stored("lease"))

    answer = await other.acquire(seen=value.token, longest_ttl_ms=1)

    assert refusal(answer) == "vanished"


async def test_a_vanished_lease_with_a_young_token_is_left_for_the_longest_ttl(
    server: Server, node: Node, other: Node
) -> None:
    value = await node.hold()
    server.client.delete(stored("lease"))

    answer = await other.acquire(longest_ttl_ms=HOUR_MS)

    assert isinstance(answer, LeaseRefused)
    assert answer.reason == "young"
    assert answer.wait_ms == value.token + HOUR_MS - answer.server_ms


async def test_a_lease_that_was_put_back_lives_on_however_often_it_vanishes(
    server: Server, node: Node, other: Node
) -> None:
    value = await node.hold(floor=Token(0))
    old = Token(value.token - 10 * TTL_MS)
    server.client.set(stored("token"), old)  # its token is no longer young
    aged = replace(value, token=old)
    server.client.delete(stored("lease"))
    assert isinstance(await node.renew(aged), LeaseRenewed)
    server.client.delete(stored("lease"))

    answer = await other.acquire()

    assert isinstance(answer, LeaseRefused)
    assert answer.reason == "young"
    assert TTL_MS - 1000 < answer.wait_ms <= TTL_MS


async def test_a_lease_that_was_put_back_and_released_is_free(server: Server, node: Node, other: Node) -> None:
    value = await node.hold()
    server.client.delete(stored("lease"))
    await node.renew(value)
    await node.release(value)

    assert isinstance(await other.acquire(), LeaseGranted)


@pytest.mark.parametrize("trace", ["garbage", "99999999999999"], ids=["garbage", "far in the future"])
async def test_a_trace_that_cannot_be_right_blocks_nobody(server: Server, node: Node, trace: str) -> None:
    server.client.set(stored("token"), 1)
    server.client.set(stored("alive"), trace)

    assert isinstance(await node.acquire(), LeaseGranted)


async def test_a_token_from_the_future_says_nothing_about_its_age(server: Server, node: Node) -> None:
    server.client.set(stored("token"), server.server_ms() + 60_000)

    assert isinstance(await node.acquire(), LeaseGranted)


async def test_a_released_lease_is_taken_at_once_though_its_token_is_young(node: Node, other: Node) -> None:
    value = await node.hold()
    await node.release(value)

    answer = await other.acquire(seen=value.token)

    assert isinstance(answer, LeaseGranted)
    assert answer.token > value.token


async def test_quarantine_takes_nothing_that_was_not_released(node: Node) -> None:
    assert refusal(await node.acquire(quarantined=True)) == "quarantine"


async def test_quarantine_takes_what_was_released_under_this_epoch(node: Node, other: Node) -> None:
    await node.release(await node.hold())

    assert isinstance(await other.acquire(quarantined=True), LeaseGranted)


async def test_quarantine_does_not_trust_a_release_of_another_epoch(node: Node, other: Node) -> None:
    await node.release(await node.hold(), epoch="1|a|b")

    assert refusal(await other.acquire(quarantined=True)) == "quarantine"


async def test_quarantine_does_not_trust_a_release_of_an_older_token(server: Server, node: Node, other: Node) -> None:
    value = await node.hold()
    await node.release(value)
    server.client.set(stored("token"), value.token + 1)

    assert refusal(await other.acquire(quarantined=True)) == "quarantine"


async def test_a_lease_that_was_left_to_a_node_is_taken_by_that_node_only(node: Node, other: Node) -> None:
    await node.release(await node.hold(), next_node="n2", hint_ms=5000)

    answer = await node.acquire()

    assert isinstance(answer, LeaseRefused)
    assert answer.reason == "hint"
    assert 4000 < answer.wait_ms <= 5000
    assert isinstance(await other.acquire(), LeaseGranted)


async def test_a_hint_lapses(node: Node) -> None:
    await node.release(await node.hold(), next_node="n2", hint_ms=0)

    assert isinstance(await node.acquire(), LeaseGranted)


async def test_a_hint_beyond_a_ttl_is_of_another_clock_and_void(node: Node) -> None:
    await node.release(await node.hold(), next_node="n2", hint_ms=HOUR_MS)

    assert isinstance(await node.acquire(), LeaseGranted)


async def test_a_lease_without_an_expiry_gets_the_longest_ttl(server: Server, node: Node) -> None:
    server.client.set(stored("lease"), "5|by-hand|x")

    answer = await node.acquire(longest_ttl_ms=30_000)

    assert answer == LeaseRefused(
        JOB, "held", LeaseValue(Token(5), NodeName("by-hand"), "x"), 30_000, getattr(answer, "server_ms", 0), ASKED_AT
    )
    assert 29_000 < server.client.pttl(stored("lease")) <= 30_000


async def test_a_service_leaves_the_tick_key_alone(server: Server, node: Node) -> None:
    await node.hold()

    assert not server.client.exists(stored("tick"))


async def test_a_new_schedule_begins_now(node: Node) -> None:
    answer = await node.acquire(schedule="* * * * *@UTC")

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == answer.server_ms


async def test_a_known_schedule_goes_on_where_it_was(server: Server, node: Node) -> None:
    server.client.hset(stored("tick"), mapping={"schedule": "every 60s", "last": 1000})

    answer = await node.acquire(schedule="every 60s")

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == 1000


async def test_a_tick_claimed_after_a_loss_of_data_tells_where_to_go_on(server: Server, node: Node) -> None:
    server.client.hset(stored("tick"), mapping={"last": 1000})  # no schedule: that came with a grant, and is lost

    first = await node.acquire(schedule="every 60s")
    again = await node.acquire(schedule="every 60s")

    assert isinstance(first, LeaseGranted)
    assert isinstance(again, LeaseGranted)
    assert first.last_tick_ms == again.last_tick_ms == 1000


@pytest.mark.parametrize("adopted", [pytest.param(False, id="granted"), pytest.param(True, id="adopted")])
async def test_an_edited_schedule_never_fires_for_the_past(server: Server, node: Node, adopted: bool) -> None:
    if adopted:
        await node.hold()
    server.client.hset(stored("tick"), mapping={"schedule": "every 60s", "last": 1000})

    answer = await node.acquire(schedule="every 30s")

    assert isinstance(answer, LeaseGranted)
    assert (answer.adopted, answer.last_tick_ms) == (adopted, answer.server_ms)


async def test_an_edited_schedule_keeps_a_tick_that_was_claimed_ahead(server: Server, node: Node) -> None:
    ahead_ms = server.server_ms() + HOUR_MS
    server.client.hset(stored("tick"), mapping={"schedule": "every 60s", "last": ahead_ms})

    answer = await node.acquire(schedule="every 30s")

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == ahead_ms


async def test_a_server_whose_clock_is_ahead_does_not_silence_a_new_schedule(server: Server, node: Node) -> None:
    """Ticks are instants of the node's wall clock: "now" is the earlier of the two."""
    floor_ms = server.server_ms() - HOUR_MS

    answer = await node.acquire(schedule="every 60s", tick_floor_ms=floor_ms)

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == floor_ms


async def test_an_epoch_that_another_server_wrote_refuses_until_it_was_met(server: Server, node: Node) -> None:
    """A promoted replica brings the epoch that it copied, and perhaps older data than that epoch claims."""
    request = await node.acquiring()
    server.client.set(KEYS.epoch(bucket_of(JOB)), "1|word|elsewhere")

    assert refusal(await node.ask(replace(request, epoch="1|word|elsewhere"))) == "epoch"
    assert isinstance(await node.acquire(), LeaseGranted)
