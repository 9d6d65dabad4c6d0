"""B04: ybrs/single-beat#20, PR#21.

The reporter deleted the key with redis-cli: every timer call of the holder ended in an AttributeError, and its
child went on while another node could start one. Here the holder puts its lease back under the same token, since
no newer one was issued; and where it cannot, because it is frozen, nobody else starts before it has stopped.
"""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.bugs.scene import LEASE_KEY, row
from tests.chaos.cluster import HEARTBEAT_S, JOB, TTL_S, Cluster, until


def delete(client: Any, key: str) -> None:
    client.delete(key)


def overwrite(client: Any, key: str) -> None:
    client.set(key, "garbage")


def change_type(client: Any, key: str) -> None:
    client.delete(key)
    client.hset(key, "field", "value")


def flush(client: Any, _key: str) -> None:
    client.flushall()


Tamper = Callable[[Any, str], None]

TAMPERINGS = [
    pytest.param(delete, id="deleted"),
    pytest.param(overwrite, id="overwritten with garbage"),
    pytest.param(change_type, id="made a hash"),
    pytest.param(flush, id="flushed with everything else"),
]

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_the_holder_puts_its_lease_back_and_the_job_runs_on(cluster: Cluster, tamper: Tamper) -> None:
    holder, standby = cluster.two_nodes()
    run = cluster.run()
    said_before = about_the_job(holder.log)

    tamper(cluster.server.client, LEASE_KEY)

    holder.says("event=lease.put_back", within_s=2 * HEARTBEAT_S + 1)
    assert cluster.server.client.get(LEASE_KEY).startswith(f"{run.token}|{run.node}|")
    cluster.undisturbed(run, for_s=TTL_S + HEARTBEAT_S)
    (line,) = about_the_job(holder.log)[len(said_before) :]
    assert f"level=warning event=lease.put_back job={JOB} token={run.token}" in line
    assert about_the_job(standby.log) == []
    # The counter of tokens may be gone; the next one is greater all the same, and needs no ttl.
    told_at = holder.send(signal.SIGTERM)
    following = cluster.next_run(run)
    assert following.first < told_at + TTL_S
    assert following.token > run.token
    assert "Traceback" not in holder.log + standby.log
    cluster.judge(runs=2)


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_nobody_starts_before_a_frozen_holder_has_stopped(cluster: Cluster, tamper: Tamper) -> None:
    holder, standby = cluster.two_nodes()
    run, pids = cluster.run(), holder.pids()

    frozen_at = holder.send(signal.SIGSTOP)
    tamper(cluster.server.client, LEASE_KEY)

    assert row(cluster)["holder"] != holder.name
    # A flush is lost data: then everybody waits one ttl from when it was noticed.
    following = cluster.next_run(run, within_s=TTL_S + HEARTBEAT_S + TTL_S)
    assert following.node == standby.name
    assert following.token > run.token
    assert cluster.witness.now(run).last < frozen_at + TTL_S
    assert cluster.left_of(pids) == []
    holder.send(signal.SIGCONT)
    until(lambda: "event=lease.lost" in holder.log or "event=lease.ended" in holder.log, "the holder knows")
    cluster.undisturbed(following, for_s=TTL_S)
    assert "Traceback" not in holder.log + standby.log
    cluster.judge(runs=2)


def about_the_job(log: str) -> list[str]:
    """Return the lines a node said about the witness job."""
    return [line for line in log.splitlines() if f"job={JOB}" in line]
