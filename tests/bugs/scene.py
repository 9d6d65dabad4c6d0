"""What the re-enacted reports need beyond the cluster: a lease key by name, a whole node that dies, silence.

Each report is one module: its source and its symptom stand in the head, every clause of what would be right
is asserted. All of a report's kind is tried, and not only what was reported.
"""

import contextlib
import json
import os
import signal
import time
from typing import Any

import psutil

from orchestrator import clock
from orchestrator.store.keys import Keys
from tests.chaos.cluster import JOB, Cluster, Node

LEASE_KEY = Keys("chaos").parts(JOB)["lease"]
"""The witness job's, as people read it in `orchestrator lease`."""


def kill_tree(node: Node) -> float:
    """SIGKILL everything a node is made of, as a machine does that dies; return when, on the boot clock."""
    main = psutil.Process(node.process.pid)
    everything = [main, *main.children(recursive=True)]
    at = clock.boot()
    for process in everything:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    node.exit_status()
    return at


def row(cluster: Cluster, node: Node | None = None) -> dict[str, Any]:
    """Return the witness job's row of `status --json`, told by Redis, or by a node.

    Any: what JSON holds.
    """
    told: dict[str, Any] = cluster.status(node=node)["jobs"][0]
    return told


def row_of(cluster: Cluster, job: str, node: Node | None = None) -> dict[str, Any]:
    """Return the row of one job, as `row`."""
    return next(told for told in cluster.status(node=node)["jobs"] if told["name"] == job)


def history(cluster: Cluster) -> dict[str, Any]:
    """Return what `history --json` tells of the witness job.

    Any: what JSON holds.
    """
    where = ["--file", str(cluster.file), "--redis", cluster.server.url]
    told: dict[str, Any] = json.loads(cluster.command("history", JOB, "--json", "-n", "1000", *where).stdout)
    return told


def wait_until(utc: float) -> None:
    """Wait for an instant of the wall clock, in seconds since 1970."""
    time.sleep(max(0.0, utc - clock.now().utc))  # a tick is an instant: there is nothing else to wait for


def assert_nothing_runs(cluster: Cluster, for_s: float) -> None:
    """Assert that for so long the witness job runs nowhere."""
    since = clock.boot()
    while clock.boot() < since + for_s:
        assert [run for run in cluster.witness.runs() if run.last > since] == []
        time.sleep(0.05)  # what must not happen has no event to wait for
