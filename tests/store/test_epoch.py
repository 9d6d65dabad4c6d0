from collections.abc import Callable

from orchestrator.core.answers import ServerMet
from orchestrator.core.nouns import Bucket
from orchestrator.core.requests import MeetServer
from tests.servers import Server
from tests.store.node import ASKED_AT, Node

BUCKET = Bucket(3)
EPOCH = "orchestrator:{shop:3}:epoch"


async def meet(node: Node) -> ServerMet:
    answer = await node.ask_until_answered(MeetServer(BUCKET, ASKED_AT))
    assert isinstance(answer, ServerMet)
    return answer


async def test_the_first_to_meet_a_server_writes_its_epoch(server: Server, node: Node) -> None:
    met = await meet(node)

    born_ms, word, run_id = met.epoch.split("|")
    assert met.created
    assert int(born_ms) == met.server_ms
    assert word
    assert run_id == server.client.info("server")["run_id"]
    assert server.client.get(EPOCH) == met.epoch


async def test_everybody_else_finds_the_same_epoch(node: Node, other: Node) -> None:
    first = await meet(node)

    second = await meet(other)

    assert (second.epoch, second.created) == (first.epoch, False)


async def test_each_bucket_has_its_own_epoch(node: Node) -> None:
    assert await node.epoch(Bucket(3)) != await node.epoch(Bucket(4))


async def test_lost_data_change_the_epoch(server: Server, node: Node) -> None:
    before = await meet(node)
    server.client.flushall()

    after = await meet(node)

    assert after.created
    assert after.epoch != before.epoch


async def test_a_restart_changes_the_epoch_though_the_data_survive(
    start_server: Callable[..., Server], make_node: Callable[..., Node]
) -> None:
    server = start_server("--appendonly", "yes", "--appendfsync", "always")
    node = make_node(server)
    before = await meet(node)

    server.restart()
    after = await meet(node)

    assert after.created
    assert after.epoch.split("|")[2] != before.epoch.split("|")[2]


async def test_a_broken_epoch_is_written_anew(server: Server, node: Node) -> None:
    server.client.rpush(EPOCH, "nonsense")

    assert (await meet(node)).created
    assert not (await meet(node)).created
