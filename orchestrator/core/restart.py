"""When a service that ended is tried again, and when no more.

Exponential backoff with full jitter, reset after health. One rule for every end, however long the run lived
and whether it could start at all (Supervisor #1285: a second rule for quick exits restarts for ever;
circus #519: counting only exec errors misses crash loops). The jitter is a hash of job, node and count, so
that the core stays free of chance and the nodes still differ.

A crash loop never is the end (Supervisor #487: three failures while a database was away, and a human had to
come): the delay stays at its maximum, and where another node could try, the lease goes there.

What came to its end for good stays so, whichever node saw it and however often it is restarted: the record
tells what ran (its substance), and which order to start it had obeyed.
"""

import hashlib
from collections.abc import Mapping

from orchestrator.core.ends import describe_end
from orchestrator.core.messages import RunEnded
from orchestrator.core.reload import substance
from orchestrator.core.run import Run, ended_by_itself
from orchestrator.core.spec import Backoff, JobSpec, OnCrashLoop, Restart

LEAST_SHARE = 0.25
"""Jitter over the whole delay may draw almost nothing; from a quarter of it on no loop is tight. With the defaults a
job that fails at once is started 8 to 11 times in its first two minutes."""

CRASH_LOOP_FAILURES = 5
"""So many failures in a row are a crash loop."""


class Restarts:
    """The restarts of one job on one node.

    Attributes:
        failures: In a row, without a healthy run between them.
        ready_at: The boot instant before which it is not started.
        done: Why it needs no further run, "" if it does.
        rest_until: Until when its lease is left to another node that could take it, on the boot clock.
        rest_why: Why.
    """

    __slots__ = ("_backoff", "_salt", "done", "failures", "ready_at", "rest_until", "rest_why")

    def __init__(self, backoff: Backoff, salt: str) -> None:
        """Begin fresh; `salt` tells this job on this node from others."""
        self._backoff = backoff
        self._salt = salt
        self.rest_why = ""
        self.forget()

    def judge(self, spec: JobSpec, run: Run, ended: RunEnded, record: Mapping[str, object], now_boot: float) -> None:
        """Decide whether, when, and rather by which node an ended service is started again."""
        by_itself = ended_by_itself(run, ended)
        if by_itself and _ends_for_good(spec, record):
            self.done = f"done ({describe_end(record)})"
        elif by_itself or (run.unfit is not None and run.unfit.failure):
            self.on_ended(ended.elapsed_s, now_boot)
        loops = self.failures >= CRASH_LOOP_FAILURES and spec.on_crash_loop is OnCrashLoop.RELEASE
        unfit_here = run.unfit if run.unfit is not None and run.unfit.release else None
        if (loops or unfit_here) and not self.over:
            self.rest_until = now_boot + spec.backoff.max_delay_s
            self.rest_why = unfit_here.why if unfit_here else self.why

    def remember(self, spec: JobSpec, record: Mapping[str, object], ordered_ms: int) -> bool:
        """Take a recorded end for good for what it is; say whether it was one.

        Args:
            spec: Of the service.
            record: Of its last run, by whichever node.
            ordered_ms: The last order to start it; one that the run had not seen yet counts more than its end.
        """
        known_ms = record.get("order_ms")
        obeyed = isinstance(known_ms, int) and known_ms >= ordered_ms
        same = record.get("substance") == substance(spec)
        if obeyed and same and record.get("by_itself") and _ends_for_good(spec, record):
            self.done = f"done ({describe_end(record)})"
        return bool(self.done)

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
        return ceiling * (LEAST_SHARE + (1 - LEAST_SHARE) * share)

    @property
    def given_up(self) -> bool:
        """Whether `max_failures` says to stop trying."""
        return self._backoff.max_failures is not None and self.failures >= self._backoff.max_failures

    @property
    def why(self) -> str:
        """What is wrong, in one clause."""
        return f"{self.failures} failure{'s' if self.failures > 1 else ''} in a row"

    @property
    def over(self) -> bool:
        """Whether it is not started again unless somebody orders it."""
        return bool(self.done) or self.given_up

    def redefine(self, spec: JobSpec, last: Mapping[str, object], *, another: bool) -> None:
        """Go on by other rules; what is `another` program, or not over by them, begins fresh."""
        self._backoff = spec.backoff
        if another or (self.done and not _ends_for_good(spec, last)):
            self.forget()

    def forget(self) -> None:
        """Begin fresh: somebody ordered a start."""
        self.failures = 0
        self.ready_at = 0.0
        self.done = ""
        self.rest_until = 0.0


def _ends_for_good(spec: JobSpec, record: Mapping[str, object]) -> bool:
    """Say whether a service that ended by itself needs no further run, whatever the backoff."""
    if record.get("exit_code") in spec.no_restart_exit_codes:
        return True
    ended_well = record.get("outcome") == "ok"
    return spec.restart is Restart.NEVER or (spec.restart is Restart.ON_FAILURE and ended_well)
