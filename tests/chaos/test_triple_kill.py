"""Main, launcher and every leash killed in one moment: the next start clears away what nobody holds any more.

It is the one fault that no process of ours is left to answer. Trees that resist being killed are what it leaves.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.chaos.cluster import JOB, Cluster, Node, until
from tests.chaos.witness import FIXTURES
from tests.runs.cgroup_tree import NEEDS_CGROUPS, delegated
from tests.runs.node import fresh_tag, survivors

pytestmark = pytest.mark.chaos

LIFE_S = 120
"""Whatever a broken test leaves behind ends by itself."""
SIZES = {"plain": 5, "setsid": 3, "daemon": 2, "mix": 5, "envclear": 2, "hydra": 5}
"""The trees, and of how many processes each is once it has grown."""


@pytest.fixture
def tags() -> Iterator[dict[str, str]]:
    """Return a tag for each tree; what bears one dies with the test."""
    made = {mode: fresh_tag() for mode in SIZES}
    yield made
    for tag in made.values():
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for pid in survivors(tag):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signum)


def a_node_full_of_trees(cluster: Cluster, tags: dict[str, str]) -> Node:
    """Start a node whose jobs are the trees, and wait until each has grown."""
    nasty = str(FIXTURES / "nasty.py")
    cluster.write({mode: {"command": [sys.executable, nasty, mode, tag, str(LIFE_S)]} for mode, tag in tags.items()})
    node = cluster.up("a")
    for mode, tag in tags.items():
        until(lambda mode=mode, tag=tag: len(survivors(tag)) >= SIZES[mode], f"the tree {mode} grows")  # type: ignore[misc]  # mypy cannot infer a lambda's default
    return node


def kill_all_that_holds(node: Node) -> None:
    """SIGKILL main, launcher and every leash in one moment: frozen first, so that none sees another one die."""
    main = psutil.Process(node.process.pid)
    holders = [main, *(child for child in main.children(recursive=True) if child.name().startswith("orch-"))]
    assert len(holders) == 2 + len(SIZES), "main, launcher, a leash a tree"
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for holder in holders:
            holder.send_signal(signum)
    node.exit_status()
    for holder in holders[1:]:
        until(lambda holder=holder: not holder.is_running() or holder.status() == "zombie", "it is dead")  # type: ignore[misc]  # mypy cannot infer a lambda's default


def start_again_with_another_job(cluster: Cluster) -> str:
    """Start the node with the witness job alone; return what it said until it held its lease."""
    cluster.write()
    before = len(cluster.nodes["a"].log)
    node = cluster.up("a")
    node.says(f"event=lease.acquired job={JOB} ")
    return node.log[before:].partition("event=lease.acquired")[0]


def left(tags: dict[str, str]) -> dict[str, int]:
    """Return how many processes are left of each tree, without those of which none is."""
    return {mode: alive for mode, tag in tags.items() if (alive := len(survivors(tag)))}


def test_the_next_start_kills_all_but_a_daemon_without_a_trace(cluster: Cluster, tags: dict[str, str]) -> None:
    """One that left its session and cleared its environment needs a cgroup: nothing that lives leads to it."""
    kill_all_that_holds(a_node_full_of_trees(cluster, tags))
    assert left(tags).keys() >= {"setsid", "daemon", "mix", "envclear", "hydra"}, "that is what is to be cleared away"

    said = start_again_with_another_job(cluster)

    assert left(tags) == {"envclear": 1}
    assert "event=leftovers.killed" in said, "before the first lease"


@pytest.mark.root
@NEEDS_CGROUPS
def test_with_a_delegated_cgroup_the_next_start_kills_all(cluster: Cluster, tags: dict[str, str]) -> None:
    with delegated() as ours, ours.inside():
        kill_all_that_holds(a_node_full_of_trees(cluster, tags))
        assert "envclear" in left(tags)

        said = start_again_with_another_job(cluster)

        assert left(tags) == {}
        assert "event=leftovers.killed" in said, "before the first lease"
        cluster.nodes["a"].send(signal.SIGTERM)
        cluster.nodes["a"].exit_status()
        assert list(ours.path.glob("run-*")) == []
