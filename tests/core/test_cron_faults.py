"""Rules of a cron that did not hold when the other tests of it were written: each found by thinking of a fault."""

import json
from dataclasses import replace

from orchestrator.core.answers import LeaseLost, LeaseRenewed, StatePublished, StoreSilent
from orchestrator.core.job import Job
from orchestrator.core.messages import RunStarted, StartRun
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName
from orchestrator.core.requests import ClaimTick, GiveOrder, PublishState, RecordRun
from orchestrator.core.spec import OnLost, Overlap, RetrySpec, Scope
from orchestrator.core.timing import LeaseTiming
from tests.core.cron_world import World
from tests.core.house import (
    ABSENT,
    JOB,
    RETRIED,
    TOKEN,
    at,
    claimed,
    cron,
    ended,
    failed,
    granted,
    intent,
    job,
    joined,
    members,
    met,
    minutely,
    never_started,
    node,
    of,
    only,
    open_run,
    ordered,
    refused,
    server_ms,
    started,
    taken_over,
    told,
    trigger,
    turn,
    waiting,
)

RUN = "beat@2027-01-15T08:01:00.000Z"
LOST = LeaseLost(JOB, TOKEN, "node b holds it", asked_at=60.0)


# Room on the node


def busy(limit: int = 1) -> tuple[Job, str]:
    """Return a cron whose run takes all the room of its node."""
    machine = waiting()
    machine.here.capacity.limit = limit
    run = started(machine, 60.0).run
    turn(machine, RunStarted(JOB, run, 7), boot=60.1)
    return machine, run


def test_while_it_is_being_killed_it_still_takes_its_room() -> None:
    machine, _ = busy()

    turn(machine, LOST, boot=61.0)

    assert not machine.here.capacity.admits(JobName("other"))


def test_a_run_that_is_stopped_by_order_gives_its_room_back() -> None:
    machine, run = busy()
    machine.order(intent("stopped"))
    turn(machine, boot=61.0)

    turn(machine, ended(run, cause="stop", exit_code=None), boot=62.0)

    assert machine.here.capacity.admits(JobName("other"))


def test_a_claim_that_goes_with_its_lease_gives_its_room_back() -> None:
    machine = waiting()
    machine.here.capacity.limit = 1
    assert of(ClaimTick, turn(machine, boot=60.0))

    turn(machine, LOST, boot=60.1)

    assert machine.here.capacity.admits(JobName("other"))


def test_the_end_of_the_own_run_makes_room_for_the_own_next_one() -> None:
    machine = waiting(minutely(overlap=Overlap.QUEUE))
    machine.here.capacity.limit = 1
    run = started(machine, 60.0).run
    turn(machine, boot=120.0)

    assert of(ClaimTick, turn(machine, ended(run), boot=121.0))


# Attempts


def test_a_rerun_takes_away_none_of_the_retries() -> None:
    machine, _ = taken_over(
        minutely(on_lost=OnLost.RERUN, retries=RetrySpec(count=1, delay_s=5.0)),
        70.0,
        last_tick_ms=server_ms(60),
        open=(open_run(60.0),),
    )

    record = only(RecordRun, failed(machine, started(machine, 70.0).run, 71.0))

    assert json.loads(record.mark)["rerun"] is False


def test_a_late_refusal_of_the_first_attempt_does_not_take_the_next_one_away() -> None:
    machine = waiting(minutely(retries=RetrySpec(count=1, delay_s=0.5)))
    first = only(ClaimTick, turn(machine, boot=60.0))
    list(machine.beat(at(60.1)))
    repeated = only(ClaimTick, turn(machine, boot=60.1))
    run = only(StartRun, turn(machine, claimed(first), boot=60.2)).run
    failed(machine, run, 60.3)
    retry = only(ClaimTick, turn(machine, boot=60.8))

    turn(machine, refused(repeated, "duplicate", last_tick_ms=server_ms(60)), boot=60.9)

    assert only(StartRun, turn(machine, claimed(retry), boot=61.0)).run == f"{RUN}.2"


def test_another_attempt_is_not_made_early_by_a_node_whose_clock_is_a_second_behind() -> None:
    spec = minutely(retries=RetrySpec(count=1, delay_s=30.0, max_delay_s=30.0))
    machine, _ = taken_over(spec, 61.0, last_tick_ms=server_ms(60), open=(open_run(60.0, retry_at=92.0),))

    assert machine.next_deadline(at(61.0)) > 91.0
    assert of(ClaimTick, turn(machine, boot=61.0)) == []


def test_an_ordered_run_that_never_started_because_its_node_leaves_is_left_to_another_node() -> None:
    machine = waiting()
    claim = only(ClaimTick, ordered(machine, trigger(5.0), boot=5.1))
    run = only(StartRun, turn(machine, claimed(claim), boot=5.2)).run
    machine.here.urgency = 0
    turn(machine, boot=5.3)

    record = only(RecordRun, turn(machine, never_started(run), boot=5.4))

    assert record.mark
    assert json.loads(record.mark)["rerun"] is True


def test_two_lost_runs_are_run_again_one_after_the_other_where_only_one_may_run() -> None:
    machine, _ = taken_over(
        minutely(on_lost=OnLost.RERUN), 130.0, last_tick_ms=server_ms(120), open=(open_run(60.0), open_run(120.0))
    )

    started(machine, 130.0)

    assert of(ClaimTick, turn(machine, boot=130.1)) == []


# A queue


def test_what_waited_for_a_run_on_a_node_that_died_is_not_late_for_that() -> None:
    spec = minutely(overlap=Overlap.QUEUE, misfire_grace_s=30.0, schedule=cron().schedule)
    machine, _ = taken_over(spec, 165.0, last_tick_ms=server_ms(60), open=(open_run(60.0),))

    assert only(ClaimTick, turn(machine, boot=165.0)).tick_ms == server_ms(120)


def test_where_nothing_is_due_nothing_waits() -> None:
    machine = waiting(minutely(overlap=Overlap.QUEUE, retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)

    turn(machine, boot=63.0)

    assert machine.cron is not None
    assert machine.cron.waits == ""


# Failures in a row


def test_an_attempt_that_is_given_up_counts_as_a_failed_tick_for_the_next_holder_too() -> None:
    world = World(cron(lease=LeaseTiming.scaled(60.0), overlap=Overlap.REPLACE, retries=RetrySpec(1, delay_s=90.0)))
    world.wait(61.0)
    world.end(0, "fail")

    world.wait(60.0)

    assert world.starts.keys() == {RUN, "beat@2027-01-15T08:02:00.000Z"}
    assert world.store._ticks("beat").failures == 1


# Orders


def test_an_order_that_is_refused_where_every_node_runs_one_does_not_end_the_ticks() -> None:
    machine = job(cron(scope=Scope.NODE))
    turn(machine)
    run = only(StartRun, turn(machine, boot=60.0)).run
    ordered(machine, trigger(61.0), boot=61.0)

    turn(machine, ended(run), boot=62.0)

    assert of(StartRun, turn(machine, boot=120.0))


# The whole node


def paused_by_failure() -> tuple[Node, GiveOrder]:
    """Return a node whose cron just ordered its own pause, with its state published."""
    machine = joined(node(minutely(pause_after_failures=1)))
    actions = told(machine, ABSENT)
    actions = told(machine, granted(0.0, last_tick_ms=server_ms(0)))
    told(machine, *(StatePublished(JOB, was_ours=True, asked_at=0.0) for _ in of(PublishState, actions)))
    claim = only(ClaimTick, told(machine, boot=60.0))
    start = only(StartRun, told(machine, members(asked_at=60.0), claimed(claim), boot=60.0))
    actions = told(machine, ended(start.run, exit_code=1), boot=61.0)
    told(machine, *(StatePublished(JOB, was_ours=True, asked_at=61.0) for _ in of(PublishState, actions)))
    return machine, only(GiveOrder, actions)


def test_the_pause_of_a_failing_job_is_ordered_again_where_the_store_did_not_answer() -> None:
    machine, order = paused_by_failure()
    assert of(GiveOrder, told(machine, StoreSilent(order, "timeout"), boot=62.0)) == []

    beat = told(machine, boot=64.0)
    renewed = LeaseRenewed(JOB, TOKEN, server_ms(64), put_back=False, asked_at=64.0)
    answered = told(machine, renewed, boot=64.1)

    assert of(GiveOrder, [*beat, *answered])


def test_a_job_that_waits_for_room_starts_when_the_one_before_it_is_stopped() -> None:
    names = [JobName("first"), JobName("second")]
    specs = [minutely(name=name, job=name, key=name) for name in names]
    machine = node(*specs)
    machine._here.capacity.limit = 1
    told(machine)
    told(machine, members(), *(replace(met(0.0), bucket=spec.bucket) for spec in specs))
    for name in names:
        told(machine, replace(ABSENT, job=name))
        told(machine, replace(granted(0.0, last_tick_ms=server_ms(0)), job=name))
    claim = only(ClaimTick, told(machine, boot=60.0))
    start = only(StartRun, told(machine, claimed(claim), boot=60.0))
    machine.jobs[names[0]].order(intent("stopped"))
    told(machine, RunStarted(names[0], start.run, 7), boot=60.5)

    actions = told(machine, replace(ended(start.run, cause="stop", exit_code=None), job=names[0]), boot=61.0)

    assert only(ClaimTick, actions).job == "second"
