"""Leashes that wait for runs: made before starts are due, handed out when they come, and let go soon after.

A start is two forks of Python, some hundreds of pages copied, and an exec. Of a thousand starts in one second all but
the exec can be done before (`ready`).

It knows waiting leashes and what is expected; it must never know why a run is due, or how it goes on.

Rules of this file:
1. A spare holds no run and no lease. Its end proves nothing and is missed by nobody.
2. A spare is given one run and never a second one; the start counts as sent then (`launching`).
3. Nothing polls. A spare sleeps in the kernel until it is told, or until main lets go of its end of the socket:
   that is the end of main, too. What is frozen the launcher kills, some time after it should have gone.
4. Spares are a comfort: where memory, descriptors or processes are short there are fewer or none, and runs start
   as they always did. Those that are being made never keep a real start waiting for more than `MAX_UNANSWERED` forks.
5. Those of a dead launcher are let go with it.
"""

import asyncio
import collections
import contextlib
import os
import resource
import socket
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from orchestrator import clock
from orchestrator.core.messages import ExpectRuns
from orchestrator.runs import wire
from orchestrator.runs.launcher_process import LauncherProcess
from orchestrator.runs.leftovers import Trace
from orchestrator.runs.linux import NEVER, BootTimer
from orchestrator.runs.page import Slots
from orchestrator.runs.strays import identify

MOST = 1024
"""Spares at a time."""
LEAD_S = 1.0
"""So long before the instant the last of them should be ready,"""
MAKING_S = 0.009
"""and each takes so long to be made (two forks), half of that on an idle machine."""
KEPT_S = 3.0
"""So long after the instant those that nobody needed are let go: claims and their answers take a heartbeat at most."""
MAX_UNANSWERED = 4
"""Spares that a launcher was told of and that did not answer yet."""

MEMORY_BYTES = 3 << 20
"""Of a spare, its waiting process included (PSS, Python 3.11 and 3.13)."""
_PART_OF_MEMORY = 4
"""Spares take one part in so many of the memory that is available,"""
_PART_OF_FILES = 16
"""and three descriptors each, so one part in so many of what may be open is their number."""
_LAUNCHER_WAITS_S = 10.0
"""A spare that is still there so long after it was to be let go is frozen, or main is."""


@dataclass(slots=True, eq=False)
class Spare:
    """One of them.

    Attributes:
        slot: Of the run to come, on the shared page.
        serial: Of the run to come.
        sock: To it.
        orders: To its first process.
        launcher: Whose child it is.
        leash_pid, leash, alarm: As of a `LiveRun`.
        first: Its waiting first process.
        trace: What the ledger will hold of the run, but its id.
    """

    slot: int
    serial: int
    sock: socket.socket
    orders: socket.socket
    launcher: LauncherProcess
    leash_pid: int = 0
    leash: int = -1
    alarm: BootTimer | None = None
    first: psutil.Process | None = None
    trace: Trace | None = None

    def close(self) -> None:
        """Let go of it: it goes by itself."""
        self.sock.close()
        self.orders.close()
        if self.alarm is not None:
            self.alarm.close()
        if self.leash >= 0:
            os.close(self.leash)


class Spares:
    """The spares of one node."""

    def __init__(
        self,
        *,
        launcher: Callable[[], LauncherProcess | None],
        slots: Slots,
        trace: Callable[[int, int, int], Trace],
    ) -> None:
        """Begin with none.

        Args:
            launcher: Returns the present one.
            slots: Where each takes one.
            trace: Looks at a leash and its first process for the ledger: serial and both pids.
        """
        self._launcher = launcher
        self._slots = slots
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._expected = ExpectRuns(0, -NEVER)
        self._until = -NEVER
        self._making: dict[int, Spare] = {}
        self._ready: collections.OrderedDict[int, Spare] = collections.OrderedDict()
        self._next: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many are ready."""
        return len(self._ready)

    def pids(self) -> list[int]:
        """Return those that are ready."""
        return [spare.leash_pid for spare in self._ready.values()]

    def expect(self, expected: ExpectRuns) -> None:
        """Make ready for starts that are due soon; what was made for an earlier word is kept as long as that said."""
        self._expected = expected
        self._see()

    def take(self) -> Spare | None:
        """Return one for a run, the one that waits longest; its slot and all else is the run's then."""
        if not self._ready:
            return None
        _, spare = self._ready.popitem(last=False)
        self._expected = ExpectRuns(max(0, self._expected.count - 1), self._expected.at)
        self._loop.remove_reader(spare.sock)
        return spare

    def heard(self, serial: int) -> bool:
        """Take the launcher's word that a spare is gone or could not be made; False if it is none of ours."""
        spare = self._making.get(serial) or self._ready.get(serial)
        if spare is None:
            return False
        self._lose(spare)
        return True

    def abandon(self, launcher: LauncherProcess) -> None:
        """Let those of a dead launcher go; the next one makes others when starts are expected again."""
        for spare in [*self._making.values(), *self._ready.values()]:
            if spare.launcher is launcher:
                self._drop(spare)

    def close(self) -> None:
        """Let all of them go."""
        if self._next is not None:
            self._next.cancel()
        self._drop_all()

    # As time goes by.

    def _see(self) -> None:
        """Make what is due to be made, let go what is over, and come again when either will be due."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        now, expected = clock.boot(), self._expected
        begin_at = expected.at - LEAD_S - min(expected.count, MOST) * MAKING_S
        over_at = expected.at + KEPT_S
        if begin_at <= now < over_at and expected.count:
            self._until = max(self._until, over_at)
            self._make()
        elif now >= self._until:
            self._drop_all()
        later = [at for at in (begin_at if expected.count else NEVER, self._until) if now < at < NEVER]
        if later:
            self._next = self._loop.call_later(min(later) - now, self._see)

    def _make(self) -> None:
        wanted = min(self._expected.count, _most())
        while len(self._ready) + len(self._making) < wanted and len(self._making) < MAX_UNANSWERED:
            if not self._make_one():
                return

    def _make_one(self) -> bool:
        """Tell the launcher to fork one; False if that is impossible just now."""
        launcher = self._launcher()
        taken = self._slots.take() if launcher is not None else None
        if launcher is None or taken is None:
            return False
        slot, serial = taken
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours, contextlib.suppress(OSError):
            ends = [wire.pair() for _ in range(2)]
            sock, orders = (ours.enter_context(end) for end, _ in ends)
            fds = (ends[1][1].fileno(), ends[0][1].fileno())
            for _, end in ends:
                theirs.enter_context(end)
            if launcher.send(wire.SPARE, serial, slot, self._until + _LAUNCHER_WAITS_S, fds=fds):
                spare = self._making[serial] = Spare(slot, serial, sock, orders, launcher)
                self._loop.add_reader(sock, self._hear, spare)
                ours.pop_all()
                return True
        self._slots.give_back(slot)
        return False

    def _hear(self, spare: Spare) -> None:
        try:
            received = wire.receive(spare.sock)
        except BlockingIOError:
            return
        if received is None:
            self._lose(spare)
            return
        (_, leash_pid, first_pid), fds = received
        spare.leash_pid, spare.leash = leash_pid, (fds[0] if fds else -1)
        spare.alarm = BootTimer(fds[1]) if len(fds) > 1 else None
        if spare.alarm is None:
            self._lose(spare)  # it did not fit into our open files, and without it nobody can wake the spare up
            return
        spare.first = identify(first_pid)
        spare.trace = self._trace(spare.serial, leash_pid, first_pid)
        del self._making[spare.serial]
        self._ready[spare.serial] = spare
        self._make()

    def _lose(self, spare: Spare) -> None:
        """It ended by itself: what it died of would kill the next one, too, so no more are made for now."""
        self._expected = ExpectRuns(0, self._expected.at)
        self._drop(spare)

    # The end.

    def _drop_all(self) -> None:
        for spare in [*self._making.values(), *self._ready.values()]:
            self._drop(spare)

    def _drop(self, spare: Spare) -> None:
        self._making.pop(spare.serial, None)
        self._ready.pop(spare.serial, None)
        self._loop.remove_reader(spare.sock)
        spare.close()
        self._slots.give_back(spare.slot)


def _most() -> int:
    """Return how many this machine bears now."""
    memory = psutil.virtual_memory().available // _PART_OF_MEMORY // MEMORY_BYTES
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART_OF_FILES
    return min(MOST, memory, files)
