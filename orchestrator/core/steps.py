"""What a cron has on its way to the store, and how it is asked for: pure.

Knows how a step becomes a request; must never know why it was chosen.
"""

import json
from dataclasses import dataclass

from orchestrator.core.attempts import Attempt, ordered_run
from orchestrator.core.messages import Say
from orchestrator.core.nouns import JobName, LeaseValue, Moment, Trigger
from orchestrator.core.open_runs import mark_of
from orchestrator.core.records import passed_record, refused_record
from orchestrator.core.requests import ClaimTick, SettleTicks
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec
from orchestrator.core.ticks import Fate, Passed
from orchestrator.errors import InvariantError

AHEAD_OF_SERVER_MS = 1000
"""How far ahead of the server's clock a tick may be claimed: a fast node must not silence a job for the others."""


@dataclass(slots=True)
class Step:
    """What is on its way to the store: a claim of an attempt, or ticks (or an order) that do not run.

    Attributes:
        asked: The store has been asked, and has not answered or has said yes.
        granted: It said yes; the run is not started yet.
        tried: The store was asked at least once: whatever it did not answer, it may have done.
    """

    attempt: Attempt | None = None
    passed: Passed | None = None
    refused: Trigger | None = None
    why: str = ""
    asked: bool = False
    granted: bool = False
    tried: bool = False

    @property
    def is_unanswered(self) -> bool:
        """Whether the store is to be asked (again)."""
        return not (self.asked or self.granted)

    @property
    def instant_ms(self) -> int:
        """The newest tick that it is about, in milliseconds; 0: it is about none."""
        if self.passed is not None:
            return self.passed.until_ms
        if self.attempt is None or self.attempt.trigger is not None or self.attempt.instead is not None:
            return 0
        return self.attempt.tick_ms or 0


def request_of(step: Step, spec: JobSpec, value: LeaseValue, now: Moment) -> ClaimTick | SettleTicks:
    """Return how the store is asked for a step; the same words each time."""
    if step.attempt is not None:
        return _claim(step.attempt, spec, value, now)
    if step.passed is not None:
        passed = step.passed
        entry, record = f"{passed.fate}@{iso_utc(passed.last)}", passed_record(passed, value, now)
        until_ms, count, what, order_ms = passed.until_ms, passed.count, passed.fate.value, 0
    elif step.refused is not None:
        entry = ordered_run(step.refused)
        record = refused_record(entry, step.refused.tick_ms, step.why, value, now)
        until_ms, count, what, order_ms = 0, 0, Fate.SKIPPED.value, step.refused.order_ms
    else:
        raise InvariantError(f"{spec.name}: a step that is none")
    return SettleTicks(
        spec.name,
        spec.key,
        value,
        until_ms,
        count,
        what,
        entry,
        json.dumps(record),
        spec.history.runs,
        spec.history.max_bytes,
        AHEAD_OF_SERVER_MS,
        asked_at=now.boot,
        order_ms=order_ms,
    )


def _claim(attempt: Attempt, spec: JobSpec, value: LeaseValue, now: Moment) -> ClaimTick:
    return ClaimTick(
        spec.name,
        spec.key,
        value,
        asked_ms(attempt),
        attempt.run,
        mark_of(attempt.opened(value)),
        AHEAD_OF_SERVER_MS,
        asked_at=now.boot,
        order_ms=attempt.trigger.order_ms if attempt.trigger else 0,
        instead=attempt.instead.run if attempt.instead else "",
    )


def asked_ms(attempt: Attempt) -> int:
    """Return the instant that a claim names; of an order without a tick that of the order."""
    if attempt.tick_ms is not None:
        return attempt.tick_ms
    if attempt.trigger is not None:
        return attempt.trigger.order_ms
    return attempt.instead.retry_ms if attempt.instead is not None else 0


def told(job: JobName, passed: Passed) -> Say:
    """Return what people are told of ticks that do not run."""
    first, last, count, why = iso_utc(passed.first), iso_utc(passed.last), passed.count, passed.why
    if passed.fate is Fate.SKIPPED:
        return Say("tick.skipped", {"job": job, "count": count, "first": first, "last": last, "why": why}, "warning")
    return Say("tick.missed", {"job": job, "count": count, "first": first, "last": last, "why": why}, "warning")
