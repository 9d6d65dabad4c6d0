"""Crons without instants of their own: those that run after another job, and those that run on every node."""

import json

import pytest

from orchestrator.core.answers import SuccessesSeen
from orchestrator.core.here import Here
from orchestrator.core.job import Job
from orchestrator.core.messages import Nudged, RunStarted, Say, StartRun
from orchestrator.core.nouns import JobName, NodeName, Token
from orchestrator.core.requests import ClaimTick, LookAtSuccesses, RecordRun, SettleTicks
from orchestrator.core.spec import Misfire, OnLost, Overlap, RetrySpec, ScheduleSpec, Scope
from tests.core.house import (
    ABSENT,
    JOB,
    at,
    claimed,
    cron,
    ended,
    failed,
    granted,
    job,
    minutely,
    never_started,
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

AFTER_EXPORT = minutely(schedule=ScheduleSpec(after="export"))


def seen(*successes_at: float) -> SuccessesSeen:
    return SuccessesSeen(JOB, tuple(map(server_ms, successes_at)), asked_at=0.0)


# After another job: who waits


def test_who_runs_after_another_job_asks_for_its_successes_with_the_lease_and_with_each_heartbeat() -> None:
    machine = job(AFTER_EXPORT)
    turn(machine, ABSENT)

    first = only(LookAtSuccesses, machine.handle(granted(0.0, last_tick_ms=server_ms(0)), at(0.0)))
    second = only(LookAtSuccesses, machine.beat(at(3.0)))

    assert (first.job, first.key, first.after_ms) == (JOB, "export", server_ms(0))
    assert (second.key, second.asked_at) == ("export", 3.0)


def test_it_asks_at_once_when_it_is_told_that_there_may_be_one() -> None:
    assert only(LookAtSuccesses, waiting(AFTER_EXPORT).handle(Nudged(JOB), at(5.0))).asked_at == 5.0


def test_nobody_else_asks() -> None:
    machine = waiting()

    assert of(LookAtSuccesses, [*machine.handle(Nudged(JOB), at(5.0)), *machine.beat(at(6.0))]) == []


def test_it_asks_under_the_key_that_the_file_gives_the_other_job() -> None:
    machine = waiting(AFTER_EXPORT)
    machine.here.key_of = {"export": "export-v2"}.__getitem__

    assert only(LookAtSuccesses, machine.beat(at(3.0))).key == "export-v2"


def test_it_is_never_due_by_itself() -> None:
    assert waiting(AFTER_EXPORT).next_deadline(at(1e6)) == float("inf")


def test_each_success_is_a_tick_that_is_claimed_as_any() -> None:
    machine = waiting(AFTER_EXPORT)

    claim = only(ClaimTick, turn(machine, seen(5.25), boot=5.5))
    start = only(StartRun, turn(machine, claimed(claim), boot=5.6))

    assert (claim.tick_ms, claim.run) == (server_ms(5.25), "beat@2027-01-15T08:00:05.250Z")
    assert (start.env["ORCHESTRATOR_REASON"], start.env["ORCHESTRATOR_TICK"]) == ("after", "2027-01-15T08:00:05.250Z")


def test_a_success_that_is_told_again_runs_nothing_again() -> None:
    machine = waiting(AFTER_EXPORT)
    claim = only(ClaimTick, turn(machine, seen(5.0), boot=5.5))
    run = only(StartRun, turn(machine, claimed(claim), boot=5.6)).run
    turn(machine, ended(run), boot=6.0)

    assert turn(machine, seen(5.0), boot=7.0) == []
    assert only(LookAtSuccesses, machine.beat(at(9.0))).after_ms == server_ms(5)


def test_a_success_by_a_server_whose_clock_is_ahead_waits_for_the_own_one() -> None:
    machine = waiting(AFTER_EXPORT)

    assert turn(machine, seen(6.0), boot=5.5) == []
    assert machine.next_deadline(at(5.5)) == pytest.approx(6.0)


def test_several_successes_are_ticks_for_misfire_and_overlap() -> None:
    machine = waiting(AFTER_EXPORT)

    ask = only(SettleTicks, turn(machine, seen(5.0, 6.0, 7.0), boot=7.5))
    claim = only(ClaimTick, turn(machine, settled(ask), boot=7.5))
    turn(machine, claimed(claim), boot=7.6)
    skipped = only(SettleTicks, turn(machine, seen(8.0), boot=8.5))

    assert (ask.count, ask.what, claim.tick_ms) == (2, "missed", server_ms(7))
    assert (skipped.what, skipped.until_ms) == ("skipped", server_ms(8))


# After another job: who is waited for


@pytest.mark.parametrize(("exit_code", "told"), [(0, ("mail", "report")), (1, ())], ids=["a success", "a failure"])
def test_those_that_run_after_a_job_are_nudged_by_its_successes_only(exit_code: int, told: tuple[str, ...]) -> None:
    machine = waiting()
    machine.here.followers = {"beat": (JobName("mail"), JobName("report"))}.__getitem__
    run = started(machine, 60.0).run

    assert only(RecordRun, turn(machine, ended(run, exit_code=exit_code), boot=61.0)).success_of == told


def test_a_success_of_another_attempt_or_of_an_ordered_run_is_one_too() -> None:
    machine = waiting(minutely(retries=RetrySpec(count=1, delay_s=1.0)))
    machine.here.followers = {"beat": (JobName("mail"),)}.__getitem__
    failed(machine, started(machine, 60.0).run, 61.0)

    assert only(RecordRun, turn(machine, ended(started(machine, 62.0).run), boot=63.0)).success_of == ("mail",)


# On every node: without the store


def everywhere(**changes: object) -> Job:
    """Return a cron that runs on every node, of a node that cannot reach Redis."""
    here = Here(NodeName("a"), "a1", silence="no route to host")
    machine = Job(cron(scope=Scope.NODE, **changes), here, server(met_at=None), Token(0))
    assert turn(machine) == []
    return machine


def asked(actions: list[object]) -> list[object]:
    """Return what would be asked of the store: all of that knows when it was asked."""
    return [action for action in actions if hasattr(action, "asked_at")]


def test_a_tick_is_started_at_once() -> None:
    machine = everywhere()

    start = only(StartRun, turn(machine, boot=60.0))

    assert start.run == "beat@2027-01-15T08:01:00.000Z"
    assert (start.deadlines, "ORCHESTRATOR_FENCING_TOKEN" in start.env) == (None, False)


def test_none_of_the_past_runs() -> None:
    machine = everywhere()

    assert machine.next_deadline(at(30.0)) == pytest.approx(60.0)


def test_a_tick_during_a_run_is_skipped_and_said() -> None:
    machine = everywhere()
    turn(machine, boot=60.0)

    told = only(Say, turn(machine, boot=120.0))

    assert told.event == "tick.skipped"
    assert str(told.fields["why"]).endswith("still runs (overlap: skip)")
    assert machine.next_deadline(at(120.0)) == pytest.approx(180.0)


def test_after_a_long_sleep_the_newest_runs_and_the_others_are_said() -> None:
    machine = everywhere()

    actions = turn(machine, boot=3600.0)

    assert said(actions) == ["tick.missed", "tick.missed"]
    assert only(StartRun, actions).env["ORCHESTRATOR_REASON"] == "catch_up"


def test_a_failed_run_is_tried_again_here() -> None:
    machine = everywhere(retries=RetrySpec(count=1, delay_s=10.0))
    run = only(StartRun, turn(machine, boot=60.0)).run

    failed(machine, run, 61.0)

    assert only(StartRun, turn(machine, boot=71.0)).run == f"{run}.2"


def test_a_stopped_one_goes_on_with_the_ticks_after_its_start() -> None:
    machine = everywhere()
    machine.here.urgency = 0
    turn(machine, boot=30.0)
    assert machine.idle

    machine.here.urgency = None
    turn(machine, boot=150.0)

    assert machine.next_deadline(at(150.0)) == pytest.approx(180.0)


@pytest.mark.parametrize("overlap", list(Overlap))
@pytest.mark.parametrize("misfire", list(Misfire))
def test_redis_is_never_asked(misfire: Misfire, overlap: Overlap) -> None:
    spec = {"misfire": misfire, "overlap": overlap, "on_lost": OnLost.RERUN, "pause_after_failures": 1}
    machine = everywhere(retries=RetrySpec(count=1, delay_s=5.0), **spec)
    told: list[object] = []

    for boot in (60.0, 120.0, 121.0, 500.0):
        actions = turn(machine, boot=boot)
        for start in of(StartRun, actions):
            actions += turn(machine, RunStarted(JOB, start.run, 7), boot=boot)
            actions += failed(machine, start.run, boot + 1)
        told += [*actions, *machine.beat(at(boot + 2))]
    told += turn(machine, *(never_started(run) for run in machine.runs), boot=501.0)

    assert asked(told) == []
    assert of(Say, told)


def test_it_is_told_nothing_of_its_ends_but_what_this_node_shows() -> None:
    machine = everywhere()
    run = only(StartRun, turn(machine, boot=60.0)).run

    turn(machine, ended(run, exit_code=3), boot=61.0)

    assert machine.last is not None
    assert json.loads(json.dumps(machine.last))["exit_code"] == 3
