"""The proof that a run has ended whose leash did not say so.

    its launcher lives   the launcher says GONE: the leash is dead and no stray is left below the launcher
    its launcher died    main has inherited whatever was below it, kills what it does not know, and has no
                         stray left (what is below a newer launcher was never below the dead one)

and in both cases a last look at the first process, by pid and create time.

It knows unproven runs and main's strays; it must never know how a run is started or stopped.
"""

import asyncio
from collections.abc import Callable, Iterable

from orchestrator import clock
from orchestrator.runs import tree
from orchestrator.runs.live_run import LiveRun, Phase
from orchestrator.runs.strays import Strays, finish_off

_STUCK_AFTER_S = 10.0
_PAUSES_S = ((0.1, 0.001), (1.0, 0.01), (_STUCK_AFTER_S, 0.1), (float("inf"), 1.0))
"""How long to wait between two sweeps, by the age of the first."""


class Proof:
    """Main's sweep, and who waits for it."""

    def __init__(
        self,
        *,
        strays: Strays,
        runs: Callable[[], Iterable[LiveRun]],
        launchers: Callable[[], set[int]],
        on_proven: Callable[[LiveRun], None],
        on_stuck: Callable[[LiveRun, tuple[int, ...], str], None],
    ) -> None:
        """Say where to look and whom to tell.

        Args:
            strays: Main's children.
            runs: All runs that have not ended.
            launchers: The pids of launchers that are not reaped.
            on_proven: Told that nothing of an unproven run is left.
            on_stuck: Told what does not die.
        """
        self._strays = strays
        self._runs = runs
        self._launchers = launchers
        self._on_proven = on_proven
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._next: asyncio.Handle | None = None
        self._said: list[int] = []

    def gone(self, run: LiveRun) -> None:
        """Take the launcher's word for an unproven run, after a last look at its first process."""
        if run.phase is not Phase.UNPROVEN:
            return
        if finish_off(run.leader):
            self._loop.call_later(0.05, self.gone, run)
        else:
            self._on_proven(run)

    def sweep_soon(self) -> None:
        """Sweep main's children until no stray is left: a launcher, or a leash that main inherited, died."""
        if self._since is None:
            self._since = clock.boot()
        if self._next is None:
            self._next = self._loop.call_soon(self._sweep)

    def close(self) -> None:
        """Sweep no more."""
        if self._next is not None:
            self._next.cancel()

    def _sweep(self) -> None:
        self._next = None
        inherited = {run.leash_pid for run in self._runs() if run.held and run.orphaned}
        strays, refused = self._strays.kill(self._launchers() | inherited)
        waiting = [run for run in self._runs() if run.phase is Phase.UNPROVEN and run.orphaned]
        if not strays:
            self._since = None
            for run in waiting:
                self.gone(run)
            return
        assert self._since is not None  # noqa: S101 - set by sweep_soon, cleared above
        age_s = clock.boot() - self._since
        if age_s >= _STUCK_AFTER_S and strays != self._said:
            self._said = strays
            for run in waiting:
                self._on_stuck(run, tuple(strays), tree.why_alive(strays, refused))
        self._next = self._loop.call_later(next(pause for until, pause in _PAUSES_S if age_s < until), self._sweep)
