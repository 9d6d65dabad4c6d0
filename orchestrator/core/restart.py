"""When a service that ended is tried again: exponential backoff with full jitter, reset after health.

One rule for every end, however long the run lived and whether it could start at all (Supervisor #1285:
a second rule for quick exits restarts for ever; circus #519: counting only exec errors misses crash loops).
The jitter is a hash of job, node and count, so that the core stays free of chance and the nodes still differ.
"""

import hashlib

from orchestrator.core.spec import Backoff

LEAST_SHARE = 0.1
"""Full jitter may draw almost nothing; a tenth of the delay keeps a loop from being tight."""


class Restarts:
    """The restarts of one job on one node.

    Attributes:
        failures: In a row, without a healthy run between them.
        ready_at: The boot instant before which it is not started.
    """

    __slots__ = ("_backoff", "_salt", "failures", "ready_at")

    def __init__(self, backoff: Backoff, salt: str) -> None:
        """Begin fresh; `salt` tells this job on this node from others."""
        self._backoff = backoff
        self._salt = salt
        self.failures = 0
        self.ready_at = 0.0

    def on_ended(self, elapsed_s: float, now_boot: float) -> None:
        """Count an end and put off the next start."""
        if self._backoff.healthy_after_s > 0 and elapsed_s >= self._backoff.healthy_after_s:
            self.failures = 0
        self.failures += 1
        self.ready_at = now_boot + self.delay_s(self.failures)

    def delay_s(self, failures: int) -> float:
        """Return the delay after so many failures in a row, in seconds."""
        ceiling = min(self._backoff.max_delay_s, self._backoff.delay_s * self._backoff.factor ** min(failures - 1, 64))
        digest = hashlib.sha256(f"{self._salt}|{failures}".encode()).digest()
        share = int.from_bytes(digest[:4]) / 2**32
        return ceiling * max(LEAST_SHARE, share)

    @property
    def given_up(self) -> bool:
        """Whether `max_failures` says to stop trying."""
        return self._backoff.max_failures is not None and self.failures >= self._backoff.max_failures

    def forget(self) -> None:
        """Begin fresh: somebody ordered a start."""
        self.failures = 0
        self.ready_at = 0.0
