"""B06: sibson/redbeat#208, PR#240.

A connection error in the hook that takes the lock was ignored: the scheduler ran with `lock = None`, and several of
them did. Here no answer is no lease and no lease is no run, whatever the reason: away, NOAUTH, LOADING, OOM,
MISCONF. The nodes stay, say what they wait for, and exactly one runs the job when Redis can be relied on again.
"""

import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator import clock
from tests.bugs.scene import assert_nothing_runs, kill_tree, row
from tests.chaos.cluster import HEARTBEAT_S, JOB, TTL_S, Cluster, Node, until
from tests.servers import Server

CLOCK_RATE_ERROR = 0.01
"""By how much two clocks' rates may differ; a quarantine is longer than a ttl by that."""
BUSY_S = 1.0
"""By how much a busy machine may be late."""
SLOWEST_LOAD_S = 60.0

pytestmark = pytest.mark.chaos


@dataclass(frozen=True, slots=True)
class Trouble:
    """A reason for which Redis refuses to write, made and ended by hand.

    Attributes:
        shown: What the nodes say of it.
    """

    begin: Callable[[Any, Path], object]
    end: Callable[[Any, Path], object]
    shown: str


def ask_for_a_password(client: Any, _directory: Path) -> None:
    client.config_set("requirepass", "x")
    client.client_kill_filter(_type="normal", skipme=True)


def ask_for_none(client: Any, _directory: Path) -> None:
    client.config_set("requirepass", "")


def fail_to_save(client: Any, directory: Path) -> None:
    (directory / "dump.rdb").mkdir()  # no file can be renamed to it, not even by root
    client.config_set("save", "3600 1")
    save(client)


def save_again(client: Any, directory: Path) -> None:
    (directory / "dump.rdb").rmdir()
    save(client)


def save(client: Any) -> None:
    client.bgsave()
    until(lambda: not client.info("persistence")["rdb_bgsave_in_progress"], "the save ends")


def fill(client: Any, _directory: Path) -> None:
    client.config_set("maxmemory", 1)


def make_room(client: Any, _directory: Path) -> None:
    client.config_set("maxmemory", 0)


NOAUTH = Trouble(ask_for_a_password, ask_for_none, "login was refused")
MISCONF = Trouble(fail_to_save, save_again, "MISCONF")
OOM = Trouble(fill, make_room, "OOM")


def test_nothing_runs_while_redis_is_away_and_then_one_node_runs_the_job(cluster: Cluster) -> None:
    ttl_s = 2 * TTL_S  # so long that the quarantine can be looked at
    cluster.write(ttl_s=ttl_s)
    cluster.server.stop()
    nodes = [cluster.up(name, new_cluster=False, joins=False) for name in ("a", "b")]
    for node in nodes:
        node.says("event=redis.silent")

    assert_nothing_runs(cluster, for_s=TTL_S + HEARTBEAT_S)
    for node in nodes:
        assert_it_waits(cluster, node, "connection refused")

    cluster.server.start()
    answers_at = clock.boot()

    nodes[0].says("event=quarantine.began")
    waiting = row(cluster, nodes[0])
    assert waiting["state"] == "blocked"
    assert "first contact with a fresh Redis" in waiting["why"]
    run = cluster.run()
    assert run.first < answers_at + ttl_s * (1 + CLOCK_RATE_ERROR) + ttl_s / 5 + BUSY_S
    cluster.undisturbed(run, for_s=2 * HEARTBEAT_S)
    cluster.assert_all_alive()
    cluster.judge(runs=1)


@pytest.mark.parametrize(
    "trouble", [pytest.param(NOAUTH, id="NOAUTH"), pytest.param(MISCONF, id="MISCONF"), pytest.param(OOM, id="OOM")]
)
def test_nothing_is_started_while_redis_refuses(cluster: Cluster, trouble: Trouble) -> None:
    client, directory = cluster.server.client, cluster.server.socket.parent
    trouble.begin(client, directory)
    nodes = [cluster.up(name, joins=False) for name in ("a", "b")]
    for node in nodes:
        node.says("event=redis.silent")

    assert_nothing_runs(cluster, for_s=TTL_S + HEARTBEAT_S)
    for node in nodes:
        assert_it_waits(cluster, node, trouble.shown)

    trouble.end(client, directory)

    run = cluster.run()
    cluster.undisturbed(run, for_s=2 * HEARTBEAT_S)
    cluster.assert_all_alive()
    cluster.judge(runs=1)


@pytest.mark.parametrize("trouble", [pytest.param(NOAUTH, id="NOAUTH"), pytest.param(MISCONF, id="MISCONF")])
def test_what_runs_is_ended_in_time_when_its_lease_cannot_be_renewed(cluster: Cluster, trouble: Trouble) -> None:
    client, directory = cluster.server.client, cluster.server.socket.parent
    a, b = cluster.two_nodes()
    run, pids = cluster.run(), a.pids()

    began_at = clock.boot()
    trouble.begin(client, directory)

    for node in (a, b):
        node.says("event=redis.silent")
    a.says("event=lease.ended")
    assert cluster.witness.now(run).last < began_at + TTL_S
    assert cluster.left_of(pids) == []
    assert_nothing_runs(cluster, for_s=2 * HEARTBEAT_S)
    for node in (a, b):
        assert_it_waits(cluster, node, trouble.shown)

    trouble.end(client, directory)

    following = cluster.next_run(run)
    assert following.token > run.token
    cluster.undisturbed(following, for_s=2 * HEARTBEAT_S)
    cluster.assert_all_alive()
    cluster.judge(runs=2)


def test_what_runs_goes_on_while_redis_is_out_of_memory_but_nobody_takes_it_over(cluster: Cluster) -> None:
    """A renewal needs no memory; a new lease does."""
    client, directory = cluster.server.client, cluster.server.socket.parent
    a, b = cluster.two_nodes()
    run = cluster.run()

    OOM.begin(client, directory)

    b.says("event=redis.silent")
    cluster.undisturbed(run, for_s=TTL_S + HEARTBEAT_S)
    kill_tree(a)
    assert_nothing_runs(cluster, for_s=TTL_S + 2 * HEARTBEAT_S)
    assert_it_waits(cluster, b, OOM.shown)

    OOM.end(client, directory)

    following = cluster.next_run(run)
    assert (following.node, following.token > run.token) == (b.name, True)
    cluster.judge(runs=2)


def test_nothing_runs_while_redis_reads_its_data(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.START_LIMIT_S", SLOWEST_LOAD_S)
    a, b = cluster.two_nodes()
    run = cluster.run()
    cluster.server = slow_to_load(cluster.server)

    stopped_at = clock.boot()
    with ThreadPoolExecutor(max_workers=1) as pool:
        started = pool.submit(cluster.server.start)
        a.says("event=lease.ended")
        for node in (a, b):
            assert_it_waits(cluster, node, "LOADING")
        assert cluster.witness.now(run).last < stopped_at + TTL_S
        assert cluster.witness.running() is None
        load_the_rest(cluster.server)
        started.result()

    following = cluster.next_run(run)
    assert following.token > run.token
    cluster.undisturbed(following, for_s=2 * HEARTBEAT_S)
    cluster.assert_all_alive()
    cluster.judge(runs=2)


def assert_it_waits(cluster: Cluster, node: Node, problem: str) -> None:
    """Assert that a node lives and tells which job waits, and for what."""
    told = until(lambda: says(cluster.status(node=node), problem), f"{node.name} says `{problem}`")
    (job,) = told["jobs"]
    assert (job["name"], job["state"], job["holder"]) == (JOB, "unheld", None)
    assert re.fullmatch(rf"waits for its lease: Redis does not answer \(.*{problem}.*\)", job["why"])
    assert node.alive


def says(told: dict[str, Any], problem: str) -> dict[str, Any]:
    """Return a status that names the problem with Redis, or nothing."""
    return told if not told["redis"]["ok"] and problem in told["redis"]["problem"] else {}


def slow_to_load(server: Server) -> Server:
    """Save and stop; return the server that will read its data so slowly that it must be told to hurry."""
    server.client.config_set("rdbcompression", "no")
    server.client.mset({f"key {number}": "x" * 1100 for number in range(5000)})
    server.client.save()
    server.stop()
    # It sleeps 10 ms a key, and looks at its clients once a KiB, that is once a key.
    slowly = ("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
    return Server(server._binary, server.socket.parent, *slowly, port=server.port)


def load_the_rest(server: Server) -> None:
    """Let the server read the rest of its data at once."""
    # Not the client: what it says first on a connection is refused while the server loads.
    with socket.create_connection(("127.0.0.1", server.port or 0)) as connection:
        connection.sendall(b"CONFIG SET key-load-delay 0\r\n")
        assert connection.recv(16) == b"+OK\r\n"
