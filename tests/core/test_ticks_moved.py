"""What moves and bounds the ticks of `core/ticks.py`: jitter, `not_before`, `not_after`, another job's successes."""

from dataclasses import replace

import pytest

from orchestrator.core.schedule import jitter_of
from orchestrator.core.spec import ScheduleSpec
from orchestrator.core.ticks import DueTick
from tests.core.house import UTC, at, cron, due, look, server_ms, ticks

# Rule 5: jitter

JITTER_S = jitter_of("beat", 40.0)


def test_with_jitter_a_tick_is_due_later_and_keeps_its_name() -> None:
    planned = ticks(jitter_s=40.0)

    assert 0 < JITTER_S < 40
    assert planned.next == UTC + 60 + JITTER_S
    assert planned.look(at(60 + JITTER_S - 0.001)) is None
    assert planned.look(at(60 + JITTER_S + 0.001)) == DueTick(UTC + 60, late=False)


@pytest.mark.parametrize(("after_s", "late"), [(14.9, False), (15.1, True)], ids=["within a ttl", "later"])
def test_lateness_is_counted_from_the_jittered_instant(after_s: float, late: bool) -> None:
    found = look(ticks(jitter_s=40.0), 60 + JITTER_S + after_s)[1]

    assert found == DueTick(UTC + 60, late=late)


def test_the_grace_is_counted_from_the_jittered_instant() -> None:
    planned = ticks(jitter_s=40.0, misfire_grace_s=30.0)

    assert due(planned, 60 + JITTER_S + 29.9) == 60
    assert due(planned, 60 + JITTER_S + 30.1) is None


def test_a_tick_that_became_due_during_a_run_waited_for_it_though_it_bears_an_earlier_name() -> None:
    planned = ticks(jitter_s=40.0, misfire_grace_s=30.0)

    assert due(planned, 110.0, waited_from=62.0) == 60


def test_what_was_not_due_yet_when_the_job_went_on_is_not_skipped() -> None:
    planned = ticks(jitter_s=40.0)

    assert planned.in_span(at(70.0), server_ms(60 + JITTER_S - 0.1), "it was paused") is None
    assert planned.in_span(at(99.0), server_ms(60 + JITTER_S + 0.1), "it was paused") is not None


@pytest.mark.parametrize(("before_s", "after_s"), [(0.0, 40.0), (40.0, 0.0)], ids=["longer", "shorter"])
def test_another_jitter_counts_at_once(before_s: float, after_s: float) -> None:
    planned = ticks(jitter_s=before_s)

    planned.redefine(cron(jitter_s=after_s))

    assert planned.next == UTC + 60 + jitter_of("beat", after_s)


# What the schedule bounds


def test_nothing_is_due_before_not_before_and_what_lies_before_is_not_missed() -> None:
    spec = ScheduleSpec(every_s=60.0, not_before_utc=UTC + 300)
    planned = ticks(schedule=spec)

    assert planned.next == UTC + 300
    assert look(planned, 301.0) == ([], DueTick(UTC + 300, late=False))


def test_nothing_is_due_after_not_after() -> None:
    planned = ticks(schedule=ScheduleSpec(every_s=60.0, not_after_utc=UTC + 119))

    assert due(planned, 70.0) == 60
    planned.on_claimed(at(70.0), server_ms(60))

    assert planned.next is None
    assert planned.look(at(1e6)) is None


# After another job: its successes are the ticks


def test_each_success_of_another_job_is_a_tick() -> None:
    planned = ticks(schedule=ScheduleSpec(after="export"))
    assert planned.next is None
    assert planned.successes is not None

    planned.successes.tell([server_ms(5.25)])
    planned.plan(at(6.0))

    assert look(planned, 6.0) == ([], DueTick(UTC + 5.25, late=False))


def test_successes_while_nobody_held_the_lease_are_late_as_ticks_are() -> None:
    planned = ticks(schedule=ScheduleSpec(after="export"))
    assert planned.successes is not None
    planned.successes.tell([server_ms(5), server_ms(50), server_ms(90)])
    planned.plan(at(200.0))

    passed, found = look(planned, 200.0)

    assert [(span.first - UTC, span.last - UTC, span.count) for span in passed] == [(5, 50, 2)]
    assert found == DueTick(UTC + 90, late=True)


def test_a_definition_with_the_same_schedule_keeps_what_is_known() -> None:
    planned = ticks(schedule=ScheduleSpec(after="export"))
    assert planned.successes is not None
    planned.successes.tell([server_ms(5)])

    planned.redefine(replace(cron(schedule=ScheduleSpec(after="export")), timeout_s=9.0))
    planned.plan(at(6.0))

    assert planned.next == UTC + 5
