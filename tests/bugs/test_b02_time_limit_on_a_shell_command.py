"""B02: gjcarneiro/yacron#70.

A limit of 5 s on `sleep 999; echo x`: the shell is ended, `sleep` lives on and holds the pipe, and with "forbid" every
later run is refused as "still running". Here the limit is the tree's, the run is called what it was, and the next tick
runs. The report's minute is a few seconds here.
"""

from collections.abc import Mapping
from datetime import datetime

import pytest

from tests.bugs.scene import row
from tests.chaos.cluster import Cluster, until

COMMAND = "sleep 999; echo x"
EVERY_S, LIMIT_S, STOP_S = 3, 1.0, 0.5
BUSY_S = 1.0
"""By how much a busy machine may be late."""

pytestmark = pytest.mark.chaos


def lasted_s(record: Mapping[str, str]) -> float:
    """Return how long a run took from the order to start it, from which its limit counts."""
    ended, started = (datetime.fromisoformat(record[name]) for name in ("ended", "started"))
    return (ended - started).total_seconds()


def write(cluster: Cluster, command: str, **more: object) -> None:
    limits = {"timeout": f"{LIMIT_S:g}s", "stop": {"timeout": f"{STOP_S:g}s"}, "overlap": "skip"}
    cluster.write({"mail": {"every": f"{EVERY_S}s", "command": command, **limits, **more}})


def test_nothing_of_the_tree_outlives_the_limit_and_the_next_tick_runs(cluster: Cluster) -> None:
    write(cluster, COMMAND)
    node = cluster.up("a")

    node.says("event=run.ended", times=2, within_s=5 * EVERY_S)

    last = row(cluster)["last"]
    assert (last["outcome"], last["exit_code"], last["error"]) == ("timeout", None, "its time limit is over")
    assert LIMIT_S <= lasted_s(last) < LIMIT_S + STOP_S + BUSY_S
    assert cluster.processes(f"ORCHESTRATOR_RUN_ID={last['run']}") == []
    assert "tick.skipped" not in node.log
    assert not any(log.read_text() for log in node.state.rglob("mail.log")), "the shell never came to its echo"


def test_a_tree_that_does_not_hear_is_killed_within_the_stop_timeout(cluster: Cluster) -> None:
    write(cluster, f"trap '' TERM; {COMMAND}")
    node = cluster.up("a")

    node.says("event=run.ended", times=2, within_s=5 * EVERY_S)

    last = row(cluster)["last"]
    assert (last["outcome"], last["error"]) == ("timeout", "its time limit is over")
    assert LIMIT_S + STOP_S <= lasted_s(last) < LIMIT_S + STOP_S + BUSY_S
    assert cluster.processes(f"ORCHESTRATOR_RUN_ID={last['run']}") == []
    assert "tick.skipped" not in node.log


def test_a_child_in_a_session_of_its_own_is_held_to_the_limit_too(cluster: Cluster) -> None:
    write(cluster, f"setsid sleep 998 & {COMMAND}")
    node = cluster.up("a")

    node.says("event=run.ended", within_s=4 * EVERY_S)

    last = row(cluster)["last"]
    assert last["outcome"] == "timeout"
    until(lambda: not cluster.processes(f"ORCHESTRATOR_RUN_ID={last['run']}"), "nothing of it is left")


def test_a_run_that_keeps_within_its_limit_is_not_touched(cluster: Cluster) -> None:
    write(cluster, "sleep 0.2; echo x", timeout="2s")
    node = cluster.up("a")

    node.says("event=run.ended", times=2, within_s=4 * EVERY_S)

    last = row(cluster)["last"]
    assert (last["outcome"], last["exit_code"], last["error"]) == ("ok", 0, "")
    assert next(node.state.rglob("mail.log")).read_text().startswith("x\nx\n")
