"""Jobs that end soon, and the file in which each of their starts stands."""

import shlex
from dataclasses import dataclass
from datetime import datetime
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


@dataclass(frozen=True, slots=True)
class KeptTick:
    """One run of a cron, as it told it itself.

    Attributes:
        tick: What it was for, in seconds since 1970.
        at: When it ran, likewise.
    """

    tick: float
    token: int
    node: str
    at: float

    @property
    def late_s(self) -> float:
        """How long after its tick it ran."""
        return self.at - self.tick


class KeptTicks:
    """The runs of one cron: a line each, which the run only appends."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin with none."""
        self._path = Path(cluster.directory) / "ticks"

    @property
    def command(self) -> str:
        """What the cron does, for the shell."""
        words = "$ORCHESTRATOR_TICK $ORCHESTRATOR_FENCING_TOKEN $ORCHESTRATOR_NODE $(date +%s.%N)"
        return f"echo {words} >> {shlex.quote(str(self._path))}"

    @property
    def all(self) -> list[KeptTick]:
        """Every run, in the order in which they ran."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        told = [line.split() for line in lines]
        return [
            KeptTick(datetime.fromisoformat(tick).timestamp(), int(token), node, float(at))
            for tick, token, node, at in told
        ]

    def reach(self, tick: float, within_s: float) -> KeptTick:
        """Wait for the run of a tick."""
        found = until(lambda: [run for run in self.all if run.tick == tick], f"the tick {tick:.0f} runs", within_s)
        return found[0]


def order(cluster: Cluster, *words: str) -> None:
    """Give an order about the job from another machine, and wait until it is done."""
    done = cluster.command(*words, JOB, "--file", str(cluster.file), "--redis", cluster.server.url)
    assert done.returncode == 0, done.stderr
