"""B09: Supervisor/supervisor#487, #561.

The database was away for a minute, the program failed three times quickly, and was FATAL until a human came. Here no
number of failures is the end unless `max_failures` asks for one: the job is tried again, at most a minute later, and
where another node could run it, that node gets the lease after a few failures.
"""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator import clock
from orchestrator.core.restart import Restarts
from orchestrator.core.spec import Backoff
from tests.bugs.scene import row
from tests.chaos.cluster import HEARTBEAT_S, JOB, Cluster, Node, until
from tests.chaos.witness import FIXTURES

MAX_DELAY_S = 3.0
BACKOFF = {"delay": "300ms", "max_delay": f"{MAX_DELAY_S:g}s"}
FATAL_ELSEWHERE = 3
CRASH_LOOP = 5
BUSY_S = 1.0
"""By how much a busy machine may be late."""

chaos = pytest.mark.chaos


@chaos
def test_it_runs_soon_after_the_database_is_up(cluster: Cluster) -> None:
    write(cluster)
    a = cluster.up("a")
    a.says("event=run.ended", times=2 * FATAL_ELSEWHERE + 1, within_s=30.0)

    seen = until(lambda: in_backoff(cluster), "it is backing off")
    tried = re.fullmatch(r"exit 1; try (\d+) follows", seen["why"])
    assert tried is not None
    assert int(tried[1]) > 2 * FATAL_ELSEWHERE
    assert (seen["holder"], seen["pid"], seen["last"]["outcome"]) == ("a", None, "failed")
    assert abs(datetime.fromisoformat(seen["next"]) - datetime.now(UTC)).total_seconds() < MAX_DELAY_S + BUSY_S  # noqa: TID251 - as people read it

    up_at = start_database(cluster, a)

    run = cluster.run()
    assert run.first < up_at + MAX_DELAY_S + BUSY_S
    assert until(lambda: row(cluster)["state"] == "running", "everybody sees it running")
    cluster.judge(runs=1)


@chaos
def test_the_wait_can_be_read(cluster: Cluster) -> None:
    write(cluster)
    a = cluster.up("a")
    a.says("event=run.ended", times=FATAL_ELSEWHERE + 1)

    def told() -> str:
        line = cluster.command("status", "--file", str(cluster.file), "--redis", cluster.server.url).stdout
        return line if "backoff" in line else ""

    words = until(told, "status says that it backs off")
    assert re.search(r"exit 1; try \d+ follows", words)
    start_database(cluster, a)
    cluster.run()


@chaos
def test_a_node_that_has_its_database_gets_the_lease(cluster: Cluster) -> None:
    write(cluster)
    a = cluster.up("a")
    a.says("event=run.ended")
    b = cluster.up("b", joins=False)
    start_database(cluster, b)
    b.says("event=node.joined")

    run = cluster.run()

    assert run.node == "b"
    assert a.log.count("event=run.ended") >= CRASH_LOOP
    a.says("event=lease.released")
    seen = until(lambda: running_row(cluster), "everybody sees it running")
    assert seen["holder"] == "b"
    start_database(cluster, a)
    cluster.undisturbed(run, for_s=MAX_DELAY_S + HEARTBEAT_S)
    cluster.judge(runs=1)


@chaos
def test_a_node_that_is_to_keep_its_lease_tries_on(cluster: Cluster) -> None:
    write(cluster, on_crash_loop="keep")
    a = cluster.up("a")
    a.says("event=run.ended")
    b = cluster.up("b", joins=False)
    start_database(cluster, b)
    a.says("event=run.ended", times=CRASH_LOOP + 3, within_s=30.0)

    seen = until(lambda: in_backoff(cluster), "it is backing off")
    assert seen["holder"] == "a"
    assert cluster.witness.runs() == []
    up_at = start_database(cluster, a)

    run = cluster.run()
    assert (run.node, run.first < up_at + MAX_DELAY_S + BUSY_S) == ("a", True)


@chaos
def test_where_no_node_has_its_database_all_try_in_turns(cluster: Cluster) -> None:
    write(cluster)
    nodes = [cluster.up("a"), cluster.up("b")]
    for node in nodes:
        node.says("event=run.ended", times=CRASH_LOOP, within_s=60.0)

    up_at = min(start_database(cluster, node) for node in nodes)

    # Whoever has the lease tries within the longest delay; where nobody has it, somebody asks within it.
    run = cluster.run()
    assert run.first < up_at + MAX_DELAY_S + 2 * HEARTBEAT_S + BUSY_S
    cluster.undisturbed(run, for_s=2 * HEARTBEAT_S)
    cluster.judge(runs=1)


def test_the_longest_wait_is_a_minute_unless_the_file_says_otherwise() -> None:
    restarts = Restarts(Backoff(), "api|a")

    assert max(restarts.delay_s(failures) for failures in range(1, 200)) <= 60.0


def write(cluster: Cluster, **keys: object) -> None:
    """Write a job that runs on a node only while that node's database is up."""
    of_the_node = 'DEP_UP="$DEP_UP.$ORCHESTRATOR_NODE" exec sh "$0" "$@"'
    command = ["sh", "-c", of_the_node, str(FIXTURES / "needs_dep.sh"), *cluster.witness.command()]
    job = {
        "command": command,
        "env": {"DEP_UP": str(cluster.directory / "up")},
        "restart": "always",
        "backoff": BACKOFF,
    }
    cluster.write({JOB: job | keys})


def start_database(cluster: Cluster, node: Node) -> float:
    """Start the database of a node; return when, on the boot clock."""
    (cluster.directory / f"up.{node.name}").touch()
    return clock.boot()


def in_backoff(cluster: Cluster) -> dict[str, Any]:
    """Return the job's row while it is backing off, else nothing."""
    seen = row(cluster)
    return seen if seen["state"] == "backoff" else {}


def running_row(cluster: Cluster) -> dict[str, Any]:
    """Return the job's row while it runs, else nothing."""
    seen = row(cluster)
    return seen if seen["state"] == "running" else {}
