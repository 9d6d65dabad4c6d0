"""What becomes of a tick while a run of its job goes on, or is to be tried again, or the node has no room for it."""

import json

import pytest

from orchestrator.core.here import Here
from orchestrator.core.job import Job
from orchestrator.core.messages import RunStarted, StartRun, StopRun
from orchestrator.core.nouns import JobName, NodeName, RunId, Token
from orchestrator.core.requests import ClaimTick, RecordRun, SettleTicks
from orchestrator.core.spec import JobSpec, Misfire, Overlap, RetrySpec, StopSpec
from tests.core.house import (
    ABSENT,
    RETRIED,
    at,
    claimed,
    ended,
    failed,
    granted,
    minutely,
    of,
    only,
    said,
    server,
    server_ms,
    settled,
    started,
    turn,
    waiting,
)

LONG = RetrySpec(count=3, delay_s=90.0, backoff=1.0)


def running(spec: JobSpec) -> tuple[Job, RunId]:
    """Return a cron whose tick of the first minute runs."""
    machine = waiting(spec)
    return machine, started(machine, 60.0).run


def to_be_retried(overlap: Overlap, **changes: object) -> Job:
    """Return a cron whose tick of the first minute failed at 62 s and is to be tried again at 152 s."""
    machine, run = running(minutely(overlap=overlap, retries=LONG, **changes))
    failed(machine, run, 62.0)
    return machine


def waits(machine: Job) -> str:
    assert machine.cron is not None
    return machine.cron.waits


# skip


def test_by_default_a_tick_is_skipped_while_a_run_goes_on() -> None:
    machine, run = running(minutely())

    ask = only(SettleTicks, turn(machine, boot=120.0))

    assert (ask.what, ask.count, ask.until_ms) == ("skipped", 1, server_ms(120))
    assert json.loads(ask.record)["why"] == f"{run} still runs (overlap: skip)"
    assert said(turn(machine, settled(ask), boot=120.1)) == ["tick.skipped"]


def test_each_tick_of_a_long_run_is_skipped_by_itself() -> None:
    machine, _ = running(minutely())

    for boot in (120.0, 180.0, 240.0):
        ask = only(SettleTicks, turn(machine, boot=boot))
        assert ask.until_ms == server_ms(boot)
        assert of(ClaimTick, turn(machine, settled(ask), boot=boot)) == []


def test_the_tick_after_the_end_runs() -> None:
    machine, run = running(minutely())
    turn(machine, settled(only(SettleTicks, turn(machine, boot=120.0))), boot=120.1)

    turn(machine, ended(run), boot=121.0)

    assert of(ClaimTick, turn(machine, boot=121.0)) == []
    assert only(ClaimTick, turn(machine, boot=180.0)).tick_ms == server_ms(180)


def test_of_late_ticks_during_a_run_all_but_the_newest_are_missed_and_that_one_is_skipped() -> None:
    machine, _ = running(minutely())

    older = only(SettleTicks, turn(machine, boot=250.0))
    newest = only(SettleTicks, turn(machine, settled(older), boot=250.0))

    assert (older.what, older.count) == ("missed", 2)
    assert (newest.what, newest.count) == ("skipped", 1)


def test_a_wait_for_another_attempt_is_in_the_way_as_a_run_is() -> None:
    machine = to_be_retried(Overlap.SKIP)

    ask = only(SettleTicks, turn(machine, boot=120.0))

    assert json.loads(ask.record)["why"] == "beat@2027-01-15T08:01:00.000Z is to be tried again (overlap: skip)"


def test_where_all_late_ticks_run_a_late_one_waits_for_the_run_before_it() -> None:
    machine = waiting(minutely(misfire=Misfire.ALL))
    first = started(machine, 250.0)

    assert turn(machine, boot=251.0) == []
    assert waits(machine) == f"{first.run} still runs (overlap: skip)"

    turn(machine, ended(first.run), boot=300.0)
    assert machine.cron is not None
    assert machine.cron.step is not None


# queue


def test_queued_ticks_are_not_claimed_until_the_run_ends() -> None:
    machine, run = running(minutely(overlap=Overlap.QUEUE))

    assert turn(machine, boot=120.0) == []
    assert waits(machine) == f"{run} still runs (overlap: queue)"

    claim = only(ClaimTick, turn(machine, ended(run), boot=125.0))
    assert claim.tick_ms == server_ms(120)


@pytest.mark.parametrize(
    ("misfire", "ran", "missed"),
    [(Misfire.ONCE, [300], 3), (Misfire.SKIP, [300], 3), (Misfire.ALL, [120, 180, 240, 300], 0)],
)
def test_of_several_that_waited_misfire_says_which_run(misfire: Misfire, ran: list[int], missed: int) -> None:
    machine, run = running(minutely(overlap=Overlap.QUEUE, misfire=misfire))
    list(machine.handle(ended(run), at(310.0)))
    claimed_at, settled_count = [], 0

    while actions := turn(machine, boot=310.0):
        for ask in of(SettleTicks, actions):
            settled_count += ask.count
            list(machine.handle(settled(ask), at(310.0)))
        for claim in of(ClaimTick, actions):
            claimed_at.append(claim.tick_ms)
            start = only(StartRun, turn(machine, claimed(claim), boot=310.0))
            list(machine.handle(ended(start.run), at(310.0)))

    assert (claimed_at, settled_count) == ([server_ms(boot) for boot in ran], missed)


def test_a_tick_that_waited_for_longer_than_its_grace_is_not_late_for_that() -> None:
    machine, run = running(minutely(overlap=Overlap.QUEUE, misfire_grace_s=30.0))

    claim = only(ClaimTick, turn(machine, ended(run), boot=175.0))

    assert claim.tick_ms == server_ms(120)


def test_what_waited_through_two_runs_is_not_late_either() -> None:
    machine, run = running(minutely(overlap=Overlap.QUEUE, misfire=Misfire.ALL, misfire_grace_s=30.0))
    claim = only(ClaimTick, turn(machine, ended(run), boot=190.0))
    second = only(StartRun, turn(machine, claimed(claim), boot=190.0))

    assert only(ClaimTick, turn(machine, ended(second.run), boot=235.0)).tick_ms == server_ms(180)


def test_once_the_queue_is_empty_lateness_counts_again() -> None:
    machine, run = running(minutely(overlap=Overlap.QUEUE, misfire_grace_s=30.0))
    turn(machine, ended(run), boot=70.0)

    assert only(SettleTicks, turn(machine, boot=155.0)).what == "missed"


def test_a_tick_waits_for_another_attempt_too() -> None:
    machine = to_be_retried(Overlap.QUEUE)

    assert turn(machine, boot=120.0) == []
    retry = only(ClaimTick, turn(machine, boot=152.0))
    start = only(StartRun, turn(machine, claimed(retry), boot=152.0))

    assert only(ClaimTick, turn(machine, ended(start.run), boot=160.0)).tick_ms == server_ms(120)


def test_a_tick_that_waits_does_not_keep_the_next_attempt_from_being_made() -> None:
    machine = to_be_retried(Overlap.QUEUE)
    turn(machine, boot=120.0)

    assert machine.next_deadline(at(120.0)) == pytest.approx(152.0)


# replace


def test_the_run_is_stopped_and_then_the_tick_is_claimed() -> None:
    machine, run = running(minutely(overlap=Overlap.REPLACE, stop=StopSpec(timeout_s=7.0)))

    stop = only(StopRun, turn(machine, boot=120.0))
    assert (stop.run, stop.grace_s, stop.failure) == (run, 7.0, False)
    assert stop.why == "replaced by the tick 2027-01-15T08:02:00.000Z"
    assert turn(machine, boot=121.0) == []

    assert only(ClaimTick, turn(machine, ended(run, cause="stop"), boot=122.0)).tick_ms == server_ms(120)


def test_if_the_stop_takes_long_the_newest_tick_is_claimed() -> None:
    machine, run = running(minutely(overlap=Overlap.REPLACE))
    turn(machine, boot=120.0)

    older = only(SettleTicks, turn(machine, ended(run, cause="stop"), boot=185.0))

    assert (older.what, older.count) == ("missed", 1)
    assert only(ClaimTick, turn(machine, settled(older), boot=185.0)).tick_ms == server_ms(180)


def test_a_run_that_was_replaced_is_told_as_stopped_and_not_tried_again() -> None:
    machine, run = running(minutely(overlap=Overlap.REPLACE, retries=RETRIED))
    turn(machine, RunStarted(machine.spec.name, run, 7), boot=61.0)
    turn(machine, boot=120.0)

    record = only(RecordRun, turn(machine, ended(run, cause="stop", exit_code=None), boot=122.0))

    assert json.loads(record.record)["outcome"] == "stopped"
    assert record.mark == ""


def test_what_was_to_be_tried_again_is_given_up_for_the_newer_tick() -> None:
    machine = to_be_retried(Overlap.REPLACE)

    actions = turn(machine, boot=120.0)

    record = only(RecordRun, actions)
    assert said(actions) == ["retry.dropped"]
    assert (record.mark, record.witness, record.failures) == ("", False, 1)
    assert machine.next_deadline(at(120.0)) == 120.0
    assert only(ClaimTick, turn(machine, boot=120.0)).tick_ms == server_ms(120)


# allow


def test_as_many_run_at_once_as_max_instances_says_and_no_more() -> None:
    machine = waiting(minutely(overlap=Overlap.ALLOW, max_instances=2))
    first, second = started(machine, 60.0), started(machine, 120.0)

    ask = only(SettleTicks, turn(machine, boot=180.0))

    assert set(machine.runs) == {first.run, second.run}
    assert json.loads(ask.record)["why"] == "2 runs go on (max_instances)"


def test_runs_that_are_alive_at_once_have_lanes_of_their_own() -> None:
    machine = waiting(minutely(overlap=Overlap.ALLOW, max_instances=3))
    starts = [started(machine, boot) for boot in (60.0, 120.0)]
    turn(machine, ended(starts[0].run), boot=130.0)
    starts += [started(machine, boot) for boot in (180.0, 240.0)]

    assert [start.lane for start in starts] == [0, 1, 0, 2]


def test_a_wait_for_another_attempt_takes_a_place() -> None:
    machine = to_be_retried(Overlap.ALLOW, max_instances=1)

    assert only(SettleTicks, turn(machine, boot=120.0)).what == "skipped"


def test_each_of_several_runs_ends_by_itself() -> None:
    machine = waiting(minutely(overlap=Overlap.ALLOW))
    first, second = started(machine, 60.0), started(machine, 120.0)

    record = only(RecordRun, turn(machine, ended(second.run), boot=130.0))

    assert record.run == second.run
    assert list(machine.runs) == [first.run]


# max_running: no room on this node


def two_jobs(limit: int, **changes: object) -> tuple[Job, Job]:
    """Return two crons of one node that hold their leases."""
    here = Here(NodeName("a"), "a1", member=True)
    here.capacity.limit = limit
    jobs = []
    for name in ("first", "second"):
        machine = Job(minutely(name=JobName(name), job=name, key=name, **changes), here, server(), Token(0))
        turn(machine, ABSENT)
        turn(machine, granted(0.0, last_tick_ms=server_ms(0)))
        jobs.append(machine)
    return jobs[0], jobs[1]


def test_a_start_that_finds_no_room_is_not_claimed_and_its_tick_stays_due() -> None:
    first, second = two_jobs(1)
    run = started(first, 60.0).run

    assert turn(second, boot=60.0) == []
    assert waits(second) == "max_running: 1 runs of cron jobs on this node"
    assert second.next_deadline(at(60.0)) == float("inf")

    turn(first, ended(run), boot=70.0)
    assert second.here.capacity.turn() == ["second"]
    assert only(ClaimTick, turn(second, boot=70.0)).tick_ms == server_ms(60)


def test_a_claim_takes_room_before_its_run_is_started() -> None:
    first, second = two_jobs(1)

    assert of(ClaimTick, turn(first, boot=60.0))
    assert turn(second, boot=60.0) == []


def test_a_tick_that_waited_for_room_is_late_as_misfire_says() -> None:
    first, second = two_jobs(1)
    run = started(first, 60.0).run
    turn(second, boot=60.0)

    turn(first, ended(run), boot=700.0)

    assert only(SettleTicks, turn(second, boot=700.0)).what == "missed"


def test_settling_needs_no_room() -> None:
    first, second = two_jobs(1)
    started(first, 60.0)
    turn(second, boot=60.0)

    assert only(SettleTicks, turn(second, boot=700.0)).what == "missed"


def test_another_attempt_needs_room_too() -> None:
    first, second = two_jobs(1, retries=RETRIED)
    run = started(first, 60.0).run
    turn(first, ended(run, exit_code=1), boot=61.0)
    started(second, 61.0)

    assert of(ClaimTick, turn(first, boot=95.0)) == []
    assert waits(first).startswith("max_running")
