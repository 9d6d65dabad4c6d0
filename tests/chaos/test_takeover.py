"""The heart of it: whatever befalls the holder, the other takes over in time, and never two.

Each fault is done `--trials` times; the times it took stand in a table at the end of the run.
"""

import os
import signal
from collections.abc import Callable

import pytest

from orchestrator import clock
from tests.chaos.cluster import HEARTBEAT_S, TTL_S, Cluster, Node, Pids
from tests.chaos.hole import Hole
from tests.chaos.trials import Measure
from tests.chaos.witness import DEAF, SeenRun

pytestmark = pytest.mark.chaos

TAKEN_OVER_S = TTL_S + 0.5
"""From the fault to the first tick of the other: one ttl, and the start of a process on a busy machine."""
HANDED_OVER_S = 1.0
"""From the last tick of the old run to the first of the new one, after a clean stop."""


def taken_over(cluster: Cluster, run: SeenRun, pids: Pids, struck_at: float) -> tuple[SeenRun, float]:
    """Wait for the other's run; return it, and how long after the fault it began.

    Nothing of the old run may be left by then.
    """
    # A second more than allowed: the witness's own word decides, and a number says more than a timeout.
    following = cluster.next_run(run, within_s=TAKEN_OVER_S + 1.0)
    assert cluster.left_of(pids) == []
    assert following.node != run.node
    took_s = following.first - struck_at
    assert took_s <= TAKEN_OVER_S
    return following, took_s


def moves_back(cluster: Cluster, holder: Node, first: Node) -> None:
    """Kill the second holder: the first, never restarted, is still a candidate."""
    run, pids = cluster.run(), holder.pids()
    following, _ = taken_over(cluster, run, pids, holder.send(signal.SIGKILL))
    assert following.node == first.name
    assert first.alive


def starts_again(cluster: Cluster, node: Node) -> None:
    """Start a killed node: it joins, and disturbs nobody."""
    run = cluster.run()
    cluster.up(node.name, new_cluster=False)
    cluster.assert_all_alive()
    cluster.undisturbed(run, 0.5)


def test_main_is_killed(cluster: Cluster, measure: Measure) -> None:
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    _, took_s = taken_over(cluster, run, pids, a.send(signal.SIGKILL))
    measure("kill -9 of main", took_s)

    starts_again(cluster, a)
    cluster.judge(runs=2)


def test_main_and_launcher_are_killed(cluster: Cluster, measure: Measure) -> None:
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    struck_at = a.send(signal.SIGKILL)
    os.kill(pids.launcher, signal.SIGKILL)
    _, took_s = taken_over(cluster, run, pids, struck_at)
    measure("kill -9 of main and launcher", took_s)

    starts_again(cluster, a)
    cluster.judge(runs=2)


def test_main_is_frozen_for_two_ttl(cluster: Cluster, measure: Measure) -> None:
    a, b = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    struck_at = a.send(signal.SIGSTOP)
    following, took_s = taken_over(cluster, run, pids, struck_at)
    measure("SIGSTOP of main", took_s)
    cluster.undisturbed(following, struck_at + 2 * TTL_S - clock.boot())
    a.send(signal.SIGCONT)
    a.says("event=lease.ended")
    cluster.assert_all_alive()
    cluster.undisturbed(following, HEARTBEAT_S)

    moves_back(cluster, b, a)
    cluster.judge(runs=3)


@pytest.mark.parametrize(
    ("fault", "strike"),
    [("black hole between holder and Redis", Hole.swallow), ("connections of the holder cut", Hole.cut)],
    ids=["a black hole", "a cut"],
)
def test_redis_is_out_of_reach_of_the_holder(
    cluster: Cluster, hole: Hole, measure: Measure, fault: str, strike: Callable[[Hole], None]
) -> None:
    a, b = cluster.two_nodes(url=hole.url)
    run, pids = cluster.run(), a.pids()

    struck_at = clock.boot()
    strike(hole)
    following, took_s = taken_over(cluster, run, pids, struck_at)
    measure(fault, took_s)
    hole.heal()
    a.says("event=redis.answers")
    cluster.assert_all_alive()
    cluster.undisturbed(following, HEARTBEAT_S)

    moves_back(cluster, b, a)
    cluster.judge(runs=3)


def test_redis_forgets_everything(cluster: Cluster, measure: Measure) -> None:
    cluster.two_nodes()
    run = cluster.run()

    cluster.server.client.flushall()

    cluster.undisturbed(run, TAKEN_OVER_S)
    measure("FLUSHALL (longest pause of the job)", cluster.witness.now(run).longest_pause_s)
    cluster.assert_all_alive()
    assert len(cluster.witness.runs()) == 1
    cluster.judge(runs=1)


def test_the_holder_leaves_in_order(cluster: Cluster, measure: Measure) -> None:
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    a.send(signal.SIGTERM)
    following = cluster.next_run(run, within_s=TAKEN_OVER_S)
    took_s = following.first - cluster.witness.now(run).last

    assert cluster.left_of(pids) == []
    assert took_s <= HANDED_OVER_S
    assert a.exit_status() == 0
    measure("SIGTERM (from the end of the child)", took_s)

    starts_again(cluster, a)
    cluster.judge(runs=2)


@pytest.mark.parametrize(
    "strike",
    [
        lambda a, _hole: a.send(signal.SIGKILL),
        lambda a, _hole: a.send(signal.SIGSTOP),
        lambda _a, hole: hole.swallow(),
    ],
    ids=["main killed", "main frozen", "a black hole"],
)
def test_a_job_that_is_deaf_to_sigterm_is_gone_before_the_next_run(
    cluster: Cluster, hole: Hole, strike: Callable[[Node, Hole], object]
) -> None:
    cluster.write(command=cluster.witness.command(DEAF))
    a, _ = cluster.two_nodes(url=hole.url)
    run, pids = cluster.run(), a.pids()

    struck_at = clock.boot()
    strike(a, hole)
    taken_over(cluster, run, pids, struck_at)

    cluster.judge(runs=2)
