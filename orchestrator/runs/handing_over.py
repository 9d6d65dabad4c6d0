"""Telling spares what to run: a few in each turn of the loop, and in a burst first processes before leashes.

It knows starts that have a spare; it must never know how spares are made, or how a run goes on.

Rules of this file:
1. A launcher is told to look at the bounds on the page after they stand there and before any of these spares is told:
   whatever happens to main in between, no run escapes the launcher's eyes.
2. A spare's leash is told before its first process (`ready`). It looks when its alarm rings: at once, or, where many
   are started together, when all of them are: the processors belong to the jobs first. A moment later in any case.
3. What could not be told was told to nobody, and is started otherwise.
"""

import asyncio
import collections
import contextlib
from collections.abc import Callable

from orchestrator import clock
from orchestrator.runs import wire
from orchestrator.runs.launcher_process import LauncherProcess
from orchestrator.runs.leftovers import Trace
from orchestrator.runs.live_run import LiveRun, Phase
from orchestrator.runs.spares import Spare

A_TURN = 16
"""Starts in one turn of the loop: so many keep the answers to renewals waiting. What fits into one is no burst."""
LONGEST_REST_S = 2.0
"""Of a leash whose job runs. It ends when all have been told, 1 ms a start on an idle machine."""

_RETRY_S = 0.02
_ONE_BY_ONE_S = 0.0015
"""Between the alarms of two leashes after a burst, so that main and the launcher get a word in."""


class HandingOver:
    """The starts that have a spare which was not told yet."""

    def __init__(
        self,
        *,
        pack: Callable[[LiveRun], dict[str, object]],
        on_sent: Callable[[LiveRun, Trace | None], None],
        on_failed: Callable[[LiveRun], None],
    ) -> None:
        """Begin with none.

        Args:
            pack: Says what a leash is sent for a run.
            on_sent: Told when a leash was told, with what the ledger knows of it already.
            on_failed: Told of a start that a spare could not be told of.
        """
        self._pack = pack
        self._on_sent = on_sent
        self._on_failed = on_failed
        self._loop = asyncio.get_running_loop()
        self._waiting: collections.deque[LiveRun] = collections.deque()
        self._in_sight = 0
        self._looking: set[LauncherProcess] = set()
        self._resting: list[LiveRun] = []
        self._next: asyncio.Handle | None = None

    def enqueue(self, run: LiveRun) -> None:
        """Tell the run's spare soon."""
        self._waiting.append(run)
        if self._next is None:
            self._next = self._loop.call_soon(self._tell_some)

    def take_back(self, run: LiveRun) -> None:
        """Forget a start that no spare was told of."""
        self._in_sight -= self._waiting.index(run) < self._in_sight
        self._waiting.remove(run)

    def close(self) -> None:
        """Tell nobody any more."""
        if self._next is not None:
            self._next.cancel()

    def _tell_some(self) -> None:
        is_burst = bool(self._resting) or len(self._waiting) > A_TURN
        if not self._in_sight:
            launchers = {run.spare.launcher for run in self._waiting if run.spare is not None}
            try:
                self._looking = {launcher for launcher in launchers if launcher.send(wire.LOOK)}
            except BlockingIOError:  # it is busy, or frozen, which main will find out
                self._next = self._loop.call_later(_RETRY_S, self._tell_some)
                return
            self._in_sight = len(self._waiting)
        look_at = clock.boot() + (LONGEST_REST_S if is_burst else 0.0)
        for _ in range(min(A_TURN, self._in_sight)):
            self._in_sight -= 1
            self._tell(self._waiting.popleft(), look_at)
        self._next = self._loop.call_soon(self._tell_some) if self._waiting else None
        if not self._waiting:
            self._have_them_look()

    def _tell(self, run: LiveRun, look_at: float) -> None:
        spare = run.spare
        what = wire.packed(wire.RUN, self._pack(run))
        if spare is None or what is None or spare.launcher not in self._looking or not _tell_leash(spare, what):
            self._on_failed(run)
            return
        if run.order.deadlines is not None:
            look_at = min(look_at, run.order.deadlines.term_at)
        if spare.alarm is not None:
            spare.alarm.arm(look_at)
        run.take_over(spare)
        self._on_sent(run, spare.trace)
        with spare.orders, contextlib.suppress(OSError):  # if it is dead its leash says so
            spare.orders.send(what)
        if look_at > clock.boot():
            self._resting.append(run)

    def _have_them_look(self) -> None:
        """Let the leashes of a burst look at last, one after the other."""
        now = clock.boot()
        for number, run in enumerate(self._resting):
            at = now + number * _ONE_BY_ONE_S
            if run.phase is Phase.SENT and run.alarm is not None and at < run.alarm.at:
                run.alarm.arm(at)
        self._resting.clear()


def _tell_leash(spare: Spare, what: bytes) -> bool:
    try:
        return spare.sock.send(what) > 0
    except OSError:  # it is dead, and was told nothing
        return False
