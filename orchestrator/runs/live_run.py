"""What main knows of one run that has not ended yet, and which phase it is in.

Phases::

    phase      what holds                                                        next
    WAITING    not sent: it can still be taken back                              SENT
    SENT       a launcher, or a spare, was told once; nobody is told again       LEASHED, RUNNING, UNPROVEN, ENDED
    LEASHED    its leash answers                                                 RUNNING, UNPROVEN, ENDED
    RUNNING    exec succeeded                                                    UNPROVEN, ENDED
    UNPROVEN   its leash is gone or does not answer; the tree may live           ENDED, on proof
    ENDED      nothing of it is left
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import psutil

from orchestrator import clock
from orchestrator.core.messages import RunEnded, StartRun
from orchestrator.core.spec import JobSpec
from orchestrator.runs import wire
from orchestrator.runs.launcher_process import LauncherProcess
from orchestrator.runs.linux import NEVER, BootTimer
from orchestrator.runs.spares import Spare


class Phase(Enum):
    """See the table in the module's head."""

    WAITING = "waiting"
    SENT = "sent"
    LEASHED = "leashed"
    RUNNING = "running"
    UNPROVEN = "unproven"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class LiveRun:
    """One run.

    Attributes:
        spec: Its job.
        order: The order that started it.
        slot: On the shared page.
        serial: Of the run, on the page and on the wire.
        launcher: The one whose child its leash is; None while waiting.
        spare: The spare that will be told to start it; None: a launcher will be, or somebody was told.
        sock: To its leash; None while waiting and once unproven.
        leash_pid: 0 while unknown.
        leash: A pidfd: whatever becomes of the pid, it means this leash. -1 while unknown.
        alarm: The leash's timer for the page; main puts it off, so that the leash need not wake up to look. None: it
            did not fit into our open files, and the leash wakes up by itself.
        leader_pid: The job's first process; 0 while unknown.
        leader: The same with its create time.
        started_at: When exec had succeeded, on the boot clock.
        killing: Its leash said that it is in its kill loop.
        limit: The timer that runs for whatever is awaited now.
        force_at: When its leash is killed if it has not ended the run as ordered, on the loop's clock.
        all_over_at: When it is killed even if it runs the hook that follows the job's end; NEVER: no order says so.
        cgroup: The directory of its own cgroup; None: it has none.
        why: Why it is unproven, in one clause.
    """

    spec: JobSpec
    order: StartRun
    slot: int
    serial: int
    phase: Phase = Phase.WAITING
    launcher: LauncherProcess | None = None
    spare: Spare | None = None
    sock: socket.socket | None = None
    leash_pid: int = 0
    leash: int = -1
    alarm: BootTimer | None = None
    leader_pid: int = 0
    leader: psutil.Process | None = None
    started_at: float = 0.0
    killing: bool = False
    limit: asyncio.TimerHandle | None = None
    force_at: float = NEVER
    all_over_at: float = NEVER
    cgroup: str | None = None
    why: str = ""

    @property
    def held(self) -> bool:
        """Whether a leash that main knows holds it; what a spare was told it may not have heard yet."""
        return self.phase in {Phase.LEASHED, Phase.RUNNING} or (self.phase is Phase.SENT and self.leash_pid > 0)

    @property
    def orphaned(self) -> bool:
        """Whether its launcher is dead: what is left of it is below main."""
        return self.launcher is not None and not self.launcher.alive

    def ended(self, *, cause: str, error: str = "", elapsed_s: float = 0.0) -> RunEnded:
        """Return the event for an end whose exit status nobody knows."""
        return RunEnded(self.order.job, self.order.run, None, 0, error, cause, elapsed_s)

    def tell(self, *message: object) -> str:
        """Send a message to its leash; return why that is impossible, in one clause, "" if it was sent."""
        try:
            if self.sock is not None and wire.send(self.sock, *message):
                if self.phase is Phase.SENT and self.alarm is not None:
                    self.alarm.arm(clock.boot())  # a spare does not look at its socket before
                return ""
        except BlockingIOError:
            return "its leash does not read"
        except ValueError:
            return "its command is too long"
        return "its leash is gone"

    def kill_leash(self) -> None:
        """SIGKILL its leash; PDEATHSIG takes the first process along, and the launcher sweeps the rest."""
        with contextlib.suppress(ProcessLookupError):
            if self.leash >= 0:
                signal.pidfd_send_signal(self.leash, signal.SIGKILL)
            elif self.leash_pid:
                os.kill(self.leash_pid, signal.SIGKILL)  # the pidfd did not fit into our open files

    def set_limit(self, limit_s: float, overdue: Callable[["LiveRun"], None]) -> None:
        """Call `overdue` unless the limit is cleared or set anew before."""
        self.clear_limit()
        self.limit = asyncio.get_running_loop().call_later(limit_s, overdue, self)

    def clear_limit(self) -> None:
        """Await nothing any more."""
        if self.limit is not None:
            self.limit.cancel()
            self.limit = None

    def take_over(self, spare: Spare) -> None:
        """Have its leash in a spare that was told to start it."""
        self.spare = None
        self.sock, self.launcher, self.phase = spare.sock, spare.launcher, Phase.SENT
        self.leash_pid, self.leash, self.alarm = spare.leash_pid, spare.leash, spare.alarm
        self.leader = spare.first
        self.leader_pid = spare.first.pid if spare.first is not None else 0

    def let_go_of_spare(self) -> None:
        """Do without the spare; it goes by itself."""
        if self.spare is not None:
            self.spare.close()
            self.spare = None

    def close(self) -> None:
        """Give the timers, the pidfd and a spare that was not told back."""
        self.clear_limit()
        self.let_go_of_spare()
        if self.alarm is not None:
            self.alarm.close()
            self.alarm = None
        if self.leash >= 0:
            os.close(self.leash)
            self.leash = -1
