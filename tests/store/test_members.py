import json
from collections.abc import Mapping

import pytest

from orchestrator.core.answers import ClusterLeft, IntentsRestored, MembersSeen, NameRefused, StoreAnswer
from orchestrator.core.nouns import Intent, JobName, Member, NodeName
from orchestrator.core.requests import RestoreIntents
from tests.servers import Server
from tests.store.node import ASKED_AT, TTL_MS, Node

NODES = "orchestrator:{shop:m}:nodes"
HEADS = "orchestrator:{shop:m}:heads"
INFOS = "orchestrator:{shop:m}:infos"
A, B = JobName("a"), JobName("b")
DAY_MS = 24 * 3_600_000


def seen(answer: StoreAnswer) -> MembersSeen:
    assert isinstance(answer, MembersSeen), answer
    return answer


def members(answer: StoreAnswer) -> dict[str, Member]:
    return {member.name: member for member in seen(answer).members}


def intent(at_ms: int, want: str = "stopped") -> Intent:
    return Intent(want, "me@here", "because", at_ms)


async def restore(node: Node, version: int, intents: Mapping[JobName, Intent]) -> int:
    answer = await node.ask(RestoreIntents(version, intents, ASKED_AT))
    assert isinstance(answer, IntentsRestored)
    return answer.version


async def test_live_nodes_see_each_other_with_what_they_say(node: Node, other: Node) -> None:
    await node.keep(info='{"host":"a","pid":1}')

    found = members(await other.keep(info='{"host":"b","jobs":{"x":"k"}}'))

    assert found.keys() == {"n1", "n2"}
    assert found["n1"].info == {"host": "a", "pid": 1}
    assert found["n2"].info == {"host": "b", "jobs": {"x": "k"}}


async def test_an_incarnation_keeps_the_time_at_which_it_joined(node: Node) -> None:
    first = seen(await node.keep())

    again = seen(await node.keep())

    assert again.members[0].since_ms == first.server_ms
    assert again.server_ms >= first.server_ms


async def test_what_a_member_says_is_fetched_only_when_it_changed(server: Server, node: Node, other: Node) -> None:
    await node.keep()
    await other.keep()
    fetched = server.client.info("commandstats")["cmdstat_hmget"]["calls"]

    await other.keep()
    assert server.client.info("commandstats")["cmdstat_hmget"]["calls"] == fetched

    await node.keep(info='{"host":"new"}')
    assert members(await other.keep())["n1"].info == {"host": "new"}


async def test_a_dead_member_is_not_seen_and_its_name_is_free(server: Server, node: Node, other: Node) -> None:
    await node.keep()
    server.client.zadd(NODES, {"n1": server.server_ms() - 1})

    assert members(await other.keep()).keys() == {"n2"}
    assert members(await node.keep(incarnation="i9"))["n1"].incarnation == "i9"


async def test_a_member_that_is_long_dead_is_forgotten(server: Server, node: Node, other: Node) -> None:
    await node.keep()
    server.client.zadd(NODES, {"n1": server.server_ms() - DAY_MS - 1})

    await other.keep()

    assert server.client.hkeys(HEADS) == server.client.hkeys(INFOS) == ["n2"]


@pytest.mark.parametrize(
    ("state_id", "same"),
    [pytest.param("state1", True, id="our own past or a copy"), pytest.param("state2", False, id="a stranger")],
)
async def test_a_name_that_lives_is_refused(node: Node, state_id: str, same: bool) -> None:
    await node.keep(info='{"host":"web1","pid":42}')

    answer = await node.keep(incarnation="i9", state_id=state_id)

    assert isinstance(answer, NameRefused)
    assert (answer.node, answer.incarnation, answer.other) == ("n1", "i1", "web1:42")
    assert answer.same_state is same
    assert TTL_MS - 1000 < answer.left_ms <= TTL_MS


async def test_a_clock_that_was_set_back_keeps_no_dead_name_alive(server: Server, node: Node, other: Node) -> None:
    """Expiries are server times: one that is further off than a ttl is cut down to it."""
    await node.keep()
    server.client.zadd(NODES, {"n1": server.server_ms() + DAY_MS})

    await other.keep()

    assert server.client.zscore(NODES, "n1") <= server.server_ms() + TTL_MS


async def test_a_node_leaves_at_once(node: Node, other: Node) -> None:
    await node.keep()

    assert await node.leave() == ClusterLeft(ASKED_AT)
    assert members(await other.keep()).keys() == {"n2"}


async def test_a_node_cannot_make_its_successor_leave(node: Node) -> None:
    await node.keep()
    await node.leave()
    await node.keep(incarnation="i9")

    await node.leave()

    assert isinstance(await node.keep(incarnation="i10"), NameRefused)


async def test_no_order_is_version_zero(node: Node) -> None:
    answer = seen(await node.keep())

    assert (answer.intents, answer.intents_version) == (None, 0)


async def test_intents_are_sent_only_when_newer(node: Node) -> None:
    await restore(node, 5, {A: intent(5)})

    assert seen(await node.keep(intents_known=4)).intents == {A: intent(5)}
    assert seen(await node.keep(intents_known=5)).intents is None


async def test_lost_intents_are_put_back_under_their_version(node: Node) -> None:
    assert await restore(node, 5, {A: intent(5)}) == 5
    assert seen(await node.keep()).intents_version == 5


async def test_an_order_given_after_the_loss_stands(node: Node) -> None:
    await restore(node, 9, {A: intent(9, "running")})

    version = await restore(node, 5, {A: intent(5), B: intent(4)})

    answer = seen(await node.keep(intents_known=9))
    assert version == answer.intents_version == 10
    assert answer.intents == {A: intent(9, "running"), B: intent(4)}


async def test_a_second_node_that_restores_the_same_changes_nothing(node: Node) -> None:
    await restore(node, 5, {A: intent(5)})

    assert await restore(node, 5, {A: intent(5)}) == 5


async def test_infos_that_are_no_json_are_empty(node: Node) -> None:
    assert members(await node.keep(info="[" * 100_000))["n1"].info == {}
    assert members(await node.keep(info=json.dumps([1])))["n1"].info == {}


async def test_a_lost_info_is_written_again(server: Server, node: Node, other: Node) -> None:
    await node.keep()
    server.client.delete(INFOS)
    await node.keep()

    assert members(await other.keep())["n1"].info == {"host": "h", "pid": 1}


async def test_a_mutilated_member_is_nobody(server: Server, node: Node) -> None:
    await node.keep()
    server.client.hset(HEADS, "ghost", "nonsense")
    server.client.zadd(NODES, {"ghost": server.server_ms() + 1000, "headless": server.server_ms() + 1000})

    assert members(await node.keep()).keys() == {NodeName("n1")}


async def test_intents_that_were_deleted_by_hand_are_lost_whatever_their_version_says(
    server: Server, node: Node
) -> None:
    await restore(node, 5, {A: intent(5)})
    server.client.delete("orchestrator:{shop:m}:intents")

    assert seen(await node.keep(intents_known=5)).intents_version == 0
    assert await restore(node, 5, {A: intent(5)}) > 5
