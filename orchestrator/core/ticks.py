"""When a cron job is due, and the claim of a tick on its way to the store.

Rules:
1. A tick is claimed in the store before its run starts; the claim names the run, so that a repeated one
   (its answer was lost) is the same claim and not a second run.
2. Ticks up to the newest claimed one are settled, whoever claimed it.
3. A tick found late by more than `misfire_grace` is missed; of several in the grace only the newest runs.
   Whatever does not run is said, however long nobody held the lease; so is what may have run in a memory
   that Redis lost.
4. A claim whose answer was lost, that came early by the server's clock, or whose lease the store says is not
   ours, is repeated with the heartbeat and never at once (the heartbeat also tells whether the lease is lost).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.answers import TickClaimed, TickRefused
from orchestrator.core.messages import Action, Say
from orchestrator.core.nouns import LeaseValue, Moment, RunId
from orchestrator.core.requests import ClaimTick
from orchestrator.core.run import Reason
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import JobSpec, Scope

AHEAD_OF_SERVER_MS = 1000
"""How far ahead of the server's clock a tick may be claimed: a fast node must not silence a job for the others."""


ROUNDING_MS = 2
"""Instants that were told by two readings of the clocks are the same if they differ by no more."""


@dataclass(slots=True)
class Claim:
    """A tick on its way.

    Attributes:
        asked: The store has been asked, and has not answered or has said yes.
        granted: It said yes; the run is not started yet.
    """

    tick_ms: int
    run: RunId
    reason: Reason
    asked: bool = False
    granted: bool = False


class Ticks:
    """The ticks of one cron job on the node that holds its lease.

    Attributes:
        next: The next tick, seconds since 1970; None: never again, or not planned yet.
        claim: The tick on its way, None if there is none.
    """

    def __init__(self, spec: JobSpec) -> None:
        """Begin without a plan; planning needs the newest claimed tick, which comes with the lease."""
        self._spec = spec
        self._schedule = Schedule(spec.schedule, name=spec.job) if spec.schedule else None
        self._settled_ms = 0
        self.next: float | None = None
        self.claim: Claim | None = None

    def begin(self, now: Moment, claimed_ms: int, doubt_ms: int, lost_ms: int) -> Iterator[Action]:
        """Plan with a new lease, and say what is passed over because nobody knows whether it ran.

        Args:
            now: Both clocks.
            claimed_ms: Up to where the store says that ticks are settled.
            doubt_ms: The last contact with a memory that was lost: since then a tick may have been claimed in it.
            lost_ms: Ticks up to here may have been claimed in that memory; 0: none was lost.
        """
        # A store that knows no tick answers with our own floor, which is the loss itself: then what is in doubt
        # begins at the last contact, else with the newest claim that survived (or came after).
        known_ms = max(self._settled_ms, claimed_ms if claimed_ms + ROUNDING_MS < lost_ms else doubt_ms)
        if self._schedule is not None and known_ms and known_ms < lost_ms and claimed_ms <= lost_ms + ROUNDING_MS:
            first = self._schedule.next_after(known_ms / 1000)
            doubtful, count = self._schedule.newest_in(known_ms / 1000, lost_ms / 1000)
            if doubtful is not None and first is not None:
                yield self._missed(first, doubtful, count, "it may have run before Redis lost its data")
        self.plan(now, max(claimed_ms, lost_ms))

    def redefine(self, spec: JobSpec) -> None:
        """Go on under a definition with the same schedule."""
        self._spec = spec

    def plan(self, now: Moment, settled_ms: int = 0) -> None:
        """Find the next tick after the newest settled one; called again whenever the wall clock may have moved."""
        self._settled_ms = max(self._settled_ms, settled_ms)
        if self._schedule is not None:
            self.next = self._schedule.next_after(self._settled_s(now))

    def due(self, now: Moment, lease: LeaseValue) -> Iterator[Action]:
        """Claim the due tick, if there is one and none is on its way."""
        if self.claim is None and self.next is not None and now.utc >= self.next:
            yield from self._find(now)
        if self.claim is not None and not (self.claim.asked or self.claim.granted):
            self.claim.asked = True
            if self._spec.scope is Scope.NODE:  # nobody else could claim it
                self.claim.granted = True
                self.plan(now, self.claim.tick_ms)
                return
            yield ClaimTick(
                self._spec.name,
                self._spec.key,
                lease,
                self.claim.tick_ms,
                self.claim.run,
                AHEAD_OF_SERVER_MS,
                asked_at=now.boot,
            )

    def take(self, now: Moment) -> Claim | None:
        """Hand over the granted claim, to be started or skipped now; None if there is none."""
        if self.claim is None or not self.claim.granted:
            return None
        claim, self.claim = self.claim, None
        self.plan(now)
        return claim

    def skip(self, running: RunId, now: Moment) -> Iterator[Action]:
        """Let a granted claim go by while an earlier run goes on (overlap: skip)."""
        claim = self.take(now)
        if claim is not None:
            why = f"{running} still runs (overlap: skip)"
            yield self._say("tick.skipped", tick=iso_utc(claim.tick_ms / 1000), why=why)

    def on_claimed(self, claimed: TickClaimed, now: Moment) -> None:
        """Keep the granted claim until the run can start."""
        if self.claim is not None and self.claim.run == claimed.run:
            self.claim.granted = True
            self.plan(now, claimed.tick_ms)

    def on_refused(self, refused: TickRefused, now: Moment) -> None:
        """Drop a tick that was claimed already; any other refusal is asked about again (rule 4)."""
        if self.claim is None or self.claim.tick_ms != refused.tick_ms or refused.reason != "duplicate":
            return
        self.claim = None
        self.plan(now, refused.last_tick_ms)

    def on_beat(self, now: Moment) -> None:
        """Let an unanswered claim be repeated, and look at the wall clock anew (quartz #1508: it may be set back)."""
        if self.claim is None:
            self.plan(now)
        elif not self.claim.granted:
            self.claim.asked = False

    def drop(self, why: str) -> Iterator[Action]:
        """Forget a claim with its lease, and say that its tick does not run (or may not: nobody knows).

        Args:
            why: What became of the lease.
        """
        if self.claim is not None and self.claim.granted:
            yield self._say("tick.lost", tick=iso_utc(self.claim.tick_ms / 1000), why=f"{why} before it could start")
        elif self.claim is not None:
            why = f"{why} before its claim was answered: it runs only if it was not claimed"
            yield self._say("tick.lost", tick=iso_utc(self.claim.tick_ms / 1000), why=why)
        self.claim = None

    def _find(self, now: Moment) -> Iterator[Action]:
        if self._schedule is None or self.next is None:
            return
        horizon = max(self._settled_s(now), now.utc - self._spec.misfire_grace_s)
        lapsed, count = self._schedule.newest_in(self._settled_s(now), horizon)
        if lapsed is not None:
            yield self._missed(self.next, lapsed, count, "later than misfire_grace")
            self.plan(now, round(1000 * lapsed))
        newest, count = self._schedule.newest_in(horizon, now.utc)
        if newest is None:
            return
        if count > 1:
            yield self._say("tick.missed", count=count - 1, why="a newer one is due (misfire: once)")
        late = count > 1 or now.utc - newest > self._spec.lease.ttl_s
        run = RunId(f"{self._spec.name}@{iso_utc(newest)}")
        self.claim = Claim(round(newest * 1000), run, Reason.CATCH_UP if late else Reason.SCHEDULE)

    def _settled_s(self, now: Moment) -> float:
        """Return the instant up to which nothing is due any more; now's grace where nobody ever claimed a tick."""
        return self._settled_ms / 1000 if self._settled_ms else now.utc - self._spec.misfire_grace_s

    def _missed(self, first: float, last: float, count: int, why: str) -> Say:
        span = {"first": iso_utc(first), "last": iso_utc(last)} if count > 1 else {"tick": iso_utc(last)}
        return self._say("tick.missed", count=count, **span, why=why)

    def _say(self, event: str, **fields: object) -> Say:
        return Say(event, {"job": self._spec.name, **fields}, "warning")
