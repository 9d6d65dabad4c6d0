"""B11: Supervisor/supervisor#212, #260.

`ls` with `autorestart=false` was restarted until it was FATAL, because it had ended before `startsecs`; and an exit
code that was expected did not count for the same reason. Here no end is too quick to be what it is: a service that
is done is started once, whichever node has its lease and however often nodes are restarted.
"""

import signal
import time
from typing import Any

import pytest

from tests.bugs.scene import kill_tree, row
from tests.bugs.starts import Starts, order
from tests.chaos.cluster import HEARTBEAT_S, JOB, TTL_S, Cluster, until

BACKOFF = {"delay": "200ms", "max_delay": "400ms"}
LONGEST_DELAY_S = 0.4

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(
    ("code", "keys", "state", "why", "status"),
    [
        pytest.param(0, {"restart": "never"}, "stopped", "done (exit 0)", 0, id="never, exit 0"),
        pytest.param(0, {"restart": "on-failure"}, "stopped", "done (exit 0)", 0, id="on-failure, exit 0"),
        pytest.param(
            3,
            {"restart": "on-failure", "success_exit_codes": [0, 3]},
            "stopped",
            "done (exit 3, expected)",
            0,
            id="on-failure, an expected exit 3",
        ),
        pytest.param(
            3,
            {"restart": "never", "success_exit_codes": [0, 3]},
            "stopped",
            "done (exit 3, expected)",
            0,
            id="never, an expected exit 3",
        ),
        pytest.param(
            3,
            {"restart": "never"},
            "failed",
            "exit 3; it wants no restart, `orchestrator start` tries again",
            3,
            id="never, an exit 3 that is a failure",
        ),
    ],
)
def test_a_quick_end_is_one_start_and_no_backoff(
    cluster: Cluster, code: int, keys: dict[str, object], state: str, why: str, status: int
) -> None:
    starts = write(cluster, f"exit {code}", **keys)
    a = cluster.up("a")

    seen = until(lambda: in_state(cluster, state), "everybody sees that it is done")

    assert (seen["why"], seen["next"], seen["last"]["exit_code"]) == (why, None, code)
    told = cluster.command("status", "--file", str(cluster.file), "--redis", cluster.server.url)
    assert (told.returncode, why in told.stdout) == (status, True)
    assert_no_other_start(starts, ["a"])
    assert a.log.count("event=run.ended") == 1


def test_an_end_is_remembered_by_other_nodes_and_by_nodes_that_are_started_again(cluster: Cluster) -> None:
    starts = write(cluster, "exit 0", restart="never")
    a = cluster.up("a")
    starts.reach(1)
    until(lambda: in_state(cluster, "stopped"), "it is done")
    b = cluster.up("b")

    a.send(signal.SIGTERM)  # it hands the lease over
    assert a.exit_status() == 0
    b.says("event=lease.acquired")
    assert_no_other_start(starts, ["a"])

    a = cluster.up("a")
    kill_tree(b)  # it leaves the lease to run out
    a.says("event=lease.acquired", times=2, within_s=4 * TTL_S)
    assert_no_other_start(starts, ["a"])
    assert in_state(cluster, "stopped")["why"] == "done (exit 0)"

    a.send(signal.SIGTERM)  # and alone it comes back to its own lease
    assert a.exit_status() == 0
    cluster.up("a").says("event=lease.acquired", times=3)
    assert_no_other_start(starts, ["a"])


def test_an_order_to_start_starts_what_is_done_once_more(cluster: Cluster) -> None:
    starts = write(cluster, "exit 0", restart="never")
    cluster.up("a")
    starts.reach(1)
    until(lambda: in_state(cluster, "stopped"), "it is done")

    order(cluster, "start", "--no-wait")

    starts.reach(2)
    until(lambda: in_state(cluster, "stopped"), "it is done")
    assert_no_other_start(starts, ["a", "a"])


def test_on_failure_tries_again_until_it_ends_well(cluster: Cluster) -> None:
    starts = write(cluster, "[ $n = 3 ]", restart="on-failure")
    cluster.up("a")

    seen = until(lambda: in_state(cluster, "stopped"), "it is done")

    assert seen["why"] == "done (exit 0)"
    assert_no_other_start(starts, ["a"] * 3)


def test_always_means_always_with_a_pause(cluster: Cluster) -> None:
    starts = write(cluster, "exit 0", restart="always", backoff={"delay": "1s", "max_delay": "3s"})
    cluster.up("a")
    starts.reach(3)

    seen = until(lambda: in_state(cluster, "backoff"), "it is backing off")

    assert seen["why"].startswith("exit 0; try ")
    assert seen["next"] is not None


def write(cluster: Cluster, then: str, **keys: object) -> Starts:
    """Write a job that ends at once."""
    starts = Starts(cluster)
    cluster.write({JOB: {"command": starts.command(then), "backoff": BACKOFF} | keys})
    return starts


def in_state(cluster: Cluster, state: str) -> dict[str, Any]:
    """Return the job's row while it is in a state, else nothing."""
    seen = row(cluster)
    return seen if seen["state"] == state else {}


def assert_no_other_start(starts: Starts, nodes: list[str]) -> None:
    """Assert that it was started on these nodes, and is not started again."""
    time.sleep(2 * HEARTBEAT_S + LONGEST_DELAY_S)  # what must not happen has no event to wait for
    assert starts.nodes == nodes
