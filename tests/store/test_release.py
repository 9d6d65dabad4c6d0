from dataclasses import replace

from orchestrator.core.answers import LeaseGranted, LeaseReleased
from orchestrator.core.nouns import Token
from tests.servers import Server
from tests.store.node import ASKED_AT, JOB, Node, stored


async def test_a_release_frees_the_lease_and_leaves_a_note(server: Server, node: Node) -> None:
    value = await node.hold()
    before_ms = server.server_ms()

    answer = await node.release(value, next_node="n2", hint_ms=2000, keep_note_ms=30_000)

    assert answer == LeaseReleased(JOB, value.token, was_ours=True, asked_at=ASKED_AT)
    assert not server.client.exists(stored("lease"))
    token, next_node, until_ms, epoch = server.client.get(stored("released")).split("|", 3)
    assert (token, next_node, epoch) == (str(value.token), "n2", await node.epoch())
    assert before_ms + 2000 <= int(until_ms) <= server.server_ms() + 2000
    assert 29_000 < server.client.pttl(stored("released")) <= 30_000


async def test_a_release_nudges_the_others(server: Server, node: Node) -> None:
    value = await node.hold()
    listener = server.client.pubsub()
    listener.subscribe("orchestrator:{shop:m}:nudge")
    assert listener.get_message(timeout=2)["type"] == "subscribe"

    await node.release(value)

    assert listener.get_message(timeout=2)["data"] == JOB
    listener.close()


async def test_a_release_that_is_carried_out_late_leaves_the_new_lease_alone(
    server: Server, node: Node, other: Node
) -> None:
    old = await node.hold()
    await node.release(old)
    new = await other.hold()

    answer = await node.release(old)

    assert answer == LeaseReleased(JOB, old.token, was_ours=False, asked_at=ASKED_AT)
    assert server.client.get(stored("lease")) == str(new)


async def test_a_late_release_of_an_old_token_leaves_our_own_newer_lease_alone(server: Server, node: Node) -> None:
    old = await node.hold()
    new = await node.acquire(ran=old.token)
    assert isinstance(new, LeaseGranted)

    answer = await node.release(old)

    assert answer == LeaseReleased(JOB, old.token, was_ours=False, asked_at=ASKED_AT)
    assert server.client.get(stored("lease")) == str(replace(old, token=new.token))


async def test_a_release_of_what_nobody_holds_writes_no_note(server: Server, node: Node) -> None:
    value = await node.hold()
    server.client.delete(stored("lease"))

    answer = await node.release(replace(value, token=Token(value.token)))

    assert answer == LeaseReleased(JOB, value.token, was_ours=False, asked_at=ASKED_AT)
    assert not server.client.exists(stored("released"))
