"""What Redis may do to us: no node ever goes for it, no two run, and in the end the job runs.

A short fault does not even disturb the job. In a long one it is stopped before another node could have the
lease, and comes back with Redis.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from orchestrator import clock
from tests.chaos.cluster import HEARTBEAT_S, TTL_S, Cluster, until
from tests.chaos.hole import Hole

pytestmark = pytest.mark.chaos

SHORT_S = 0.4
"""Below what a renewal leaves of a lease until its step-down, the next heartbeat included."""
LONG_S = 2 * TTL_S
BACK_S = TTL_S + 5.0
"""Where data may be lost nothing is taken for one ttl; the rest is for a busy machine."""

PERSISTENT = ("--appendonly", "yes", "--appendfsync", "always")


def hiccup(cluster: Cluster) -> None:
    """CLIENT PAUSE for a moment."""
    cluster.server.client.client_pause(round(1000 * SHORT_S), all=True)


def short_freeze(cluster: Cluster) -> None:
    """SIGSTOP for a moment."""
    cluster.server.pause()
    time.sleep(SHORT_S)
    cluster.server.go_on()


def no_lease_key(cluster: Cluster) -> None:
    """Delete the lease by hand."""
    assert cluster.server.client.delete(cluster.lease_key()) == 1


def no_lease_key_for_long(cluster: Cluster) -> None:
    """Delete the key again and again, for longer than any standby can remember it."""
    key = cluster.lease_key()
    end = clock.boot() + 3 * TTL_S
    while clock.boot() < end:
        cluster.server.client.delete(key)
        time.sleep(0.01)


def garbage(cluster: Cluster) -> None:
    """Put nonsense in the lease's place."""
    cluster.server.client.set(cluster.lease_key(), "garbage")


def lost_connections(cluster: Cluster) -> None:
    """Close every connection but this one."""
    cluster.server.client.client_kill_filter(_type="normal")
    cluster.server.client.client_kill_filter(_type="pubsub")


UNDISTURBED: dict[str, tuple[Callable[[Cluster], object], tuple[str, ...]]] = {
    "CLIENT PAUSE": (hiccup, ()),
    "SIGSTOP": (short_freeze, ()),
    "the lease key deleted": (no_lease_key, ()),
    "the lease key deleted again and again": (no_lease_key_for_long, ()),
    "garbage in the lease key": (garbage, ()),
    "FLUSHALL": (lambda cluster: cluster.server.client.flushall(), ()),
    "SCRIPT FLUSH": (lambda cluster: cluster.server.client.script_flush(), ()),
    "every connection closed": (lost_connections, ()),
    "killed, and back with its data": (lambda cluster: cluster.server.restart(), PERSISTENT),
    "killed, and back empty": (lambda cluster: cluster.server.restart(), ()),
}


@pytest.mark.parametrize(("fault", "options"), UNDISTURBED.values(), ids=UNDISTURBED)
def test_a_short_fault_of_redis_does_not_disturb_the_job(
    make_cluster: Callable[..., Cluster], fault: Callable[[Cluster], object], options: tuple[str, ...]
) -> None:
    cluster = make_cluster(*options)
    cluster.two_nodes()
    run = cluster.run()

    fault(cluster)

    cluster.undisturbed(run, TTL_S + 2 * HEARTBEAT_S)
    cluster.assert_all_alive()
    cluster.judge(runs=1)


def test_the_job_outlives_a_server_that_is_out_of_memory(cluster: Cluster) -> None:
    a, b = cluster.two_nodes()
    run = cluster.run()

    cluster.server.client.config_set("maxmemory-policy", "noeviction")
    cluster.server.client.config_set("maxmemory", 1)
    for node in (a, b):
        node.says('event=redis.silent problem="OOM: it is out of memory"')
    cluster.undisturbed(run, LONG_S)
    cluster.server.client.config_set("maxmemory", 0)

    for node in (a, b):
        node.says("event=redis.answers")
    cluster.assert_all_alive()
    cluster.undisturbed(run, HEARTBEAT_S)
    cluster.judge(runs=1)


@contextmanager
def paused(cluster: Cluster) -> Iterator[None]:
    """CLIENT PAUSE; it ends by itself, after the test has looked (it would hold up CLIENT UNPAUSE too)."""
    cluster.server.client.client_pause(round(1000 * (LONG_S + 2.0)), all=True)
    yield


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """SIGSTOP."""
    cluster.server.pause()
    yield
    cluster.server.go_on()


@contextmanager
def down(cluster: Cluster) -> Iterator[None]:
    """SIGKILL, and another start."""
    cluster.server.stop()
    yield
    cluster.server.start()


@contextmanager
def full(cluster: Cluster) -> Iterator[None]:
    """Too many clients."""
    cluster.server.client.config_set("maxclients", 1)
    lost_connections(cluster)
    yield
    cluster.server.client.config_set("maxclients", 1000)


@contextmanager
def locked(cluster: Cluster) -> Iterator[None]:
    """Another password."""
    cluster.server.client.config_set("requirepass", "another")
    lost_connections(cluster)
    yield
    cluster.server.client.config_set("requirepass", "")


@contextmanager
def read_only(cluster: Cluster) -> Iterator[None]:
    """A replica, of nobody who answers."""
    cluster.server.client.replicaof("127.0.0.1", "1")
    yield
    cluster.server.client.replicaof("NO", "ONE")


OUTAGES: dict[str, tuple[Callable[[Cluster], AbstractContextManager[None]], tuple[str, ...]]] = {
    "CLIENT PAUSE": (paused, ()),
    "SIGSTOP": (frozen, ()),
    "killed, and back with its data": (down, PERSISTENT),
    "killed, and back empty": (down, ()),
    "max clients": (full, ()),
    "another password": (locked, ()),
    "READONLY": (read_only, ()),
}


@pytest.mark.parametrize(("outage", "options"), OUTAGES.values(), ids=OUTAGES)
def test_in_a_long_outage_the_job_steps_down_in_time_and_comes_back(
    make_cluster: Callable[..., Cluster],
    outage: Callable[[Cluster], AbstractContextManager[None]],
    options: tuple[str, ...],
) -> None:
    cluster = make_cluster(*options)
    a, _ = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    struck_at = clock.boot()
    with outage(cluster):
        until(lambda: not cluster.left_of(pids), "the run is stopped", TTL_S)
        assert cluster.status(node=a)["redis"]["ok"] is False
        until(lambda: clock.boot() >= struck_at + LONG_S, "the outage is long", LONG_S)
        assert cluster.witness.newer_than(run) is None, "without Redis nothing runs"

    cluster.next_run(run, within_s=BACK_S)
    cluster.assert_all_alive()
    cluster.judge(runs=2)


LOSSES: dict[str, Callable[[Cluster], object]] = {
    "FLUSHALL": lambda cluster: cluster.server.client.flushall(),
    "an empty restart": lambda cluster: cluster.server.restart(),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("is_cut_off", [True, False], ids=["the holder is cut off", "the holder is killed"])
def test_data_lost_while_the_holder_cannot_put_its_lease_back_makes_no_second_run(
    cluster: Cluster, hole: Hole, lose: Callable[[Cluster], object], *, is_cut_off: bool
) -> None:
    a, _ = cluster.two_nodes(url=hole.url)
    run, pids = cluster.run(), a.pids()

    if is_cut_off:
        hole.swallow()
    else:
        a.send(signal.SIGKILL)
    lose(cluster)
    following = cluster.next_run(run, within_s=BACK_S)

    assert cluster.left_of(pids) == []
    hole.heal()
    cluster.undisturbed(following, 2 * HEARTBEAT_S)
    cluster.judge(runs=2)


def test_a_lease_key_deleted_before_a_newcomer_comes_is_put_back_and_not_taken(cluster: Cluster) -> None:
    cluster.two_nodes()
    run = cluster.run()
    key = cluster.lease_key()

    newcomer = cluster.up("c", new_cluster=False, joins=False)
    newcomer.says("event=node.up")
    while "event=node.joined" not in newcomer.log:  # some milliseconds; gone for a whole ttl it would be given away
        cluster.server.client.delete(key)

    cluster.undisturbed(run, TTL_S + 2 * HEARTBEAT_S)
    cluster.assert_all_alive()
    cluster.judge(runs=1)
