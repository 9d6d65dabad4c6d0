"""When each job wants to be looked at, so that a turn need not ask all of them.

With 1,000 jobs asking each of them in each turn took 5 ms, and the start of all of them is hundreds of turns.
Whoever changes more than the job that was told of says so with `forget`.
"""

from collections.abc import Mapping

from orchestrator.core.job import Job
from orchestrator.core.lease import NEVER
from orchestrator.core.nouns import JobName, Moment

WALL_CLOCK_MOVED_S = 0.01
"""By so much a cron may be late, until the next heartbeat, where somebody sets the clock: less is drift."""


class Due:
    """The deadlines of all jobs of a node, as they were reckoned last."""

    __slots__ = ("_ahead_s", "_at")

    def __init__(self) -> None:
        """Begin without any: the first question reckons them."""
        self._at: dict[JobName, float] = {}
        self._ahead_s = 0.0

    def forget(self) -> None:
        """Reckon all of them anew at the next question."""
        self._at.clear()

    def note(self, name: JobName, job: Job, now: Moment) -> None:
        """Reckon one anew: something was told of this job."""
        if self._at:
            self._at[name] = job.next_deadline(now)

    def names(self, jobs: Mapping[JobName, Job], now: Moment) -> list[JobName]:
        """Return whose deadline has come."""
        self._reckon(jobs, now)
        return [name for name, at in self._at.items() if at <= now.boot]

    def soonest(self, jobs: Mapping[JobName, Job], now: Moment) -> float:
        """Return the earliest deadline of all, on the boot clock."""
        self._reckon(jobs, now)
        return min(self._at.values(), default=NEVER)

    def _reckon(self, jobs: Mapping[JobName, Job], now: Moment) -> None:
        # A cron is due by the wall clock, so all are asked again when that was set, or has drifted.
        ahead_s = now.utc - now.boot
        if len(self._at) != len(jobs) or abs(ahead_s - self._ahead_s) > WALL_CLOCK_MOVED_S:
            self._at = {name: job.next_deadline(now) for name, job in jobs.items()}
            self._ahead_s = ahead_s
