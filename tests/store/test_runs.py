"""Records of ended runs, and what the holder shows of a job."""

import pytest

from orchestrator.core.answers import LeaseGranted, RunRecorded, StatePublished, SuccessesSeen
from orchestrator.core.nouns import JobName, LeaseValue, NodeName, RunId, Token
from orchestrator.core.requests import LookAtSuccesses
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, Node, stored

SCHEDULE = "every 60s"
MAIL = JobName("mail")


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


async def test_what_the_node_of_a_run_says_stands_over_what_a_successor_says(server: Server, node: Node) -> None:
    await node.record(7, '{"outcome":"lost"}', witness=False)
    await node.record(7, '{"outcome":"ok"}')
    await node.record(7, '{"outcome":"lost"}', witness=False)

    assert server.client.hget(stored("last"), "record") == '{"outcome":"ok"}'
    assert server.client.hget(stored("history"), "r1") == '{"outcome":"ok"}'


async def test_a_repeated_record_changes_nothing(server: Server, node: Node) -> None:
    await node.record(7, "first", failures=2, success_of=(MAIL,))
    await node.record(7, "second", run="r2", failures=0)
    before = everything(server)

    await node.record(7, "first", failures=2, success_of=(MAIL,))

    assert everything(server) == before


def everything(server: Server) -> dict[str, object]:
    with server.raw_client() as raw:
        return {key: raw.dump(key) for key in sorted(raw.keys())}


async def test_failures_are_told_to_the_next_holder(server: Server, node: Node, other: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    before_ms = server.server_ms()
    await node.record(value.token, "{}", failures=3)
    await node.release(value)

    answer = await other.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert answer.failures == 3
    assert before_ms <= answer.failed_ms <= server.server_ms()


async def test_failures_are_counted_by_the_newest_holder(server: Server, node: Node) -> None:
    await node.record(8, "{}", run="r2", failures=0)
    await node.record(7, "{}", run="r1", failures=3)

    assert server.client.hget(stored("tick"), "failures") == "0"


# Open runs


async def test_a_record_closes_its_run(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    await node.claim(value, server.server_ms() + 500)

    await node.record(value.token, "{}")

    assert not server.client.hexists(stored("tick"), "run:r1")


async def test_a_run_that_is_tried_again_stays_open_over_a_failover(server: Server, node: Node, other: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    claim = node.claiming(value, server.server_ms() + 500)
    await node.ask(claim)
    mark = claim.mark.replace('"retry":0', '"retry":99')
    await node.record(value.token, "{}", mark=mark)
    await node.release(value)

    answer = await other.acquire(schedule=SCHEDULE)

    assert isinstance(answer, LeaseGranted)
    assert [(run.run, run.retry_ms) for run in answer.open] == [("r1", 99)]


async def test_a_late_record_does_not_open_what_was_closed(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    claim = node.claiming(value, server.server_ms() + 500)
    await node.ask(claim)
    await node.record(value.token, '{"outcome":"lost"}', witness=False)

    await node.record(value.token, '{"outcome":"failed"}', mark=claim.mark)

    assert not server.client.hexists(stored("tick"), "run:r1")


async def test_a_late_record_does_not_close_what_a_newer_holder_keeps_open(server: Server, node: Node) -> None:
    value = await node.hold(schedule=SCHEDULE)
    claim = node.claiming(value, server.server_ms() + 500)
    await node.ask(claim)
    theirs = claim.mark.replace(str(value.token), str(value.token + 1))
    await node.record(value.token + 1, '{"outcome":"lost"}', witness=False, mark=theirs)

    await node.record(value.token, '{"outcome":"ok"}')

    assert server.client.hget(stored("tick"), "run:r1") == theirs


async def test_a_run_whose_mark_was_broken_is_closed_all_the_same(server: Server, node: Node) -> None:
    server.client.hset(stored("tick"), "run:r1", "nonsense")

    await node.record(7, "{}")

    assert not server.client.exists(stored("tick"))


# Successes


async def successes(node: Node, after_ms: int = 0) -> tuple[int, ...]:
    answer = await node.ask(LookAtSuccesses(MAIL, JOB, after_ms, ASKED_AT))
    assert isinstance(answer, SuccessesSeen)
    assert answer.job == MAIL
    return answer.at_ms


async def test_a_success_is_found_by_the_jobs_that_wait_for_it(server: Server, node: Node) -> None:
    before_ms = server.server_ms()
    await node.record(7, "{}", run="r1", success_of=(MAIL,))
    await node.record(7, "{}", run="r2", success_of=(MAIL,))

    first, second = await successes(node)

    assert before_ms <= first < second
    assert await successes(node, after_ms=first) == (second,)
    assert await successes(node, after_ms=second) == ()


async def test_a_success_that_is_told_again_is_the_same_one(node: Node) -> None:
    await node.record(7, "{}", success_of=(MAIL,), keep=1)
    await node.record(7, "{}", run="r2", keep=1)
    known = await successes(node)

    await node.record(7, "{}", success_of=(MAIL,), keep=1)

    assert await successes(node) == known


async def test_only_the_newest_hundred_successes_are_kept(server: Server, node: Node) -> None:
    for number in range(103):
        await node.record(7, "{}", run=f"r{number}", success_of=(MAIL,))

    assert len(await successes(node)) == 100
    assert server.client.zrange(stored("successes"), 0, 0) == ["r3"]


async def test_a_success_nudges_those_who_wait_for_it(server: Server, node: Node) -> None:
    listener = server.client.pubsub()
    listener.subscribe("orchestrator:{shop:m}:nudge")
    assert listener.get_message(timeout=2)["type"] == "subscribe"

    await node.record(7, "{}", success_of=(MAIL, JobName("report")))
    await node.record(7, "{}", success_of=(MAIL, JobName("report")))

    assert [listener.get_message(timeout=2)["data"] for _ in range(2)] == ["mail", "report"]
    assert listener.get_message(timeout=0) is None
    listener.close()


async def test_a_success_dated_by_hand_does_not_hide_the_later_ones(server: Server, node: Node) -> None:
    server.client.zadd(stored("successes"), {"forged": float("inf"), "far": 1e17})

    await node.record(7, "{}", success_of=(MAIL,))

    assert len(await successes(node)) == 1


# States


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
