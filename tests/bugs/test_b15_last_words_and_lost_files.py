"""B15: circus-tent/circus#600, Supervisor/supervisor PR#402 and #1098.

Streams were closed before TERM was sent; a log file that was removed was written on for ever, or its rotation
failed and nothing was logged until the next start. Here the whole stop is in the log, what was removed or moved
away is made anew, and a disk that is full or a directory that is closed costs output and never the job.
"""

import contextlib
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bugs.scene import row
from tests.chaos.cluster import Cluster, Node, until
from tests.chaos.witness import FIXTURES

ANEW_WITHIN_S = 2.0
BUSY_S = 1.0
"""By how much a busy machine may be late."""
TALKER = """
import itertools, time
for number in itertools.count():
    print(number, flush=True)
    time.sleep(0.02)
"""

pytestmark = pytest.mark.chaos


@pytest.fixture
def log(cluster: Cluster) -> Path:
    """Return where the talker's output goes; its directory is there."""
    path = cluster.directory / "place" / "talker.log"
    path.parent.mkdir()
    return path


def begin(cluster: Cluster, log: Path) -> Node:
    """Start a node whose one job counts aloud."""
    command = [sys.executable, "-I", "-S", "-c", TALKER]
    cluster.write({"talker": {"command": command, "log": {"file": str(log)}}})
    return cluster.up("a")


def numbers_of(log: Path) -> list[int]:
    """Return the numbers of whole lines."""
    text = log.read_text() if log.exists() else ""
    return [int(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.isdigit()]


def talks(log: Path, *, beyond: int = 0, within_s: float = 15.0) -> int:
    """Wait until a higher number stands in the log; return the highest there is."""
    until(lambda: max(numbers_of(log), default=0) > beyond, "the job talks", within_s)
    return max(numbers_of(log))


def test_the_output_of_the_whole_stop_is_kept(cluster: Cluster) -> None:
    command = ["bash", str(FIXTURES / "term_exit3_slow.sh"), "1"]
    cluster.write({"slow": {"command": command, "stop": {"timeout": "8s"}}})
    node = cluster.up("a")
    output = until(lambda: next(node.state.rglob("slow.log"), None), "it says that it starts")
    until(lambda: "start" in output.read_text(), "it starts")

    stopped = cluster.command("stop", "slow", "--file", str(cluster.file), "--redis", cluster.server.url)

    assert stopped.returncode == 0, stopped.stderr
    assert output.read_text().splitlines()[-2:] == ["got TERM", "last words"]
    assert row(cluster)["last"]["output"][-2:] == ["got TERM", "last words"]


@pytest.mark.parametrize("moved", [True, False], ids=["moved away", "removed"])
def test_a_log_that_is_gone_is_made_anew(cluster: Cluster, log: Path, moved: bool) -> None:
    node = begin(cluster, log)
    talks(log)

    elsewhere = log.with_name("elsewhere")
    log.rename(elsewhere)
    if not moved:
        elsewhere.unlink()
    until(log.exists, "there is a new log", within_s=ANEW_WITHIN_S + BUSY_S)
    talks(log)

    if moved:
        both = numbers_of(elsewhere) + numbers_of(log)
        assert both == list(range(len(both)))
    assert_one_run(cluster, node)
    assert "log.failed" not in node.log


@contextlib.contextmanager
def full_disk(node: Node, log: Path) -> Iterator[None]:
    """Let the leash write no further, as on a full disk (EFBIG for ENOSPC)."""
    leash = node.pids().leash
    before = resource.prlimit(leash, resource.RLIMIT_FSIZE)
    resource.prlimit(leash, resource.RLIMIT_FSIZE, (log.stat().st_size, before[1]))
    yield
    resource.prlimit(leash, resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def no_directory(_node: Node, log: Path) -> Iterator[None]:
    """Put a file where the directory was."""
    shutil.rmtree(log.parent)
    log.parent.touch()
    yield
    log.parent.unlink()


@contextlib.contextmanager
def closed_directory(_node: Node, log: Path) -> Iterator[None]:
    """Remove the log, and let nobody make another."""
    log.unlink()
    log.parent.chmod(0o500)
    yield
    log.parent.chmod(0o700)


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        pytest.param(full_disk, "File too large", id="the disk is full"),
        pytest.param(no_directory, "Not a directory", id="its directory is none any more"),
        pytest.param(
            closed_directory,
            "Permission denied",
            id="its directory is closed",
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root is refused nothing"),
        ),
    ],
)
def test_a_log_that_cannot_be_written_comes_back_by_itself(
    cluster: Cluster,
    log: Path,
    trouble: Callable[[Node, Path], contextlib.AbstractContextManager[None]],
    reason: str,
) -> None:
    node = begin(cluster, log)
    before = talks(log)

    with trouble(node, log):
        node.says("event=log.failed")
    talks(log, beyond=before, within_s=ANEW_WITHIN_S + BUSY_S)

    node.says("event=log.restored")
    assert f"bytes of output lost: {log}: {reason}]" in log.read_text()
    assert node.log.count("event=log.failed") == node.log.count("event=log.restored") == 1
    assert_one_run(cluster, node)


def assert_one_run(cluster: Cluster, node: Node) -> None:
    """Assert that the job felt nothing."""
    assert row(cluster)["state"] == "running"
    assert node.log.count("event=run.started") == 1
