"""The steps of a cron: one at a time, each agreed with the store first. The table and rules of `core/cron.py`.

What is in the way of a start stands in `test_cron_overlap.py`, what follows a run in `test_cron_retries.py`, what
people order in `test_cron_orders.py`.
"""

import json
from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseLost, LeaseReleased, TickClaimed
from orchestrator.core.messages import LeaveOrdered, Say, StartRun
from orchestrator.core.nouns import NodeName, RunId
from orchestrator.core.open_runs import parse_mark
from orchestrator.core.requests import ClaimTick, RecordRun, SettleTicks
from orchestrator.core.spec import Misfire, Overlap
from tests.core.house import (
    ABSENT,
    JOB,
    NEWER,
    TOKEN,
    at,
    claimed,
    cron,
    ended,
    failed,
    granted,
    held_job,
    minutely,
    of,
    only,
    open_run,
    refused,
    said,
    server_ms,
    settled,
    started,
    taken_over,
    turn,
    waiting,
)

RUN = "beat@2027-01-15T08:01:00.000Z"
LOST = LeaseLost(JOB, TOKEN, "node b holds it", asked_at=60.0)


# Claimed before it is made (rule 1)


def test_nothing_is_asked_for_before_a_tick_is_due() -> None:
    machine = waiting()

    assert turn(machine, boot=59.9) == []
    assert machine.next_deadline(at(59.9)) == pytest.approx(60.0)


def test_a_due_tick_is_claimed_by_the_run_that_will_run_it() -> None:
    claim = only(ClaimTick, turn(waiting(), boot=60.0))

    assert (claim.job, claim.key, claim.tick_ms, claim.run) == (JOB, "beat", server_ms(60), RUN)
    assert (claim.order_ms, claim.instead, claim.asked_at) == (0, "", 60.0)
    assert parse_mark(RUN, claim.mark) == replace(open_run(60.0), node=NodeName("a"))


def test_no_run_is_started_before_its_claim_is_granted() -> None:
    machine = waiting()

    assert of(StartRun, turn(machine, boot=60.0)) == []
    assert of(StartRun, turn(machine, boot=61.0)) == []


def test_a_granted_claim_is_started_at_once_and_once() -> None:
    machine = waiting()
    claim = only(ClaimTick, turn(machine, boot=60.0))

    start = only(StartRun, turn(machine, claimed(claim), boot=60.1))

    assert start.run == RUN
    assert start.env["ORCHESTRATOR_TICK"] == "2027-01-15T08:01:00.000Z"
    assert (start.env["ORCHESTRATOR_REASON"], start.env["ORCHESTRATOR_ATTEMPT"]) == ("schedule", "1")
    assert turn(machine, claimed(claim), boot=60.2) == []


def test_a_claim_that_is_granted_when_the_lease_has_no_time_left_is_not_started() -> None:
    machine = held_job(cron(), 50.0)
    claim = only(ClaimTick, turn(machine, boot=60.0))

    assert of(StartRun, turn(machine, claimed(claim), boot=60.0)) == []


def test_an_answer_to_another_claim_grants_nothing() -> None:
    machine = waiting()
    turn(machine, boot=60.0)

    other = TickClaimed(JOB, TOKEN, server_ms(60), RunId("beat@other"), 60.0)

    assert of(StartRun, turn(machine, other, boot=60.1)) == []


# One step at a time, repeated with the heartbeat (rule 2)


def test_one_claim_at_a_time() -> None:
    machine = waiting()
    turn(machine, boot=60.0)

    assert turn(machine, boot=60.1) == []
    assert turn(machine, boot=121.0) == []
    assert machine.next_deadline(at(121.0)) == float("inf")


def test_a_claim_whose_answer_was_lost_is_repeated_with_the_heartbeat_in_the_same_words() -> None:
    machine = waiting()
    first = only(ClaimTick, turn(machine, boot=60.0))

    list(machine.beat(at(63.0)))
    second = only(ClaimTick, turn(machine, boot=63.0))

    assert (second.run, second.mark, second.tick_ms) == (first.run, first.mark, first.tick_ms)
    assert second.asked_at == 63.0


@pytest.mark.parametrize("reason", ["ahead", "lost"], ids=["early by the server's clock", "the lease is not ours"])
def test_a_claim_that_is_refused_for_now_waits_for_the_heartbeat(reason: str) -> None:
    machine = waiting()
    claim = only(ClaimTick, turn(machine, boot=60.0))

    assert turn(machine, refused(claim, reason), boot=60.1) == []
    list(machine.beat(at(63.0)))

    assert only(ClaimTick, turn(machine, boot=63.0)).run == claim.run


def test_a_tick_that_was_claimed_already_is_dropped_with_all_before_it() -> None:
    machine = waiting()
    claim = only(ClaimTick, turn(machine, boot=60.0))

    assert turn(machine, refused(claim, "duplicate", last_tick_ms=server_ms(180)), boot=60.1) == []

    assert machine.next_deadline(at(60.1)) == pytest.approx(240.0)


def test_a_refusal_of_another_tick_is_old_news() -> None:
    machine = waiting()
    claim = only(ClaimTick, turn(machine, boot=60.0))
    turn(machine, claimed(claim), boot=60.1)
    turn(machine, ended(RUN), boot=61.0)
    following = only(ClaimTick, turn(machine, boot=120.0))

    turn(machine, refused(claim, "duplicate", last_tick_ms=server_ms(60)), boot=120.1)

    assert of(StartRun, turn(machine, claimed(following), boot=120.2))


def test_ticks_that_passed_are_settled_with_their_count_before_the_newest_is_claimed() -> None:
    machine = waiting(minutely(misfire_grace_s=100.0))

    lapsed = only(SettleTicks, turn(machine, boot=310.0))
    replaced = only(SettleTicks, turn(machine, settled(lapsed), boot=310.1))
    claim = only(ClaimTick, turn(machine, settled(replaced), boot=310.2))

    assert (lapsed.until_ms, lapsed.count, lapsed.what) == (server_ms(180), 3, "missed")
    assert (replaced.until_ms, replaced.count, replaced.what) == (server_ms(240), 1, "missed")
    assert claim.tick_ms == server_ms(300)


def test_a_settling_is_an_entry_of_the_history_under_the_last_of_its_ticks() -> None:
    ask = only(SettleTicks, turn(waiting(minutely(misfire_grace_s=30.0)), boot=160.0))

    entry = json.loads(ask.record)
    assert ask.entry == "missed@2027-01-15T08:02:00.000Z"
    assert (ask.keep, ask.keep_bytes, ask.order_ms) == (100, 65_536, 0)
    assert (entry["outcome"], entry["count"], entry["why"]) == ("missed", 2, "later than misfire_grace")
    assert (entry["first"], entry["last"]) == ("2027-01-15T08:01:00.000Z", "2027-01-15T08:02:00.000Z")
    assert (entry["tick"], entry["node"], entry["token"]) == (None, "a", TOKEN)


def test_settled_ticks_are_said_when_the_store_has_them_and_not_before() -> None:
    machine = waiting(minutely(misfire_grace_s=30.0))
    asked = turn(machine, boot=100.0)
    assert of(Say, asked) == []

    told = only(Say, turn(machine, settled(only(SettleTicks, asked)), boot=100.1))

    assert (told.event, told.level) == ("tick.missed", "warning")
    span = {"first": "2027-01-15T08:01:00.000Z", "last": "2027-01-15T08:01:00.000Z"}
    assert told.fields == {"job": JOB, "count": 1, "why": "later than misfire_grace", **span}


@pytest.mark.parametrize("answered", [False, True], ids=["unanswered", "the lease is not ours"])
def test_a_settling_is_repeated_with_the_heartbeat_as_a_claim_is(answered: bool) -> None:
    machine = waiting(minutely(misfire_grace_s=30.0))
    first = only(SettleTicks, turn(machine, boot=100.0))
    if answered:
        claim = ClaimTick(JOB, "beat", first.value, first.until_ms, RunId(RUN), "", 0, asked_at=100.0)
        assert turn(machine, refused(claim, "lost"), boot=100.1) == []

    list(machine.beat(at(103.0)))

    again = only(SettleTicks, turn(machine, boot=103.0))
    assert (again.until_ms, again.count, again.entry) == (first.until_ms, first.count, first.entry)


def test_a_late_answer_to_an_earlier_settling_settles_nothing() -> None:
    machine = waiting(minutely(misfire_grace_s=30.0))
    first = only(SettleTicks, turn(machine, boot=100.0))
    turn(machine, settled(first), boot=100.1)
    second = only(SettleTicks, turn(machine, boot=160.0))

    assert turn(machine, settled(first), boot=160.1) == []
    assert said(turn(machine, settled(second), boot=160.2)) == ["tick.missed"]


def test_a_tick_that_waits_for_its_claim_still_bears_its_name_a_minute_later() -> None:
    machine = waiting()
    claim = only(ClaimTick, turn(machine, boot=60.0))

    start = only(StartRun, turn(machine, claimed(claim), boot=121.0))

    assert start.env["ORCHESTRATOR_TICK"] == "2027-01-15T08:01:00.000Z"


def test_what_was_due_by_a_wrong_clock_and_is_not_answered_is_not_asked_for_again() -> None:
    machine = waiting()
    turn(machine, boot=60.0)
    list(machine.beat(at(30.0)))

    assert turn(machine, boot=30.0) == []
    assert machine.next_deadline(at(30.0)) == pytest.approx(60.0)


# Of every tick it is told what became of it (rule 3)


@pytest.mark.parametrize(
    ("misfire", "found_at", "settlings", "ran"),
    [
        (Misfire.ONCE, 250.0, [("missed", 3)], "catch_up"),
        (Misfire.SKIP, 250.0, [("missed", 3)], "schedule"),
        (Misfire.SKIP, 290.0, [("missed", 4)], None),
        (Misfire.ALL, 250.0, [], "catch_up"),
    ],
    ids=["once: the newest", "skip: one on time", "skip: all late", "all: the oldest first"],
)
def test_misfire_decides_what_runs_of_that_which_is_late(
    misfire: Misfire, found_at: float, settlings: list[tuple[str, int]], ran: str | None
) -> None:
    machine, told = waiting(minutely(misfire=misfire)), []

    actions = turn(machine, boot=found_at)
    while asks := of(SettleTicks, actions):
        told.append((asks[0].what, asks[0].count))
        actions = turn(machine, settled(asks[0]), boot=found_at)
    starts = [only(StartRun, turn(machine, claimed(claim), boot=found_at)) for claim in of(ClaimTick, actions)]

    assert told == settlings
    assert [start.env["ORCHESTRATOR_REASON"] for start in starts] == ([ran] if ran else [])


def test_all_late_ticks_run_one_after_the_other() -> None:
    machine = waiting(minutely(misfire=Misfire.ALL))
    ran = []

    for _ in range(4):
        start = started(machine, 250.0)
        ran.append(start.env["ORCHESTRATOR_TICK"][14:19])
        assert turn(machine, boot=250.0) == []
        list(machine.handle(ended(start.run), at(250.0)))
    assert ran == ["01:00", "02:00", "03:00", "04:00"]


def test_the_end_of_a_run_is_recorded_with_its_token_and_its_outcome() -> None:
    machine = waiting()
    start = started(machine, 60.0)

    record = only(RecordRun, failed(machine, start.run, 62.0))

    told = json.loads(record.record)
    assert (record.run, record.token, record.mark, record.witness) == (RUN, TOKEN, "", True)
    assert (told["tick"], told["outcome"], told["exit_code"]) == ("2027-01-15T08:01:00.000Z", "failed", 1)
    assert (told["attempt"], told["reason"], told["token"]) == (1, "schedule", TOKEN)


def test_ticks_that_may_have_run_in_a_lost_memory_are_settled_as_missed_before_anything_runs() -> None:
    machine = waiting()
    assert machine.cron is not None
    machine.cron.drop("the lease was lost", None, at(100.0))

    list(machine.cron.begin(granted(200.0, last_tick_ms=server_ms(0)), at(200.0), server_ms(0), server_ms(130.0)))
    ask = only(SettleTicks, turn(machine, boot=200.0))

    assert (ask.count, ask.what, ask.until_ms) == (2, "doubt", server_ms(120))
    assert json.loads(ask.record)["outcome"] == "missed"
    assert json.loads(ask.record)["why"] == "it may have run before Redis lost its data"
    assert only(ClaimTick, turn(machine, settled(ask), boot=200.0)).tick_ms == server_ms(180)


# The lease comes and goes


def test_a_new_holder_goes_on_behind_the_newest_settled_tick() -> None:
    machine = waiting(boot=100.0, last_tick_ms=server_ms(60))

    assert turn(machine, boot=100.0) == []
    assert machine.next_deadline(at(100.0)) == pytest.approx(120.0)


def test_a_new_holder_runs_what_was_due_while_nobody_held_the_lease() -> None:
    machine = waiting(boot=130.0, last_tick_ms=server_ms(60))

    assert only(ClaimTick, turn(machine, boot=130.0)).tick_ms == server_ms(120)


def test_a_run_that_nobody_told_the_end_of_is_lost_and_its_tick_is_not_run_again() -> None:
    machine, actions = taken_over(boot=100.0, last_tick_ms=server_ms(60), open=(open_run(60.0),))

    record = only(RecordRun, actions)
    assert said(actions) == ["lease.acquired", "run.lost"]
    assert (record.run, record.token, record.mark, record.witness) == (RUN, TOKEN, "", False)
    assert json.loads(record.record)["outcome"] == "lost"
    assert json.loads(record.record)["error"] == "node b died or lost the lease, and did not tell how it ended"
    assert of(ClaimTick, turn(machine, boot=100.0)) == []


def test_without_a_claim_nothing_is_lost_with_the_lease() -> None:
    assert said(turn(waiting(), LOST, boot=30.0)) == ["lease.lost"]


def test_an_unanswered_claim_goes_with_the_lease_and_nobody_knows_whether_it_was_made() -> None:
    machine = waiting()
    turn(machine, boot=60.0)

    lost, tick = of(Say, turn(machine, LOST, boot=60.1))

    assert (lost.event, tick.event) == ("lease.lost", "tick.lost")
    assert tick.fields["tick"] == "2027-01-15T08:01:00.000Z"
    assert tick.fields["why"] == "the lease was lost before its claim was answered: it runs only if it was not claimed"


def test_a_granted_claim_that_cannot_start_any_more_is_recorded_so_that_another_node_starts_it() -> None:
    machine = held_job(cron(), 50.0)
    claim = only(ClaimTick, turn(machine, boot=60.0))
    turn(machine, claimed(claim), boot=60.0)

    actions = turn(machine, LOST, boot=60.1)

    record = only(RecordRun, actions)
    assert said(actions) == ["lease.lost", "tick.lost"]
    assert json.loads(record.record)["error"] == "the lease was lost before it could start"
    assert json.loads(record.mark)["rerun"] is True


def test_after_the_lease_is_lost_nothing_is_claimed() -> None:
    machine = waiting()
    turn(machine, LOST, boot=60.0)

    assert of(ClaimTick, turn(machine, boot=120.0)) == []


def test_a_lease_that_comes_again_goes_on_where_it_was() -> None:
    machine = waiting()
    start = started(machine, 60.0)
    turn(machine, LOST, ended(start.run, cause="killed"), boot=61.0)
    turn(machine, ABSENT, boot=80.0)

    turn(machine, granted(80.0, NEWER, last_tick_ms=server_ms(60)), boot=80.0)

    assert machine.lease.held
    assert machine.next_deadline(at(80.0)) == pytest.approx(120.0)
    assert only(ClaimTick, turn(machine, boot=120.0)).value.token == NEWER


def test_a_cron_that_is_given_back_claims_no_more() -> None:
    machine = waiting()
    machine.here.urgency = LeaveOrdered(0).urgency

    turn(machine, boot=30.0)
    turn(machine, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=30.0), boot=30.1)

    assert machine.idle
    assert of(ClaimTick, turn(machine, boot=60.0)) == []


# Nothing spins


@pytest.mark.parametrize("overlap", list(Overlap))
@pytest.mark.parametrize("misfire", list(Misfire))
def test_after_each_turn_the_next_one_lies_ahead_or_something_was_asked(misfire: Misfire, overlap: Overlap) -> None:
    machine = waiting(minutely(misfire=misfire, overlap=overlap, max_instances=1))
    start = started(machine, 60.0)

    for boot in (61.0, 120.0, 121.0, 250.0, 1000.0):
        turns = 0
        while settlings := of(SettleTicks, turn(machine, boot=boot)):
            list(machine.handle(settled(settlings[0]), at(boot)))
            turns += 1
        assert turns < 10
        assert machine.next_deadline(at(boot)) > boot
    assert start.run in machine.runs
