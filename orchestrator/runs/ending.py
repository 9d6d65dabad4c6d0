"""How one run comes to its end: the rules of the leash, without a process in sight.

Time comes in, the phase goes out; nothing here reads a clock, a page or a socket.

    phase     what holds                                          left by
    RUNNING   the job runs                                        the first of: its first process exits, a stop, its
                                                                  term_at, main's end, a kill
    ENDING    the tree was asked to end; `kill_by` is set         kill_by, or ECHILD
    KILLING   SIGKILL, again and again                            ECHILD only

Rules of this file:
1. The cause is what began the end; what comes later may only shorten it. Nothing undoes it.
2. The lease's instants hold in every phase: during an ordered stop of many minutes main goes on extending
   them, and when it cannot, the lease cuts the stop short. Once they struck, the `kill_at` of that
   moment stands.
3. The tree is asked to end once: a second TERM means "at once" to many programs (Celery's cold shutdown).
4. A first process that exits by itself ends the run: what it left behind gets a short grace. In an ordered
   stop it does not shorten the grace: the first process is often only a shell around the one that works.
"""

from orchestrator.runs.linux import NEVER

RUNNING, ENDING, KILLING = "running", "ending", "killing"


class Ending:
    """The end of one run.

    Attributes:
        phase: See the table in the module's head.
        cause: exit | stop | deadline | killed | abandoned; "" while running.
        kill_by: From when on it is SIGKILL, on the boot clock.
        asks: Set for the caller to take: the tree is to be asked to end now.
        lease_struck: The lease's instants have passed; extending them changes nothing any more.
    """

    __slots__ = ("asks", "cause", "kill_by", "lease_struck", "phase")

    def __init__(self) -> None:
        """Begin running."""
        self.phase = RUNNING
        self.cause = ""
        self.kill_by = NEVER
        self.asks = False
        self.lease_struck = False

    def exited(self, now: float, grace_s: float) -> None:
        """The first process ended by itself, or as it was told; the rest has `grace_s`."""
        if self.phase == RUNNING:
            self._begin("exit", now + grace_s)

    def stop(self, now: float, grace_s: float) -> None:
        """Main ordered the end; ordered again, it may only come sooner."""
        self._begin("stop", now + grace_s)

    def kill(self, now: float) -> None:
        """Main ordered SIGKILL."""
        self._begin("killed", now)
        self.asks = False
        self.look(now, NEVER, NEVER)

    def abandon(self, now: float, grace_s: float, kill_at: float) -> None:
        """Main is gone: nobody extends the lease any more."""
        self.lease_struck = True
        self._begin("abandoned", min(now + grace_s, kill_at))

    def look(self, now: float, term_at: float, kill_at: float) -> None:
        """Take the time, and what the page says, into account."""
        if now >= term_at and not self.lease_struck:
            self.lease_struck = True
            self._begin("deadline", kill_at)
        if now >= self.kill_by:
            self.phase = KILLING

    def due_at(self, term_at: float) -> float:
        """Return when to look again if nothing happens before."""
        return self.kill_by if self.lease_struck else min(self.kill_by, term_at)

    def _begin(self, cause: str, kill_by: float) -> None:
        if self.phase == RUNNING:
            self.phase, self.cause, self.asks = ENDING, cause, True
        self.kill_by = min(self.kill_by, kill_by)
