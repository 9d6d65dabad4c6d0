"""What a pause, a file that disables, and late ticks that all run leave alone and take away."""

import json
from dataclasses import replace

import pytest

from orchestrator.core.answers import TicksSettled
from orchestrator.core.messages import StartRun, StopRun
from orchestrator.core.nouns import JobName
from orchestrator.core.reload import Effect, Revision
from orchestrator.core.requests import ClaimTick, RecordRun, SettleTicks
from orchestrator.core.spec import Misfire, OnLost, Overlap
from tests.core.house import (
    JOB,
    RETRIED,
    TOKEN,
    at,
    claimed,
    ended,
    failed,
    intent,
    minutely,
    never_started,
    of,
    only,
    ordered,
    server_ms,
    started,
    trigger,
    turn,
    waiting,
)


def test_an_ordered_run_is_tried_again_though_the_schedule_is_paused() -> None:
    machine = waiting(minutely(retries=RETRIED))
    machine.order(intent("paused"))
    claim = only(ClaimTick, ordered(machine, trigger(5.0), boot=5.1))
    run = only(StartRun, turn(machine, claimed(claim), boot=5.2)).run
    failed(machine, run, 6.0)

    assert machine.next_deadline(at(6.0)) == pytest.approx(36.0)
    assert only(ClaimTick, turn(machine, boot=36.1)).run == f"{run}.2"


def test_what_was_due_while_the_file_disabled_the_job_is_skipped_when_it_is_enabled_again() -> None:
    machine = waiting(minutely(enabled=False, misfire=Misfire.ALL))
    machine.revision = Revision(Effect.APPLIED, minutely(misfire=Misfire.ALL))

    settle = only(SettleTicks, turn(machine, boot=150.0))

    assert (settle.what, settle.count, settle.until_ms) == ("skipped", 2, server_ms(120.0))
    assert "it was disabled in the file" in settle.record


def test_late_ticks_that_all_run_replace_none_of_each_other() -> None:
    machine = waiting(minutely(misfire=Misfire.ALL, overlap=Overlap.REPLACE))
    claim = only(ClaimTick, turn(machine, boot=200.0))
    turn(machine, claimed(claim), boot=200.1)

    assert of(StopRun, turn(machine, boot=200.2)) == []


def test_late_ticks_that_all_run_do_not_lapse_while_those_before_them_run() -> None:
    machine = waiting(minutely(misfire=Misfire.ALL, misfire_grace_s=150.0))
    claim = only(ClaimTick, turn(machine, boot=200.0))
    run = only(StartRun, turn(machine, claimed(claim), boot=200.1)).run

    following = only(ClaimTick, turn(machine, ended(run), boot=290.0))

    assert (claim.tick_ms, following.tick_ms) == (server_ms(60.0), server_ms(120.0))


def test_an_order_from_the_far_future_settles_nothing_that_was_not_due_yet() -> None:
    machine = waiting()
    machine.order(replace(intent("running", at_ms=10**15), off_ms=1))

    settle = only(SettleTicks, turn(machine, boot=130.0))

    assert (settle.count, settle.until_ms) == (2, server_ms(120.0))


# What the attacks found


def test_a_run_that_is_replaced_before_its_command_starts_is_stopped_and_not_run_again() -> None:
    machine = waiting(minutely(overlap=Overlap.REPLACE, on_lost=OnLost.RERUN))
    run = started(machine, 60.0).run
    stop = only(StopRun, turn(machine, boot=120.0))

    actions = turn(machine, never_started(run), boot=120.1)

    record = json.loads(only(RecordRun, actions).record)
    assert (record["outcome"], record["error"]) == ("stopped", stop.why)
    assert only(RecordRun, actions).mark == ""
    assert only(ClaimTick, actions).tick_ms == server_ms(120.0)


def test_a_job_that_waits_for_room_keeps_its_place_when_a_newer_tick_takes_that_of_the_one_it_waits_with() -> None:
    machine = waiting()
    capacity = machine.here.capacity
    capacity.limit = 1
    capacity.hold(JobName("other"), 1)
    turn(machine, boot=60.0)
    assert not capacity.admits(JobName("third"))

    settle = only(SettleTicks, turn(machine, boot=120.0))
    turn(machine, TicksSettled(JOB, TOKEN, settle.until_ms, settle.until_ms, 120.0), boot=120.1)
    capacity.hold(JobName("other"), 0)

    assert capacity.turn() == [JOB]
