"""B01: Supervisor/supervisor#595, #944, #1101.

A start script ran the real program without `exec` (sh and then java, npm and then sh and then node): stopping the
program stopped the shell alone, the real process lived on under init, and its port stayed taken. Here a run is its
whole tree, whoever ends it: an order, a node that leaves, or a lease that somebody else has.
"""

import shlex
import signal
import sys
from collections.abc import Callable

import psutil
import pytest

from orchestrator import clock
from tests.bugs.scene import LEASE_KEY
from tests.bugs.starts import order
from tests.chaos.cluster import JOB, TTL_S, Cluster, Node, until
from tests.chaos.witness import FIXTURES, SeenRun

STOP_TIMEOUT_S = 3.0
BUSY_S = 1.0
"""By how much a busy machine may be late."""

SCRIPT = f"env PYTHON={shlex.quote(sys.executable)} sh {shlex.quote(str(FIXTURES / 'wrapper_noexec.sh'))} {{witness}}"

pytestmark = pytest.mark.chaos


def stop(cluster: Cluster, _holder: Node, _run: SeenRun) -> None:
    order(cluster, "stop", "--no-wait")


def end_the_node(_cluster: Cluster, holder: Node, _run: SeenRun) -> None:
    holder.send(signal.SIGTERM)


def take_the_lease(cluster: Cluster, _holder: Node, run: SeenRun) -> None:
    cluster.server.client.set(LEASE_KEY, f"{run.token + 1}|thief|0", px=round(1000 * TTL_S))


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(stop, id="stop is ordered"),
        pytest.param(end_the_node, id="the node is told to go"),
        pytest.param(take_the_lease, id="the lease is taken away"),
    ],
)
def test_the_program_ends_with_the_script_before_it(
    cluster: Cluster, end: Callable[[Cluster, Node, SeenRun], None]
) -> None:
    write(cluster, SCRIPT)
    a, b = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()
    assert psutil.Process(run.pid).parents()[0].name() == "sh"

    end(cluster, a, run)
    told_at = clock.boot()

    until(lambda: not cluster.left_of(pids), "nothing is left", STOP_TIMEOUT_S + BUSY_S)
    gone_at = cluster.witness.now(run).last
    assert gone_at < told_at + STOP_TIMEOUT_S + BUSY_S
    if end is stop:
        order(cluster, "start")
    following = cluster.next_run(run)
    assert following.first > gone_at
    assert following.token > run.token
    assert end is not end_the_node or following.node == b.name
    cluster.judge(runs=2)


@pytest.mark.parametrize(
    ("command", "lasts_s"),
    [
        pytest.param(f"sh -c {shlex.quote(SCRIPT + '; :')}; :", 0.0, id="a script behind scripts"),
        pytest.param(f"{SCRIPT} & wait", 0.0, id="a program in the background"),
        pytest.param(f"setsid {SCRIPT} & wait", 0.0, id="a program with a session of its own"),
        pytest.param(f"trap : TERM; while :; do {SCRIPT}; done", STOP_TIMEOUT_S, id="a script that starts it again"),
        pytest.param(f"trap '' TERM; {SCRIPT}; :", STOP_TIMEOUT_S, id="a program that is deaf to TERM"),
    ],
)
def test_whatever_stands_before_the_program_it_ends(cluster: Cluster, command: str, lasts_s: float) -> None:
    write(cluster, command)
    a = cluster.up("a")
    cluster.run()
    pids = a.pids()

    order(cluster, "stop", "--no-wait")
    told_at = clock.boot()

    until(lambda: not cluster.left_of(pids), "nothing is left", lasts_s + BUSY_S)
    assert max(seen.last for seen in cluster.witness.runs()) < told_at + lasts_s + BUSY_S


def write(cluster: Cluster, command: str) -> None:
    """Write a job whose command is for the shell."""
    line = command.format(witness=shlex.quote(str(cluster.witness.path)))
    cluster.write({JOB: {"command": line, "stop": {"timeout": f"{STOP_TIMEOUT_S:g}s"}}})
