"""When a cron job is due, and the claim of a tick on its way. A tick every minute, on the minute."""

import pytest

from orchestrator.core.answers import TickClaimed, TickRefused
from orchestrator.core.messages import Action, Say
from orchestrator.core.nouns import LeaseValue, Moment, NodeName, RunId
from orchestrator.core.requests import ClaimTick
from orchestrator.core.run import Reason
from orchestrator.core.ticks import Claim, Ticks
from tests.core.house import JOB, TOKEN, UTC, at, cron, of, only, server_ms

VALUE = LeaseValue(TOKEN, NodeName("a"), "a1")


def ticks(settled_at: float = 0.0, **changes: object) -> Ticks:
    planned = Ticks(cron(**changes))
    planned.plan(at(settled_at), server_ms(settled_at))
    return planned


def due(planned: Ticks, boot: float) -> list[Action]:
    return list(planned.due(at(boot), VALUE))


def claimed(claim: ClaimTick) -> TickClaimed:
    return TickClaimed(JOB, TOKEN, claim.tick_ms, claim.run, claim.asked_at)


def refused(claim: ClaimTick, reason: str, last_tick_ms: int = 0) -> TickRefused:
    return TickRefused(JOB, TOKEN, claim.tick_ms, reason, last_tick_ms, claim.asked_at)


def taken(planned: Ticks, boot: float) -> Claim:
    claim = planned.take(at(boot))
    assert claim is not None
    return claim


# Rule 1: claimed before it runs, once


def test_nothing_is_claimed_before_it_is_due() -> None:
    planned = ticks()

    assert planned.next == UTC + 60
    assert due(planned, 59.999) == []


def test_a_due_tick_is_claimed_by_the_run_that_will_run_it() -> None:
    claim = only(ClaimTick, due(ticks(), 60.0))

    assert claim.tick_ms == server_ms(60)
    assert claim.run == "beat@2027-01-15T08:01:00.000Z"
    assert (claim.value, claim.asked_at) == (VALUE, 60.0)


def test_a_tick_is_taken_only_when_the_store_said_yes() -> None:
    planned = ticks()
    claim = only(ClaimTick, due(planned, 60.0))
    assert planned.take(at(60.5)) is None

    planned.on_claimed(claimed(claim), at(61.0))

    assert taken(planned, 61.0).run == claim.run
    assert planned.take(at(61.0)) is None


def test_one_claim_at_a_time() -> None:
    planned = ticks()
    due(planned, 60.0)

    assert due(planned, 60.1) == []
    assert due(planned, 121.0) == []


def test_an_answer_to_another_claim_grants_nothing() -> None:
    planned = ticks()
    due(planned, 60.0)

    planned.on_claimed(TickClaimed(JOB, TOKEN, server_ms(60), RunId("other"), 60.0), at(61.0))

    assert planned.take(at(61.0)) is None


# Rule 2: what was claimed is settled


def test_ticks_up_to_the_newest_claimed_one_are_settled() -> None:
    planned = ticks()

    planned.plan(at(1.0), server_ms(180))

    assert planned.next == UTC + 240


def test_what_is_settled_stays_settled() -> None:
    planned = ticks()
    planned.plan(at(1.0), server_ms(180))

    planned.plan(at(1.0), server_ms(60))

    assert planned.next == UTC + 240


def test_a_claimed_tick_is_followed_by_the_next_one() -> None:
    planned = ticks()
    planned.on_claimed(claimed(only(ClaimTick, due(planned, 60.0))), at(60.0))

    taken(planned, 60.0)

    assert planned.next == UTC + 120


def test_a_tick_that_another_node_claimed_is_dropped_with_all_before_it() -> None:
    planned = ticks()
    claim = only(ClaimTick, due(planned, 60.0))

    planned.on_refused(refused(claim, "duplicate", server_ms(180)), at(61.0))

    assert planned.claim is None
    assert planned.next == UTC + 240


def test_a_wall_clock_set_back_runs_no_tick_twice() -> None:
    planned = ticks()
    planned.on_claimed(claimed(only(ClaimTick, due(planned, 60.0))), at(60.0))
    taken(planned, 60.0)

    planned.on_beat(Moment(boot=63.0, utc=UTC - 3600))

    assert planned.next == UTC + 120


# Rule 3: late ticks


@pytest.mark.parametrize(
    ("found_at", "reason"),
    [(60.5, Reason.SCHEDULE), (74.0, Reason.SCHEDULE), (76.0, Reason.CATCH_UP)],
    ids=["on time", "within a ttl, as after a take-over", "later than a ttl"],
)
def test_a_run_knows_whether_it_catches_up(found_at: float, reason: Reason) -> None:
    planned = ticks()
    planned.on_claimed(claimed(only(ClaimTick, due(planned, found_at))), at(found_at))

    assert taken(planned, found_at).reason is reason


def test_of_several_ticks_within_the_grace_the_newest_runs_and_the_others_are_said() -> None:
    actions = due(ticks(misfire_grace_s=600.0), 250.0)

    assert only(ClaimTick, actions).tick_ms == server_ms(240)
    assert only(Say, actions).fields["count"] == 3


def test_a_run_that_stands_for_several_ticks_catches_up_though_the_newest_is_on_time() -> None:
    planned = ticks()
    planned.on_claimed(claimed(only(ClaimTick, due(planned, 120.0))), at(120.0))

    assert taken(planned, 120.0).reason is Reason.CATCH_UP


def test_a_tick_later_than_its_grace_is_missed_and_said() -> None:
    planned = ticks(misfire_grace_s=30.0)

    missed = only(Say, due(planned, 100.0))

    assert missed.event == "tick.missed"
    assert missed.fields["tick"] == "2027-01-15T08:01:00.000Z"
    assert missed.fields["why"] == "later than misfire_grace"
    assert planned.next == UTC + 120


def test_a_tick_exactly_as_late_as_its_grace_still_counts_as_missed() -> None:
    assert of(ClaimTick, due(ticks(misfire_grace_s=30.0), 90.0)) == []
    assert of(ClaimTick, due(ticks(misfire_grace_s=30.0), 89.999))


def test_every_tick_of_a_long_absence_is_said_before_the_newest_runs() -> None:
    planned = ticks(misfire_grace_s=100.0)

    actions = due(planned, 610.0)  # ten ticks: eight past their grace, two in it

    lapsed, replaced = of(Say, actions)
    assert (lapsed.fields["count"], lapsed.fields["why"]) == (8, "later than misfire_grace")
    assert lapsed.fields["first"] == "2027-01-15T08:01:00.000Z"
    assert lapsed.fields["last"] == "2027-01-15T08:08:00.000Z"
    assert replaced.fields["count"] == 1
    assert only(ClaimTick, actions).tick_ms == server_ms(600)


def test_a_new_holder_says_the_ticks_that_nobody_could_run() -> None:
    planned = Ticks(cron(misfire_grace_s=10.0))

    planned.plan(at(300.0), server_ms(60))  # the lease came at 300, the newest claimed tick was at 60

    assert only(Say, due(planned, 315.0)).fields["count"] == 4


def test_what_was_said_to_be_missed_is_not_said_again() -> None:
    planned = ticks(misfire_grace_s=30.0)
    due(planned, 100.0)

    assert due(planned, 101.0) == []


def test_ticks_that_may_have_run_before_anybody_can_know_are_not_made_up() -> None:
    planned = Ticks(cron(misfire_grace_s=100.0))

    planned.plan(at(0.0))

    assert planned.next == UTC - 60


# Rule 4: asked again with the heartbeat


def test_a_claim_whose_answer_was_lost_is_repeated_as_the_same_claim() -> None:
    planned = ticks()
    first = only(ClaimTick, due(planned, 60.0))

    planned.on_beat(at(63.0))
    second = only(ClaimTick, due(planned, 63.0))

    assert (second.run, second.tick_ms) == (first.run, first.tick_ms)


@pytest.mark.parametrize("reason", ["ahead", "lost"], ids=["early by the server's clock", "the lease is not ours"])
def test_a_claim_that_is_refused_for_now_waits_for_the_heartbeat(reason: str) -> None:
    planned = ticks()
    claim = only(ClaimTick, due(planned, 60.0))

    planned.on_refused(refused(claim, reason), at(60.1))
    assert due(planned, 60.2) == []
    planned.on_beat(at(63.0))

    assert only(ClaimTick, due(planned, 63.0)).run == claim.run


def test_a_granted_claim_is_not_asked_for_again() -> None:
    planned = ticks()
    planned.on_claimed(claimed(only(ClaimTick, due(planned, 60.0))), at(60.0))

    planned.on_beat(at(63.0))

    assert due(planned, 63.0) == []


# The lease goes


def test_a_claim_goes_with_its_lease_and_its_tick_is_said_for_nobody_knows_whether_it_was_claimed() -> None:
    planned = ticks()
    due(planned, 60.0)

    said = only(Say, planned.drop("the lease was lost"))

    assert (said.event, said.fields["tick"]) == ("tick.lost", "2027-01-15T08:01:00.000Z")
    assert said.fields["why"] == "the lease was lost before its claim was answered: it runs only if it was not claimed"
    assert planned.claim is None


def test_without_a_claim_nothing_is_lost_with_the_lease() -> None:
    assert list(ticks().drop("the lease was lost")) == []


def test_a_granted_tick_that_will_not_run_is_said() -> None:
    planned = ticks()
    planned.on_claimed(claimed(only(ClaimTick, due(planned, 60.0))), at(60.0))

    assert only(Say, planned.drop("the lease was lost")).event == "tick.lost"


def test_a_service_is_never_due() -> None:
    planned = Ticks(cron(schedule=None))

    planned.plan(at(0.0))

    assert planned.next is None
    assert due(planned, 1e6) == []


# A lease begins


def test_ticks_that_may_have_run_in_a_lost_memory_are_passed_over_and_said() -> None:
    planned = Ticks(cron())

    doubtful = only(Say, planned.begin(at(200.0), claimed_ms=server_ms(0), doubt_ms=0, lost_ms=server_ms(130)))

    assert (doubtful.event, doubtful.fields["count"]) == ("tick.missed", 2)
    assert doubtful.fields["why"] == "it may have run before Redis lost its data"
    assert only(ClaimTick, due(planned, 200.0)).tick_ms == server_ms(180)


def test_a_memory_that_was_never_lost_puts_nothing_in_doubt() -> None:
    planned = Ticks(cron())

    assert list(planned.begin(at(50.0), claimed_ms=server_ms(0), doubt_ms=0, lost_ms=0)) == []
    assert planned.next == UTC + 60


# What may have run in a memory that Redis lost


def test_ticks_that_may_have_run_before_a_loss_of_data_are_missed_and_said() -> None:
    planned = Ticks(cron())

    said = only(Say, list(planned.begin(at(150.0), server_ms(10.0), 0, server_ms(130.0))))

    assert said.event == "tick.missed"
    assert said.fields["count"] == 2
    assert said.fields["why"] == "it may have run before Redis lost its data"
    assert planned.next == UTC + 180.0


def test_a_tick_between_the_last_contact_and_the_loss_is_in_doubt_though_the_store_knows_none() -> None:
    planned = Ticks(cron())

    said = only(Say, list(planned.begin(at(90.0), server_ms(61.0), server_ms(57.0), server_ms(61.0))))

    assert (said.event, said.fields["tick"]) == ("tick.missed", "2027-01-15T08:01:00.000Z")
    assert planned.next == UTC + 120.0


def test_what_was_due_before_the_last_contact_is_not_in_doubt() -> None:
    planned = Ticks(cron())

    assert list(planned.begin(at(90.0), server_ms(63.0), server_ms(61.0), server_ms(63.0))) == []
    assert planned.next == UTC + 120.0


def test_without_a_loss_of_data_nothing_is_passed_over() -> None:
    planned = Ticks(cron())

    assert list(planned.begin(at(150.0), server_ms(70.0), 0, 0)) == []
    assert planned.next == UTC + 120.0
