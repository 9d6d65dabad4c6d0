"""One run under its leash: it acts at its deadlines whether or not its main still lives, as the real one does.

The page with the deadlines belongs to the launcher too: where the leash dies, the tree lives on until the
launcher has killed it, at `kill_at` and half a margin at the latest.
"""

from collections.abc import Callable

from orchestrator.core.lease import NEVER
from orchestrator.core.messages import Event, RunEnded, RunUnproven, StartRun
from orchestrator.core.nouns import Deadlines, NodeName
from orchestrator.core.timing import LeaseTiming
from tests.simulation.hardware import Hardware
from tests.simulation.history import Execution

FAILING_CRONS = 0.25
"""The share of a cron's runs that end with exit status 1."""

SWEEP_S = 10.0
"""How soon the launcher has killed what a dead leash left, at the latest."""


class Leash:
    """A run that executes until its tree is gone.

    Attributes:
        gone: The tree is gone.
    """

    def __init__(
        self, hardware: Hardware, node: NodeName, order: StartRun, timing: LeaseTiming, tell: Callable[[Event], None]
    ) -> None:
        """Fork it; it does not execute yet."""
        world = hardware.world
        self.order = order
        self.gone = False
        self.execution = Execution(order.job, order.run, node, order.token, world.at)
        self._hardware = hardware
        self._world = world
        self._timing = timing
        self._tell = tell
        self._deadlines: Deadlines | None = order.deadlines
        self._stop_s = world.random.choice((0.05, 1.0, 8.0, NEVER))
        self._acting = False
        self._broken = False
        self._cause = ""
        self._kill_boot = NEVER
        self._timer = 0

    def begin(self, life_s: float) -> None:
        """Execute, for as long as the command itself takes."""
        self._world.history.started(self.execution, self.order.env.get("ORCHESTRATOR_TICK"), self._world.at)
        self._watch()
        if life_s < NEVER:
            self._world.later(life_s, lambda: self._act(lambda: None if self._broken else self._end("exit")))

    # --- orders of main ---------------------------------------------------------------------------

    def extend(self, deadlines: Deadlines) -> None:
        """Write new deadlines into the page."""
        if not self._acting:
            self._deadlines = deadlines

    def stop(self, grace_s: float) -> None:
        """Stop signal, then SIGKILL after the grace."""
        if not self._broken:
            self._cause = self._cause or "stop"
            self._end_by(self._hardware.boot() + grace_s)

    def kill(self) -> None:
        """SIGKILL of the whole tree."""
        if not self._broken:
            self._cause = self._cause or "killed"
            self._end_by(self._hardware.boot())

    # --- what befalls it --------------------------------------------------------------------------

    def abandon(self) -> None:
        """Step down: its main is gone."""
        if not self._broken:
            self._step_down("abandoned", self._timing.step_down_grace_s)

    def snap(self) -> None:
        """SIGKILL of the leash alone: the tree lives on until the launcher has swept it, or its own end has come."""
        if self.gone or self._broken:
            return
        self._broken = self._acting = True
        self._cause = "unproven"
        self._tell(RunUnproven(self.order.job, self.order.run, "its leash died"))
        delay_s = self._world.random.uniform(0, SWEEP_S)
        if self._deadlines is not None:
            limit_s = self._hardware.after_boot(self._deadlines.kill_at) + self._timing.margin_s / 2
            delay_s = min(delay_s, limit_s + self._world.strained(self._timing.kill_time_s))
        self._world.later(delay_s, lambda: self._act(lambda: self._end("unproven")))

    def crash(self) -> None:
        """Have the command end by itself, if it is a service's."""
        if "ORCHESTRATOR_TICK" not in self.order.env:
            self._act(lambda: None if self._broken else self._end("exit"))

    def lose_power(self) -> None:
        """End at once with the machine."""
        self._end("killed")

    # --- inside -----------------------------------------------------------------------------------

    def _act(self, act: Callable[[], None]) -> None:
        self._hardware.act(lambda: None if self.gone else act())

    def _watch(self) -> None:
        if self._deadlines is not None and not self._acting and not self.gone:
            delay_s = self._hardware.after_boot(self._deadlines.term_at)
            self._world.later(delay_s + self._world.strained(self._timing.margin_s), lambda: self._act(self._due))

    def _due(self) -> None:
        if self._deadlines is None or self._acting:
            return
        if self._hardware.boot() < self._deadlines.term_at:
            self._watch()
        else:
            self._step_down("deadline", NEVER)

    def _step_down(self, cause: str, grace_s: float) -> None:
        last = self._deadlines.kill_at if self._deadlines is not None else NEVER
        self._acting = True
        self._cause = self._cause or cause
        self._end_by(min(last, self._hardware.boot() + grace_s))

    def _end_by(self, kill_boot: float) -> None:
        """End after the job's own time to stop, or by SIGKILL at `kill_boot`, whichever is sooner."""
        if self._timer and kill_boot >= self._kill_boot:
            return
        self._kill_boot = kill_boot
        self._timer += 1
        timer = self._timer
        delay_s = self._stop_s
        if self._kill_boot < NEVER:
            late_s = self._world.strained(self._timing.margin_s) + self._world.strained(self._timing.kill_time_s)
            delay_s = min(delay_s, self._hardware.after_boot(self._kill_boot) + late_s)
        if delay_s < NEVER:
            self._world.later(
                delay_s, lambda: self._act(lambda: self._end(self._cause) if self._timer == timer else None)
            )

    def _end(self, cause: str) -> None:
        if self.gone:
            return
        self.gone = True
        overdue_s = self._hardware.boot() - self._deadlines.kill_at if self._deadlines is not None else -NEVER
        self._world.history.ended(self.execution, self._world.at, overdue_s)
        elapsed_s = self._world.at - self.execution.since
        fails = "ORCHESTRATOR_TICK" in self.order.env and self._world.random.random() < FAILING_CRONS
        self._tell(RunEnded(self.order.job, self.order.run, int(fails), 0, "", cause, elapsed_s))
