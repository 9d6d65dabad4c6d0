"""B14: aptible/supercronic#36.

After millions of lines the jobs and the scheduler froze in the middle of a line: nobody read any more. Here the
output never waits for anybody who looks, is bounded on the disk and in memory, and no other job feels it.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.runs.logs import LONGEST_OVERRUN_BYTES
from tests.bugs.scene import LEASE_KEY
from tests.chaos.cluster import Cluster, Node, until
from tests.chaos.witness import FIXTURES

TTL_S = 6.0
HEARTBEAT_S = TTL_S / 5
LINES = 200_000  # 20 MB
PIECES_OF_A_LINE = 50_000  # one line of 5 MB
MAX_BYTES, BACKUPS = 1_000_000, 3
LATEST_RENEWAL_S = 1.0
MOST_MEMORY_BYTES = 50_000_000
WITHIN_S = 60.0

pytestmark = pytest.mark.chaos


@pytest.fixture
def onlookers(cluster: Cluster) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return those who watch and do not read what they are told; they are ended."""
    begun: list[subprocess.Popen[bytes]] = []
    yield begun
    for process in begun:
        process.kill()
        process.communicate()
    assert cluster.server.client.ping()


def watch(cluster: Cluster, *args: str) -> subprocess.Popen[bytes]:
    """Start a command that shows something again and again, into a pipe that nobody reads."""
    command = [sys.executable, "-m", "orchestrator", *args, "--redis", cluster.server.url, "--file", str(cluster.file)]
    return subprocess.Popen(command, env=cluster.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("watched", [True, False], ids=["while somebody watches", "while nobody does"])
def test_a_flood_of_lines_ends_and_nobody_feels_it(
    cluster: Cluster, onlookers: list[subprocess.Popen[bytes]], watched: bool
) -> None:
    node = begin(cluster, str(LINES))
    if watched:
        state = ["--state-dir", str(node.state)]
        onlookers += [watch(cluster, "status", "--watch"), watch(cluster, "logs", "-f", "flood", *state)]

    last = assert_it_passes_unfelt(cluster, node)

    numbers = [int(line[:8]) for line in written(node).splitlines()[:-1]]
    assert (last["outcome"], last["exit_code"]) == ("ok", 0)
    assert numbers == list(range(LINES - len(numbers), LINES))
    assert written(node).endswith(b"y\nEND\n")


def test_a_line_without_end_ends_too(cluster: Cluster) -> None:
    node = begin(cluster, str(PIECES_OF_A_LINE), "nonewline")

    last = assert_it_passes_unfelt(cluster, node)

    assert (last["outcome"], last["exit_code"]) == ("ok", 0)
    assert written(node).endswith(b"yyyEND\n")


def begin(cluster: Cluster, *args: str) -> Node:
    """Start a node with the witness and a job that writes much, once."""
    # It begins when the first look at everybody has been taken.
    flood = [sys.executable, "-I", "-S", str(FIXTURES / "flood.py"), *args]
    command = ["sh", "-c", 'sleep 1; exec "$@"', "sh", *flood]
    log = {"max_size": f"{MAX_BYTES}B", "backups": BACKUPS}
    job = {"command": command, "restart": "never", "log": log}
    cluster.write({"ticker": {"command": cluster.witness.command()}, "flood": job}, ttl_s=TTL_S)
    node = cluster.up("a")
    cluster.run()
    return node


def assert_it_passes_unfelt(cluster: Cluster, node: Node) -> dict[str, Any]:
    """Wait until the flood is over, and assert that nobody feels it; return the record of its run."""
    witnessed = cluster.run()
    memory_bytes = [memory_of(node)]
    left_s: list[float] = []

    def over() -> bool:
        memory_bytes.append(memory_of(node))
        left_s.append(cluster.server.client.pttl(LEASE_KEY) / 1000)
        return "event=run.ended job=flood" in node.log

    until(over, "the flood is over", within_s=WITHIN_S)

    assert max(memory_bytes) - memory_bytes[0] < MOST_MEMORY_BYTES
    assert min(left_s) > TTL_S - HEARTBEAT_S - LATEST_RENEWAL_S
    assert cluster.witness.newer_than(witnessed) is None
    for path in files(node):
        assert path.stat().st_size <= MAX_BYTES + LONGEST_OVERRUN_BYTES
    assert len(files(node)) <= BACKUPS + 1
    last: dict[str, Any] = until(lambda: cluster.status("flood")["jobs"][0]["last"], "its end is on record")
    return last


def files(node: Node) -> list[Path]:
    """Return the log of the flood and its backups, the oldest first."""
    return sorted(node.state.rglob("flood.log*"), reverse=True)  # flood.log.2, flood.log.1, flood.log


def written(node: Node) -> bytes:
    """Return all that is kept of the flood."""
    return b"".join(path.read_bytes() for path in files(node))


def memory_of(node: Node) -> int:
    """Return what main, the launcher and the leashes have for themselves."""
    main = psutil.Process(node.process.pid)
    total = 0
    for process in [main, *main.children(recursive=True)]:
        try:
            if process.pid == main.pid or process.name().startswith("orch-"):
                total += process.memory_full_info().uss
        except psutil.NoSuchProcess:
            continue
    return total
