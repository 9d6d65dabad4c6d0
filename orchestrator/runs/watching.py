"""How a run is while it runs: its health checks and its memory.

It knows runs whose command runs; it must never know what follows from an answer, nor how a run ends.
Nothing is asked of a run any more once it was told to end: whoever is being stopped may fail its checks.
"""

from collections.abc import Callable

from orchestrator.core.messages import RunChecked, RunMeasured
from orchestrator.core.nouns import RunId
from orchestrator.runs import wire
from orchestrator.runs.health import Checks
from orchestrator.runs.live_run import LiveRun
from orchestrator.runs.measure import Measuring

Answer = Callable[[bool, str], None]
"""Told whether a run is healthy, and why not, in one clause."""


class Watching:
    """What main asks about the runs of one node."""

    def __init__(self, deliver: Callable[[RunChecked | RunMeasured], None]) -> None:
        """Begin with no run; `deliver` is told the answers, on the event loop."""
        self._checks = Checks(deliver, self.ask)
        self._measuring = Measuring(deliver)
        self._runs: dict[RunId, LiveRun] = {}
        self._waiting: dict[RunId, dict[int, Answer]] = {}
        self._last_number = 0

    def begin(self, run: LiveRun) -> None:
        """Watch a run whose command runs now, as its spec says."""
        name = run.order.run
        self._runs[name] = run
        if run.spec.health is not None:
            self._checks.begin(run.order.job, name, run.spec.health)
        if run.spec.max_rss_bytes is not None:
            self._measuring.begin(run.order.job, name, run.leash_pid)

    def end(self, run: LiveRun) -> None:
        """Watch a run no longer; what was asked about it is not answered any more."""
        name = run.order.run
        self._checks.end(name)
        self._measuring.end(name)
        self._runs.pop(name, None)
        self._waiting.pop(name, None)

    def close(self) -> None:
        """Watch nothing any more."""
        self._checks.close()
        self._measuring.close()

    def ask(self, name: RunId, argv: tuple[str, ...], timeout_s: float, answer: Answer) -> None:
        """Run a command as a health check under a run's leash.

        Args:
            name: Which run; there is no answer if it is not watched, or ends meanwhile.
            argv: The command; exit status 0 is healthy.
            timeout_s: It is killed after this, and counts as failed.
            answer: Told once, possibly at once.
        """
        run = self._runs.get(name)
        if run is None:
            return
        self._last_number += 1
        problem = run.tell(wire.CHECK, self._last_number, argv, timeout_s)
        if problem:
            answer(False, problem)
        else:
            self._waiting.setdefault(name, {})[self._last_number] = answer

    def on_checked(self, run: LiveRun, number: int, healthy: bool, why: str) -> None:
        """Pass on what a leash said of a check."""
        answer = self._waiting.get(run.order.run, {}).pop(number, None)
        if answer is not None:
            answer(healthy, why)
