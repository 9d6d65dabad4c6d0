"""How many of something one node has at once, and who waits for room.

Of runs of cron jobs (`node: {max_running: N}`), and of asks for a lease: a thousand of them in one batch would share
one request timeout, and a busy machine would never get through it. A start that finds no room is not claimed: its tick
stays due, and what becomes of a late one says `misfire`. Whoever has waited longest is first, so that a job that is due
often does not shut out one that is due rarely.
"""

from orchestrator.core.nouns import JobName


class Capacity:
    """The room of one node.

    Attributes:
        limit: Runs at once; None: no limit.
    """

    __slots__ = ("_taken", "_waiting", "limit")

    def __init__(self, limit: int | None = None) -> None:
        """Begin empty."""
        self.limit = limit
        self._taken: dict[JobName, int] = {}
        self._waiting: dict[JobName, None] = {}

    def hold(self, job: JobName, count: int) -> None:
        """Know how many starts and runs a job has now."""
        if count:
            self._taken[job] = count
        else:
            self._taken.pop(job, None)

    def admits(self, job: JobName) -> bool:
        """Say whether a job may start one more now; if not, it waits for its turn."""
        ahead = self._ahead_of(job)
        if self.limit is None or self.limit - sum(self._taken.values()) > ahead:
            self._waiting.pop(job, None)
            return True
        self._waiting[job] = None
        return False

    def _ahead_of(self, job: JobName) -> int:
        """Return how many wait longer."""
        return next((place for place, other in enumerate(self._waiting) if other == job), len(self._waiting))

    def waits(self, job: JobName) -> bool:
        """Say whether a job waits for its turn."""
        return job in self._waiting

    def leave(self, job: JobName) -> None:
        """Wait no more: there is nothing to start, or the lease is gone."""
        self._waiting.pop(job, None)

    def turn(self) -> list[JobName]:
        """Return who could start now, of those that wait; the first of them first."""
        if self.limit is None:
            return []
        free = self.limit - sum(self._taken.values())
        return list(self._waiting)[: max(0, free)]
