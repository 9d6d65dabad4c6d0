"""Whatever people write under our keys: it counts as absent, aborts nothing, and is overwritten."""

from collections.abc import Callable

import pytest

from orchestrator.core.answers import (
    LeaseGranted,
    LeaseReleased,
    LeaseRenewed,
    LeaseSeen,
    MembersSeen,
    RunRecorded,
    StatePublished,
    SuccessesSeen,
    TickClaimed,
    TicksSettled,
    TriggerForgotten,
)
from orchestrator.core.nouns import JobName, LeaseValue, Token, Trigger
from orchestrator.core.requests import ForgetTrigger, LookAtSuccesses, RenewLease
from orchestrator.store.reader import StoreReader
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, TTL_MS, Node, stored

Break = Callable[[Server, str], object]


def _another_type(server: Server, key: str) -> None:
    server.client.delete(key)
    server.client.rpush(key, "x")


def _text(said: str | bytes) -> Break:
    return lambda server, key: server.client.set(key, said)


BREAKS = [
    pytest.param(_another_type, id="a list"),
    pytest.param(_text(""), id="empty"),
    pytest.param(_text("nonsense"), id="no lease value"),
    pytest.param(_text("12|n1"), id="a part is missing"),
    pytest.param(_text("9999999999999999|n1|i1"), id="too many digits"),
    pytest.param(_text("1e12|n1|i1"), id="digits of another kind"),
    pytest.param(_text(b"\xff\xfe|\x00|\xff"), id="no text"),
    pytest.param(_text("x" * 1_000_000), id="a megabyte"),
]


@pytest.mark.parametrize("spoil", BREAKS)
async def test_a_broken_lease_is_seen_as_malformed(server: Server, node: Node, spoil: Break) -> None:
    spoil(server, stored("lease"))

    assert await node.look() == LeaseSeen(JOB, None, malformed=True, left_ms=0, asked_at=ASKED_AT)


@pytest.mark.parametrize("spoil", BREAKS)
async def test_an_acquire_takes_what_is_broken_for_absent(server: Server, node: Node, spoil: Break) -> None:
    for part in ("lease", "token", "released", "tick"):
        spoil(server, stored(part))

    answer = await node.acquire(schedule="every 60s")

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == answer.server_ms
    assert server.client.get(stored("lease")) == f"{answer.token}|n1|i1"


@pytest.mark.parametrize("spoil", BREAKS)
async def test_a_renewal_puts_its_lease_back_over_what_is_broken(server: Server, node: Node, spoil: Break) -> None:
    value = await node.hold()
    for part in ("lease", "token", "released"):
        spoil(server, stored(part))

    answer = await node.renew(value)

    assert isinstance(answer, LeaseRenewed)
    assert answer.put_back
    assert server.client.get(stored("lease")) == str(value)


async def test_one_broken_lease_does_not_disturb_the_others_of_its_call(server: Server, node: Node) -> None:
    now_ms = server.server_ms()
    value = LeaseValue(Token(now_ms), node.name, node.incarnation)
    names = [f"j{i}" for i in range(64)]  # some four in each bucket
    requests = [RenewLease(JobName(name), name, value, TTL_MS, now_ms + TTL_MS, ASKED_AT) for name in names]
    await node.store.serve(requests)
    _another_type(server, stored("lease", "j7"))
    server.client.set(stored("lease", "j9"), b"\xff")

    answers = await node.store.serve(requests)

    put_back = {answer.job for answer in answers if isinstance(answer, LeaseRenewed) and answer.put_back}
    assert all(isinstance(answer, LeaseRenewed) for answer in answers)
    assert put_back == {"j7", "j9"}


@pytest.mark.parametrize("spoil", BREAKS)
async def test_runs_go_on_over_broken_keys(server: Server, node: Node, spoil: Break) -> None:
    value = await node.hold()
    for part in ("tick", "last", "state"):
        spoil(server, stored(part))

    assert isinstance(await node.claim(value, server.server_ms()), TickClaimed)
    assert isinstance(await node.record(value.token, "{}"), RunRecorded)
    assert await node.publish(value, "{}") == StatePublished(JOB, was_ours=True, asked_at=ASKED_AT)
    assert server.client.hget(stored("last"), "record") == "{}"


@pytest.mark.parametrize("spoil", BREAKS)
async def test_a_past_goes_on_over_broken_keys(server: Server, node: Node, spoil: Break) -> None:
    value = await node.hold()
    for part in ("tick", "history", "ages", "successes"):
        spoil(server, stored(part))

    assert isinstance(await node.claim(value, 77, order_ms=77), TickClaimed)
    assert isinstance(await node.claim(value, 78, run="r2", instead="r1"), TickClaimed)
    for part in ("tick", "history", "ages", "successes"):
        spoil(server, stored(part))
    assert isinstance(await node.settle(value, server.server_ms()), TicksSettled)
    for part in ("tick", "history", "ages", "successes"):
        spoil(server, stored(part))
    assert await node.ask(LookAtSuccesses(JOB, JOB, 0, ASKED_AT)) == SuccessesSeen(JOB, (), ASKED_AT)
    record = await node.record(value.token, "{}", failures=1, success_of=(JOB,))

    assert isinstance(record, RunRecorded)
    assert server.client.hget(stored("tick"), "failures") == "1"
    assert server.client.hget(stored("history"), "r1") == "{}"
    assert (
        len(server.client.zrange(stored("ages"), 0, -1)) == len(server.client.zrange(stored("successes"), 0, -1)) == 1
    )


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param("", id="empty"),
        pytest.param("nonsense", id="no number"),
        pytest.param("-5", id="less than nothing"),
        pytest.param("9999999999999999", id="too many digits"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param("x" * 1_000_000, id="a megabyte"),
    ],
)
async def test_what_a_cron_counts_begins_anew_where_it_is_broken(
    server: Server, node: Node, broken: str | bytes
) -> None:
    value = await node.hold(schedule="every 60s")
    fields = ("ran", "skipped", "failures", "failed", "obeyed", "run:r0")
    server.client.hset(stored("tick"), mapping=dict.fromkeys(fields, broken))

    assert isinstance(await node.claim(value, server.server_ms() + 200), TickClaimed)
    assert isinstance(await node.claim(value, 77, run="m1", order_ms=77), TickClaimed)
    assert isinstance(await node.settle(value, server.server_ms() + 500), TicksSettled)

    answer = await node.acquire(schedule="every 60s")
    assert isinstance(answer, LeaseGranted)
    assert (answer.failures, answer.failed_ms, answer.obeyed_ms) == (0, 0, 77)
    assert {run.run for run in answer.open} == {"r1", "m1"}
    assert server.client.hmget(stored("tick"), "ran", "skipped") == ["1", "1"]


@pytest.mark.parametrize("spoil", BREAKS)
async def test_triggers_are_forgotten_and_given_over_broken_intents(server: Server, node: Node, spoil: Break) -> None:
    reader = StoreReader(server.url, cluster="shop")
    for name in ("intents", "intents-version"):
        spoil(server, f"orchestrator:{{shop:m}}:{name}")

    assert await node.ask(ForgetTrigger(5, ASKED_AT)) == TriggerForgotten(5, ASKED_AT)
    order_ms = await reader.trigger(Trigger(JOB, 0, None, "me", ""))

    answer = await node.keep()
    assert isinstance(answer, MembersSeen)
    assert [trigger.order_ms for trigger in answer.triggers] == [order_ms]
    await reader.close()


@pytest.mark.parametrize("spoil", BREAKS)
async def test_a_release_leaves_its_note_over_a_broken_one(server: Server, node: Node, spoil: Break) -> None:
    value = await node.hold()
    spoil(server, stored("released"))

    assert await node.release(value) == LeaseReleased(JOB, value.token, was_ours=True, asked_at=ASKED_AT)
    assert server.client.get(stored("released")).startswith(f"{value.token}||")


@pytest.mark.parametrize("spoil", BREAKS)
async def test_membership_heals(server: Server, node: Node, spoil: Break) -> None:
    for name in ("nodes", "heads", "infos", "intents", "intents-version"):
        spoil(server, f"orchestrator:{{shop:m}}:{name}")

    answer = await node.keep()

    assert isinstance(answer, MembersSeen)
    assert [member.info for member in answer.members] == [{"host": "h", "pid": 1}]


async def test_broken_ticks_never_fire_for_the_past(server: Server, node: Node) -> None:
    server.client.hset(stored("tick"), mapping={"schedule": "every 60s", "last": "nonsense"})

    answer = await node.acquire(schedule="every 60s")

    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == answer.server_ms


@pytest.mark.parametrize("ahead_ms", [86_500_000, 900_000_000_000_000 - 1_800_000_000_000], ids=["a day", "15 digits"])
async def test_instants_of_a_future_that_nobody_can_have_seen_silence_no_job(
    server: Server, node: Node, ahead_ms: int
) -> None:
    value = await node.hold(schedule="every 60s")
    far = str(server.server_ms() + ahead_ms)
    server.client.hset(stored("tick"), mapping={"last": far, "obeyed": far})

    assert isinstance(await node.claim(value, server.server_ms() + 200), TickClaimed)
    server.client.hset(stored("tick"), mapping={"last": far, "obeyed": far})
    assert isinstance(await node.settle(value, server.server_ms() + 300), TicksSettled)
    assert isinstance(await node.claim(value, 77, run="m1", order_ms=server.server_ms()), TickClaimed)
    server.client.hset(stored("tick"), mapping={"last": far, "obeyed": far, "failed": far})

    answer = await node.acquire(schedule="every 60s")
    assert isinstance(answer, LeaseGranted)
    assert answer.last_tick_ms == answer.server_ms
    assert (answer.failed_ms, answer.obeyed_ms) == (0, 0)


async def test_intents_of_another_type_do_not_silence_the_members(server: Server, node: Node) -> None:
    server.client.set("orchestrator:{shop:m}:intents-version", "5")
    server.client.set("orchestrator:{shop:m}:intents", "nonsense")

    answer = await node.keep()

    assert isinstance(answer, MembersSeen)
    assert (answer.intents, answer.intents_version) == (None, 0)
