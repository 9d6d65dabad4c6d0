"""Main's side of the runs: start, extend, stop, kill, and the proof that a run has ended.

Everything here happens on main's event loop: nothing blocks, and no trouble with a process is raised.
It knows launchers, leashes and the shared page; it must never know leases or schedules.

Rules of this file:
1. A run has ended only on proof: its leash says ENDED (the kernel said ECHILD), or the launcher says GONE
   (no stray is left below it), or, where that launcher is dead too, main itself has no stray left.
   A closed socket proves nothing: it makes the run unproven.
2. A start is sent once. Where no answer comes, the launcher is killed and replaced, and proof awaited.
3. Deadlines go to the page only. Whether main lives is seen by the leashes at the ends of their sockets.
4. What does not do as it was told in time is killed: job by leash, leash by main (`oversight`), launcher by main.
5. What an earlier main left behind is gone before the first launcher is started (`ledger`).
"""

import asyncio
import collections
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator import clock
from orchestrator.core.messages import (
    ExpectRuns,
    ExtendRun,
    KillRun,
    RunEnded,
    RunEvent,
    RunExited,
    RunStarted,
    RunStuck,
    RunUnproven,
    Say,
    StartRun,
    StopRun,
)
from orchestrator.core.nouns import RunId
from orchestrator.core.spec import JobSpec
from orchestrator.errors import OrchestratorError
from orchestrator.runs import cgroups, linux, open_files, order, wire
from orchestrator.runs.launcher_process import LauncherProcess
from orchestrator.runs.launching import Launching
from orchestrator.runs.ledger import Ledger
from orchestrator.runs.leftovers import Trace
from orchestrator.runs.live_run import LiveRun, Phase
from orchestrator.runs.oversight import LATE_S, ORDINARY, Limits, Oversight
from orchestrator.runs.page import SLOTS, Page
from orchestrator.runs.proof import Proof
from orchestrator.runs.starting import Starting
from orchestrator.runs.strays import Strays, identify
from orchestrator.runs.watching import Watching

MAX_TAILS = 256
"""Ended runs whose last lines are remembered."""

_WAIT_LIMIT_S = 30.0


class Runs:
    """The runs of one node."""

    def __init__(
        self,
        *,
        directory: Path,
        deliver: Callable[[RunEvent], None],
        environ: Mapping[str, str],
        cgroup: str | None = None,
        say: Callable[[Say], None] = lambda _line: None,
        limits: Limits = ORDINARY,
    ) -> None:
        """Note what is needed; nothing is started before `open`.

        Args:
            directory: The state directory; logs go below it.
            deliver: Told what happened, on the event loop, never from within a call of ours.
            environ: What jobs may inherit.
            cgroup: The cgroup that was delegated to this process (see `cgroups.own`): each run gets one of its own.
            say: Told what is worth a log line.
            limits: How long main waits for launcher and leashes.
        """
        self._directory = directory
        self._deliver = deliver
        self._heritage = order.inheritable(environ)
        self._cgroup = cgroup
        self._say = say
        self._limits = limits
        self._runs: dict[RunId, LiveRun] = {}
        self._tails: collections.OrderedDict[RunId, tuple[str, ...]] = collections.OrderedDict()

    # What main calls.

    async def open(self) -> None:
        """Sweep what an earlier main left behind, become a sub-reaper, and start the launcher.

        Raises:
            OrchestratorError: Something left over cannot be killed, or no launcher can be started.
        """
        self._ledger = Ledger(self._directory, cgroup=self._cgroup, say=self._say)
        self._ledger.sweep()  # it blocks: there is nothing yet that it could hold up
        self._loop = asyncio.get_running_loop()
        self._was_subreaper = linux.is_subreaper()
        linux.become_subreaper()
        self._open_files = open_files.raise_limit()
        self._page = Page.create()
        self._strays = Strays()
        self._launching = Launching(
            page_fd=self._page.fd,
            errors=self._directory / "launcher.log",
            pack=self._pack,
            on_message=self._on_launcher,
            on_dead=self._on_dead_launcher,
            on_sent=self._on_sent,
            say=self._say,
        )
        self._starting = Starting(
            page=self._page,
            launching=self._launching,
            cgroup=self._cgroup,
            pack=self._pack,
            trace=self._ledger.look,
            on_sent=self._on_sent,
        )
        self._proof = Proof(
            strays=self._strays,
            runs=lambda: list(self._runs.values()),
            launchers=self._launching.pids,
            on_proven=self._on_proven,
            on_stuck=self._on_stuck,
        )
        try:
            await self._launching.open()
        except OrchestratorError:
            await self._launching.close(limit_s=0.0)
            self._give_back()
            raise
        self._watching = Watching(self._deliver)
        self._oversight = Oversight(runs=self._runs.values, hear=self._hear, on_failing=self._lose, limits=self._limits)
        self._watch = self._loop.call_later(self._limits.liveness_s, self._ping_launcher)

    def start(self, spec: JobSpec, start: StartRun) -> None:
        """Start a run; once per run id, whatever becomes of it."""
        if start.run in self._runs:
            self._say(Say("run.start_repeated", {"job": start.job, "run": start.run}, "error"))
            return
        until = start.deadlines
        if until and clock.boot() >= until.term_at:
            error = "its lease was over before it could start"
            self._loop.call_soon(self._deliver, RunEnded(start.job, start.run, None, 0, error, "deadline", 0.0))
            return
        run = self._starting.start(spec, start)
        if run is None:
            error = f"this node has {SLOTS} runs already"
            self._loop.call_soon(self._deliver, RunEnded(start.job, start.run, None, 0, error, "exit", 0.0))
            return
        self._runs[start.run] = run
        if run.phase is Phase.WAITING:
            run.set_limit(_WAIT_LIMIT_S, self._on_never_sent)

    def expect(self, expected: ExpectRuns) -> None:
        """Make ready for starts that are due soon."""
        self._starting.expect(expected)

    def extend(self, extend: ExtendRun) -> None:
        """Move a run's deadlines, on the page, and put its leash's alarm off: no message, no wake-up.

        The page is what counts; an alarm that was not put off only wakes its leash, which looks and sleeps on.
        """
        if run := self._runs.get(extend.run):
            term_at = extend.deadlines.term_at
            self._page.extend(run.slot, term_at, extend.deadlines.kill_at)
            # Of three heartbeats one may pass: `LeaseTiming.problem` leaves two before `term_at`.
            if (
                run.alarm is not None
                and run.phase is not Phase.SENT
                and term_at > run.alarm.at + 1.25 * run.spec.lease.heartbeat_s
            ):
                run.alarm.arm(term_at)

    def stop(self, stop: StopRun) -> None:
        """Stop a run; again with a shorter grace: sooner."""
        words = (wire.STOP, stop.grace_s, stop.failure)
        self._order(stop.run, "stop", stop.grace_s + LATE_S, *words, hook_too=not stop.failure)

    def kill(self, kill: KillRun) -> None:
        """SIGKILL a run's tree now."""
        self._order(kill.run, "killed", self._limits.kill_limit_s, wire.KILL)

    def reload(self, run: RunId) -> bool:
        """Tell a run's job to read its own configuration again, as its spec says; False if it cannot be told now."""
        held = self._runs.get(run)
        wanted = held.spec.reload if held else None
        if held is None or wanted is None or held.phase is not Phase.RUNNING:
            return False
        signum = int(signal.Signals[wanted.signal]) if wanted.signal else 0
        return not held.tell(wire.RELOAD, signum, wanted.command)

    def log_path(self, spec: JobSpec) -> Path | None:
        """Return where the output of a job goes, None where it is dropped."""
        return order.log_path(self._directory, spec)

    def last_lines(self, run: RunId) -> tuple[str, ...]:
        """Return the last lines of a run that ended, oldest first; only of the last runs, () for others."""
        return self._tails.get(run, ())

    def spare(self, pid: int) -> None:
        """Never take a child of main for something a run left; needed only for one in a session of its own."""
        self._strays.spare(pid)

    def pids(self) -> dict[str, object]:
        """Return the processes: the launcher's, and each run's leash and first process (0: not known)."""
        launcher = self._launching.current
        return {
            "launcher": launcher.pid if launcher else 0,
            "spares": self._starting.spares(),
            "runs": {str(name): {"leash": run.leash_pid, "child": run.leader_pid} for name, run in self._runs.items()},
        }

    async def close(self) -> None:
        """End the launcher. Runs that are left are abandoned: their leashes end them, and nobody hears of it.

        They keep their slots on the page: without one they would have no time to end in order.
        """
        self._watch.cancel()
        self._oversight.close()
        self._proof.close()
        self._watching.close()
        self._starting.close()
        graces_s = [run.spec.lease.step_down_grace_s + run.spec.lease.kill_time_s for run in self._runs.values()]
        for run in reversed(list(self._runs.values())):  # what still waits goes first, and is not sent
            self._forget(run)
        await self._launching.close(limit_s=self._limits.answer_limit_s + max(graces_s, default=0.0))
        self._give_back()

    def _give_back(self) -> None:
        self._page.close()
        self._ledger.close()  # what it holds of abandoned runs the next start looks for, and does not find
        linux.become_subreaper(yes=self._was_subreaper)

    # Towards the leash.

    def _pack(self, run: LiveRun) -> dict[str, object]:
        return order.what_to_run(
            run.spec,
            run.order,
            heritage=self._heritage,
            directory=self._directory,
            open_files=self._open_files,
            cgroup=run.cgroup,
        )

    def _order(self, name: RunId, cause: str, limit_s: float, *message: object, hook_too: bool = True) -> None:
        """Tell a leash to end its run, and kill the leash if it has not within the limit."""
        run = self._runs.get(name)
        if run is None or run.phase is Phase.UNPROVEN:
            return
        if run.phase is Phase.WAITING:
            self._end(run, run.ended(cause=cause, error="ended before it was started"))
            return
        self._watching.end(run)
        run.tell(*message)  # a frozen leash does not hear: the limit runs
        self._oversight.ordered(run, limit_s, hook_too=hook_too)

    # From the leash.

    def _on_sent(self, run: LiveRun, trace: Trace | None = None) -> None:
        assert run.sock is not None  # noqa: S101 - that is what "sent" means
        run.set_limit(self._limits.start_limit_s, self._on_unanswered)
        if trace is not None:
            self._ledger.enter(trace._replace(run=run.order.run, cgroup=run.cgroup))
        else:
            self._ledger.opened(run.order.run, run.serial, 0, 0, run.cgroup)  # should all die before the leash answers
        self._loop.add_reader(run.sock, self._hear, run)

    def _hear(self, run: LiveRun) -> None:
        """Take in all that a run's leash has said."""
        while run.sock is not None:
            try:
                received = wire.receive(run.sock)
            except BlockingIOError:
                return
            if received is None:
                self._lose(run, "its leash died" if run.held else "nobody took it")
                return
            self._on_leash(run, *received)

    def _on_leash(self, run: LiveRun, message: wire.Message, fds: list[int]) -> None:
        name, *fields = message
        job, run_id = run.order.job, run.order.run
        if run.phase is Phase.SENT:
            self._on_answer(run)
        if name == wire.LEASHED:
            run.leash_pid, run.leash = fields[0], (fds[0] if fds else -1)
            run.alarm = linux.BootTimer(fds[1]) if len(fds) > 1 else None
            self._ledger.opened(run_id, run.serial, run.leash_pid, 0, run.cgroup)
        elif name == wire.STARTED:
            self._on_started(run, fields[0])
        elif name == wire.KILLING:
            self._oversight.on_killing(run)
        elif name == wire.STUCK:
            run.clear_limit()  # it is awake, and keeps trying
            self._on_stuck(run, tuple(fields[0]), fields[1])
        elif name == wire.ENDED:
            exit_code, signum, error, cause, elapsed_s, tail = fields
            self._remember(run_id, tuple(tail))
            self._end(run, RunEnded(job, run_id, exit_code, signum, error, cause, elapsed_s, tuple(tail)))
        elif name == wire.LAST_HOOK:
            self._oversight.on_last_hook(run, fields[1])
            self._deliver(RunExited(job, run_id))
        elif name == wire.CHECKED:
            self._watching.on_checked(run, *fields)
        elif name == wire.HOOK_FAILED:
            hook, why = fields
            self._say(Say("hook.failed", {"job": job, "run": run_id, "hook": hook, "why": why}, "warning"))
        elif name == wire.LOG_FAILED:
            self._say(Say("log.failed", {"job": job, "run": run_id, "why": fields[0]}, "warning"))
        elif name == wire.LOG_RESTORED:
            self._say(Say("log.restored", {"job": job, "run": run_id, "lost_bytes": fields[0]}))

    def _on_started(self, run: LiveRun, pid: int) -> None:
        run.phase, run.started_at = Phase.RUNNING, clock.boot()
        if run.leader_pid != pid:  # that of a spare is known
            run.leader_pid, run.leader = pid, identify(pid)
            self._ledger.opened(run.order.run, run.serial, run.leash_pid, pid, run.cgroup)
        self._watching.begin(run)
        self._deliver(RunStarted(run.order.job, run.order.run, pid))

    def _on_answer(self, run: LiveRun) -> None:
        run.phase = Phase.LEASHED
        if run.alarm is not None:
            run.alarm.at = -linux.NEVER  # its leash has armed it by now
        run.clear_limit()
        self._oversight.force_in_time(run)
        self._launching.answered(run)

    def _remember(self, run: RunId, tail: tuple[str, ...]) -> None:
        self._tails[run] = tail
        while len(self._tails) > MAX_TAILS:
            self._tails.popitem(last=False)

    def _on_stuck(self, run: LiveRun, pids: tuple[int, ...], why: str) -> None:
        self._deliver(RunStuck(run.order.job, run.order.run, pids, why))

    # What goes wrong.

    def _on_never_sent(self, run: LiveRun) -> None:
        self._end(
            run, run.ended(cause="exit", error=f"not started within {_WAIT_LIMIT_S:g} s: {self._launching.trouble}")
        )

    def _on_unanswered(self, run: LiveRun) -> None:
        """Give up on a start: whether the launcher carried it out will be known when that launcher is dead."""
        self._hear(run)
        if run.phase is Phase.SENT and run.held:
            run.kill_leash()
            self._lose(run, f"its leash did not answer within {self._limits.start_limit_s:g} s")
        elif run.phase is Phase.SENT and run.launcher is not None:
            run.launcher.kill()
            self._lose(run, f"the launcher did not answer within {self._limits.start_limit_s:g} s")

    def _lose(self, run: LiveRun, why: str) -> None:
        """Nothing more will come from its leash: wait for proof of the run's end."""
        self._hang_up(run)
        self._watching.end(run)
        run.why = why
        run.phase = Phase.UNPROVEN
        run.clear_limit()
        if run.cgroup is not None:
            cgroups.kill(run.cgroup)  # what no signal of ours would reach; the proof is awaited all the same
        self._launching.answered(run)
        self._deliver(RunUnproven(run.order.job, run.order.run, why))
        if run.orphaned:
            self._proof.sweep_soon()
        elif run.launcher is not None:
            run.launcher.ping(self._limits.answer_limit_s)

    def _on_launcher(self, _launcher: LauncherProcess, message: wire.Message) -> None:
        name, *fields = message
        if name == wire.STUCK:
            for each in [each for each in self._runs.values() if each.phase is Phase.UNPROVEN]:
                self._on_stuck(each, tuple(fields[0]), fields[1])
            return
        run = self._starting.run_of(fields[0])
        if run is None:
            return  # ended already: its leash said so itself
        if name == wire.REFUSED:
            self._end(run, run.ended(cause="exit", error=fields[1]))
        elif name == wire.GONE:
            self._hear(run)  # its last words may still be in its own socket
            if run.held:
                self._lose(run, "its leash died")
            self._proof.gone(run)

    def _on_dead_launcher(self, launcher: LauncherProcess) -> None:
        for run in [run for run in self._runs.values() if run.launcher is launcher]:
            self._hear(run)
            if run.phase is Phase.SENT and not run.held:
                self._lose(run, "the launcher died before it answered")
        self._starting.abandon(launcher)
        self._proof.sweep_soon()

    def _on_proven(self, run: LiveRun) -> None:
        began_at = run.started_at or self._page.began_at(run.slot, run.serial)
        error = "" if began_at else f"not started: {run.why}"
        elapsed_s = clock.boot() - began_at if began_at else 0.0
        if run.cgroup is not None:
            cgroups.remove(run.cgroup)  # nobody else does
        self._end(run, run.ended(cause="unproven", error=error, elapsed_s=elapsed_s))

    # The end.

    def _end(self, run: LiveRun, ended: RunEnded) -> None:
        self._watching.end(run)
        self._forget(run)
        self._starting.give_back(run)
        self._ledger.closed(run.serial)
        self._loop.call_soon(self._deliver, ended)
        if run.orphaned:
            self._proof.sweep_soon()  # its leash is our child, and wants to be reaped

    def _forget(self, run: LiveRun) -> None:
        if run.phase is Phase.WAITING:
            self._starting.take_back(run)
        self._hang_up(run)
        run.close()
        run.phase = Phase.ENDED
        del self._runs[run.order.run]
        self._starting.forget(run)
        self._launching.answered(run)

    def _hang_up(self, run: LiveRun) -> None:
        if run.sock is not None:
            self._loop.remove_reader(run.sock)
            run.sock.close()
            run.sock = None

    # Every few seconds.

    def _ping_launcher(self) -> None:
        self._watch = self._loop.call_later(self._limits.liveness_s, self._ping_launcher)
        if self._launching.current is not None:
            self._launching.current.ping(self._limits.answer_limit_s)
