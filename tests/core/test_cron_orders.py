"""What people order of a cron: to run it once, to pause and to resume it; and the pause that its failures order."""

import json
from dataclasses import replace

import pytest

from orchestrator.core.cron import TRIGGER_VALID_MS
from orchestrator.core.job import Job
from orchestrator.core.messages import StartRun, StopRun
from orchestrator.core.nouns import Intent
from orchestrator.core.requests import ClaimTick, ForgetTrigger, GiveOrder, RecordRun, ReleaseLease, SettleTicks
from orchestrator.core.spec import JobSpec, Misfire, Overlap, RetrySpec
from tests.core.house import (
    JOB,
    RETRIED,
    at,
    claimed,
    ended,
    failed,
    intent,
    minutely,
    of,
    only,
    open_run,
    ordered,
    refused,
    said,
    server_ms,
    settled,
    started,
    taken_over,
    trigger,
    turn,
    waiting,
)

ORDER = f"beat@manual-{server_ms(5)}"


def resumed(at_boot: float, *, since: float, catch_up: bool = False) -> Intent:
    """Return the order to go on, of a job that was paused `since` then."""
    return Intent("running", "ann@desk", "", server_ms(at_boot), off_ms=server_ms(since), catch_up=catch_up)


def paused(spec: JobSpec | None = None, boot: float = 10.0) -> Job:
    """Return a cron that was paused."""
    machine = waiting(spec)
    machine.order(intent("paused", at_ms=server_ms(boot)))
    turn(machine, boot=boot)
    return machine


# An order to run it once


def test_an_order_is_claimed_and_run_at_once() -> None:
    machine = waiting()

    claim = only(ClaimTick, ordered(machine, trigger(5.0, why="a fix"), boot=5.1))
    actions = turn(machine, claimed(claim), boot=5.2)

    assert (claim.run, claim.order_ms, claim.tick_ms, claim.instead) == (ORDER, server_ms(5), server_ms(5), "")
    start = only(StartRun, actions)
    assert (start.run, start.env["ORCHESTRATOR_REASON"]) == (ORDER, "manual")
    assert "ORCHESTRATOR_TICK" not in start.env
    assert only(ForgetTrigger, actions).order_ms == server_ms(5)


def test_its_record_tells_who_ordered_it_and_why() -> None:
    machine = waiting()
    run = started_by(machine, 5.0, why="a fix").run

    told = json.loads(only(RecordRun, turn(machine, ended(run), boot=6.0)).record)

    assert (told["reason"], told["why"], told["tick"]) == ("manual", "ordered by ann@desk: a fix", None)


def test_an_order_for_a_tick_runs_for_that_tick() -> None:
    machine = waiting()
    claim = only(ClaimTick, ordered(machine, trigger(5.0, tick_at=-60.0), boot=5.1))

    start = only(StartRun, turn(machine, claimed(claim), boot=5.2))

    assert claim.tick_ms == server_ms(-60)
    assert start.env["ORCHESTRATOR_TICK"] == "2027-01-15T07:59:00.000Z"
    assert start.run == ORDER


def test_an_order_moves_no_tick() -> None:
    machine = waiting()
    run = started_by(machine, 5.0).run

    turn(machine, ended(run), boot=6.0)

    assert machine.next_deadline(at(6.0)) == pytest.approx(60.0)


def test_an_order_is_obeyed_once_however_long_it_is_seen() -> None:
    machine = waiting()
    run = started_by(machine, 5.0).run
    turn(machine, ended(run), boot=6.0)

    assert ordered(machine, trigger(5.0), boot=7.0) == []
    assert machine.next_deadline(at(7.0)) == pytest.approx(60.0)


@pytest.mark.parametrize("obeyed_at", [5.0, 9.0], ids=["this one", "a newer one"])
def test_an_order_that_another_holder_obeyed_is_not_obeyed_again(obeyed_at: float) -> None:
    machine = waiting(boot=10.0, obeyed_ms=server_ms(obeyed_at))

    assert ordered(machine, trigger(5.0), boot=10.1) == []


def test_an_order_of_which_the_store_says_that_it_was_obeyed_is_forgotten() -> None:
    machine = waiting()
    claim = only(ClaimTick, ordered(machine, trigger(5.0), boot=5.1))

    actions = turn(machine, refused(claim, "duplicate"), boot=5.2)

    assert [forget.order_ms for forget in of(ForgetTrigger, actions)] == [server_ms(5)]
    assert of(ClaimTick, actions) == []


def test_orders_are_obeyed_in_their_order() -> None:
    machine = waiting()
    orders = (trigger(5.0), trigger(5.5))
    first = only(ClaimTick, ordered(machine, *orders, boot=6.0))
    run = only(StartRun, turn(machine, claimed(first), boot=6.0)).run
    ending = list(machine.handle(ended(run), at(7.0)))

    second = only(ClaimTick, turn(machine, boot=7.0))

    assert (first.order_ms, second.order_ms) == (server_ms(5), server_ms(5.5))
    assert of(RecordRun, ending)


def test_an_order_comes_before_a_tick_that_is_due() -> None:
    machine = waiting()

    assert only(ClaimTick, ordered(machine, trigger(59.0), boot=60.0)).order_ms == server_ms(59)


@pytest.mark.parametrize(("age_ms", "obeyed"), [(TRIGGER_VALID_MS, True), (TRIGGER_VALID_MS + 1, False)])
def test_an_order_that_nobody_could_obey_in_time_is_refused(age_ms: int, obeyed: bool) -> None:
    machine = waiting(boot=700.0)
    age = trigger(700.0 - age_ms / 1000)

    actions = ordered(machine, age, boot=700.0)

    assert len(of(ClaimTick, actions)) == int(obeyed)
    whys = [json.loads(ask.record)["why"] for ask in of(SettleTicks, actions)]
    assert whys == ([] if obeyed else ["nobody could obey it within 10 minutes"])


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.ALLOW])
def test_while_a_run_is_in_the_way_an_order_is_refused_with_the_reason(overlap: Overlap) -> None:
    machine = waiting(minutely(overlap=overlap, max_instances=1))
    started(machine, 60.0)

    ask = only(SettleTicks, ordered(machine, trigger(61.0), boot=61.1))
    answered = turn(machine, settled(ask), boot=61.2)

    entry = json.loads(ask.record)
    assert (ask.order_ms, ask.until_ms, ask.count, ask.what) == (server_ms(61), 0, 0, "skipped")
    assert ask.entry == entry["run"] == f"beat@manual-{server_ms(61)}"
    assert (entry["outcome"], entry["reason"]) == ("skipped", "manual")
    assert entry["why"].endswith({"skip": "still runs (overlap: skip)", "allow": "go on (max_instances)"}[overlap])
    assert said(answered) == ["order.refused"]
    assert only(ForgetTrigger, answered).order_ms == server_ms(61)
    assert machine.next_deadline(at(61.3)) == pytest.approx(120.0)


def test_a_refusal_is_repeated_with_the_heartbeat_until_the_store_has_it() -> None:
    machine = waiting()
    started(machine, 60.0)
    first = only(SettleTicks, ordered(machine, trigger(61.0), boot=61.1))

    list(machine.beat(at(63.0)))

    assert only(SettleTicks, turn(machine, boot=63.0)).order_ms == first.order_ms


def test_an_order_waits_for_the_run_that_goes_on_where_overlap_queues() -> None:
    machine = waiting(minutely(overlap=Overlap.QUEUE))
    run = started(machine, 60.0).run

    assert ordered(machine, trigger(61.0), boot=61.1) == []
    assert machine.next_deadline(at(61.1)) == float("inf")

    assert only(ClaimTick, turn(machine, ended(run), boot=70.0)).order_ms == server_ms(61)


def test_an_order_replaces_the_run_that_goes_on_where_overlap_replaces() -> None:
    machine = waiting(minutely(overlap=Overlap.REPLACE))
    run = started(machine, 60.0).run

    stop = only(StopRun, ordered(machine, trigger(61.0), boot=61.1))
    assert (stop.run, stop.why) == (run, f"replaced by beat@manual-{server_ms(61)}")

    assert only(ClaimTick, turn(machine, ended(run, cause="stop"), boot=62.0)).order_ms == server_ms(61)


def test_an_attempt_that_is_due_comes_before_an_order_that_waits_for_it() -> None:
    machine = waiting(minutely(overlap=Overlap.QUEUE, retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)
    assert ordered(machine, trigger(63.0), boot=63.0) == []

    assert only(ClaimTick, turn(machine, boot=92.0)).instead == "beat@2027-01-15T08:01:00.000Z"


def test_an_ordered_run_that_fails_is_tried_again_and_counts_for_no_tick() -> None:
    machine = waiting(minutely(retries=RetrySpec(count=1, delay_s=1.0)))
    first = failed(machine, started_by(machine, 5.0).run, 6.0)

    last = failed(machine, started(machine, 7.0).run, 8.0)

    assert only(RecordRun, first).mark
    assert (only(RecordRun, last).run, only(RecordRun, last).failures) == (f"{ORDER}.2", None)


def test_an_order_is_obeyed_while_the_job_is_paused() -> None:
    assert only(ClaimTick, ordered(paused(), trigger(20.0), boot=20.0)).order_ms == server_ms(20)


# Paused and resumed


def test_a_paused_job_keeps_its_lease_and_claims_nothing() -> None:
    machine = paused()

    assert turn(machine, boot=200.0) == []
    assert machine.lease.held
    assert machine.next_deadline(at(200.0)) == float("inf")


def test_a_run_that_goes_on_when_its_job_is_paused_is_left_alone() -> None:
    machine = waiting()
    started(machine, 60.0)

    machine.order(intent("paused", at_ms=server_ms(61)))

    assert turn(machine, boot=61.0) == []
    assert turn(machine, boot=150.0) == []


def test_what_was_due_in_a_pause_is_skipped_when_it_ends() -> None:
    machine = paused()
    machine.order(resumed(150.0, since=10.0))

    ask = only(SettleTicks, turn(machine, boot=150.0))

    assert (ask.what, ask.count, ask.until_ms) == ("skipped", 2, server_ms(120))
    assert json.loads(ask.record)["why"] == "it was stopped or paused, until ann@desk let it go on"
    turn(machine, settled(ask), boot=150.0)
    assert machine.next_deadline(at(150.0)) == pytest.approx(180.0)


def test_a_pause_in_which_nothing_was_due_leaves_nothing_to_skip() -> None:
    machine = paused()
    machine.order(resumed(50.0, since=10.0))

    assert turn(machine, boot=50.0) == []
    assert only(ClaimTick, turn(machine, boot=60.0)).tick_ms == server_ms(60)


@pytest.mark.parametrize(("misfire", "tick_at", "missed"), [(Misfire.ONCE, 120, 1), (Misfire.ALL, 60, 0)])
def test_with_catch_up_what_was_due_in_a_pause_is_late(misfire: Misfire, tick_at: float, missed: int) -> None:
    machine = paused(minutely(misfire=misfire))
    machine.order(resumed(150.0, since=10.0, catch_up=True))

    actions = turn(machine, boot=150.0)
    settlings = of(SettleTicks, actions)
    if settlings:
        actions = turn(machine, settled(settlings[0]), boot=150.0)

    assert [(ask.what, ask.count) for ask in settlings] == [("missed", missed)] * min(missed, 1)
    assert only(ClaimTick, actions).tick_ms == server_ms(tick_at)


def test_a_new_holder_skips_what_was_due_in_a_pause_that_ended_before_its_time() -> None:
    machine, _ = taken_over(boot=160.0, last_tick_ms=server_ms(0))
    machine.order(resumed(130.0, since=10.0))

    ask = only(SettleTicks, turn(machine, boot=160.0))

    assert (ask.what, ask.count, ask.until_ms) == ("skipped", 2, server_ms(120))


def test_an_order_to_go_on_of_a_job_that_was_not_off_skips_nothing() -> None:
    machine, _ = taken_over(boot=160.0, last_tick_ms=server_ms(60))
    machine.order(replace(resumed(150.0, since=0.0), off_ms=0))

    assert only(ClaimTick, turn(machine, boot=160.0)).tick_ms == server_ms(120)


@pytest.mark.parametrize(
    ("retry_at", "catch_up", "kept"),
    [(92.0, False, False), (92.0, True, True), (160.0, False, True)],
    ids=["that was due meanwhile is given up", "with catch-up it is made", "that is due later is made"],
)
def test_an_attempt_that_waited_in_a_pause(retry_at: float, catch_up: bool, kept: bool) -> None:
    machine = waiting(minutely(retries=RetrySpec(count=1, delay_s=retry_at - 62.0)))
    failed(machine, started(machine, 60.0).run, 62.0)
    machine.order(intent("paused", at_ms=server_ms(70)))
    assert of(ClaimTick, turn(machine, boot=110.0)) == []

    machine.order(resumed(119.0, since=70.0, catch_up=catch_up))
    actions = turn(machine, boot=119.0)

    assert ("retry.dropped" in said(actions)) is not kept
    assert machine.cron is not None
    assert bool(machine.cron.retries) is kept


def test_a_stopped_cron_gives_its_lease_back() -> None:
    machine = waiting()
    machine.order(intent("stopped"))

    assert of(ReleaseLease, turn(machine, boot=10.0))


# pause_after_failures


def fragile(**changes: object) -> JobSpec:
    return minutely(pause_after_failures=2, **changes)


def fail_twice(machine: Job) -> None:
    """Let the ticks of the first and the second minute fail."""
    for boot in (60.0, 120.0):
        turn(machine, ended(started(machine, boot).run, exit_code=1), boot=boot + 1)


def test_after_as_many_failed_ticks_as_said_the_job_orders_its_own_pause() -> None:
    machine = waiting(fragile())
    failed(machine, started(machine, 60.0).run, 61.0)

    actions = failed(machine, started(machine, 120.0).run, 121.0)

    order = only(GiveOrder, actions)
    assert (order.job, order.intent.want, order.intent.who) == (JOB, "paused", "node a")
    assert order.intent.why == "2 failed ticks in a row (pause_after_failures)"
    assert said(actions)[-1] == "job.paused"


def test_until_the_pause_is_known_nothing_starts_and_it_is_ordered_once_a_heartbeat() -> None:
    machine = waiting(fragile())
    fail_twice(machine)

    assert turn(machine, boot=122.0) == []
    assert turn(machine, boot=180.0) == []
    assert machine.next_deadline(at(180.0)) == float("inf")
    list(machine.beat(at(183.0)))
    assert of(GiveOrder, turn(machine, boot=183.0))
    assert of(GiveOrder, turn(machine, boot=184.0)) == []


def test_once_it_is_paused_nothing_more_is_ordered() -> None:
    machine = waiting(fragile())
    fail_twice(machine)
    machine.order(intent("paused", at_ms=server_ms(122)))

    list(machine.beat(at(183.0)))

    assert turn(machine, boot=183.0) == []


def test_after_a_resume_it_may_fail_as_often_again() -> None:
    machine = waiting(fragile())
    fail_twice(machine)
    machine.order(intent("paused", at_ms=server_ms(122)))
    list(machine.beat(at(123.0)))
    machine.order(resumed(130.0, since=122.0))

    first = failed(machine, started(machine, 180.0).run, 181.0)
    second = failed(machine, started(machine, 240.0).run, 241.0)

    assert of(GiveOrder, first) == []
    assert of(GiveOrder, second)


def test_a_success_in_between_is_a_new_beginning() -> None:
    machine = waiting(fragile())
    failed(machine, started(machine, 60.0).run, 61.0)
    turn(machine, ended(started(machine, 120.0).run), boot=121.0)

    assert of(GiveOrder, failed(machine, started(machine, 180.0).run, 181.0)) == []


def test_attempts_at_one_tick_are_one_failure() -> None:
    machine = waiting(fragile(retries=RetrySpec(count=1, delay_s=1.0)))
    failed(machine, started(machine, 60.0).run, 61.0)

    assert of(GiveOrder, failed(machine, started(machine, 62.0).run, 63.0)) == []


def test_a_new_holder_goes_on_counting() -> None:
    machine = waiting(fragile(), failures=1, failed_ms=server_ms(-60))

    assert of(GiveOrder, failed(machine, started(machine, 60.0).run, 61.0))


@pytest.mark.parametrize(("resumed_at", "pauses"), [(-30.0, False), (-90.0, True)], ids=["since", "before"])
def test_a_new_holder_knows_whether_the_failures_were_forgiven(resumed_at: float, pauses: bool) -> None:
    machine, _ = taken_over(fragile(), failures=2, failed_ms=server_ms(-60))
    machine.order(resumed(resumed_at, since=-100.0))

    assert bool(of(GiveOrder, turn(machine, boot=1.0))) is pauses


def test_a_failing_job_can_still_be_run_by_order() -> None:
    machine = waiting(fragile())
    fail_twice(machine)

    assert only(ClaimTick, ordered(machine, trigger(122.0), boot=122.1)).order_ms == server_ms(122)


def test_an_attempt_is_given_up_as_a_failed_tick() -> None:
    machine = waiting(fragile(overlap=Overlap.REPLACE, retries=RetrySpec(count=1, delay_s=90.0)))
    failed(machine, started(machine, 60.0).run, 62.0)

    assert only(RecordRun, turn(machine, boot=120.0)).failures == 1


def started_by(machine: Job, order_at: float, *, why: str = "") -> StartRun:
    """Let a cron obey an order."""
    claim = only(ClaimTick, ordered(machine, trigger(order_at, why=why), boot=order_at + 0.1))
    return only(StartRun, turn(machine, claimed(claim), boot=order_at + 0.2))


def test_a_run_of_another_node_that_is_to_be_tried_again_is_in_an_orders_way() -> None:
    left = open_run(60.0, retry_at=150.0)
    machine = waiting(minutely(retries=RETRIED), 100.0, last_tick_ms=server_ms(60), open=(left,))

    assert only(SettleTicks, ordered(machine, trigger(100.0), boot=100.1)).order_ms == server_ms(100)
