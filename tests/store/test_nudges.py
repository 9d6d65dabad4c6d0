import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from orchestrator.core.nouns import JobName
from orchestrator.store import nudges
from tests.servers import Server
from tests.store.node import JOB, Node


class Heard:
    """What a node's listener delivered; `None` first: it is (again) connected."""

    def __init__(self, node: Node) -> None:
        """Begin to listen."""
        self.queue: asyncio.Queue[JobName | None] = asyncio.Queue()
        self.task = asyncio.create_task(node.store.nudges(self.queue.put_nowait))

    async def next(self) -> JobName | None:
        """Wait for the next delivery."""
        return await asyncio.wait_for(self.queue.get(), timeout=10)


@pytest.fixture
async def listen() -> AsyncIterator[Callable[[Node], Heard]]:
    heard: list[Heard] = []

    def begin(node: Node) -> Heard:
        heard.append(Heard(node))
        return heard[-1]

    yield begin
    for each in heard:
        each.task.cancel()
        await asyncio.wait([each.task])


async def test_a_nudge_names_a_job(node: Node, other: Node, listen: Callable[[Node], Heard]) -> None:
    heard = listen(node)
    assert await heard.next() is None

    await other.store.nudge(JOB)

    assert await heard.next() == JOB


async def test_a_nudge_for_everything_is_none(node: Node, other: Node, listen: Callable[[Node], Heard]) -> None:
    heard = listen(node)
    assert await heard.next() is None

    await other.store.nudge(None)

    assert await heard.next() is None


async def test_a_release_nudges_the_standbys(node: Node, other: Node, listen: Callable[[Node], Heard]) -> None:
    heard = listen(other)
    assert await heard.next() is None

    await node.release(await node.hold())

    assert await heard.next() == JOB


async def test_listening_survives_a_restart_of_the_server(
    start_server: Callable[..., Server], make_node: Callable[..., Node], listen: Callable[[Node], Heard]
) -> None:
    server = start_server()
    node = make_node(server)
    heard = listen(node)
    assert await heard.next() is None

    server.restart()

    assert await heard.next() is None
    server.client.publish("orchestrator:{shop:m}:nudge", JOB)
    assert await heard.next() == JOB


async def test_a_dead_peer_is_noticed_by_its_silence(
    start_server: Callable[..., Server],
    make_node: Callable[..., Node],
    listen: Callable[[Node], Heard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nudges, "POLL_S", 0.02)
    monkeypatch.setattr(nudges, "PING_S", 0.05)
    monkeypatch.setattr(nudges, "SILENCE_S", 0.2)
    server = start_server()
    heard = listen(make_node(server, timeout_s=0.2))
    assert await heard.next() is None
    server.pause()
    await asyncio.sleep(0.5)  # a frozen server sends nothing that could be waited for

    server.go_on()

    assert await heard.next() is None


async def test_a_quiet_link_is_not_taken_for_a_dead_one(
    node: Node, listen: Callable[[Node], Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nudges, "POLL_S", 0.02)
    monkeypatch.setattr(nudges, "PING_S", 0.05)
    monkeypatch.setattr(nudges, "SILENCE_S", 0.4)
    heard = listen(node)
    assert await heard.next() is None

    await asyncio.sleep(1.0)  # quiet for longer than the silence that is allowed

    assert heard.queue.empty()


async def test_a_lost_nudge_is_nobodys_trouble(
    start_server: Callable[..., Server], make_node: Callable[..., Node]
) -> None:
    server = start_server()
    node = make_node(server)
    server.stop()

    await node.store.nudge(JOB)
