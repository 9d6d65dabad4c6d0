"""A node with few file descriptors runs what it can, says why it does not run the rest, and breaks nowhere."""

import signal
import sys

import pytest

from tests.chaos.cluster import Cluster, Node, until

pytestmark = pytest.mark.chaos


def test_a_node_that_is_out_of_descriptors_says_so_and_stops_all_the_same(cluster: Cluster) -> None:
    jobs = {f"s{number}": {"command": ["sleep", "600"], "scope": "node"} for number in range(60)}
    cluster.write(jobs)
    command = ["sh", "-c", 'ulimit -n 48; exec "$@"', "sh", sys.executable, "-m", "orchestrator", "up"]
    command += [str(cluster.file), "--redis", cluster.server.url, "--new-cluster", "--log-format", "logfmt"]
    node = cluster.nodes["a"] = Node("a", cluster.directory, command, cluster.environ())

    node.says("event=run.started", times=5)
    until(lambda: "Too many open files" in node.log, "it says what it is out of", within_s=45.0)
    node.send(signal.SIGTERM)

    assert node.exit_status(within_s=30.0) == 0
    assert "Traceback" not in node.log
    assert cluster.processes("ORCHESTRATOR_NODE=a") == []
