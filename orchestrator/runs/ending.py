"""How one run comes to its end: the rules of the leash, without a process in sight.

Time comes in, the phase goes out; nothing here reads a clock, a page or a socket.

    phase     what holds                                          left by
    RUNNING   the job runs                                        the first of: its first process exits, a stop, its
                                                                  term_at, main's end, a kill, its own limit
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
5. The hook that follows a job's end lives by the same rules as the job, with an `Ending` of its own. What was
   ordered while the job ended holds for it too: `hook_until` says by when it must be over.
"""

from orchestrator.runs.linux import NEVER

RUNNING, ENDING, KILLING = "running", "ending", "killing"


class Ending:
    """The end of one run, or of the hook that follows it.

    Attributes:
        phase: See the table in the module's head.
        cause: exit | stop | deadline | killed | abandoned | limit; "" while running.
        failure: It was stopped because it failed.
        kill_by: From when on it is SIGKILL, on the boot clock.
        asks: Set for the caller to take: the tree is to be asked to end now.
        lease_struck: The lease's instants have passed; extending them changes nothing any more.
        all_over_by: When main wants everything to be over, the hook that follows included.
    """

    __slots__ = ("all_over_by", "asks", "cause", "failure", "kill_by", "lease_struck", "phase")

    def __init__(self, limit: float = NEVER) -> None:
        """Begin running; from `limit` on it is SIGKILL, whatever happens."""
        self.phase = RUNNING
        self.cause = ""
        self.failure = False
        self.kill_by = limit
        self.asks = False
        self.lease_struck = False
        self.all_over_by = NEVER

    def exited(self, now: float, grace_s: float) -> None:
        """The first process ended by itself, or as it was told; the rest has `grace_s`."""
        if self.phase == RUNNING:
            self._begin("exit", now + grace_s)

    def stop(self, now: float, grace_s: float, *, failure: bool = False) -> None:
        """Main ordered the end; ordered again, it may only come sooner.

        Args:
            now: On the boot clock.
            grace_s: How long until SIGKILL.
            failure: It is stopped because it failed: the hook for failures follows, and has its own time.
        """
        if not failure:
            self.all_over_by = min(self.all_over_by, now + grace_s)
        elif self.phase == RUNNING:
            self.failure = True
        self._begin("stop", now + grace_s)

    def kill(self, now: float) -> None:
        """Main ordered SIGKILL."""
        self.all_over_by = now
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
            self.cause = self.cause or "limit"
            self.phase = KILLING

    def due_at(self, term_at: float) -> float:
        """Return when to look again if nothing happens before."""
        return self.kill_by if self.lease_struck else min(self.kill_by, term_at)

    def hook_until(self) -> float:
        """Return until when a hook may run that follows this end; long past if none may."""
        return -NEVER if self.lease_struck else self.all_over_by

    def _begin(self, cause: str, kill_by: float) -> None:
        if self.phase == RUNNING:
            self.phase, self.cause, self.asks = ENDING, cause, True
        self.kill_by = min(self.kill_by, kill_by)
