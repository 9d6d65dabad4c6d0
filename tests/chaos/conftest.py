from collections.abc import Callable, Iterator

import pytest

from tests.chaos.cluster import Cluster
from tests.chaos.hole import Hole


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Start clusters whose server has options."""
    made: list[Cluster] = []

    def make(*server_options: str) -> Cluster:
        made.append(Cluster(*server_options))
        return made[-1]

    yield make
    for cluster in made:
        print(cluster.story())  # noqa: T201 - pytest shows it of a test that failed
    for cluster in made:
        cluster.close()


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Return a cluster with nothing but its server; start the nodes."""
    return make_cluster()


@pytest.fixture
def hole(cluster: Cluster) -> Iterator[Hole]:
    """Return a link to the server, for one node."""
    assert cluster.server.port is not None
    with Hole(cluster.server.port) as link:
        yield link
