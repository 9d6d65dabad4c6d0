"""Coming and going: a node that leaves takes its time and keeps its lease; one that comes back waits in sight."""

import os
import signal

import pytest

from tests.chaos.cluster import HEARTBEAT_S, STEP_DOWN_GRACE_S, TTL_S, Cluster, Node, until
from tests.chaos.witness import DEAF

pytestmark = pytest.mark.chaos

SLACK_S = 0.7
"""What a busy machine may add to a stop."""


def up_again(cluster: Cluster, *, state: str) -> tuple[int, str]:
    """Type `up` for a second node named a; return its exit status and what it said."""
    redis = ("--redis", cluster.server.url)
    done = cluster.command(
        "up", str(cluster.file), "--node", "a", "--state-dir", str(cluster.directory / state), *redis
    )
    return done.returncode, done.stderr


def told_to_leave(node: Node, times: int) -> float:
    """Send SIGTERM so often, each once the one before was heard; return when the last was sent."""
    at = 0.0
    for urgency in range(times):
        at = node.send(signal.SIGTERM)
        node.says(f"event=node.leaving node={node.name} urgency={urgency}")
    return at


def test_a_slow_child_keeps_its_lease_until_it_is_gone(cluster: Cluster) -> None:
    stop_s = 2 * TTL_S
    cluster.write(command=cluster.witness.command(DEAF), stop={"timeout": f"{stop_s}s"})
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()
    key = cluster.lease_key()
    value = cluster.server.client.get(key)

    def is_gone() -> bool:
        held = cluster.server.client.get(key) == value  # read first: the lease goes right after the child
        left = cluster.left_of(pids)
        assert held or not left, "given back while the child lives"
        return not left

    left_at = told_to_leave(a, 1)
    until(is_gone, "the child ends", stop_s + TTL_S)
    following = cluster.next_run(run, within_s=TTL_S)

    assert cluster.witness.now(run).last - left_at == pytest.approx(stop_s, abs=SLACK_S)
    assert following.first - cluster.witness.now(run).last <= 1.0
    assert a.exit_status() == 0
    cluster.judge(runs=2)


@pytest.mark.parametrize(
    ("times", "bound_s"),
    [(2, STEP_DOWN_GRACE_S), (3, 0.0)],
    ids=["a second SIGTERM shortens the grace", "a third kills"],
)
def test_a_hurried_stop_is_short_and_as_safe(cluster: Cluster, times: int, bound_s: float) -> None:
    cluster.write(command=cluster.witness.command(DEAF), stop={"timeout": "60s"})
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    left_at = told_to_leave(a, times)
    following = cluster.next_run(run, within_s=bound_s + TTL_S)

    assert cluster.left_of(pids) == []
    assert cluster.witness.now(run).last - left_at <= bound_s + SLACK_S
    assert following.first - cluster.witness.now(run).last <= 1.0, "the lease was given back"
    assert a.exit_status() == 0
    cluster.judge(runs=2)


def test_a_job_that_left_its_node_leaves_no_process_of_the_node(cluster: Cluster) -> None:
    a, _ = cluster.two_nodes()
    pids = a.pids()

    a.send(signal.SIGTERM)

    assert a.exit_status() == 0
    assert {pids.main, pids.launcher, pids.leash, pids.job} & set(cluster.processes()) == set()


def test_a_node_that_comes_back_after_a_crash_waits_in_sight_and_goes_on(cluster: Cluster) -> None:
    a = cluster.up("a")
    run = cluster.run()

    a.send(signal.SIGKILL)
    again = cluster.up("a", new_cluster=False)

    again.says("event=node.waiting")
    assert "its old membership has to run out" in again.log
    following = cluster.next_run(run)
    assert following.node == "a"
    assert following.token > run.token
    cluster.judge(runs=2)


def test_a_second_node_of_the_same_name_is_refused_by_name(cluster: Cluster) -> None:
    cluster.two_nodes()
    run = cluster.run()

    status, said = up_again(cluster, state="elsewhere")

    assert status == 1
    assert "the node name `a` is in use by" in said
    cluster.undisturbed(run, HEARTBEAT_S)


def test_a_second_node_in_the_same_directory_is_refused_with_the_pid_of_the_first(cluster: Cluster) -> None:
    a, _ = cluster.two_nodes()
    run = cluster.run()

    status, said = up_again(cluster, state="a")

    assert status == 1
    assert f"this node already runs here (pid {a.process.pid}," in said
    cluster.undisturbed(run, HEARTBEAT_S)


def test_without_redis_nothing_starts_and_with_it_the_job_does(cluster: Cluster) -> None:
    cluster.server.stop()
    a = cluster.up("a", joins=False, new_cluster=False)
    b = cluster.up("b", joins=False, new_cluster=False)
    for node in (a, b):
        node.says("event=redis.silent")
    picture = cluster.status(node=a)
    (row,) = picture["jobs"]
    assert picture["redis"]["ok"] is False
    assert (row["state"], row["holder"]) == ("unheld", None)
    assert row["why"].startswith("waits for its lease: Redis does not answer")
    assert cluster.witness.runs() == []

    cluster.server.start()

    cluster.run()
    for node in (a, b):
        node.says("event=node.joined")
    cluster.assert_all_alive()
    cluster.judge(runs=1)


def test_a_node_whose_terminal_is_gone_still_runs(cluster: Cluster) -> None:
    a, _ = cluster.two_nodes()
    run = cluster.run()

    os.kill(a.process.pid, signal.SIGHUP)

    cluster.undisturbed(run, HEARTBEAT_S)
    cluster.assert_all_alive()
