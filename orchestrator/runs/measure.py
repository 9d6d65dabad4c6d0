"""How much memory and processor time the processes of a run use, without its leash.

It knows a leash's pid and reads /proc (psutil where there is none); it must never know what is too much.

Memory is resident memory, added up over the processes: pages that they share (a preforked server's, a library's)
count once for each of them. People know that number from `ps` and from Supervisor's memmon; the truth (PSS) costs
the kernel a walk over every page table of the run.

A look costs 0.2 to 0.5 ms a run. Where very many runs are measured the passes come less often, so that measuring
never takes more than a fiftieth of a core.
"""

import asyncio
import collections
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from orchestrator import clock
from orchestrator.core.messages import RunMeasured
from orchestrator.core.nouns import JobName, RunId
from orchestrator.runs import linux

HAS_PROC = sys.platform == "linux"
MOST_AT_ONCE = 8
"""Runs measured in one turn of the loop: 2 to 4 ms, so that heartbeats of leases come in between."""
PAUSE_FACTOR = 50.0
"""After a pass at least so many times as long as it took."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Places in /proc/PID/stat behind the name (proc(5) counts from 1, and two fields stand before).
_STATE, _UTIME, _CUTIME, _CSTIME, _RSS = 0, 11, 13, 14, 21


@dataclass(frozen=True, slots=True)
class Usage:
    """What a run uses at one instant.

    Attributes:
        rss_bytes: Resident memory of all its processes together.
        cpu_s: Processor time of its processes, and of those that ended and were waited for (psutil: the former).
        processes: How many there are, without zombies.
    """

    rss_bytes: int
    cpu_s: float
    processes: int


def usage(leash_pid: int) -> Usage:
    """Look at a run now: everything below its leash."""
    return _usage_by_proc(leash_pid) if HAS_PROC else _usage_by_psutil(leash_pid)


def _usage_by_proc(leash_pid: int) -> Usage:
    pages = processes = 0
    # What the leash reaped belongs to the run; else the sum would fall whenever something ends.
    ticks = sum(map(int, linux.stat_fields(leash_pid)[_CUTIME : _CSTIME + 1]))
    for pid in linux.descendants(leash_pid):
        fields = linux.stat_fields(pid)
        if fields:  # else it ended meanwhile
            pages += int(fields[_RSS])
            ticks += sum(map(int, fields[_UTIME : _CSTIME + 1]))
            processes += fields[_STATE] not in (b"Z", b"X")
    return Usage(pages * _PAGE_BYTES, ticks / _TICKS_PER_S, processes)


def _usage_by_psutil(leash_pid: int) -> Usage:
    rss_bytes, cpu_s, processes = 0, 0.0, 0
    try:
        below = psutil.Process(leash_pid).children(recursive=True)
    except psutil.Error:
        below = []
    for process in below:
        try:
            with process.oneshot():
                rss_bytes += process.memory_info().rss
                cpu_s += sum(process.cpu_times()[:2])
                processes += process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:  # it ended meanwhile, or it is not ours to look at
            continue
    return Usage(rss_bytes, cpu_s, processes)


class Measuring:
    """Tells the memory of the runs that were begun, each once a period; nothing wakes up while there are none."""

    def __init__(self, deliver: Callable[[RunMeasured], None], period_s: float = 5.0) -> None:
        """Begin with none; `deliver` is called on the event loop, never from within a call of ours."""
        self._deliver = deliver
        self._period_s = period_s
        self._runs: dict[RunId, tuple[JobName, int]] = {}
        self._due: collections.deque[RunId] = collections.deque()
        self._next: asyncio.Handle | None = None
        self._busy_s = 0.0

    def begin(self, job: JobName, run: RunId, leash_pid: int) -> None:
        """Measure a run from now on."""
        self._runs[run] = (job, leash_pid)
        if self._next is None:
            self._rest()

    def end(self, run: RunId) -> None:
        """Measure a run no longer."""
        if self._runs.pop(run, None) is not None and not self._runs:
            self.close()

    def close(self) -> None:
        """Measure nothing any more."""
        self._runs.clear()
        self._due.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._busy_s = 0.0

    def _rest(self) -> None:
        pause_s = max(self._period_s, PAUSE_FACTOR * self._busy_s)
        self._next = asyncio.get_running_loop().call_later(pause_s, self._begin_pass)

    def _begin_pass(self) -> None:
        self._busy_s = 0.0
        self._due.extend(self._runs)
        self._measure_some()

    def _measure_some(self) -> None:
        began_at = clock.boot()
        measured = []
        for _ in range(min(MOST_AT_ONCE, len(self._due))):
            run = self._due.popleft()
            if run in self._runs:
                job, leash_pid = self._runs[run]
                measured.append(RunMeasured(job, run, usage(leash_pid).rss_bytes))
        self._busy_s += clock.boot() - began_at
        if self._due:
            self._next = asyncio.get_running_loop().call_soon(self._measure_some)
        else:
            self._rest()
        for each in measured:
            if each.run in self._runs:  # whoever was told may have ended it
                self._deliver(each)
