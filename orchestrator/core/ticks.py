"""Which ticks of a cron job are due, and which have passed for good.

Knows the schedule, what is settled and `misfire`; must never know the store, a lease or a run.

Rules:
1. Ticks up to the newest settled one are settled, whoever ran, skipped or missed them: none is looked at twice, a
   clock that is set back brings none again.
2. A tick found late by more than `misfire_grace` is missed. One that waited for a run of its own job to end
   (`overlap: queue`) is not late for that.
3. Of several that are due, by `misfire`: `once` the newest runs; `skip` the newest, and none that is later than a
   ttl; `all` each, oldest first, the newest 100 of them. What waited as in 2 is not late for this either.
4. What may have run in a memory that Redis lost does not run: it is in doubt, and said.
5. A tick is due `jitter` later than it is; its name stays the tick's.
6. After a look either something is to be done, or the next one lies ahead: nobody is to look again at once.
7. Every tick that passes is counted, however many there are; where they are too many to be walked in one go, a part
   of them passes first.
"""

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.core.nouns import Moment
from orchestrator.core.schedule import Schedule, jitter_of
from orchestrator.core.spec import JobSpec, Misfire
from orchestrator.core.successes import Successes

MOST_CATCH_UP = 100
"""Late ticks that `misfire: all` runs one after the other; with a tick a second it is a minute and a half."""

ROUNDING_MS = 2
"""Instants that were told by two readings of the clocks are the same if they differ by no more."""


class Fate(StrEnum):
    """What becomes of ticks that do not run."""

    SKIPPED = "skipped"
    MISSED = "missed"
    DOUBT = "doubt"


@dataclass(frozen=True, slots=True)
class DueTick:
    """The tick that is to run now.

    Attributes:
        utc: Seconds since 1970.
        late: It was found so late that somebody was missing, or together with others.
    """

    utc: float
    late: bool

    @property
    def ms(self) -> int:
        """The tick in milliseconds."""
        return round(1000 * self.utc)


@dataclass(frozen=True, slots=True)
class Passed:
    """Ticks that do not run, from `first` to `last`; all up to `until_ms` are settled by it."""

    first: float
    last: float
    count: int
    until_ms: int
    fate: Fate
    why: str


class Ticks:
    """The ticks of one cron job on the node that holds its lease.

    Attributes:
        next: When there is something to look at, seconds since 1970; None: never again, or not planned yet.
        settled_ms: The newest settled tick, 0: none is known.
    """

    def __init__(self, spec: JobSpec) -> None:
        """Begin without a plan; planning needs the newest settled tick, which comes with the lease."""
        schedule = spec.schedule
        self.successes = Successes() if schedule is not None and schedule.after else None
        self._schedule: Schedule | Successes | None = self.successes
        if schedule is not None and self.successes is None:
            self._schedule = Schedule(schedule, name=spec.job)
        self.next: float | None = None
        self.settled_ms = 0
        self._tick: float | None = None
        self._found_with_others = 0.0  # the newest of them
        self._followed: tuple[float | None, float | None] = (None, None)  # an instant, and the first tick after it
        self.redefine(spec)

    def redefine(self, spec: JobSpec) -> None:
        """Go on under a definition with the same schedule."""
        self._spec = spec
        self._jitter_s = jitter_of(spec.job, spec.jitter_s)
        self._set_next(self._tick)

    def begin(self, now: Moment, settled_ms: int, doubt_ms: int, lost_ms: int) -> Passed | None:
        """Plan with a new lease; return what is passed over because nobody knows whether it ran.

        Args:
            now: Both clocks.
            settled_ms: Up to where the store says that ticks are settled.
            doubt_ms: The last contact with a memory that was lost: since then a tick may have been claimed in it.
            lost_ms: Ticks up to here may have been claimed in that memory; 0: none was lost.
        """
        # A store that knows no tick answers with our own floor, which is the loss itself: then what is in doubt
        # begins at the last contact, else with the newest claim that survived (or came after).
        known_ms = max(self.settled_ms, settled_ms if settled_ms + ROUNDING_MS < lost_ms else doubt_ms)
        doubt = None
        if known_ms and known_ms < lost_ms and settled_ms <= lost_ms + ROUNDING_MS:
            doubt = self._passed(
                known_ms / 1000, lost_ms / 1000, Fate.DOUBT, "it may have run before Redis lost its data"
            )
        self.plan(now, max(settled_ms, lost_ms))
        return doubt

    def plan(self, now: Moment, settled_ms: int = 0) -> None:
        """Find the next tick after the newest settled one; called again whenever the wall clock may have moved."""
        self.settled_ms = max(self.settled_ms, settled_ms)
        self._set_next(self._first_after(self._settled(now)))

    def on_claimed(self, now: Moment, tick_ms: int) -> None:
        """Go on behind the tick that runs."""
        self.plan(now, tick_ms)

    def look(self, now: Moment, waited_from: float | None = None) -> DueTick | Passed | None:
        """Return what is to be done first: ticks to settle, else the tick that is to run, else nothing.

        Args:
            now: Both clocks.
            waited_from: What was due later than this waited for a run of this job; seconds since 1970, None: nothing.
        """
        if self._schedule is None or self.next is None or now.utc < self.next:
            return None
        by, settled = now.utc - self._jitter_s, self._settled(now)
        waited = by if waited_from is None else waited_from - self._jitter_s
        horizon, late_s = min(by - self._spec.misfire_grace_s, waited), self._spec.lease.ttl_s
        tick = self._tick
        if tick is not None and tick > max(horizon, min(by - late_s, waited)) and not self._is_followed(tick, by):
            return self._due(tick, by)  # as nearly always: of a thousand in one second each further question counts
        passed = self._passed(settled, horizon, Fate.MISSED, "later than misfire_grace")
        if passed is None and self._spec.misfire is Misfire.SKIP:
            why = "later than a ttl (misfire: skip)"
            passed = self._passed(settled, min(by - late_s, waited), Fate.MISSED, why)
        if passed is not None:
            return passed
        newest, count = self._schedule.newest_in(max(settled, horizon), by)
        if newest is None:
            self.plan(now)  # where nothing was ever settled, what was due has grown too old meanwhile (rule 6)
            return None
        if self._spec.misfire is Misfire.ALL:
            return self._oldest(max(settled, horizon), count, by)
        if count > 1:
            self._found_with_others = newest
            why = f"a newer one is due (misfire: {self._spec.misfire})"
            return self._passed(max(settled, horizon), newest - 0.001, Fate.MISSED, why)
        return self._due(newest, by)

    def in_span(self, now: Moment, until_ms: int, why: str) -> Passed | None:
        """Return the ticks that were due up to an instant as skipped, None if there are none."""
        return self._passed(self._settled(now), until_ms / 1000 - self._jitter_s, Fate.SKIPPED, why)

    def one(self, due: DueTick, fate: Fate, why: str) -> Passed:
        """Return a due tick as one that does not run."""
        return Passed(due.utc, due.utc, 1, due.ms, fate, why)

    def _oldest(self, settled: float, count: int, by: float) -> DueTick | Passed | None:
        """Return the oldest of those that all run, or those before the newest 100."""
        if self._schedule is None:
            return None
        if count > MOST_CATCH_UP:
            last = self._walked(settled, count - MOST_CATCH_UP)
            return self._passed(settled, last, Fate.MISSED, f"more than {MOST_CATCH_UP} newer ones are due")
        if count > 1:
            self._found_with_others = by
        first = self._schedule.next_after(settled)
        return None if first is None else self._due(first, by)

    def _due(self, tick: float, by: float) -> DueTick:
        late = tick <= self._found_with_others or by - tick > self._spec.lease.ttl_s
        return DueTick(tick, late)

    def _passed(self, after: float, until: float, fate: Fate, why: str) -> Passed | None:
        if self._schedule is None or until <= after:
            return None
        last, count = self._schedule.newest_in(after, until)
        first = self._schedule.next_after(after)
        if last is None or first is None:
            return None
        return Passed(first, last, count, round(1000 * last), fate, why)

    def _is_followed(self, tick: float, by: float) -> bool:
        """Say whether another tick after this one is due, too."""
        following = self._first_after(tick)
        return following is not None and following <= by

    def _first_after(self, utc: float) -> float | None:
        """Return the first tick after an instant; what was asked last is known (of successes there may be more now)."""
        if self._schedule is not None and (self._followed[0] != utc or self.successes is not None):
            self._followed = utc, self._schedule.next_after(utc)
        return self._followed[1]

    def _walked(self, after: float, count: int) -> float:
        """Return the last of so many ticks after an instant."""
        last = after
        for _ in range(count):
            last = (self._schedule.next_after(last) if self._schedule is not None else None) or last
        return last

    def _set_next(self, tick: float | None) -> None:
        self._tick = tick
        self.next = None if tick is None else tick + self._jitter_s

    def _settled(self, now: Moment) -> float:
        """Return the instant up to which nothing is due any more; now's grace where nobody ever settled a tick."""
        return self.settled_ms / 1000 if self.settled_ms else now.utc - self._spec.misfire_grace_s
