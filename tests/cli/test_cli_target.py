import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cli import target
from orchestrator.cli.options import Asked
from orchestrator.cli.target import Target
from orchestrator.core.snapshot import ClusterView
from orchestrator.errors import ConfigError, UsageError
from tests.cli.stage import Played
from tests.servers import Server

SHOP_URL = "redis://shop:6379/0"
FILE = f"cluster: shop\nredis: {SHOP_URL}\njobs: {{beat: {{command: x, lease: {{key: b}}}}}}\n"


def find(here: Path, asked: Asked | None = None, **environ: str) -> Target:
    """Find the cluster from the test's own directory; in a thread where sockets are served by the test's own loop."""
    places = {"ORCHESTRATOR_STATE_DIR": str(here / "state"), "ORCHESTRATOR_RUNTIME_DIR": str(here / "run")}
    return target.find(asked or Asked(), places | environ, here)


def test_the_file_in_the_directory_is_taken(here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    found = find(here)

    assert (found.cluster, found.redis, found.keys) == ("shop", SHOP_URL, {"beat": "b"})


def test_a_file_that_was_typed_goes_before_one_from_the_environment_and_that_before_the_directory(here: Path) -> None:
    for name in ("jobs", "environ", "typed"):
        (here / f"{name}.yaml").write_text(FILE.replace("shop\n", f"{name}\n"))
    environ = str(here / "environ.yaml")

    assert find(here, Asked(file=str(here / "typed.yaml")), ORCHESTRATOR_FILE=environ).cluster == "typed"
    assert find(here, ORCHESTRATOR_FILE=environ).cluster == "environ"
    assert find(here).cluster == "jobs"


def test_what_was_typed_wins_over_the_file(here: Path) -> None:
    (here / "jobs.yaml").write_text(FILE)

    found = find(here, Asked(file=str(here / "jobs.yaml"), redis="unix:///s", cluster="other"))

    assert (found.cluster, found.redis) == ("other", "unix:///s")


def test_a_redis_and_a_cluster_need_no_file(here: Path) -> None:
    (here / "jobs.yaml").write_text("this: is not read")

    assert find(here, Asked(redis="unix:///s", cluster="other")) == Target("other", "unix:///s")
    assert find(here, Asked(cluster="other"), ORCHESTRATOR_REDIS="unix:///e") == Target("other", "unix:///e")


def test_a_bad_file_is_a_bad_configuration(here: Path) -> None:
    (here / "jobs.yaml").write_text("jobs: 7")

    with pytest.raises(ConfigError):
        find(here)


def test_a_file_without_redis_means_the_embedded_server_of_this_machine(here: Path, server: Server) -> None:
    (here / "jobs.yaml").write_text("jobs: {beat: {command: x}}")
    assert find(here).redis is None

    (here / "state/embedded").mkdir(parents=True)
    (here / "state/embedded/s").hardlink_to(server.socket)

    assert find(here).redis == f"unix://{here}/state/embedded/s"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        pytest.param(Asked(), "There is no jobs.yaml here and no node runs on this machine", id="nothing at all"),
        pytest.param(Asked(redis="unix:///s"), "--redis alone does not say which cluster", id="a redis alone"),
        pytest.param(Asked(cluster="shop"), "no node of the cluster `shop` runs on this machine", id="a cluster alone"),
    ],
)
def test_where_nothing_says_which_cluster_the_cure_is_named(here: Path, asked: Asked, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        find(here, asked)


async def test_the_node_on_this_machine_says_which_cluster(
    here: Path, server: Server, play: Callable[..., Played]
) -> None:
    node = play(server)
    (here / "n.yaml").write_text(FILE)
    await node.listen(ClusterView("shop", "n1"), file=str(here / "n.yaml"), redis=server.url)
    (here / "run/shop.dead.sock").touch()

    found = await asyncio.to_thread(find, here)

    assert (found.cluster, found.redis, [each.node for each in found.nodes]) == ("shop", server.url, ["n1"])
    assert target.spec_of(found, {}) == target.load(here / "n.yaml", {})


async def test_nodes_of_several_clusters_must_be_chosen_from(
    here: Path, server: Server, play: Callable[..., Played]
) -> None:
    for cluster in ("shop", "shop.eu"):
        await play(server).listen(ClusterView(cluster, "n1"), redis=server.url, cluster=cluster)

    with pytest.raises(UsageError, match=r"several clusters run on this machine: shop, shop\.eu; .* --cluster NAME"):
        await asyncio.to_thread(find, here)
    chosen = await asyncio.to_thread(find, here, Asked(cluster="shop"))

    assert [node.cluster for node in chosen.nodes] == ["shop"]


async def test_a_node_says_where_its_embedded_server_is(
    here: Path, server: Server, play: Callable[..., Played]
) -> None:
    (here / "jobs.yaml").write_text("cluster: shop\njobs: {beat: {command: x}}")
    await play(server).listen(ClusterView("shop", "n1"), redis=server.url)

    found = await asyncio.to_thread(find, here)

    assert found.redis == server.url


async def test_a_node_that_uses_another_redis_than_the_one_that_is_meant_is_left_out(
    here: Path, server: Server, play: Callable[..., Played]
) -> None:
    (here / "n.yaml").write_text(FILE)
    await play(server).listen(ClusterView("shop", "n1"), redis="redis://:secret@shop")
    meanings = [
        {"redis": "redis://shop:6379/2", "cluster": "shop"},
        {"redis": "redis://shop:6379/0", "cluster": "shop"},
        {"redis": "redis://shop:6379/2", "file": "n.yaml"},
        {"file": "n.yaml"},
    ]

    found = [await asyncio.to_thread(find, here, Asked(**asked)) for asked in meanings]

    assert [[node.node for node in each.nodes] for each in found] == [[], ["n1"], [], ["n1"]]


async def test_a_redis_alone_means_the_cluster_of_a_node_on_it_and_of_no_other(
    here: Path, server: Server, play: Callable[..., Played]
) -> None:
    await play(server).listen(ClusterView("shop", "n1"), redis="redis://shop/1")

    found = await asyncio.to_thread(find, here, Asked(redis="redis://shop:6379/1"))

    assert (found.cluster, [node.node for node in found.nodes]) == ("shop", ["n1"])
    with pytest.raises(UsageError, match="does not say which cluster"):
        await asyncio.to_thread(find, here, Asked(redis="redis://shop:6379/2"))
    with pytest.raises(UsageError, match="does not say which cluster"):
        await asyncio.to_thread(lambda: find(here, ORCHESTRATOR_REDIS="redis://shop:6379/2"))
