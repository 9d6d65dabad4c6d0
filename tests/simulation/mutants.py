"""Each rule of the protocol switched off, one at a time: the simulation must notice.

A checker that catches nothing is the usual failure of checkers. Where another rule covers for one, that one is
switched off as well (`beside`): the story that convicts the mutant must be well with only the others off. A rule
that no story can show names the test that holds it alone (`masked_by`); the hunt runs that test and expects
it to fail.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from orchestrator.core.answers import LeaseGranted, LeaseReleased, LeaseRenewed
from orchestrator.core.job import Job
from orchestrator.core.lease import NEVER, Lease, Phase
from orchestrator.core.messages import RunUnproven
from orchestrator.core.server import Server
from orchestrator.core.ticks import DueTick, Ticks
from orchestrator.core.timing import LeaseTiming
from orchestrator.core.wall_clock import WallClock
from tests.simulation.hardware import Hardware
from tests.simulation.scenario import (
    DELETIONS,
    DEPLOYS,
    ORDERED,
    PLAIN,
    PROMOTIONS,
    RACKS,
    SCHEDULES,
    STRAINED,
    TREACHEROUS,
    Scenario,
)
from tests.simulation.store_model import StoreModel
from tests.simulation.stored import Note

Switch = Callable[[], AbstractContextManager[Any]]  # what a patch yields is of no interest


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule switched off.

    Attributes:
        rule: The rule, as people know it.
        off: Context in which it is off, in this process only.
        scenario: The stories in which it shows soonest.
        beside: Rules that would cover for it, off as well.
        masked_by: Test that holds the rule where no story can, "" where the stories catch it.
    """

    name: str
    rule: str
    off: Switch
    scenario: Scenario = PLAIN
    beside: tuple[Switch, ...] = ()
    masked_by: str = ""

    @contextmanager
    def control(self) -> Iterator[None]:
        """Switch off only what would cover for the rule."""
        with ExitStack() as stack:
            for switch in self.beside:
                stack.enter_context(switch())
            yield

    @contextmanager
    def switched(self) -> Iterator[None]:
        """Switch off the rule, and what would cover for it."""
        with self.control(), self.off():
            yield


def _patched(target: object, name: str, new: object) -> Switch:
    return lambda: patch.object(target, name, new)


def _always(*, answer: object) -> Callable[..., object]:
    return lambda *_args, **_kwargs: answer


@contextmanager
def _no_local_deadline() -> Iterator[None]:
    with patch.object(Lease, "deadlines", _always(answer=None)), patch.object(Lease, "ends_at", _always(answer=NEVER)):
        yield


@contextmanager
def _deadline_from_the_reply() -> Iterator[None]:
    handle = Job.handle

    def reply(self: Job, event: Any, now: Any) -> Any:
        return handle(
            self, replace(event, asked_at=now.boot) if isinstance(event, LeaseGranted | LeaseRenewed) else event, now
        )

    with patch.object(Job, "handle", reply):
        yield


@contextmanager
def _release_before_reaping() -> Iterator[None]:
    advance = Job.advance

    def early(self: Job, now: Any) -> Any:
        yield from advance(self, now)
        if self.runs and self.unwanted and self.lease.phase is Phase.HELD:
            yield self.lease.release(now.boot, self.server)

    with patch.object(Job, "advance", early):
        yield


@contextmanager
def _start_before_proof() -> Iterator[None]:
    on_run = Job._on_run

    def credulous(self: Job, event: Any, run: Any, now: Any) -> Any:
        yield from on_run(self, event, run, now)
        if isinstance(event, RunUnproven):
            self.runs.pop(event.run, None)

    with patch.object(Job, "_on_run", credulous):
        yield


@contextmanager
def _ask_before_proof() -> Iterator[None]:
    def may_ask(self: Job) -> bool:
        return self.lease.phase is Phase.STANDBY and bool(self.server.epoch) and not self.unwanted

    with patch.object(Job, "_may_ask", property(may_ask)):
        yield


@contextmanager
def _renew_unproven() -> Iterator[None]:
    beat = Job.beat

    def blind(self: Job, now: Any) -> Any:
        unproven = self.run.unproven if self.run is not None else ""
        if self.run is not None:
            self.run.unproven = ""
        yield from beat(self, now)
        if self.run is not None:
            self.run.unproven = unproven

    with patch.object(Job, "beat", blind):
        yield


def _release_anything(self: StoreModel, ask: Any, now: int) -> Any:
    self.data.pop(("lease", ask.key), None)
    note = Note(ask.value.token, ask.next_node, now + ask.hint_ms, ask.epoch, now + ask.keep_note_ms)
    self.data["released", ask.key] = note
    return LeaseReleased(ask.job, ask.value.token, was_ours=True, asked_at=ask.asked_at)


def _sleep_the_whole_ttl(beat: Callable[..., Any]) -> Callable[..., Any]:
    def sleepy(self: Lease, now_boot: float) -> Any:
        if self.phase is Phase.STANDBY and self.memory is not None and now_boot < self.memory.until:
            return None
        return beat(self, now_boot)

    return sleepy


def _begin_without_the_past(self: Ticks, now: Any, *_past: int) -> None:
    self.plan(now)


def _newest_alone(self: Ticks, now: Any, _waited_from: float | None = None) -> DueTick | None:
    if self._schedule is None or self.next is None or now.utc < self.next:
        return None
    newest, _ = self._schedule.newest_in(self._settled(now), now.utc)
    return DueTick(newest, late=False) if newest is not None else None


def _ends_at(*, rate: bool = True, margin: bool = True, kill: bool = True) -> Callable[..., float]:
    def ends_at(self: LeaseTiming, asked_at: float) -> float:
        kept_s = (self.ttl_s * self.clock_rate_error if rate else 0.0) + (self.margin_s if margin else 0.0)
        return asked_at + self.ttl_s - kept_s + (0.0 if kill else self.kill_time_s)

    return ends_at


def _remember_without_rate_error(self: Lease, value: Any, left_ms: int, now_boot: float) -> None:
    REMEMBER(self, value, round(left_ms / (1 + self.timing.clock_rate_error)), now_boot)


REMEMBER = Lease._remember
NO_PATIENCE = _patched(Lease, "_remember", _remember_without_rate_error)
NO_MEMORY = _patched(StoreModel, "seen_forbids", _always(answer=False))
NO_YOUNG_TOKEN = _patched(StoreModel, "young", _always(answer=False))
NO_TOMBSTONE = _patched(StoreModel, "was_released", _always(answer=False))
NO_LATE_GUARD = _patched(StoreModel, "past_its_end", _always(answer=False))
NO_PAST = _patched(Ticks, "begin", _begin_without_the_past)

MUTANTS = (
    # the holder's deadline
    Mutant("no-local-deadline", "a run ends by its own clock before its lease can", _no_local_deadline),
    Mutant("deadline-from-the-reply", "the deadline counts from before the request", _deadline_from_the_reply,
           STRAINED),
    Mutant("no-margin", "a scheduler may be late", _patched(LeaseTiming, "ends_at", _ends_at(margin=False)), STRAINED),
    Mutant("no-kill-time", "a kill takes its time", _patched(LeaseTiming, "ends_at", _ends_at(kill=False)), STRAINED),
    Mutant("no-rate-error", "clocks differ in their rates", _patched(LeaseTiming, "ends_at", _ends_at(rate=False)),
           STRAINED, (NO_MEMORY, NO_PATIENCE)),
    Mutant("clock-monotonic", "deadlines run on while the machine is suspended",
           _patched(Hardware, "boot", Hardware.monotonic)),
    # proof of the end
    Mutant("release-before-reaping", "the lease is released only when the tree is gone", _release_before_reaping,
           ORDERED),
    Mutant("start-before-proof", "a leash's death is no proof of its run's end", _start_before_proof),
    Mutant("ask-before-proof", "nothing is asked for while an earlier run is unproven", _ask_before_proof, ORDERED,
           masked_by="test_nothing_is_asked_for_while_an_earlier_run_is_unproven"),
    Mutant("renew-unproven", "the lease of an unproven run is not renewed", _renew_unproven, ORDERED,
           masked_by="test_the_lease_of_an_unproven_run_is_not_renewed"),
    # another definition
    Mutant("replace-while-running", "a job is replaced only when nothing of it is left here",
           _patched(Job, "idle", property(lambda _job: True)), DEPLOYS),
    Mutant("forget-what-ran", "a job under the same key knows which tokens it ran",
           _patched(Lease, "inherit", _always(answer=None)), DEPLOYS,
           masked_by="test_a_lease_under_the_same_key_knows_what_the_old_one_knew"),
    # the token
    Mutant("incr-token", "a token is at least the server's time",
           _patched(StoreModel, "new_token", lambda _s, prev, _n, _f: prev + 1)),
    Mutant("token-without-floor", "a token is greater than any the node ever saw",
           _patched(StoreModel, "new_token", lambda _s, prev, now, _f: max(prev + 1, now)),
           masked_by="test_a_new_token_is_greater_than_any_the_node_ever_saw"),
    # whom to believe that a lease is free
    Mutant("no-quarantine", "after lost data or a clock jump a standby only looks",
           _patched(Server, "_quarantine", _always(answer=""))),
    Mutant("no-first-contact", "a node without a past lets holders put back first",
           _patched(Server, "_first_contact", _always(answer=""))),
    Mutant("epoch-unproven", "the epoch must be of the very server that answers",
           _patched(StoreModel, "epoch_forbids", lambda _s, epoch, known: epoch != known), PROMOTIONS),
    Mutant("trusts-its-own", "our own lease may be a stale replica's",
           _patched(StoreModel, "trusts_its_own", _always(answer=True)), RACKS),
    Mutant("no-clock-check", "an acquire carried out late, or under another clock, is refused",
           _patched(StoreModel, "clock_forbids", _always(answer=False)), TREACHEROUS),
    Mutant("no-memory", "an absent key is no invitation while a foreign lease must live", NO_MEMORY, DELETIONS),
    Mutant("no-young-token", "a token younger than a ttl belongs to a living lease", NO_YOUNG_TOKEN, DELETIONS),
    Mutant("no-put-back-trace", "a lease that was put back lives for a ttl, however often it vanishes",
           _patched(StoreModel, "put_back_lives", _always(answer=False)), DELETIONS),
    Mutant("sleep-whole-ttl", "a standby looks with every heartbeat",
           _patched(Lease, "beat", _sleep_the_whole_ttl(Lease.beat)), DELETIONS),
    # calls that come late
    Mutant("re-adopt", "a token that was run or released is never adopted again",
           _patched(StoreModel, "may_adopt", _always(answer=True)), ORDERED),
    Mutant("release-without-compare", "a late release must not free another's lease",
           _patched(StoreModel, "_release", _release_anything), ORDERED),
    Mutant("no-late-guard", "a late renewal must not put a lease back", NO_LATE_GUARD, TREACHEROUS),
    Mutant("no-tombstone", "a released lease is not put back", NO_TOMBSTONE, ORDERED),
    Mutant("no-newer-token", "a lease is not put back over a newer token",
           _patched(StoreModel, "newer_was_issued", _always(answer=False)), TREACHEROUS, (NO_TOMBSTONE, NO_LATE_GUARD)),
    # ticks
    Mutant("claim-again", "a tick is claimed once",
           _patched(StoreModel, "was_claimed", _always(answer=False)), RACKS, (NO_PAST,)),
    Mutant("obey-again", "an order is obeyed once",
           _patched(StoreModel, "was_obeyed", _always(answer=False)), SCHEDULES,
           masked_by="test_an_order_is_obeyed_once_though_its_claim_is_delivered_again_after_its_run"),
    Mutant("attempt-again", "another attempt is made once",
           _patched(StoreModel, "has_ended", _always(answer=False)), SCHEDULES,
           (_patched(StoreModel, "has_no_place", _always(answer=False)),),
           masked_by="test_another_attempt_is_made_once_though_its_claim_is_delivered_again_after_its_run"),
    Mutant("settle-again", "settled ticks are counted once",
           _patched(StoreModel, "is_settled", _always(answer=False)), TREACHEROUS),
    Mutant("settle-ahead", "a fast clock settles no tick of the future",
           _patched(StoreModel, "is_ahead", _always(answer=False)), SCHEDULES,
           (_patched(WallClock, "right", lambda _clock, now, _redis: now),)),
    Mutant("pass-over", "what passed is settled before the next tick is claimed",
           _patched(Ticks, "look", _newest_alone), PLAIN),
    Mutant("rerun-in-doubt", "after a loss of data nothing older is tried again",
           _patched(Server, "lost_until_ms", _always(answer=0)), PROMOTIONS),
    Mutant("forgotten-ticks", "a tick that may have been claimed in a lost memory is settled",
           _patched(Server, "_settle", _always(answer=None)), RACKS),
)  # fmt: skip
