from collections.abc import AsyncIterator, Callable

import pytest

from tests.servers import Server, module_server, server, start_server
from tests.store.node import Node

__all__ = ["module_server", "server", "start_server"]


@pytest.fixture
async def make_node() -> AsyncIterator[Callable[..., Node]]:
    """Make nodes; their connections are closed after the test."""
    made: list[Node] = []

    def make(*args: object, **options: object) -> Node:
        made.append(Node(*args, **options))  # type: ignore[arg-type] # passed through as they are
        return made[-1]

    yield make
    for node in made:
        await node.store.close()


@pytest.fixture
def node(server: Server, make_node: Callable[..., Node]) -> Node:
    """Return the first node, n1."""
    return make_node(server)


@pytest.fixture
def other(server: Server, make_node: Callable[..., Node]) -> Node:
    """Return the second node, n2."""
    return make_node(server, "n2", "i2")
