"""Main, launcher and leash, killed and frozen, alone and in pairs: never two, nothing left, running again.

Which of them acts, and when, the tests of `tests/runs` say; here two whole nodes and the witness do.
"""

import itertools
import os
import signal

import pytest

from orchestrator.runs import linux
from tests.chaos.cluster import HEARTBEAT_S, TTL_S, Cluster, until

pytestmark = pytest.mark.chaos

NOTICED_S = 12.0
"""Main looks every 10 s after what is frozen, and waits 2 s for an answer."""
SLACK_S = 5.0
"""Starting an interpreter, a restart's delay, a busy machine."""

Fault = tuple[str, signal.Signals]
SINGLES = list(itertools.product(("main", "launcher", "leash"), (signal.SIGKILL, signal.SIGSTOP)))
PAIRS = [(one, other) for one, other in itertools.combinations(SINGLES, 2) if one[0] != other[0]]


def named(faults: tuple[Fault, ...]) -> str:
    """Return the name of a case."""
    return " and ".join(f"{signum.name} of {who}" for who, signum in faults)


@pytest.mark.parametrize("faults", [*((fault,) for fault in SINGLES if fault[0] != "launcher"), *PAIRS], ids=named)
def test_the_job_runs_again_and_nothing_of_its_old_run_is_left(cluster: Cluster, faults: tuple[Fault, ...]) -> None:
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    for who, signum in reversed(faults):  # the lowest first: it would be gone, or act, before its own blow
        os.kill(getattr(pids, who), signum)
    following = cluster.next_run(run, within_s=NOTICED_S + TTL_S + SLACK_S)

    assert cluster.left_of(pids) == []
    for who, signum in faults:
        if signum is signal.SIGSTOP and linux.state(getattr(pids, who)) == "T":
            os.kill(getattr(pids, who), signal.SIGCONT)
    cluster.undisturbed(following, 2 * HEARTBEAT_S)
    cluster.judge(runs=2)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP], ids=lambda signum: signum.name)
def test_a_run_goes_on_without_its_launcher_and_gets_a_new_one(cluster: Cluster, signum: signal.Signals) -> None:
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    os.kill(pids.launcher, signum)
    until(lambda: a.has_launcher(other_than=pids.launcher), "a new launcher", NOTICED_S + SLACK_S)

    cluster.undisturbed(run, TTL_S)
    cluster.judge(runs=1)


def test_a_killed_leash_costs_its_node_nothing_but_the_run(cluster: Cluster) -> None:
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    os.kill(pids.leash, signal.SIGKILL)
    following = cluster.next_run(run)

    assert (following.node, following.token) == (run.node, run.token)
    assert cluster.left_of(pids) == []
    cluster.judge(runs=2)
