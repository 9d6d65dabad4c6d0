"""How a run begins: it gets a slot on the page, with its bounds, and then a spare, or a leash that is forked for it.

It knows slots, spares and the two ways to a leash; it must never know how a run goes on.

Rules of this file:
1. The bounds stand on the page before anybody is told of the run.
2. Each start is handed over once: to a spare, or to a launcher. Only what a spare was not told goes to a launcher, with
   a serial of its own: the spare's may still be on the wire.
"""

import os
from collections.abc import Callable

from orchestrator.core.messages import ExpectRuns, StartRun
from orchestrator.core.spec import JobSpec
from orchestrator.runs.handing_over import HandingOver
from orchestrator.runs.launcher_process import LauncherProcess
from orchestrator.runs.launching import Launching
from orchestrator.runs.leftovers import Trace
from orchestrator.runs.linux import NEVER
from orchestrator.runs.live_run import LiveRun
from orchestrator.runs.page import Page, Slots
from orchestrator.runs.spares import Spares


class Starting:
    """The slots of one node, and who has them."""

    def __init__(
        self,
        *,
        page: Page,
        launching: Launching,
        cgroup: str | None,
        pack: Callable[[LiveRun], dict[str, object]],
        trace: Callable[[int, int, int], Trace],
        on_sent: Callable[[LiveRun, Trace | None], None],
    ) -> None:
        """Begin with all slots free.

        Args:
            page: The shared page.
            launching: Who forks leashes.
            cgroup: See `Runs`.
            pack: Says what a leash is sent for a run.
            trace: See `Spares`.
            on_sent: Told when a spare was told of a run, with what the ledger knows of it already.
        """
        self._page = page
        self._launching = launching
        self._cgroup = cgroup
        self._slots = Slots()
        self._by_serial: dict[int, LiveRun] = {}
        self._spares = Spares(launcher=lambda: launching.current, slots=self._slots, trace=trace)
        self._handing_over = HandingOver(pack=pack, on_sent=on_sent, on_failed=self._start_without_spare)

    def expect(self, expected: ExpectRuns) -> None:
        """Make ready for starts that are due soon."""
        self._spares.expect(expected)

    def start(self, spec: JobSpec, order: StartRun) -> LiveRun | None:
        """Start a run; None if there is no slot for it."""
        spare = self._spares.take()
        taken = (spare.slot, spare.serial) if spare is not None else self._slots.take()
        if taken is None:
            return None
        run = LiveRun(spec, order, *taken, spare=spare)
        self._claim(run)
        (self._launching if spare is None else self._handing_over).enqueue(run)
        return run

    def take_back(self, run: LiveRun) -> None:
        """Forget a start that was not handed over."""
        (self._launching if run.spare is None else self._handing_over).take_back(run)

    def forget(self, run: LiveRun) -> None:
        """Know a run's serial no more; its slot stays its own."""
        del self._by_serial[run.serial]

    def give_back(self, run: LiveRun) -> None:
        """Take the slot from a run that has ended."""
        self._page.clear(run.slot)
        self._slots.give_back(run.slot)

    def run_of(self, serial: int) -> LiveRun | None:
        """Return whose serial this is; None: that of a run that has ended, or of a spare, which is then gone."""
        run = self._by_serial.get(serial)
        if run is None:
            self._spares.heard(serial)
        return run

    def abandon(self, launcher: LauncherProcess) -> None:
        """Let the spares of a dead launcher go."""
        self._spares.abandon(launcher)

    def spares(self) -> list[int]:
        """Return the pids of the spares that are ready."""
        return self._spares.pids()

    def close(self) -> None:
        """Tell no spare any more, and let all of them go."""
        self._handing_over.close()
        self._spares.close()

    def _claim(self, run: LiveRun) -> None:
        """Put the bounds of a run into its slot."""
        until, lease = run.order.deadlines, run.spec.lease
        if self._cgroup is not None:
            run.cgroup = f"{self._cgroup}/run-{run.serial}-{os.getpid()}"
        self._page.claim(
            run.slot,
            run.serial,
            until.term_at if until else NEVER,
            until.kill_at if until else NEVER,
            backup_s=lease.margin_s / 2,  # half the margin is the launcher's, the other half is left for the killing
            grace_s=lease.step_down_grace_s,
        )
        self._by_serial[run.serial] = run

    def _start_without_spare(self, run: LiveRun) -> None:
        run.let_go_of_spare()
        self.forget(run)
        self.give_back(run)
        taken = self._slots.take()
        assert taken is not None  # noqa: S101 - one was just given back
        run.slot, run.serial = taken
        self._claim(run)
        self._launching.enqueue(run)
