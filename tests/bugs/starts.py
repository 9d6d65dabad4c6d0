"""Jobs that end soon, and the file in which each of their starts stands."""

import shlex
from pathlib import Path

from tests.chaos.cluster import JOB, Cluster, until


class Starts:
    """The starts of one job, as it counts them itself: a line each, with the node."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin with none."""
        self._path = Path(cluster.directory) / "starts"

    def command(self, then: str) -> str:
        """Return a shell's command that notes its start and goes on with `then`, which may use `$n`, its number."""
        path = shlex.quote(str(self._path))
        return f"echo $ORCHESTRATOR_NODE >> {path}; n=$(wc -l < {path}); {then}"

    @property
    def nodes(self) -> list[str]:
        """The nodes on which it was started, in order."""
        return self._path.read_text().split() if self._path.exists() else []

    def reach(self, count: int, within_s: float = 30.0) -> None:
        """Wait for a number of starts."""
        until(lambda: len(self.nodes) >= count, f"it is started {count} times", within_s)


def order(cluster: Cluster, *words: str) -> None:
    """Give an order about the job from another machine, and wait until it is done."""
    done = cluster.command(*words, JOB, "--file", str(cluster.file), "--redis", cluster.server.url)
    assert done.returncode == 0, done.stderr
