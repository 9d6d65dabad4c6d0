"""B08: sibson/redbeat#306.

After the lock had expired no node took it: "a node that held the lock and lost it exits by design", with status 0,
because another one has it, so that Open edX sets startretries to 10000. Here a node that lost a lease stands by and
runs the job again when its turn comes, in the same process.
"""

import signal

import pytest

from tests.bugs.scene import kill_tree
from tests.chaos.cluster import TTL_S, Cluster, Node, until
from tests.chaos.hole import Hole
from tests.chaos.witness import SeenRun

REPORTED_TTL_S = 6.0
FROZEN_S = 12.0
BUSY_S = 1.0
"""By how much a busy machine may be late."""

pytestmark = pytest.mark.chaos


def test_a_node_that_was_frozen_runs_the_job_again(cluster: Cluster) -> None:
    cluster.write(ttl_s=REPORTED_TTL_S)
    first, second = cluster.two_nodes()
    run = cluster.run()

    frozen_at = first.send(signal.SIGSTOP)
    following = cluster.next_run(run, within_s=crash_takes_s(REPORTED_TTL_S) + BUSY_S)
    until(lambda: cluster.witness.now(following).last > frozen_at + FROZEN_S, "it stays frozen", FROZEN_S + BUSY_S)
    first.send(signal.SIGCONT)

    assert_it_stands_by_and_takes_over(cluster, first, second, following, ttl_s=REPORTED_TTL_S)


def test_a_node_that_was_cut_off_runs_the_job_again(cluster: Cluster, hole: Hole) -> None:
    first, second = cluster.two_nodes(url=hole.url)
    run = cluster.run()

    hole.swallow()
    following = cluster.next_run(run, within_s=crash_takes_s(TTL_S) + BUSY_S)
    first.says("event=lease.ended")
    hole.heal()

    assert_it_stands_by_and_takes_over(cluster, first, second, following, ttl_s=TTL_S)


def assert_it_stands_by_and_takes_over(
    cluster: Cluster, first: Node, second: Node, following: SeenRun, *, ttl_s: float
) -> None:
    """Assert that the node which lost the lease lives, leaves the other alone, and follows it when it dies."""
    assert following.node == second.name
    cluster.assert_all_alive()
    cluster.undisturbed(following, for_s=ttl_s / 2)

    died_at = kill_tree(second)

    last = cluster.next_run(following, within_s=crash_takes_s(ttl_s) + BUSY_S)
    assert last.node == first.name
    assert last.first < died_at + crash_takes_s(ttl_s)
    assert first.alive
    assert "Traceback" not in first.log
    cluster.judge(runs=3)


def crash_takes_s(ttl_s: float) -> float:
    """Return within what time a crash is taken over: what is left of the lease, and one heartbeat."""
    return ttl_s + ttl_s / 5
