"""Whether a running service may go on: its age, its memory, its health.

Knows numbers that were told; never measures, checks or stops anything itself.

Rules:
1. One failed check says nothing: `failures` in a row make a service unhealthy. Failures within the start
   period do not count until a first check has succeeded.
2. Unhealthy, or over its memory: it is started anew, and that counts as a failure, so that it backs off.
   Too old: it is started anew at once, and that counts as nothing.
3. The age is drawn within a tenth around `max_age`, by a hash: instances that were started together do not go
   together.
"""

import hashlib
from dataclasses import dataclass

from orchestrator.core.messages import RunChecked, RunMeasured, Say
from orchestrator.core.nouns import Moment
from orchestrator.core.spec import JobSpec, OnUnhealthy

NEVER = float("inf")
_AGE_SPREAD = 0.1
_MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a run must not go on.

    Attributes:
        failure: It counts as a failed run.
        release: Its lease goes to another node, if one could take it.
    """

    why: str
    failure: bool
    release: bool = False


class Fitness:
    """What was told of the present run of a service.

    Attributes:
        healthy: None while no check has succeeded or failed for good.
        note: What is wrong but not yet decided, in one clause; "" if nothing.
    """

    __slots__ = ("_ends_at", "_failures", "_measured", "_spec", "_started_at", "_verdict", "healthy", "note")

    def __init__(self, spec: JobSpec) -> None:
        """Begin without a run."""
        self._spec = spec
        self.forget()

    def forget(self) -> None:
        """Its run is over."""
        self._started_at = 0.0
        self._ends_at = NEVER
        self._failures = 0
        self._verdict: Verdict | None = None
        self.healthy: bool | None = None
        self.note = ""

    def begin(self, run_id: str, now: Moment) -> None:
        """A run begins."""
        self.forget()
        self._started_at = now.boot
        if self._spec.max_age_s is not None:
            share = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:4]) / 2**32
            self._ends_at = now.boot + self._spec.max_age_s * (1 - _AGE_SPREAD + 2 * _AGE_SPREAD * share)

    def redefine(self, spec: JobSpec) -> None:
        """Judge the present run by what the file says now; its age begins where it began."""
        self._spec = spec

    def on_checked(self, checked: RunChecked, now: Moment) -> list[Say]:
        """Count a health check; return what is worth a line: each failure, and the first success."""
        health = self._spec.health
        if health is None:
            return []
        if checked.healthy:
            first = self.healthy is not True
            self.healthy, self._failures, self.note = True, 0, ""
            return [Say("health.ok", {"job": checked.job, "run": checked.run})] if first else []
        if self.healthy is None and now.boot < self._started_at + health.start_period_s:
            self.note = f"not healthy yet: {checked.why}"
        else:
            self._failures += 1
            self.note = f"health check failed {self._failures} of {health.failures}: {checked.why}"
        if self._failures >= health.failures:
            self.healthy = False
            release = self._spec.on_unhealthy is OnUnhealthy.RELEASE
            self._verdict = Verdict(f"unhealthy: {checked.why}", failure=True, release=release)
        return [Say("health.failed", {"job": checked.job, "run": checked.run, "why": self.note}, "warning")]

    def on_measured(self, measured: RunMeasured) -> None:
        """Look at its memory."""
        limit_bytes = self._spec.max_rss_bytes
        if limit_bytes is not None and measured.rss_bytes > limit_bytes:
            held, most = round(measured.rss_bytes / _MEGABYTE), round(limit_bytes / _MEGABYTE)
            self._verdict = Verdict(f"its processes hold {held} MB, more than max_rss {most} MB", failure=True)

    def verdict(self, now: Moment) -> Verdict | None:
        """Return why its run must not go on, None if it may."""
        if self._verdict is None and now.boot >= self._ends_at:
            return Verdict("it reached max_age", failure=False)
        return self._verdict

    def due_at(self) -> float:
        """Return the boot instant at which the run will be too old."""
        return self._ends_at
