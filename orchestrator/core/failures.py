"""Failed ticks in a row, and the pause that too many of them order (`pause_after_failures`).

Only ticks that are done count: a failed attempt that is to be tried again is none yet, a lost run is nobody's failure.
Whoever lets the job go on forgives what was before. The count goes where the lease goes.
"""

from collections.abc import Iterator

from orchestrator.core.answers import LeaseGranted
from orchestrator.core.messages import Action, Say
from orchestrator.core.nouns import Intent, Moment, NodeName
from orchestrator.core.requests import GiveOrder
from orchestrator.core.spec import JobSpec, Scope


class Failures:
    """The failures of one cron.

    Attributes:
        count: In a row.
    """

    __slots__ = ("_asked", "_failed_ms", "_told", "count")

    def __init__(self) -> None:
        """Begin without any."""
        self.count = 0
        self._failed_ms = 0
        self._asked = False
        self._told = 0

    def begin(self, granted: LeaseGranted) -> None:
        """Go on with what the store counted."""
        self.count, self._failed_ms = granted.failures, granted.failed_ms

    def on_result(self, now: Moment, *, ok: bool) -> int:
        """Count a tick that is done; return the new count."""
        self.count = 0 if ok else self.count + 1
        self._failed_ms = round(1000 * now.utc)
        return self.count

    def on_beat(self) -> None:
        """Let the order be given again, if nobody knows of it yet."""
        self._asked = False

    def forgive(self, intent: Intent) -> None:
        """Forget the failures from before an order to go on."""
        if intent.at_ms > self._failed_ms:
            self.count = 0

    def are_too_many(self, spec: JobSpec) -> bool:
        """Say whether the job is to be paused; where every node runs one there is nobody who could order it."""
        limit = spec.pause_after_failures
        return limit is not None and self.count >= limit and spec.scope is Scope.CLUSTER

    def why(self) -> str:
        """Return why it pauses itself, in one clause."""
        return f"{self.count} failed ticks in a row (pause_after_failures)"

    def pause(self, spec: JobSpec, node: NodeName, now: Moment) -> Iterator[Action]:
        """Order the pause for everybody, with each heartbeat until it is known; say it once."""
        if self._asked:
            return
        self._asked = True
        if self._told != self.count:
            self._told = self.count
            yield Say("job.paused", {"job": spec.name, "why": self.why()}, "warning")
        yield GiveOrder(spec.name, Intent("paused", f"node {node}", self.why(), at_ms=0), asked_at=now.boot)
