"""What does not do as it was told in time is killed: the leash by main. And what stands still is found.

It knows main's orders and their limits; it must never know how a run is started, or what proves its end.

Rules of this file:
1. A leash that was told to end its run is killed if it has not within the limit of the order; several orders:
   the earliest. One that is in its kill loop says so, and has the time that killing may take.
2. A hook that follows the job's end has its own time. An order that everything be over holds for it, too.
3. A leash that is stopped (SIGSTOP, a debugger) is found by a look at its state every few seconds: to wake each
   one up for an answer would cost a thousand wake-ups.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.runs import linux
from orchestrator.runs.live_run import LiveRun

LATE_S = 2.0
"""What a busy machine may add to a grace."""

_LATE_IN_KILLING_S = 12.0  # the leash says STUCK after 10 s; one that says nothing is frozen


@dataclass(frozen=True, slots=True)
class Limits:
    """How long main waits for launcher and leashes, in seconds.

    Attributes:
        liveness_s: How often they are looked after.
        answer_limit_s: What does not answer for so long is frozen.
        start_limit_s: How long a start that was sent may stay unanswered.
        kill_limit_s: How long a leash may need to begin killing.
    """

    liveness_s: float = 10.0
    answer_limit_s: float = 2.0
    start_limit_s: float = 5.0
    kill_limit_s: float = 0.25


ORDINARY = Limits()


class Oversight:
    """Main's patience with the leashes."""

    def __init__(
        self,
        *,
        runs: Callable[[], Iterable[LiveRun]],
        hear: Callable[[LiveRun], None],
        on_failing: Callable[[LiveRun, str], None],
        limits: Limits,
    ) -> None:
        """Say whom to look after.

        Args:
            runs: All runs that have not ended.
            hear: Takes in what a leash has said and nobody read yet.
            on_failing: Told which leash was killed, and why.
            limits: How long main waits.
        """
        self._runs = runs
        self._hear = hear
        self._on_failing = on_failing
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._watch = self._loop.call_later(limits.liveness_s, self._look_after)

    def close(self) -> None:
        """Look after nobody any more."""
        self._watch.cancel()

    def ordered(self, run: LiveRun, limit_s: float, *, hook_too: bool) -> None:
        """Kill a leash if it has not ended its run within the limit.

        Args:
            run: The run, whether a leash holds it yet or not.
            limit_s: From now on.
            hook_too: The hook that follows the job's end must be over by then, too.
        """
        force_at = self._loop.time() + limit_s
        run.force_at = min(run.force_at, force_at)
        if hook_too:
            run.all_over_at = min(run.all_over_at, force_at)
        if run.held and not run.killing:
            self.force_in_time(run)

    def force_in_time(self, run: LiveRun) -> None:
        """Let the limit of what was ordered run, if anything was."""
        if run.force_at < linux.NEVER:
            run.set_limit(max(0.0, run.force_at - self._loop.time()), self._force)

    def on_killing(self, run: LiveRun) -> None:
        """It is in its kill loop."""
        run.killing = True
        run.set_limit(_LATE_IN_KILLING_S, self._force)

    def on_last_hook(self, run: LiveRun, limit_s: float) -> None:
        """Nothing of the job is left, and a hook is over within `limit_s`."""
        run.killing = False
        run.force_at = min(run.all_over_at, self._loop.time() + limit_s + LATE_S)
        self.force_in_time(run)

    def _force(self, run: LiveRun) -> None:
        limit = run.limit
        self._hear(run)  # what it said while we were busy counts
        if run.held and run.limit is limit:
            self._kill(run, "its leash did not do as it was told")

    def _look_after(self) -> None:
        self._watch = self._loop.call_later(self._limits.liveness_s, self._look_after)
        for run in self._runs():
            if run.held and _is_stopped(run):
                self._loop.call_later(self._limits.answer_limit_s, self._check_stopped, run)

    def _check_stopped(self, run: LiveRun) -> None:
        if run.held and _is_stopped(run):
            self._kill(run, "its leash was stopped")

    def _kill(self, run: LiveRun, why: str) -> None:
        run.kill_leash()
        self._on_failing(run, why)


def _is_stopped(run: LiveRun) -> bool:
    return linux.state(run.leash_pid) in {"T", "t"}
