"""What else runs under a leash than its job: hooks, health checks, stop and reload commands.

    name                     begun                                              cut short by
    on_start                 once exec of the job succeeded                     its limit, the run's end
    health                   when main asks                                     its limit, the run's end (SIGKILL)
    reload                   when main asks                                     its limit, the run's end
    stop                     by an ordered stop, instead of the stop signal     kill_by, the lease
    on_step_down             when the lease strikes, after the stop signal      its limit, kill_by
    on_success, on_failure   once nothing of the job is left                    its limit, orders, the lease

It knows forked commands, their limits and how they came out; it must never know leases, or why a run ends.

Rules of this file:
1. An errand is a child of the leash, in a session of its own: the proof that a run has ended (ECHILD) covers it.
2. One that is overdue is SIGKILLed with all below it and all of its session, again each second until it is gone.
3. An errand changes nothing about the run: how it came out is told, and that is all.
4. When the first process ends by itself, a hook that runs may go on as long as the rest of the tree may: the
   hooks of short jobs would never come to their end otherwise. A check of a job that is over has no value.
"""

import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from orchestrator.runs import tree, wire
from orchestrator.runs.first_process import explain, fork_errand
from orchestrator.runs.linux import NEVER, boot, descendants, stat_fields

ON_START, ON_SUCCESS, ON_FAILURE, ON_STEP_DOWN = "on_start", "on_success", "on_failure", "on_step_down"
HEALTH, RELOAD, STOP = "health", "reload", "stop"
RELOAD_LIMIT_S = 30.0

_SESSION = 3  # its place in /proc/PID/stat, from the state on
_TRY_AGAIN_S = 1.0


class Errand:
    """One command that runs.

    Attributes:
        name: See the table in the module's head.
        argv: The command.
        number: Of a health check, as main counts them.
        pid: Its first process, not reaped yet.
        report: The read end of a pipe that its exec closes; why it could not start comes out of it.
        limit_s: How long it may take.
        due_at: When it is killed, on the boot clock.
        overdue: It was.
        cut: The run's end came before its own.
    """

    __slots__ = ("_begun", "_said", "argv", "cut", "due_at", "limit_s", "name", "number", "overdue", "pid", "report")

    def __init__(self, name: str, argv: list[str], limit_s: float, number: int) -> None:
        """Describe it; it is not forked yet."""
        self.name = name
        self.argv = argv
        self.limit_s = limit_s
        self.number = number
        self.pid = 0
        self.report = -1
        self.due_at = NEVER
        self.overdue = False
        self.cut = False
        self._begun = False
        self._said = b""

    def has_begun(self) -> bool:
        """Tell whether its exec succeeded or failed; before that it is deaf to signals."""
        if not self._begun:
            with contextlib.suppress(BlockingIOError):
                self._said = os.read(self.report, wire.MAX_CLAUSE)
                self._begun = True
        return self._begun

    def outcome(self, status: int, what: dict[str, Any]) -> str:
        """Return why it failed, in one clause, once it was reaped with this wait status; "" if it did not."""
        self.has_begun()
        os.close(self.report)
        if self._said:
            return explain(self._said, {**what, "argv": self.argv})[: wire.MAX_CLAUSE]
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return ""
        if self.overdue:
            return f"no answer within {self.limit_s:g} s" if self.name == HEALTH else f"not done in {self.limit_s:g} s"
        if self.cut:
            return "the run ended before it did"
        return f"exit {code}" if code > 0 else f"signal {-code}"

    def kill(self) -> None:
        """SIGKILL it, all below it, and what else of its session lives below this leash."""
        below = descendants(os.getpid())
        tree.kill_below(self.pid)
        for pid in below:
            fields = stat_fields(pid)
            if fields and int(fields[_SESSION]) == self.pid:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)


class Errands:
    """All errands of one run."""

    __slots__ = ("_ignored", "_on_done", "_output", "_what", "running")

    def __init__(
        self,
        what: dict[str, Any],
        ignored: list[int],
        output: tuple[int, int],
        on_done: Callable[[Errand, str], object],
    ) -> None:
        """Begin with none.

        Args:
            what: See `order.what_to_run`.
            ignored: The signals to reset in each.
            output: Their stdout and stderr: the job's.
            on_done: Told of each that ended or could not be forked, with why it failed, "" if it did not.
        """
        self._what = what
        self._ignored = ignored
        self._output = output
        self._on_done = on_done
        self.running: dict[int, Errand] = {}

    def begin(self, name: str, argv: list[str], limit_s: float, env: dict[str, str], number: int = 0) -> bool:
        """Fork one; False if no process can be forked."""
        errand = Errand(name, argv, limit_s, number)
        try:
            self._fork(errand, {"ORCHESTRATOR_HOOK": name, **env})
        except OSError as error:
            self._on_done(errand, f"cannot start a process: {error.strerror}")
            return False
        errand.due_at = boot() + limit_s
        self.running[errand.pid] = errand
        return True

    def _fork(self, errand: Errand, env: dict[str, str]) -> None:
        errand.report, report = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            errand.pid = fork_errand(errand.argv, self._what, env, self._ignored, self._output, report)
        except OSError:
            os.close(errand.report)
            raise
        finally:
            os.close(report)

    def ended(self, pid: int, status: int) -> bool:
        """Take note of a child that was reaped; tell whether it was an errand."""
        errand = self.running.pop(pid, None)
        if errand is None:
            return False
        self._on_done(errand, errand.outcome(status, self._what))
        return True

    def due_at(self) -> float:
        """Return when the first of them is overdue."""
        return min((errand.due_at for errand in self.running.values()), default=NEVER)

    def look(self, now: float) -> None:
        """Kill what is overdue."""
        for errand in self.running.values():
            if now >= errand.due_at:
                errand.overdue = True
                errand.due_at = now + _TRY_AGAIN_S
                errand.kill()

    def ask_to_end(self, signum: int, *, hooks_go_on: bool) -> None:
        """Ask the whole tree below this leash to end, and the errands with it (see `tree.ask_to_end`).

        Args:
            signum: The signal.
            hooks_go_on: What is no check is spared (rule 4).
        """
        spared: set[int] = set()
        for errand in self.running.values():
            if hooks_go_on and errand.name != HEALTH:
                spared |= {errand.pid, *descendants(errand.pid)}
                continue
            errand.cut = True
            if errand.name == HEALTH or not errand.has_begun():
                errand.kill()  # before exec a signal would be lost on it
        for pid in descendants(os.getpid()):
            if pid not in spared:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)
                    os.kill(pid, signal.SIGCONT)

    def cut_short(self) -> None:
        """Note that the whole tree is being killed, and they with it."""
        for errand in self.running.values():
            errand.cut = True
