"""The leash: one small process per run that owns its tree, its deadline and its output.

Forked by the launcher, never exec'd; a sub-reaper in a session of its own that no TERM, INT or HUP ends.
It needs nobody: it reads its own slot of the shared page when its own timer fires, and acts alone when
that has not moved, or when main is gone. It never extends anything.

Rules of this file:
1. The run has ended when the kernel says ECHILD, and not before (`tree`). Only then is ENDED sent, and only
   then does the leash exit with status 0: whoever sees that status knows that nothing is left.
2. Nothing here waits for main: what main does not take is dropped.
3. What ends a run, and when, is decided in `ending`; this file measures, signals and reaps.
4. No import and little garbage after the fork: what is not touched stays shared with the launcher.
"""

import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from orchestrator.runs import tree, wire
from orchestrator.runs.ending import KILLING, Ending
from orchestrator.runs.first_process import explain, fork_job
from orchestrator.runs.linux import NEVER, BootTimer, become_subreaper, boot, descendants, name_process
from orchestrator.runs.logs import RotatingFile
from orchestrator.runs.page import Page
from orchestrator.runs.pump import Pump

STUCK_AFTER_S = 10.0
"""A tree that lives so long after its first SIGKILL is reported; a busy machine needs far less (40 ms at most)."""

_KILL_PAUSES_MS = ((0.05, 0), (0.5, 2), (2.0, 20), (STUCK_AFTER_S, 100), (NEVER, 1000))
"""How long to wait between two kill rounds, by the age of the first: at once against whatever forks and exits,
a second later for what waits in the kernel. The end of a child cuts the pause short."""


def listen_to_children() -> None:
    """Have SIGCHLD noticed at all; once, in the launcher: the leashes inherit it."""
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)


class Wakeups:
    """The end of a child, as a readable descriptor (no signal handler does work)."""

    __slots__ = ("_write_fd", "fd")

    def __init__(self) -> None:
        """Be told from now on, instead of whoever was told before."""
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Make it unreadable again."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Be told no more."""
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write_fd)


class Leash:
    """One run, held."""

    __slots__ = (
        "_child",
        "_ending",
        "_error",
        "_forked_at",
        "_gone",
        "_handlers",
        "_ignored",
        "_killing_since",
        "_page",
        "_poll",
        "_pump",
        "_report",
        "_said_stuck",
        "_serial",
        "_slot",
        "_sock",
        "_status",
        "_timer",
        "_wakeups",
        "_what",
    )

    def __init__(
        self, sock: socket.socket, page: Page, slot: int, serial: int, what: dict[str, Any], ignored: list[int]
    ) -> None:
        """Take over what the launcher was sent.

        Args:
            sock: To main.
            page: The shared page.
            slot: Of this run on the page.
            serial: Of this run.
            what: See `order.what_to_run`.
            ignored: Signals that this process ignores and a job must not.
        """
        self._sock = sock
        self._page = page
        self._slot = slot
        self._serial = serial
        self._what = what
        self._ignored = ignored
        self._ending = Ending()
        self._timer = BootTimer()
        self._wakeups = Wakeups()
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._pump: Pump | None = None
        self._report = -1
        self._child = 0
        self._status = 0
        self._error = ""
        self._gone = False
        self._forked_at = 0.0
        self._killing_since = NEVER
        self._said_stuck: list[int] = []

    def hold(self) -> None:
        """Start the job, and return when nothing of it is left."""
        become_subreaper()
        name_process("orch-leash")
        own = os.pidfd_open(os.getpid())
        self._say(wire.LEASHED, os.getpid(), fds=(own,))
        os.close(own)
        self._watch(self._sock.fileno(), self._on_order)
        self._on_order()
        if self._ending.cause:
            self._refuse("ended before it was started", self._ending.cause)
            return
        if boot() >= self._page.term_at(self._slot, self._serial):
            self._refuse("its lease was over before it could start", "deadline")
            return
        try:
            self._start()
        except OSError as error:
            self._refuse(f"cannot start a process: {error.strerror}", "exit")
            return
        while not self._gone:
            self._turn()
        self._finish()

    def _start(self) -> None:
        read_end, output = os.pipe2(os.O_CLOEXEC)
        self._report, report = os.pipe2(os.O_CLOEXEC)
        self._pump = Pump(read_end, self._log())
        self._forked_at = boot()
        self._child = fork_job(self._what, self._ignored, output, report)
        os.close(output)
        os.close(report)
        self._watch(self._timer.fd, self._timer.clear)
        self._watch(self._wakeups.fd, self._on_child)
        self._watch(self._pump.fd, self._on_output)
        self._watch(self._report, self._on_report)

    def _log(self) -> RotatingFile | None:
        log = self._what["log"]
        if log is None:
            return None
        return RotatingFile(
            log["path"],
            max_bytes=log["max_bytes"],
            backups=log["backups"],
            on_failed=lambda problem: self._say(wire.LOG_FAILED, problem),
            on_restored=lambda lost_bytes: self._say(wire.LOG_RESTORED, lost_bytes),
        )

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._handlers[fd] = handler

    def _ignore(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._handlers[fd]

    def _turn(self) -> None:
        """Wait for whatever comes first, handle it, and see what the time says."""
        killing = self._ending.phase == KILLING
        self._timer.arm(NEVER if killing else self._ending.due_at(self._page.term_at(self._slot, self._serial)))
        for fd, _ in self._poll.poll(self._pause_ms() if killing else None):
            if fd in self._handlers:
                self._handlers[fd]()
        self._act()

    def _act(self) -> None:
        now = boot()
        term_at = self._page.term_at(self._slot, self._serial)
        self._ending.look(now, term_at, self._page.kill_at(self._slot, self._serial))
        if self._gone or not self._ending.cause:
            return
        self._page.commit(self._slot, self._serial, self._ending.kill_by)
        # Before exec the first process still ignores what the launcher ignores: a TERM would be lost on it.
        if self._ending.asks and self._report < 0:
            self._ending.asks = False
            # What a first process left behind gets TERM; the job's own stop signal is for an end that is ordered.
            tree.ask_to_end(os.getpid(), signal.SIGTERM if self._ending.cause == "exit" else self._what["stop_signal"])
        if self._ending.phase == KILLING:
            self._kill(now)

    def _kill(self, now: float) -> None:
        if self._killing_since == NEVER:
            self._killing_since = now
            self._say(wire.KILLING)
        self._page.acting(self._slot, self._serial, now)
        refused = tree.kill_below(os.getpid())
        self._on_child()
        if not self._gone and now - self._killing_since >= STUCK_AFTER_S:
            alive = descendants(os.getpid())
            if alive != self._said_stuck:
                self._said_stuck = alive
                self._say(wire.STUCK, alive[:100], tree.why_alive(alive, refused))

    def _pause_ms(self) -> int:
        age_s = boot() - self._killing_since
        return next(pause_ms for until_s, pause_ms in _KILL_PAUSES_MS if age_s < until_s)

    def _on_child(self) -> None:
        self._wakeups.clear()
        ended, nothing_left = tree.reap()
        for pid, status in ended:
            if pid == self._child:
                self._status = status
                self._ending.exited(boot(), self._what["rest_grace_s"])
        self._gone = nothing_left

    def _on_output(self) -> None:
        assert self._pump is not None  # noqa: S101 - set before it is watched
        fd = self._pump.fd
        self._pump.pull()
        if self._pump.fd < 0:
            self._ignore(fd)

    def _on_report(self) -> None:
        """Learn whether exec succeeded: it closed the pipe, or else the reason stands in it."""
        if self._report < 0:
            return
        report = os.read(self._report, 64)
        self._ignore(self._report)
        os.close(self._report)
        self._report = -1
        if report:
            self._error = explain(report, self._what)
        else:
            self._say(wire.STARTED, self._child)

    def _on_order(self) -> None:
        try:
            received = wire.receive(self._sock)
        except BlockingIOError:
            return
        now = boot()
        if received is None:
            self._ignore(self._sock.fileno())
            kill_at = self._page.kill_at(self._slot, self._serial)
            self._ending.abandon(now, self._what["abandon_grace_s"], kill_at)
            return
        name, *fields = received[0]
        if name == wire.STOP:
            self._ending.stop(now, fields[0])
        elif name == wire.KILL:
            self._ending.kill(now)

    def _finish(self) -> None:
        elapsed_s = boot() - self._forked_at
        assert self._pump is not None  # noqa: S101 - set before the job was forked
        self._on_report()
        self._pump.drain()
        exited = os.WIFEXITED(self._status)
        exit_code = os.WEXITSTATUS(self._status) if exited and not self._error else None
        signum = 0 if exited else os.WTERMSIG(self._status)
        tail = self._pump.tail.lines()
        self._say(wire.ENDED, exit_code, signum, self._error, self._ending.cause, elapsed_s, tail)

    def _refuse(self, error: str, cause: str) -> None:
        self._say(wire.ENDED, None, 0, error, cause, 0.0, [])

    def _say(self, *message: object, fds: tuple[int, ...] = ()) -> None:
        try:
            wire.send(self._sock, *message, fds=fds)
        except BlockingIOError:
            return  # main is frozen and its buffer is full: it will learn the end from the launcher
