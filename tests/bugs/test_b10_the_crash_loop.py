"""B10: Supervisor/supervisor#1285, #1528.

With `startsecs=0` a program that failed at once was restarted for ever without a pause (its pid changed, its state
did not), and the delay between tries grew by a second each time without an end. Here one rule counts every failure
however long the run lived, the delay doubles up to a cap, and `max_failures` is an end that can be seen.
"""

import re
import time

import psutil
import pytest

from orchestrator import clock
from orchestrator.core.restart import Restarts
from orchestrator.core.spec import Backoff
from tests.bugs.scene import row
from tests.bugs.starts import Starts, order
from tests.chaos.cluster import HEARTBEAT_S, JOB, Cluster, Node, until

REPORTED_S = 120.0
MOST_STARTS = 12
QUICK = {"delay": "200ms", "factor": 1, "max_delay": "200ms"}

chaos = pytest.mark.chaos


# (a) It fails at once.


def starts_in(within_s: float, restarts: Restarts, lasts_s: float = 0.0) -> int:
    """Return how often a job is started in so many seconds whose runs last so long."""
    now_s, starts = 0.0, 0
    while now_s < within_s:
        starts += 1
        now_s += lasts_s
        restarts.on_ended(lasts_s, now_s)
        now_s = restarts.ready_at
    return starts


def test_about_twelve_starts_in_two_minutes() -> None:
    starts = sorted(starts_in(REPORTED_S, Restarts(Backoff(), f"job {number}|a")) for number in range(1000))

    assert starts[len(starts) * 98 // 100] <= MOST_STARTS
    assert starts[-1] <= MOST_STARTS + 3
    assert starts[0] >= MOST_STARTS // 2


def test_the_delay_is_capped_however_often_it_failed() -> None:
    restarts = Restarts(Backoff(), "app|a")

    assert max(restarts.delay_s(failures) for failures in (10, 100, 1000, 10**6)) <= Backoff().max_delay_s


@chaos
def test_a_crash_loop_with_the_defaults_costs_next_to_nothing(cluster: Cluster) -> None:
    starts, lasts_s = Starts(cluster), 15.0
    cluster.write({JOB: {"command": starts.command("false")}}, ttl_s=15.0)
    a = cluster.up("a")
    a.says("event=run.ended")
    since, used_s = clock.boot(), processor_s(a)

    time.sleep(lasts_s)  # what must not happen has no event to wait for

    used_s = processor_s(a) - used_s
    assert used_s < 0.02 * (clock.boot() - since)
    assert len(starts.nodes) <= starts_in(lasts_s + 1.0, Restarts(Backoff(), f"{JOB}|a"))


@chaos
def test_each_restart_costs_redis_the_same(cluster: Cluster) -> None:
    starts = Starts(cluster)
    cluster.write({JOB: {"command": starts.command("false"), "backoff": QUICK}})
    cluster.up("a")
    starts.reach(5)
    costs = []
    for _ in range(3):
        since, calls, count = clock.boot(), calls_of(cluster), len(starts.nodes)
        starts.reach(count + 20, within_s=60.0)
        restarts = len(starts.nodes) - count
        beats = (clock.boot() - since) / HEARTBEAT_S + 1
        costs.append((calls_of(cluster) - calls - CALLS_OF_A_BEAT * beats) / restarts)

    assert max(costs) < CALLS_OF_A_RESTART + 0.5  # one that had begun, or was not over, when it was counted
    assert costs[-1] < costs[0] + 0.5


CALLS_OF_A_BEAT = 3
"""The membership, the server, the leases."""
CALLS_OF_A_RESTART = 4
"""A record, and what is published: it starts, it runs, it backs off."""


def calls_of(cluster: Cluster) -> int:
    """Return how many scripts the server has been called for."""
    return int(cluster.server.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def processor_s(node: Node) -> float:
    """Return the processor time of a node's processes, those included that have ended."""
    main = psutil.Process(node.process.pid)
    return sum(sum(process.cpu_times()[:4]) for process in (main, *main.children()))


# (b) It is to give up.


@chaos
@pytest.mark.parametrize("healthy_after", ["0s", "10s"])
def test_it_gives_up_after_so_many_failures_and_says_so(cluster: Cluster, healthy_after: object) -> None:
    starts = Starts(cluster)
    limits = {"healthy_after": healthy_after, "max_failures": 3, "backoff": QUICK}
    cluster.write({JOB: {"command": starts.command("false"), **limits}})
    cluster.up("a")
    starts.reach(3)

    until(lambda: row(cluster)["state"] == "failed", "everybody sees that it failed")
    told = cluster.command("status", "--file", str(cluster.file), "--redis", cluster.server.url)
    assert told.returncode == 3
    assert re.search(r"failed.*exit 1; 3 failures in a row.*`orchestrator start` tries again", told.stdout)
    assert starts.nodes == ["a"] * 3

    order(cluster, "start", "--no-wait")
    starts.reach(6)
    until(lambda: row(cluster)["state"] == "failed", "it gives up again")
    assert starts.nodes == ["a"] * 6


@chaos
def test_who_gives_up_gives_the_lease_back_or_says_that_it_keeps_it(cluster: Cluster) -> None:
    starts = Starts(cluster)
    cluster.write({JOB: {"command": starts.command("false"), "max_failures": 3, "backoff": QUICK}})
    a = cluster.up("a")
    cluster.up("b")
    starts.reach(3)

    def settled() -> bool:
        seen = row(cluster)
        return seen["state"] == "failed" and (seen["holder"] != a.name or "it keeps its lease" in seen["why"])

    until(settled, "everybody sees where its lease is")
    most = 3 * len(set(starts.nodes))
    time.sleep(2 * HEARTBEAT_S)  # what must not happen has no event to wait for
    assert len(starts.nodes) == most


# (c) It lives for a while, and then fails.


def test_a_short_life_does_not_count_as_health() -> None:
    restarts = Restarts(Backoff(), "app|a")

    starts = starts_in(600.0, restarts, lasts_s=2.0)

    assert restarts.failures == starts
    assert starts < 600.0 / 2.0 / 5


def test_a_life_longer_than_healthy_after_does() -> None:
    restarts = Restarts(Backoff(), "app|a")

    starts_in(600.0, restarts, lasts_s=10.0)

    assert restarts.failures == 1


@chaos
def test_failures_add_up_over_short_lives(cluster: Cluster) -> None:
    starts = Starts(cluster)
    cluster.write({JOB: {"command": starts.command("sleep 0.3; exit 1"), "max_failures": 4, "backoff": QUICK}})
    cluster.up("a")

    until(lambda: row(cluster)["state"] == "failed", "it gives up", within_s=30.0)

    assert row(cluster)["last"]["elapsed_s"] >= 0.3
    assert starts.nodes == ["a"] * 4


@chaos
def test_a_life_that_was_healthy_begins_the_count_anew(cluster: Cluster) -> None:
    starts = Starts(cluster)
    lives = "[ $n = 3 ] && sleep 1; exit 1"  # the third one is healthy
    limits = {"healthy_after": "800ms", "max_failures": 3, "backoff": QUICK}
    cluster.write({JOB: {"command": starts.command(lives), **limits}})
    cluster.up("a")

    until(lambda: row(cluster)["state"] == "failed", "it gives up", within_s=30.0)

    assert starts.nodes == ["a"] * 5
    order(cluster, "stop")
