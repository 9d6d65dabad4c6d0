"""Orders to run a cron once: they stand among the intents, each is given once and forgotten when it was obeyed."""

import json
from collections.abc import AsyncIterator

import pytest

from orchestrator.core.answers import MembersSeen, OrderGiven, TriggerForgotten
from orchestrator.core.nouns import Intent, JobName, Trigger
from orchestrator.core.requests import ForgetTrigger, GiveOrder, RestoreIntents
from orchestrator.errors import StoreUnreachableError
from orchestrator.store.intents import LONGEST_INTENT
from orchestrator.store.reader import StoreReader
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, Node

INTENTS = "orchestrator:{shop:m}:intents"
VERSION = "orchestrator:{shop:m}:intents-version"
RUN_IT = Trigger(JOB, 0, 60_000, "me@here", "a bill is missing")
STOP, PAUSE, START = (Intent(want, "me", "", 0) for want in ("stopped", "paused", "running"))


@pytest.fixture
async def reader(server: Server) -> AsyncIterator[StoreReader]:
    reader = StoreReader(server.url, cluster="shop")
    yield reader
    await reader.close()


async def seen(node: Node, known: int = 0) -> MembersSeen:
    answer = await node.keep(intents_known=known)
    assert isinstance(answer, MembersSeen)
    return answer


async def test_a_trigger_reaches_the_nodes(server: Server, node: Node, reader: StoreReader) -> None:
    before_ms = server.server_ms()

    order_ms = await reader.trigger(RUN_IT)

    answer = await seen(node)
    assert before_ms <= order_ms <= server.server_ms()
    assert answer.triggers == (Trigger(JOB, order_ms, 60_000, "me@here", "a bill is missing"),)
    assert (answer.intents, answer.intents_version) == ({}, order_ms)


async def test_triggers_are_told_oldest_first_and_only_when_newer(node: Node, reader: StoreReader) -> None:
    given = [await reader.trigger(RUN_IT) for _ in range(12)]

    answer = await seen(node)

    assert [trigger.order_ms for trigger in answer.triggers] == given == sorted(set(given))
    assert (await seen(node, known=given[-1])).triggers == ()


async def test_triggers_and_standing_orders_share_one_version(node: Node, reader: StoreReader) -> None:
    order_ms = await reader.trigger(RUN_IT)
    at_ms = await reader.order([JOB], STOP)
    last_ms = await reader.trigger(RUN_IT)

    answer = await seen(node)

    assert order_ms < at_ms < last_ms == answer.intents_version
    assert answer.intents is not None
    assert answer.intents.keys() == {JOB}
    assert len(answer.triggers) == 2
    assert (await reader.read({})).intents.keys() == {JOB}


async def test_a_trigger_is_forgotten(node: Node, reader: StoreReader) -> None:
    first, second = await reader.trigger(RUN_IT), await reader.trigger(RUN_IT)

    for _ in range(2):
        assert await node.ask(ForgetTrigger(first, ASKED_AT)) == TriggerForgotten(first, ASKED_AT)

    assert [trigger.order_ms for trigger in (await seen(node)).triggers] == [second]


async def test_nobody_takes_the_last_forgotten_trigger_for_lost_orders(node: Node, reader: StoreReader) -> None:
    order_ms = await reader.trigger(RUN_IT)

    await node.ask(ForgetTrigger(order_ms, ASKED_AT))

    assert (await seen(node)).intents_version == order_ms


async def test_triggers_are_not_put_back_after_a_loss(server: Server, node: Node, reader: StoreReader) -> None:
    """Whether one was obeyed before the loss is not known: at most once."""
    order_ms = await reader.trigger(RUN_IT)
    server.client.flushall()

    await node.ask(RestoreIntents(order_ms, {JobName("mail"): Intent("stopped", "me", "", 5)}, ASKED_AT))

    answer = await seen(node)
    assert (answer.triggers, answer.intents_version) == ((), order_ms)


async def test_a_trigger_that_nobody_obeyed_for_ten_minutes_is_dropped(
    server: Server, node: Node, reader: StoreReader
) -> None:
    old_ms = server.server_ms() - 600_000
    words = json.dumps({"job": JOB, "tick": None, "who": "", "why": ""})
    server.client.hset(INTENTS, f"!{old_ms}", f"{old_ms}|{words}")

    order_ms = await reader.trigger(RUN_IT)

    assert [trigger.order_ms for trigger in (await seen(node)).triggers] == [order_ms]


async def test_no_more_triggers_are_taken_than_can_be_told(server: Server, reader: StoreReader) -> None:
    now_ms = server.server_ms()
    server.client.hset(INTENTS, mapping={f"!{now_ms - n}": "x" for n in range(1000)})

    with pytest.raises(StoreUnreachableError, match="1000 triggers wait for their runs: no more are taken"):
        await reader.trigger(RUN_IT)


async def test_forged_triggers_are_not_told_and_make_room(server: Server, node: Node, reader: StoreReader) -> None:
    now_ms = server.server_ms()
    server.client.hset(INTENTS, mapping={f"!{n}{now_ms}": "x" for n in range(1, 1500)})
    right = json.dumps({"job": JOB, "tick": None, "who": "", "why": ""})
    forged: dict[str, str | bytes] = {
        "!": "x",
        "!x": f"x|{right}",
        "!-5": f"-5|{right}",
        "!1": f"2|{right}",
        "!2": "2|nonsense",
        "!3": f'3|{{"job":"{JOB}","tick":1e999,"who":"","why":""}}',
        "!4": "4|" + "[" * 50_000,
        "!5": b"5|\xff",
        "!6": "6|[]",
        "!7": f'7|{{"job":"{JOB}"}}',
    }
    server.client.hset(INTENTS, mapping=forged)

    order_ms = await reader.trigger(RUN_IT)
    server.client.hset(INTENTS, mapping=forged)

    answer = await seen(node)
    assert [trigger.order_ms for trigger in answer.triggers] == [order_ms]
    assert answer.intents == {}


async def test_a_long_reason_of_a_trigger_is_cut(server: Server, node: Node, reader: StoreReader) -> None:
    order_ms = await reader.trigger(Trigger(JOB, 0, None, "\N{PILE OF POO}" * 5000, "\N{PILE OF POO}" * 5000))

    (trigger,) = (await seen(node)).triggers
    assert trigger.why.startswith("\N{PILE OF POO}")
    assert len(server.client.hget(INTENTS, f"!{order_ms}")) <= LONGEST_INTENT + 20


async def test_a_trigger_nudges(server: Server, reader: StoreReader) -> None:
    listener = server.client.pubsub()
    listener.subscribe("orchestrator:{shop:m}:nudge")
    assert listener.get_message(timeout=2)["type"] == "subscribe"

    await reader.trigger(RUN_IT)

    assert listener.get_message(timeout=2)["data"] == ""
    listener.close()


# Standing orders: since when was a job off?


async def test_an_order_to_run_tells_since_when_the_job_was_off(reader: StoreReader) -> None:
    mail = JobName("mail")
    stopped_ms = await reader.order([JOB], STOP)
    paused_ms = await reader.order([mail], PAUSE)

    await reader.order([JOB, mail, JobName("other")], START)

    intents = (await reader.read({})).intents
    assert [intents[JobName(job)].off_ms for job in (JOB, "mail", "other")] == [stopped_ms, paused_ms, 0]


async def test_a_job_that_was_stopped_twice_is_off_since_the_first(reader: StoreReader) -> None:
    first_ms = await reader.order([JOB], STOP)
    await reader.order([JOB], PAUSE)
    await reader.order([JOB], STOP)

    await reader.order([JOB], START)

    assert (await reader.read({})).intents[JOB].off_ms == first_ms


async def test_a_job_that_runs_already_was_not_off(reader: StoreReader) -> None:
    await reader.order([JOB], STOP)
    await reader.order([JOB], START)

    await reader.order([JOB], START)

    assert (await reader.read({})).intents[JOB].off_ms == 0


async def test_to_catch_up_is_said_with_the_order(node: Node, reader: StoreReader) -> None:
    await reader.order([JOB], Intent("running", "me", "", 0, catch_up=True))

    intents = (await seen(node)).intents
    assert intents is not None
    assert intents[JOB].catch_up


async def test_what_an_order_says_is_put_back_whole(node: Node, reader: StoreReader) -> None:
    known = {JOB: Intent("running", "me", "", 9, off_ms=5, catch_up=True)}

    await node.ask(RestoreIntents(9, known, ASKED_AT))

    assert (await reader.read({})).intents == known


@pytest.mark.parametrize(
    "standing",
    [
        pytest.param("nonsense", id="no order"),
        pytest.param('5|"stopped"', id="no words"),
        pytest.param("5|" + "[" * 4000, id="nested deeply"),
        pytest.param('5555555555555555|{"want":"stopped"}', id="an instant beyond all time"),
        pytest.param('0|{"want":"running","off_ms":7}', id="an order to run"),
    ],
)
async def test_since_when_is_not_taken_from_a_broken_order(server: Server, reader: StoreReader, standing: str) -> None:
    server.client.hset(INTENTS, JOB, standing)

    await reader.order([JOB], START)

    assert (await reader.read({})).intents[JOB].off_ms == 0


async def test_since_when_is_never_later_than_the_order_that_says_it(server: Server, reader: StoreReader) -> None:
    server.client.hset(INTENTS, JOB, '5|{"want":"paused","who":"","why":"","off_ms":1e300}')

    await reader.order([JOB], START)

    assert (await reader.read({})).intents[JOB].off_ms == 5


async def test_a_node_gives_an_order_in_its_own_name(server: Server, node: Node) -> None:
    answer = await node.ask(GiveOrder(JOB, Intent("paused", "n1", "5 failures in a row", 0), ASKED_AT))

    assert isinstance(answer, OrderGiven)
    told = await seen(node)
    assert told.intents == {JOB: Intent("paused", "n1", "5 failures in a row", answer.at_ms)}
    assert server.client.get(VERSION) == str(answer.at_ms)
