"""What main knows of the runs that live, in a file that outlives it: so that the next start finds what is left.

    + {"boot": ..., "run": ..., "serial": 7, "leash": [pid, start], ...}     a run is open, or more of it is known
    - 7                                                                      it has ended, with proof

It knows the file; what is done about the runs in it says `leftovers`. It must never know what a run is for.

Rules of this file:
1. A change is one write(2) of one line at the end. Nothing is synced: what a dying process wrote the kernel
   keeps, and a crash of the machine ends every process, so the boot id voids the entries.
2. A line stands for itself. One that is torn, foreign or of another boot is passed over; a later line about
   the same serial replaces an earlier one.
3. A ledger that cannot be written never stops a run: it is said once, and tried again at a later change.
   What it misses meanwhile the leashes still end; only main, launcher and leash dying in one moment would
   leave something behind.
4. It is emptied only after a sweep that left nothing alive. A failed sweep leaves it for the next start.
"""

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from orchestrator import clock
from orchestrator.core.messages import Say
from orchestrator.runs import cgroups, linux
from orchestrator.runs.leftovers import UNKNOWN, Identity, Leftovers, Trace, look_at

COMPACT_AT_BYTES = 1 << 18
"""The file is written anew when it has grown past this, and past four times what it must hold."""

MOST_BYTES = 1 << 23
"""What is read of a file at most: 4,096 runs are some 2 MB, and it is compacted long before."""

_RETRY_S = 1.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Entry(NamedTuple):
    """An open run, and its line as it stands in the file."""

    trace: Trace
    line: bytes


class Ledger:
    """The ledger of one node."""

    def __init__(
        self, directory: Path, *, cgroup: str | None = None, say: Callable[[Say], None] = lambda _line: None
    ) -> None:
        """Touch nothing before `sweep`.

        Args:
            directory: The state directory, which this process has locked.
            cgroup: What `cgroups.own` says; cgroups of runs below it that nobody knows of are swept too.
            say: Told what is worth a log line.
        """
        self._path = directory / "ledger"
        self._cgroup = cgroup
        self._say = say
        self._boot = boot_id()
        self._open: dict[int, Entry] = {}
        self._open_bytes = 0
        self._fd = -1
        self._bytes = 0
        self._retry_at = 0.0
        self._complained = False
        self._launcher = UNKNOWN

    def sweep(self, on_wait: Callable[[], object] = lambda: None) -> None:
        """Kill what an earlier main left behind, wait until nothing of it lives, and begin with an empty file.

        It blocks: up to 5 s for leashes that are at work, and up to 10 s more for what does not die.

        Args:
            on_wait: Called before each pause, ten to a hundred times a second.

        Raises:
            OrchestratorError: Something cannot be killed: this node must not start.
        """
        traces = self._read()
        known = {trace.cgroup for trace in traces}
        loose = [path for path in cgroups.left_over(self._cgroup) if path not in known] if self._cgroup else []
        if traces or loose:
            leftovers = Leftovers(traces, loose, now=clock.boot)
            waits = 0

            def wait() -> None:
                nonlocal waits
                waits += 1
                if waits == 1:
                    self._say(Say("leftovers.found", {"runs": len(traces)}, "warning"))
                on_wait()

            leftovers.clear(wait)
            if leftovers.found:
                found, runs = len(leftovers.found), len(leftovers.runs)
                self._say(Say("leftovers.killed", {"count": found, "runs": runs}, "warning"))
        self._rewrite()

    def opened(self, run_id: str, serial: int, leash_pid: int, leader_pid: int, cgroup: str | None = None) -> None:
        """Note a run that lives; again when more of it is known.

        Args:
            run_id: As it stands in the environment of the run's processes.
            serial: Of the run, within this main.
            leash_pid: 0 while unknown.
            leader_pid: The first process; 0 while unknown.
            cgroup: The directory of the run's own cgroup, if it has one.
        """
        earlier = self._open.get(serial)
        if earlier is not None and earlier.trace.leash.pid == leash_pid:
            trace = earlier.trace
        else:
            trace = self._trace(run_id, serial, leash_pid, cgroup)
            if earlier is not None:
                trace = trace._replace(since=min(earlier.trace.since, trace.since))
        if leader_pid:
            leader = look_at(leader_pid)
            trace = trace._replace(leader=leader.identity if leader else UNKNOWN)
        self.enter(trace)

    def look(self, serial: int, leash_pid: int, leader_pid: int) -> Trace:
        """Return what is seen of processes that wait for a run; it is entered when that has an id."""
        trace = self._trace("", serial, leash_pid, None)
        leader = look_at(leader_pid)
        return trace._replace(leader=leader.identity if leader else UNKNOWN)

    def enter(self, trace: Trace) -> None:
        """Note a run that lives, all of it known."""
        self._forget(trace.serial)
        entry = self._open[trace.serial] = Entry(trace, self._line(trace))
        self._open_bytes += len(entry.line)
        self._append(entry.line)

    def closed(self, serial: int) -> None:
        """Note the proven end of a run."""
        if self._forget(serial):
            self._append(b"- %d\n" % serial)

    def close(self) -> None:
        """Give the file back; what stands in it stays."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _trace(self, run_id: str, serial: int, leash_pid: int, cgroup: str | None) -> Trace:
        leash = look_at(leash_pid) if leash_pid else None
        if leash is None:
            return Trace(run_id, serial, int(clock.boot() * _TICKS_PER_S) - 1, cgroup=cgroup)
        if leash.parent != self._launcher.pid:
            launcher = look_at(leash.parent) if leash.parent != os.getpid() else None
            self._launcher = launcher.identity if launcher else UNKNOWN
        return Trace(run_id, serial, leash.start, self._launcher, leash.identity, cgroup=cgroup)

    def _forget(self, serial: int) -> bool:
        entry = self._open.pop(serial, None)
        if entry is not None:
            self._open_bytes -= len(entry.line)
        return entry is not None

    # The file.

    def _read(self) -> list[Trace]:
        """Return the runs of this boot that were opened and not closed."""
        lines = self._newest_bytes().splitlines()
        found: dict[int, Trace] = {}
        for line in lines:
            if line.startswith(b"- "):
                with contextlib.suppress(ValueError):
                    found.pop(int(line[2:]), None)
            elif (trace := self._parse(line)) is not None:
                found[trace.serial] = trace
        return list(found.values())

    def _newest_bytes(self) -> bytes:
        """Read the file, of a huge one the end; what is no ordinary file (a FIFO would hold us up) is none of ours."""
        with contextlib.suppress(OSError):
            if self._path.is_file():
                with self._path.open("rb") as file:
                    file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
                    return file.read(MOST_BYTES)
        return b""

    def _parse(self, line: bytes) -> Trace | None:
        try:
            said = json.loads(line.removeprefix(b"+ "))
            if said.pop("boot") != self._boot:
                return None
            for who in ("launcher", "leash", "leader"):
                said[who] = Identity(*map(int, said[who]))
            said["run"], said["serial"], said["since"] = str(said["run"]), int(said["serial"]), int(said["since"])
            said["cgroup"] = said["cgroup"] and str(said["cgroup"])
            return Trace(**said)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _line(self, trace: Trace) -> bytes:
        return b"+ %s\n" % json.dumps({"boot": self._boot, **trace._asdict()}).encode()

    def _append(self, line: bytes) -> None:
        if self._fd < 0 or self._bytes > max(COMPACT_AT_BYTES, 4 * self._open_bytes):
            self._rewrite()  # what it holds is all that `line` says, too
            return
        try:
            _write(self._fd, line)
        except OSError as error:
            self._fail(error)
        self._bytes += len(line)

    def _rewrite(self) -> None:
        """Put a file in place that holds the open runs and nothing else."""
        if clock.boot() < self._retry_at:
            return
        fresh = self._path.with_name("ledger.new")
        self.close()
        try:
            self._fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            _write(self._fd, b"".join(entry.line for entry in self._open.values()))
            fresh.replace(self._path)
        except OSError as error:
            self._fail(error)
        self._bytes = self._open_bytes

    def _fail(self, error: OSError) -> None:
        self.close()
        self._retry_at = clock.boot() + _RETRY_S
        if not self._complained:
            self._complained = True
            self._say(Say("ledger.failed", {"why": f"{self._path}: {error.strerror}"}, "warning"))


def _write(fd: int, text: bytes) -> None:
    written = os.write(fd, text)
    if written < len(text):
        os.write(fd, text[written:])  # what kept the first one short makes this one fail, and say why


def boot_id() -> str:
    """Return what is random for each boot of the machine."""
    return linux.read_file("/proc/sys/kernel/random/boot_id").decode().strip()
