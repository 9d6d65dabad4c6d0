"""B05: ybrs/single-beat#35.

On a redeploy the lease stayed with the holder that had been told to go, so that the job stood still for the rest
of 300 s; asked for was: wait for the child, kill it if it does not end, then give the lease back. Here that is how
it is, and the lease is renewed for as long as a stop takes, be it longer than its ttl.
"""

import signal
import sys

import pytest

from orchestrator import clock
from tests.bugs.scene import LEASE_KEY, row
from tests.chaos.cluster import JOB, Cluster, Node, until
from tests.chaos.witness import FIXTURES, SeenRun

TTL_S = 10.0
STEP_DOWN_GRACE_S = TTL_S / 3
BUSY_S = 1.0
"""By how much a busy machine may be late."""

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(
    ("signals", "lasts_s"),
    [
        pytest.param([signal.SIGTERM], 6.0, id="TERM waits for the child"),
        pytest.param([signal.SIGTERM] * 2, STEP_DOWN_GRACE_S, id="TERM twice shortens the grace"),
        pytest.param([signal.SIGINT] * 2, STEP_DOWN_GRACE_S, id="ctrl-C twice shortens the grace"),
        pytest.param([signal.SIGTERM] * 3, 0.0, id="TERM three times kills"),
    ],
)
def test_the_lease_is_given_back_when_the_child_is_gone(
    cluster: Cluster, signals: list[signal.Signals], lasts_s: float
) -> None:
    write_slow(cluster, child_s=6, timeout_s=8)
    a, b = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    told_at = tell(a, signals)

    following = cluster.next_run(run, within_s=lasts_s + 2 * BUSY_S + 1.0)
    gone_at = cluster.witness.now(run).last
    assert lasts_s - 0.1 < gone_at - told_at < lasts_s + BUSY_S
    assert following.node == b.name
    assert following.first - gone_at < 2.0
    assert a.exit_status(within_s=2.0) == 0
    assert cluster.left_of(pids) == []
    assert a.log.index("event=run.ended") < a.log.index("event=lease.released")
    cluster.judge(runs=2)
    go_at_once(b)


def test_the_child_is_told_at_once_and_its_last_words_are_kept(cluster: Cluster) -> None:
    write_slow(cluster, child_s=1, timeout_s=8)
    a, b = cluster.two_nodes()
    run = cluster.run()
    output = next(a.state.rglob(f"{JOB}.log"))

    told_at = a.send(signal.SIGTERM)

    until(lambda: "got TERM" in output.read_text(), "the child is told", within_s=BUSY_S)
    assert clock.boot() - told_at < BUSY_S
    cluster.next_run(run)
    assert output.read_text().splitlines()[-2:] == ["got TERM", "last words"]
    assert row(cluster)["last"]["exit_code"] == 3
    cluster.judge(runs=2)
    go_at_once(b)


def test_the_lease_is_renewed_while_a_stop_takes_longer_than_its_ttl(cluster: Cluster) -> None:
    child_s = 1.3 * TTL_S
    write_slow(cluster, child_s=child_s, timeout_s=20)
    a, b = cluster.two_nodes()
    run = cluster.run()

    told_at = a.send(signal.SIGTERM)

    a.says("event=node.leaving")
    until(lambda: row(cluster)["state"] == "stopping", "everybody sees it stopping")
    least_ms = least_left_ms(cluster, run)
    gone_at = cluster.witness.now(run).last
    assert child_s - 0.1 < gone_at - told_at < child_s + BUSY_S
    assert least_ms > 1000 * TTL_S / 2
    following = cluster.next_run(run)
    assert (following.node, following.first - gone_at < 2.0) == (b.name, True)
    cluster.judge(runs=2)
    go_at_once(b)


def write_slow(cluster: Cluster, *, child_s: float, timeout_s: float) -> None:
    """Write a job that takes `child_s` to end after TERM, with the witness beside it to the very last."""
    ticker = [sys.executable, "-I", "-S", str(FIXTURES / "ticker.py"), str(cluster.witness.path)]
    command = ["bash", str(FIXTURES / "term_exit3_slow.sh"), str(child_s), *ticker]
    cluster.write({JOB: {"command": command, "stop": {"timeout": f"{timeout_s:g}s"}}}, ttl_s=TTL_S)


def tell(node: Node, signals: list[signal.Signals]) -> float:
    """Send signals, each when the one before has been understood; return when the first was sent."""
    told_at = clock.boot()
    for count, signum in enumerate(signals, start=1):
        node.send(signum)
        node.says("event=node.leaving", times=count)
    return told_at


def go_at_once(node: Node) -> None:
    """End a node without waiting for its child."""
    tell(node, [signal.SIGTERM] * 3)
    assert node.exit_status() == 0


def least_left_ms(cluster: Cluster, run: SeenRun) -> int:
    """Return the least that was left of a run's lease, until another run followed it."""
    client = cluster.server.client
    left_ms: list[int] = []

    def followed() -> bool:
        left, value = client.pttl(LEASE_KEY), client.get(LEASE_KEY)
        if value is not None and value.startswith(f"{run.token}|"):
            left_ms.append(left)
            return False
        return True

    until(followed, "the lease is given back", within_s=2 * TTL_S)
    return min(left_ms)
