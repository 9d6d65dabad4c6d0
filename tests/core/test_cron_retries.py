"""What follows a run of a cron that failed or was lost: another attempt, here or wherever the lease goes."""

import json
from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseLost
from orchestrator.core.attempts import NODE_LEAVES
from orchestrator.core.messages import RunStarted, Say, StartRun
from orchestrator.core.nouns import OpenRun
from orchestrator.core.open_runs import parse_mark
from orchestrator.core.requests import ClaimTick, RecordRun, SettleTicks
from orchestrator.core.spec import OnLost, RetrySpec
from tests.core.house import (
    JOB,
    RETRIED,
    TOKEN,
    at,
    claimed,
    ended,
    failed,
    granted,
    intent,
    minutely,
    never_started,
    of,
    only,
    open_run,
    refused,
    said,
    server_ms,
    started,
    taken_over,
    turn,
    waiting,
)

RUN = "beat@2027-01-15T08:01:00.000Z"
LOST = LeaseLost(JOB, TOKEN, "node b holds it", asked_at=60.0)


def kept(record: RecordRun) -> OpenRun | None:
    """Return what the store keeps of a run that is recorded so; None: it is open no more."""
    return parse_mark(record.run, record.mark) if record.mark else None


# A run that failed


def test_a_run_that_failed_is_kept_open_until_it_is_tried_again() -> None:
    machine = waiting(minutely(retries=RETRIED))
    run = started(machine, 60.0).run

    actions = failed(machine, run, 62.0)

    left = kept(only(RecordRun, actions))
    assert left is not None
    assert (left.run, left.retry_ms, left.rerun, left.attempt) == (RUN, server_ms(92), False, 1)
    assert machine.next_deadline(at(62.0)) == pytest.approx(92.0)


def test_that_it_is_tried_again_is_said_with_the_instant() -> None:
    machine = waiting(minutely(retries=RETRIED))

    told = of(Say, failed(machine, started(machine, 60.0).run, 62.0))[-1]

    assert told.event == "run.retries"
    assert told.fields == {"job": JOB, "run": RUN, "attempt": 2, "at": "2027-01-15T08:01:32.000Z"}


def test_the_next_attempt_is_claimed_in_the_place_of_the_one_that_failed() -> None:
    machine = waiting(minutely(retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)
    assert of(ClaimTick, turn(machine, boot=91.9)) == []

    claim = only(ClaimTick, turn(machine, boot=92.0))

    assert (claim.run, claim.instead, claim.tick_ms, claim.order_ms) == (f"{RUN}.2", RUN, server_ms(60), 0)


def test_a_retried_run_knows_its_tick_its_number_and_that_it_is_one() -> None:
    machine = waiting(minutely(retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)

    start = started(machine, 92.0)

    assert start.env["ORCHESTRATOR_TICK"] == "2027-01-15T08:01:00.000Z"
    assert (start.env["ORCHESTRATOR_ATTEMPT"], start.env["ORCHESTRATOR_REASON"]) == ("2", "retry")
    assert not start.last_attempt


def test_it_is_tried_again_as_often_as_said_ever_later() -> None:
    machine = waiting(minutely(retries=RetrySpec(count=3, delay_s=1.0, backoff=3.0, max_delay_s=8.0)))
    boot, waited = 60.0, []

    start = started(machine, boot)
    while machine.cron is not None:
        failed(machine, start.run, boot)
        if not machine.cron.retries:
            break
        waited.append(round(machine.next_deadline(at(boot)) - boot, 1))
        boot += waited[-1]
        start = started(machine, boot)

    assert waited == [1.0, 3.0, 8.0]
    assert (start.run, start.last_attempt) == (f"{RUN}.4", True)


def test_the_last_failure_is_open_no_more_and_counts_as_one() -> None:
    machine = waiting(minutely(retries=RetrySpec(count=1, delay_s=1.0)))
    first = only(RecordRun, failed(machine, started(machine, 60.0).run, 61.0))

    last = only(RecordRun, failed(machine, started(machine, 62.0).run, 63.0))

    assert (first.failures, last.failures) == (None, 1)
    assert kept(last) is None


def test_a_success_ends_it() -> None:
    machine = waiting(minutely(retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)
    run = started(machine, 92.0).run

    record = only(RecordRun, turn(machine, ended(run), boot=93.0))

    assert (record.mark, record.failures) == ("", 0)
    assert machine.next_deadline(at(93.0)) == pytest.approx(120.0)


def test_a_command_that_does_not_exist_is_tried_again_as_any_that_fails() -> None:
    machine = waiting(minutely(retries=RETRIED))
    run = started(machine, 60.0).run

    missing = replace(never_started(run), error="no such file: x", cause="exit")

    assert kept(only(RecordRun, turn(machine, missing, boot=61.0))) is not None


def test_an_attempt_that_somebody_made_already_is_not_made_again() -> None:
    machine = waiting(minutely(retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)
    claim = only(ClaimTick, turn(machine, boot=92.0))

    turn(machine, refused(claim, "duplicate"), boot=92.1)

    assert machine.next_deadline(at(92.1)) == pytest.approx(120.0)
    assert of(ClaimTick, turn(machine, boot=100.0)) == []


def test_a_claim_of_an_attempt_is_repeated_with_the_heartbeat_in_the_same_words() -> None:
    machine = waiting(minutely(retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)
    first = only(ClaimTick, turn(machine, boot=92.0))

    list(machine.beat(at(95.0)))

    assert only(ClaimTick, turn(machine, boot=95.0)) == replace(first, asked_at=95.0)


def test_a_tick_that_is_skipped_beside_it_does_not_forget_it() -> None:
    machine = waiting(minutely(retries=RetrySpec(count=1, delay_s=90.0)))
    failed(machine, started(machine, 60.0).run, 62.0)
    assert only(SettleTicks, turn(machine, boot=120.0)).what == "skipped"
    assert machine.cron is not None
    machine.cron.step = None

    assert only(ClaimTick, turn(machine, boot=152.0)).instead == RUN


def test_where_the_clock_was_set_back_another_attempt_does_not_wait_for_it() -> None:
    machine = waiting(minutely(retries=RETRIED, schedule=None))
    assert machine.cron is not None
    machine.cron.retries[open_run(60.0).run] = open_run(60.0, retry_at=5000.0)

    assert machine.next_deadline(at(100.0)) == 100.0


# Over a failover


@pytest.mark.parametrize(
    ("attempt", "reason", "last"), [(1, "retry", False), (2, "retry", True)], ids=["the second", "the last"]
)
def test_another_node_makes_the_attempt_and_goes_on_counting(attempt: int, reason: str, last: bool) -> None:
    left = open_run(60.0, attempt=attempt, retry_at=150.0)
    machine, actions = taken_over(minutely(retries=RETRIED), 121.0, last_tick_ms=server_ms(120), open=(left,))

    assert of(RecordRun, actions) == []
    assert machine.next_deadline(at(121.0)) == pytest.approx(150.0)
    start = started(machine, 150.0)
    assert (start.run, start.last_attempt) == (f"{RUN}.{attempt + 1}", last)
    assert start.env["ORCHESTRATOR_REASON"] == reason


def test_an_attempt_that_was_due_while_nobody_held_the_lease_is_made_at_once() -> None:
    left = open_run(60.0, retry_at=92.0)
    machine, _ = taken_over(minutely(retries=RETRIED), 119.0, last_tick_ms=server_ms(60), open=(left,))

    assert only(ClaimTick, turn(machine, boot=119.0)).instead == RUN


def test_the_wait_goes_with_the_lease_and_is_left_to_the_next_holder() -> None:
    machine = waiting(minutely(retries=RETRIED))
    failed(machine, started(machine, 60.0).run, 62.0)

    turn(machine, LOST, boot=70.0)

    assert of(ClaimTick, turn(machine, boot=92.0)) == []


def test_what_ends_after_its_lease_was_lost_is_lost_and_not_tried_again_here() -> None:
    machine = waiting(minutely(retries=RETRIED))
    run = started(machine, 60.0).run
    turn(machine, LOST, boot=61.0)

    record = only(RecordRun, turn(machine, ended(run, exit_code=1), boot=61.1))

    assert (json.loads(record.record)["outcome"], record.mark) == ("lost", "")
    assert of(ClaimTick, turn(machine, boot=200.0)) == []


# A run that was lost


@pytest.mark.parametrize(("on_lost", "again"), [(OnLost.SKIP, False), (OnLost.RERUN, True)])
def test_the_run_of_a_node_that_died_is_run_again_where_on_lost_says_so(on_lost: OnLost, again: bool) -> None:
    machine, actions = taken_over(minutely(on_lost=on_lost), 100.0, last_tick_ms=server_ms(60), open=(open_run(60.0),))

    assert (kept(only(RecordRun, actions)) is not None) is again
    claims = of(ClaimTick, turn(machine, boot=100.0))
    assert [(claim.run, claim.instead) for claim in claims] == ([(f"{RUN}.2", RUN)] if again else [])


def test_a_rerun_knows_that_it_is_one() -> None:
    machine, _ = taken_over(minutely(on_lost=OnLost.RERUN), 100.0, last_tick_ms=server_ms(60), open=(open_run(60.0),))

    start = started(machine, 100.0)

    assert (start.env["ORCHESTRATOR_REASON"], start.env["ORCHESTRATOR_ATTEMPT"]) == ("rerun", "2")
    assert start.env["ORCHESTRATOR_FENCING_TOKEN"] == str(TOKEN)


@pytest.mark.parametrize("cause", ["deadline", "killed", "unproven"])
def test_a_run_whose_lease_could_not_be_renewed_is_lost_and_over(cause: str) -> None:
    machine = waiting()
    run = started(machine, 60.0).run
    turn(machine, RunStarted(JOB, run, 7), boot=60.1)
    turn(machine, LOST, boot=61.0)

    record = only(RecordRun, turn(machine, ended(run, cause=cause, exit_code=None), boot=61.1))

    assert (json.loads(record.record)["outcome"], record.mark) == ("lost", "")


def test_a_run_that_never_started_is_run_again_whatever_on_lost_says() -> None:
    machine = waiting()
    run = started(machine, 60.0).run

    actions = turn(machine, never_started(run), boot=61.0)

    left = kept(only(RecordRun, actions))
    assert left is not None
    assert left.rerun
    assert {"tick.lost", "run.reruns"} <= set(said(actions))


def test_a_run_that_is_cut_off_because_its_node_leaves_is_run_again_where_on_lost_says_so() -> None:
    machine = waiting(minutely(on_lost=OnLost.RERUN))
    run = started(machine, 60.0).run
    turn(machine, RunStarted(JOB, run, 7), boot=60.1)
    machine.here.urgency = 1
    turn(machine, boot=61.0)
    assert machine.runs[run].stop_why == NODE_LEAVES

    record = only(RecordRun, turn(machine, ended(run, cause="stop", exit_code=None), boot=62.0))

    left = kept(record)
    assert left is not None
    assert left.rerun


@pytest.mark.parametrize("on_lost", list(OnLost))
def test_a_run_that_was_stopped_by_order_is_not_run_again(on_lost: OnLost) -> None:
    machine = waiting(minutely(on_lost=on_lost, retries=RETRIED))
    run = started(machine, 60.0).run
    turn(machine, RunStarted(JOB, run, 7), boot=60.1)
    machine.order(intent("stopped"))
    turn(machine, boot=61.0)

    record = only(RecordRun, turn(machine, ended(run, cause="stop", exit_code=None), boot=62.0))

    assert (json.loads(record.record)["outcome"], record.mark) == ("stopped", "")


def test_a_lost_run_is_no_failure_of_its_tick() -> None:
    machine = waiting()
    run = started(machine, 60.0).run
    turn(machine, RunStarted(JOB, run, 7), boot=60.1)

    record = only(RecordRun, turn(machine, ended(run, cause="unproven", exit_code=None), boot=61.0))

    assert record.failures is None


def test_several_runs_that_were_lost_are_each_told() -> None:
    left = (open_run(60.0), open_run(120.0), open_run(180.0, retry_at=250.0))

    machine, actions = taken_over(minutely(retries=RETRIED), 200.0, last_tick_ms=server_ms(180), open=left)

    assert [record.run for record in of(RecordRun, actions)] == [left[0].run, left[1].run]
    assert machine.next_deadline(at(200.0)) == pytest.approx(240.0)


def test_a_run_that_goes_on_here_is_not_taken_for_lost() -> None:
    machine = waiting()
    start = started(machine, 60.0)
    assert machine.cron is not None
    mine = replace(open_run(60.0), run=start.run)

    grant = replace(granted(61.0, last_tick_ms=server_ms(60)), open=(mine,))

    assert said(machine.cron.begin(grant, at(61.0), 0, 0)) == []


def test_a_claim_that_is_granted_again_starts_nothing_twice() -> None:
    machine = waiting()
    claim = only(ClaimTick, turn(machine, boot=60.0))

    assert len(of(StartRun, turn(machine, claimed(claim), claimed(claim), boot=60.1))) == 1
