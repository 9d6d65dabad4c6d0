"""B03: F1bonacc1/process-compose#258, gjcarneiro/yacron#70.

Whoever waits for the end of the output waits 300 s for a job of 1 s whose child in the background keeps the pipe,
and an orderly end hangs as long. Here a run ends when its first process has ended: what it left is asked to end, and
killed after a short grace.
"""

import signal

import pytest

from orchestrator.runs.order import LONGEST_REST_GRACE_S
from tests.bugs.scene import row
from tests.chaos.cluster import Cluster, until
from tests.chaos.witness import FIXTURES

JOB_S = 1.0
EVERY_S = 4
BUSY_S = 1.0
"""By how much a busy machine may be late."""

pytestmark = pytest.mark.chaos


def write(cluster: Cluster) -> None:
    job = {"command": ["sh", str(FIXTURES / "bg_keeps_pipe.sh")], "every": f"{EVERY_S}s"}
    cluster.write({"start": job})


def test_a_run_ends_with_its_first_process_and_the_next_tick_runs(cluster: Cluster) -> None:
    write(cluster)
    node = cluster.up("a")

    node.says("event=run.ended", times=2, within_s=4 * EVERY_S)

    last = row(cluster)["last"]
    assert (last["outcome"], last["exit_code"], last["error"]) == ("ok", 0, "")
    assert JOB_S <= last["elapsed_s"] < JOB_S + LONGEST_REST_GRACE_S + BUSY_S
    assert next(node.state.rglob("start.log")).read_text().startswith("done\ndone\n")
    assert "tick.skipped" not in node.log
    assert cluster.processes(f"ORCHESTRATOR_RUN_ID={last['run']}") == []


def test_an_end_in_the_middle_of_it_is_in_time_too(cluster: Cluster) -> None:
    write(cluster)
    node = cluster.up("a")
    node.says("event=run.started")

    node.send(signal.SIGTERM)

    assert node.exit_status(within_s=2.0 + LONGEST_REST_GRACE_S + BUSY_S) == 0  # the file's stop timeout is 2 s
    until(lambda: not cluster.processes(), "nothing is left")
