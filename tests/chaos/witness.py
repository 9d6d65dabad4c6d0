"""What really ran, and when: the word of `tests/fixtures/ticker.py`, which knows nothing of us.

It appends a line every 20 ms for as long as it lives: wall clock, boot clock, pid, fencing token, node.
`tests/fixtures/overlap.py` is the judge over what stands there.
"""

import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import clock

FIXTURES = Path(__file__).parents[1] / "fixtures"

FRESH_S = 0.3
"""Who ticked so lately is running; fifteen ticks, since a busy machine may skip some."""

DEAF = "trap '' TERM;"
"""A prefix for its command: the ticker inherits it, does not hear SIGTERM, and lives until SIGKILL."""


@dataclass(frozen=True, slots=True)
class SeenRun:
    """One run as the witness saw it.

    Attributes:
        first: Its first tick, on the boot clock.
        last: Its newest tick.
        longest_pause_s: The longest time between two of its ticks.
    """

    pid: int
    token: int
    node: str
    first: float
    last: float
    longest_pause_s: float = 0.0


class Witness:
    """The file that the ticker writes: whole lines, each by one write."""

    def __init__(self, path: Path) -> None:
        """Note where; nothing needs to be there yet."""
        self.path = path
        self._read_bytes = 0
        self._seen: dict[tuple[str, str], SeenRun] = {}

    def command(self, prefix: str = "") -> list[str]:
        """Return the command of a job that ticks, beside a child that left its session; `prefix` is shell."""
        ticker = f'exec "{sys.executable}" -I -S "{FIXTURES / "ticker.py"}" "{self.path}"'
        return ["sh", "-c", f"{prefix} setsid sleep 300 & {ticker}"]

    def runs(self) -> list[SeenRun]:
        """Return every run, in the order of their first ticks."""
        for line in self._new_lines():
            _, boot, *who = line.split()
            at, (pid, token, node) = float(boot), who
            known = self._seen.get((pid, token)) or SeenRun(int(pid), int(token), node, first=at, last=at)
            pause_s = max(known.longest_pause_s, at - known.last)
            self._seen[pid, token] = replace(known, last=at, longest_pause_s=pause_s)
        return list(self._seen.values())

    def _new_lines(self) -> list[str]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]  # the last line may be half written
        self._read_bytes += len(whole)
        return whole.decode().splitlines()

    def running(self) -> SeenRun | None:
        """Return the run that ticks now, None if none does."""
        fresh_since = clock.boot() - FRESH_S
        return next((run for run in reversed(self.runs()) if run.last >= fresh_since), None)

    def newer_than(self, run: SeenRun) -> SeenRun | None:
        """Return the run that followed this one, None if none did."""
        return next((other for other in self.runs() if other.first > run.first), None)

    def now(self, run: SeenRun) -> SeenRun:
        """Return the same run as it stands in the file now."""
        return next(seen for seen in self.runs() if seen.pid == run.pid and seen.token == run.token)

    def judge(self, *, runs: int) -> None:
        """Assert that no two ran at once, no token went back, and at least so many runs were seen."""
        judge = subprocess.run(
            [sys.executable, str(FIXTURES / "overlap.py"), str(self.path), str(runs)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert judge.returncode == 0, judge.stdout + judge.stderr
