"""B13: dkron-io/dkron#1210, #998.

Runs that were due during the election of a leader were lost, and in #998 none ran ever after. Here the holder's whole
tree is killed just before a tick, five times in a row, alternating: whoever takes over finds the tick, and runs it.
"""

from itertools import pairwise

import pytest

from orchestrator import clock
from tests.bugs.days import instant
from tests.bugs.scene import history, kill_tree, row, wait_until
from tests.bugs.starts import KeptTick, KeptTicks
from tests.chaos.cluster import JOB, Cluster, Node, until

TTL_S = 2.0
HEARTBEAT_S = TTL_S / 5
PERIOD_S = 4
BEFORE_S = 0.5
"""So shortly before a tick the holder is killed: it has not claimed it yet."""
BUSY_S = 1.0
"""By how much a busy machine may be late."""

pytestmark = pytest.mark.chaos


def test_every_tick_runs_once_however_often_its_holder_dies_just_before_it(cluster: Cluster) -> None:
    runs = KeptTicks(cluster)
    cluster.write({JOB: {"cron": f"*/{PERIOD_S} * * * * *", "command": runs.command}}, ttl_s=TTL_S)
    cluster.up("a")
    cluster.up("b")
    until(lambda: runs.all, "it runs")

    killed, found = [], []
    for _ in range(5):
        node, tick = dies_before_a_tick(cluster)
        killed.append(node.name)
        found.append(runs.reach(tick, within_s=TTL_S + HEARTBEAT_S + BUSY_S))
        cluster.up(node.name, new_cluster=False)  # not sooner: it might take its own lease over
    until(lambda: runs.all[-1].tick >= found[-1].tick + 3 * PERIOD_S, "the schedule goes on")

    assert killed == alternating(killed[0])
    assert [run.node for run in found] == alternating(found[0].node)
    assert_each_once(runs.all)
    assert_late_only_in_the_window(runs.all, found)
    assert_all_are_told_of(cluster, runs)


def dies_before_a_tick(cluster: Cluster) -> tuple[Node, float]:
    """Kill the holder's whole tree shortly before the next tick; return the node and the tick."""
    holder = cluster.nodes[row(cluster)["holder"]]
    tick = (clock.now().utc + BEFORE_S) // PERIOD_S * PERIOD_S + PERIOD_S
    wait_until(tick - BEFORE_S)
    kill_tree(holder)
    assert clock.now().utc < tick, "it died before the tick"
    return holder, tick


def alternating(first: str) -> list[str]:
    second = "b" if first == "a" else "a"
    return [first, second, first, second, first]


def assert_each_once(runs: list[KeptTick]) -> None:
    assert {after.tick - before.tick for before, after in pairwise(runs)} == {PERIOD_S}
    tokens = [run.token for run in runs]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 6
    assert all((after.token > before.token) == (after.node != before.node) for before, after in pairwise(runs))


def assert_late_only_in_the_window(runs: list[KeptTick], found: list[KeptTick]) -> None:
    assert max(run.late_s for run in found) <= TTL_S + HEARTBEAT_S + BUSY_S
    assert max(run.late_s for run in runs if run not in found) <= BUSY_S


def assert_all_are_told_of(cluster: Cluster, runs: KeptTicks) -> None:
    told = until(lambda: found if not (found := history(cluster))["open"] else None, "the newest run has ended")
    count = told["ticks"]
    assert (told["ran"], told["skipped"], told["missed"]) == (count, 0, 0)
    assert [run["outcome"] for run in told["runs"]] == ["ok"] * count
    assert {instant(run["tick"]) for run in told["runs"]} <= {run.tick for run in runs.all}
