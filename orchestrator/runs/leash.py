"""The leash: one small process per run that owns its tree, its deadline and its output.

Forked by the launcher, never exec'd; a sub-reaper in a session of its own that no TERM, INT or HUP ends.
It needs nobody: it reads its own slot of the shared page when its own timer fires, and acts alone when
that has not moved, or when main is gone. It never extends anything.

Rules of this file:
1. The run has ended when the kernel says ECHILD, and not before (`tree`). Only then is ENDED sent, and only
   then does the leash exit with status 0: whoever sees that status knows that nothing is left.
2. Nothing here waits for main: what main does not take is dropped.
3. What ends a run, and when, is decided in `ending`; this file measures, signals and reaps.
4. No import and little garbage after the fork: what is not touched stays shared with the launcher. What a plain
   run does not need is not called for it: each function that is called once costs a page or two.
5. A spare waits for its run with all that can be done before. It is told one run, once; from then on it is a leash
   like any other. Main's end is its own.
6. The hook for success or failure is forked once nothing of the job is left, and then lives as the job did: under
   the lease, main's orders and its own limit. What is told of the run is the job's end and not the hook's.
"""

import json
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

from orchestrator.runs import cgroups, errands, tree, wire
from orchestrator.runs.ending import ENDING, KILLING, Ending
from orchestrator.runs.errands import Errand, Errands
from orchestrator.runs.first_process import explain, fork_job
from orchestrator.runs.killing import Killing
from orchestrator.runs.linux import NEVER, BootTimer, become_subreaper, boot, name_process
from orchestrator.runs.output import Output
from orchestrator.runs.page import Page
from orchestrator.runs.ready import ReadyProcess
from orchestrator.runs.wakeups import Wakeups


class Leash:
    """One run, held."""

    __slots__ = (
        "_alarm",
        "_alive",
        "_by_command",
        "_child",
        "_ending",
        "_errands",
        "_error",
        "_forked_at",
        "_gone",
        "_handlers",
        "_ignored",
        "_killing",
        "_last_hook",
        "_orders",
        "_output",
        "_over_at",
        "_page",
        "_pipes",
        "_poll",
        "_ready",
        "_report",
        "_serial",
        "_slot",
        "_sock",
        "_status",
        "_timer",
        "_wakeups",
        "_what",
    )

    def __init__(
        self,
        sock: socket.socket,
        page: Page,
        place: tuple[int, int],
        what: dict[str, Any] | socket.socket,
        ignored: list[int],
    ) -> None:
        """Take over what the launcher was sent.

        Args:
            sock: To main.
            page: The shared page.
            place: Slot of this run on the page, and its serial.
            what: See `order.what_to_run`. A spare, which will be told by main: where its first process will be, too.
            ignored: Signals that this process ignores and a job must not.
        """
        self._sock = sock
        self._page = page
        self._slot, self._serial = place
        self._orders = what if isinstance(what, socket.socket) else None
        self._what: dict[str, Any] = {} if isinstance(what, socket.socket) else what
        self._ignored = ignored
        self._ending = Ending()
        self._alarm = BootTimer()  # for the page alone: main puts it off
        self._timer: BootTimer | None = None  # for all else, which main must not put off
        self._wakeups = Wakeups()
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._pipes: list[int] = []
        self._ready: ReadyProcess | None = None
        self._output: Output
        self._errands: Errands
        self._report = -1
        self._child = 0
        self._alive = False
        self._status = 0
        self._error = ""
        self._gone = False
        self._by_command = False
        self._last_hook = ""
        self._forked_at = self._over_at = 0.0
        self._killing: Killing | None = None

    def hold(self) -> None:
        """Start the job, a spare once it is told which, and return when nothing of it is left."""
        become_subreaper()
        name_process("orch-leash")
        if self._orders:
            self._ready = ReadyProcess(self._sock, self._orders, self._page, (self._slot, self._serial))
        own = os.pidfd_open(os.getpid())
        self._say(wire.LEASHED, os.getpid(), self._ready.pid if self._ready else 0, fds=(own, self._alarm.fd))
        os.close(own)
        if not (self._is_told(self._ready) if self._ready else self._is_begun()):
            return
        while not self._gone:
            self._turn()
        cause = self._ending.cause
        self._run_last_hook()
        self._finish(cause)

    def _is_begun(self) -> bool:
        """Fork the job's first process; False if that is not to be, or cannot be."""
        self._watch(self._sock.fileno(), self._on_order)
        self._on_order()
        if self._ending.cause:
            self._refuse("ended before it was started", self._ending.cause)
            return False
        if boot() >= self._page.term_at(self._slot, self._serial):
            self._refuse("its lease was over before it could start", "deadline")
            return False
        try:
            if self._what["cgroup"]:
                cgroups.make(self._what["cgroup"])
            ends = self._prepare([])
            self._report, report = os.pipe2(os.O_CLOEXEC)
            self._forked_at = boot()
            self._child = fork_job(self._what, self._ignored, ends, report)
            os.close(report)
        except OSError as error:
            self._refuse(f"cannot start a process: {error.strerror}", "exit")
            return False
        self._attend()
        return True

    def _is_told(self, ready: ReadyProcess) -> bool:
        """Wait for the run of a spare, whose first process has begun by then; False if main needs the spare no more."""
        told = ready.wait(self._sock, self._alarm, self._wakeups)
        if not told:
            ready.dismiss()
            return False
        _, self._what = json.loads(told)
        self._prepare(ready.pipes)
        self._report, self._child = ready.report, ready.pid
        self._forked_at = self._page.began_at(self._slot, self._serial) or boot()
        self._watch(self._sock.fileno(), self._on_order)
        self._attend()
        if ready.ended_at:
            self._on_child(ready.ended_at)
        return True

    def _prepare(self, pipes: list[tuple[int, int]]) -> tuple[int, int]:
        """Make ready for the output of all processes; return what is their stdout and their stderr."""
        output = self._output = Output(
            self._what["log"],
            on_failed=self._on_log_failed,
            on_restored=self._on_log_restored,
            pipes=pipes,
        )
        # Our copies of these ends stay open for errands to come. Nobody waits for the end of a pipe.
        ends = (output.stdout_fd, output.stderr_fd)
        self._errands = Errands(self._what, self._ignored, ends, self._on_errand)
        return ends

    def _attend(self) -> None:
        """Take notice of whatever happens to the job from now on."""
        self._alive = True
        self._watch(self._alarm.fd, self._alarm.clear)
        self._watch(self._wakeups.fd, self._on_child)
        self._pipes = self._output.read_fds()
        for fd in self._pipes:
            self._poll.register(fd, select.POLLIN)
        self._watch(self._report, self._on_report)

    def _watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._poll.register(fd, select.POLLIN)
        self._handlers[fd] = handler

    def _ignore(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._handlers[fd]

    def _turn(self) -> None:
        """Wait for whatever comes first, handle it, and see what the time says."""
        killing = self._ending.phase == KILLING
        due_at = self._ending.due_at(NEVER)
        if self._errands.running:
            due_at = min(due_at, self._errands.due_at())
        self._arm(NEVER if killing else due_at)
        struck = killing or self._ending.lease_struck
        self._alarm.arm(NEVER if struck else self._page.term_at(self._slot, self._serial))
        pause_ms = None if not killing else self._killing.pause_ms(boot()) if self._killing else 0
        for fd, _ in self._poll.poll(pause_ms):
            if fd in self._handlers:
                self._handlers[fd]()
            elif fd in self._pipes and not self._output.pull(fd):
                self._pipes.remove(fd)
                self._poll.unregister(fd)
        self._act()

    def _arm(self, at: float) -> None:
        if self._timer is None:
            if at == NEVER:
                return  # most runs never need it
            self._timer = BootTimer()
            self._watch(self._timer.fd, self._timer.clear)
        self._timer.arm(at)

    def _act(self) -> None:
        now = boot()
        if self._errands.running:
            self._errands.look(now)
        term_at = self._page.term_at(self._slot, self._serial)
        self._ending.look(now, term_at, self._page.kill_at(self._slot, self._serial))
        if self._gone or not self._ending.cause:
            return
        self._page.commit(self._slot, self._serial, self._ending.kill_by)
        # Before exec the first process still ignores what the launcher ignores: a TERM would be lost on it.
        if self._ending.asks and self._report < 0:
            self._ending.asks = False
            self._ask_to_end()
        elif self._by_command and self._ending.lease_struck:
            self._signal_the_tree()  # the command was given the whole grace, and that is over
        if self._ending.phase == KILLING:
            self._kill(now)

    # Towards the tree.

    def _ask_to_end(self) -> None:
        """Signal the tree, or let the stop command do it; then begin what must run during the end."""
        command = self._what["stop_command"]
        if self._ending.cause == "stop" and command and not self._error and not self._last_hook:
            self._by_command = True
            if self._errands.begin(errands.STOP, command, NEVER, self._about_the_job()):
                return  # the signal follows when it has ended
        self._signal_the_tree()
        if self._ending.cause in {"deadline", "abandoned"} and not self._last_hook:
            self._begin_hook(errands.ON_STEP_DOWN, self._ending.kill_by if self._ending.phase == ENDING else 0.0)

    def _signal_the_tree(self) -> None:
        self._by_command = False
        after_exit = self._ending.cause == "exit"
        # What a first process left behind gets TERM; the job's own stop signal is for an end that is ordered.
        signum = signal.SIGTERM if after_exit or self._last_hook else self._what["stop_signal"]
        self._errands.ask_to_end(signum, hooks_go_on=after_exit)

    def _kill(self, now: float) -> None:
        if self._killing is None:
            self._killing = Killing(now)
            self._say(wire.KILLING)
        self._page.acting(self._slot, self._serial, now)
        self._errands.cut_short()
        self._killing.strike(self._what["cgroup"])
        self._on_child()
        if not self._gone and (stuck := self._killing.stuck(now)):
            self._say(wire.STUCK, *stuck)

    # From the tree.

    def _on_child(self, noticed_at: float = 0.0) -> None:
        self._wakeups.clear()
        ended, nothing_left = tree.reap()
        for pid, status in ended:
            if self._errands.ended(pid, status):
                continue
            if not self._last_hook:
                self._over_at = noticed_at or boot()
            if self._alive and pid == self._child:
                self._alive = False
                self._status = status
                self._on_report()  # all is in it by now; the hook for the start comes before the end
                self._ending.exited(boot(), self._what["rest_grace_s"])
        self._gone = nothing_left and not self._errands.running  # a hook may have been forked just now

    def _on_report(self) -> None:
        """Learn whether exec succeeded: it closed the pipe, or else the reason stands in it."""
        if self._report < 0:
            return
        report = os.read(self._report, wire.MAX_CLAUSE)
        self._ignore(self._report)
        os.close(self._report)
        self._report = -1
        if report:
            self._error = explain(report, self._what)[: wire.MAX_CLAUSE]
            return
        self._say(wire.STARTED, self._child)
        if self._what["hooks"] and not self._ending.cause:
            self._begin_hook(errands.ON_START, NEVER)

    # Errands.

    def _begin_hook(self, name: str, until: float) -> bool:
        """Begin a hook if the job has it and there is time until then; tell whether it runs."""
        hook = self._what["hooks"].get(name)
        if hook is None:
            return False
        if until <= boot():
            self._say(wire.HOOK_FAILED, name, "no time was left for it")
            return False
        return self._errands.begin(name, hook["argv"], hook["timeout_s"], self._about_the_job())

    def _run_last_hook(self) -> None:
        """Run the hook for success or failure, now that nothing of the job is left, and wait for its end."""
        if self._ending.cause == "exit":
            name = errands.ON_SUCCESS if self._succeeded() else errands.ON_FAILURE
        elif self._ending.failure:
            name = errands.ON_FAILURE
        else:
            return
        until = self._ending.hook_until()
        if not self._begin_hook(name, until):
            return
        self._last_hook = name
        limit = min(until, self._errands.due_at())
        self._ending = Ending(limit)
        self._page.commit(self._slot, self._serial, limit)
        self._killing = None
        self._gone = False
        self._say(wire.LAST_HOOK, name, limit - boot())
        while not self._gone:
            self._turn()

    def _succeeded(self) -> bool:
        return not self._error and os.WIFEXITED(self._status) and os.WEXITSTATUS(self._status) in self._what["success"]

    def _about_the_job(self) -> dict[str, str]:
        """Return what an errand's environment says of the job."""
        if self._alive:
            return {"ORCHESTRATOR_PID": str(self._child)}
        if self._error:
            return {}
        if os.WIFEXITED(self._status):
            return {"ORCHESTRATOR_EXIT_CODE": str(os.WEXITSTATUS(self._status))}
        return {"ORCHESTRATOR_SIGNAL": str(os.WTERMSIG(self._status))}

    def _on_errand(self, errand: Errand, why: str) -> None:
        """Tell how an errand came out, and go on with what waited for it."""
        if errand.name == errands.HEALTH:
            if not errand.cut:
                self._say(wire.CHECKED, errand.number, not why, why)
        elif why:
            self._say(wire.HOOK_FAILED, errand.name, why)
        if errand.name == errands.STOP and self._by_command:
            self._signal_the_tree()
        elif errand.name == self._last_hook:
            self._ending.exited(boot(), self._what["rest_grace_s"])

    # From and to main.

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
            grace_s, failure = fields
            self._ending.stop(now, grace_s, failure=failure)
        elif name == wire.KILL:
            self._ending.kill(now)
        elif self._ending.cause or not self._alive:
            return  # what is over needs no check and no reload
        elif name == wire.CHECK:
            number, argv, limit_s = fields
            self._errands.begin(errands.HEALTH, argv, limit_s, self._about_the_job(), number)
        elif name == wire.RELOAD:
            self._reload(*fields)

    def _reload(self, signum: int, argv: list[str] | None) -> None:
        if argv:
            self._errands.begin(errands.RELOAD, argv, errands.RELOAD_LIMIT_S, self._about_the_job())
            return
        try:
            os.kill(self._child, signum)
        except PermissionError:
            self._say(wire.HOOK_FAILED, errands.RELOAD, f"not permitted to signal pid {self._child}: another user's")

    def _finish(self, cause: str) -> None:
        self._output.close_child_ends()
        self._output.drain()
        self._leave_cgroup()
        exited = os.WIFEXITED(self._status)
        exit_code = os.WEXITSTATUS(self._status) if exited and not self._error else None
        signum = 0 if exited else os.WTERMSIG(self._status)
        elapsed_s = self._over_at - self._forked_at
        self._say(wire.ENDED, exit_code, signum, self._error, cause, elapsed_s, self._output.tail.lines())

    def _on_log_failed(self, problem: str) -> None:
        self._say(wire.LOG_FAILED, problem)

    def _on_log_restored(self, lost_bytes: int) -> None:
        self._say(wire.LOG_RESTORED, lost_bytes)

    def _refuse(self, error: str, cause: str) -> None:
        self._leave_cgroup()
        self._say(wire.ENDED, None, 0, error, cause, 0.0, [])

    def _leave_cgroup(self) -> None:
        if self._what["cgroup"]:
            cgroups.remove(self._what["cgroup"])

    def _say(self, *message: object, fds: tuple[int, ...] = ()) -> None:
        try:
            wire.send(self._sock, *message, fds=fds)
        except BlockingIOError:
            return  # main is frozen and its buffer is full: it will learn the end from the launcher
