"""`up --exit-on-failure`: a container ends when its job has failed for good, with the job's exit status."""

import sys
from collections.abc import Mapping

import pytest

from orchestrator import clock
from tests.chaos.cluster import Cluster, Node, until

pytestmark = pytest.mark.chaos

SLEEP = {"command": ["sleep", "600"]}


def up(cluster: Cluster, jobs: Mapping[str, object], *options: str) -> Node:
    """Start a node that serves as a container's command."""
    cluster.write(jobs)
    command = [sys.executable, "-m", "orchestrator", "up", str(cluster.file), "--redis", cluster.server.url]
    command += ["--new-cluster", "--log-format", "logfmt", *options]
    node = cluster.nodes["a"] = Node("a", cluster.directory, command, cluster.environ())
    return node


@pytest.mark.parametrize(
    ("job", "status"),
    [
        ({"command": "exit 7", "restart": "never"}, 7),
        ({"command": "kill -9 $$", "restart": "never"}, 137),
        ({"command": ["/nowhere/at/all"], "restart": "never"}, 1),
        ({"command": "exit 9", "max_failures": 2, "backoff": {"delay": "100ms"}}, 9),
        ({"command": "exit 5", "every": "1s"}, 5),
    ],
    ids=["an exit code", "a signal", "no such program", "given up", "a cron"],
)
def test_the_exit_status_of_the_node_is_that_of_the_job_that_failed_for_good(
    cluster: Cluster, job: Mapping[str, object], status: int
) -> None:
    node = up(cluster, {"main": job, "beside": SLEEP}, "--exit-on-failure")

    assert node.exit_status() == status
    assert "event=node.failed" in node.log
    until(lambda: not cluster.processes("ORCHESTRATOR_JOB=beside"), "the other job is stopped too")


def test_a_job_that_ends_well_ends_nothing(cluster: Cluster) -> None:
    node = up(cluster, {"once": {"command": "true", "restart": "never"}, "beside": SLEEP}, "--exit-on-failure")

    node.says("event=run.ended job=once")
    node.says("event=run.started job=beside")

    assert node.alive


def test_without_the_option_the_node_stays(cluster: Cluster) -> None:
    node = up(cluster, {"once": {"command": "exit 7", "restart": "never"}})

    node.says("event=run.ended job=once")
    said_at = clock.boot()
    until(lambda: clock.boot() > said_at + 1.0, "a second passes")  # what must not happen has no event

    assert node.alive
