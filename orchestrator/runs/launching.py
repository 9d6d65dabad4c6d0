"""Keeping one launcher alive, and handing it each start exactly once.

It knows launchers and the starts that wait for one; it must never know how a run goes on.
A launcher that died is replaced at once, one that dies young ever more slowly. A start that no launcher
was told of waits, and can be taken back; one that was sent is never sent again.
"""

import asyncio
import collections
import os
from collections.abc import Callable
from pathlib import Path

from orchestrator import clock
from orchestrator.core.messages import Say
from orchestrator.errors import OrchestratorError
from orchestrator.runs import wire
from orchestrator.runs.launcher_process import LauncherProcess
from orchestrator.runs.live_run import LiveRun, Phase

MAX_UNANSWERED = 64
"""Starts that a launcher was told of and that no leash answered yet. More would only wait in its socket."""

_OPEN_LIMIT_S = 10.0
_RETRY_S = 0.02
_YOUNG_S = 1.0
_MAX_DELAY_S = 10.0


class Launching:
    """The present launcher, and the starts that wait for it.

    Attributes:
        current: None while none can be started.
        trouble: What kept the last start that could not be sent from being sent, in one clause.
    """

    def __init__(
        self,
        *,
        page_fd: int,
        errors: Path,
        pack: Callable[[LiveRun], dict[str, object]],
        on_message: Callable[[LauncherProcess, wire.Message], None],
        on_dead: Callable[[LauncherProcess], None],
        on_sent: Callable[[LiveRun], None],
        say: Callable[[Say], None],
    ) -> None:
        """Start nothing yet.

        Args:
            page_fd: The shared page.
            errors: The file for tracebacks of launchers and leashes.
            pack: Says what a leash is sent for a run.
            on_message: Told what a launcher says.
            on_dead: Told when a launcher is dead and reaped; the next one is started already.
            on_sent: Told when a start was handed over.
            say: Told what is worth a log line.
        """
        self.current: LauncherProcess | None = None
        self.trouble = "no launcher could take it"
        self._page_fd = page_fd
        self._errors = errors
        self._pack = pack
        self._on_message = on_message
        self._on_dead = on_dead
        self._on_sent = on_sent
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._waiting: collections.deque[LiveRun] = collections.deque()
        self._unanswered: set[LiveRun] = set()
        self._delay_s = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._relaunch: asyncio.TimerHandle | None = None
        self._closing = False

    async def open(self) -> None:
        """Start the first launcher.

        Raises:
            OrchestratorError: It cannot be started.
        """
        try:
            launcher = self.current = self._new()
            async with asyncio.timeout(_OPEN_LIMIT_S):
                await launcher.answered.wait()
        except (OSError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_OPEN_LIMIT_S:g} s, see {self._errors}"
            raise OrchestratorError(f"the launcher did not start: {reason}") from error
        if not launcher.alive:
            raise OrchestratorError(f"the launcher died at its start: see {self._errors}")

    def pids(self) -> set[int]:
        """Return the launchers that are not reaped."""
        return {self.current.pid} if self.current is not None else set()

    def enqueue(self, run: LiveRun) -> None:
        """Hand a start over as soon as there is room."""
        self._waiting.append(run)
        self._send_waiting()

    def take_back(self, run: LiveRun) -> None:
        """Forget a start that was not sent."""
        self._waiting.remove(run)

    def answered(self, run: LiveRun) -> None:
        """Make room: a sent start was answered, or is not waited for any more."""
        self._unanswered.discard(run)
        self._send_waiting()

    async def close(self, limit_s: float) -> None:
        """Let the launcher go, and wait until it has; kill it after `limit_s`."""
        self._closing = True
        for timer in (self._retry, self._relaunch):
            if timer is not None:
                timer.cancel()
        if self.current is not None:
            self.current.hang_up()
            killer = self._loop.call_later(limit_s, self.current.kill)
            await self.current.reaped.wait()
            killer.cancel()

    def _send_waiting(self) -> None:
        while (
            not self._closing and self._waiting and len(self._unanswered) < MAX_UNANSWERED and self.current is not None
        ):
            try:
                sent = self._send(self._waiting[0], self.current)
            except OSError as error:  # its buffer is full, or we are out of descriptors: the start's limit runs
                sent, self.trouble = False, f"{error.strerror or error}"
            if not sent:
                if self._retry is None:
                    self._retry = self._loop.call_later(_RETRY_S, self._send_again)
                return
            run = self._waiting.popleft()
            self._unanswered.add(run)
            self._on_sent(run)

    def _send(self, run: LiveRun, launcher: LauncherProcess) -> bool:
        ours, theirs = wire.pair()
        what_fd = -1
        try:
            what_fd = wire.in_memory(self._pack(run))
            sent = launcher.send(wire.START, run.serial, run.slot, fds=(what_fd, theirs.fileno()))
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            if what_fd >= 0:
                os.close(what_fd)
        if not sent:
            ours.close()
            return False
        run.sock, run.launcher, run.phase = ours, launcher, Phase.SENT
        return True

    def _send_again(self) -> None:
        self._retry = None
        self._send_waiting()

    def _new(self) -> LauncherProcess:
        return LauncherProcess(
            page_fd=self._page_fd, errors=self._errors, on_message=self._on_message, on_dead=self._on_its_death
        )

    def _launch(self) -> None:
        try:
            self.current = self._new()
        except OSError as error:
            self._say(Say("launcher.not_started", {"why": error.strerror}, "error"))
            self._launch_later()
        else:
            self._send_waiting()

    def _launch_later(self) -> None:
        self._delay_s = min(_MAX_DELAY_S, max(_YOUNG_S, self._delay_s * 2))
        self._relaunch = self._loop.call_later(self._delay_s, self._launch)

    def _on_its_death(self, launcher: LauncherProcess) -> None:
        if self._closing:
            return
        self._say(Say("launcher.died", {"pid": launcher.pid}, "error"))
        self.current = None
        if clock.boot() - launcher.born_at < _YOUNG_S:
            self._launch_later()
        else:
            self._delay_s = 0.0
            self._launch()
        self._on_dead(launcher)
