"""Which ticks are due and which have passed for good: the rules in the head of `core/ticks.py`, a tick every minute.

What is told here is planning only; that a tick is claimed, and what else is in its way, stands in `test_cron*.py`.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.nouns import Moment
from orchestrator.core.spec import Misfire, ScheduleSpec
from orchestrator.core.ticks import MOST_CATCH_UP, DueTick, Fate, Passed, Ticks
from tests.core.house import UTC, at, cron, due, look, server_ms, ticks

HOUR_MS = 3_600_000


def missed(planned: Ticks, boot: float) -> list[tuple[float, float, int, str]]:
    """Return the spans that are missed: first, last, count, why."""
    passed = look(planned, boot)[0]
    assert all(span.fate is Fate.MISSED for span in passed)
    return [(span.first - UTC, span.last - UTC, span.count, span.why) for span in passed]


# Rule 1: what is settled stays settled


def test_nothing_is_due_before_its_instant() -> None:
    planned = ticks()

    assert planned.next == UTC + 60
    assert planned.look(at(59.999)) is None


def test_a_tick_is_due_at_its_instant_and_bears_its_name() -> None:
    assert ticks().look(at(60.0)) == DueTick(UTC + 60, late=False)
    assert DueTick(UTC + 60, late=False).ms == server_ms(60)


def test_a_tick_stays_due_until_it_is_claimed_or_settled() -> None:
    planned = ticks()

    assert due(planned, 60.0) == due(planned, 61.0) == 60

    planned.on_claimed(at(61.0), server_ms(60))

    assert due(planned, 61.0) is None
    assert planned.next == UTC + 120


def test_ticks_up_to_the_newest_settled_one_are_settled() -> None:
    planned = ticks()

    planned.plan(at(1.0), server_ms(180))

    assert planned.next == UTC + 240


def test_what_is_settled_stays_settled_whatever_is_told_later() -> None:
    planned = ticks()
    planned.plan(at(1.0), server_ms(180))

    planned.plan(at(1.0), server_ms(60))

    assert (planned.settled_ms, planned.next) == (server_ms(180), UTC + 240)


def test_a_wall_clock_set_back_brings_no_tick_again() -> None:
    planned = ticks(settled_at=60.0)

    an_hour_back = Moment(boot=63.0, utc=UTC - 3600)
    planned.plan(an_hour_back)

    assert planned.look(an_hour_back) is None
    assert planned.next == UTC + 120


def test_a_wall_clock_set_forward_makes_the_ticks_between_late() -> None:
    planned = ticks()

    hours_ahead = Moment(boot=1.0, utc=UTC + 3 * 3600)
    passed = planned.look(hours_ahead)

    assert isinstance(passed, Passed)
    assert (passed.count, passed.fate) == (170, Fate.MISSED)
    planned.plan(hours_ahead, passed.until_ms)
    assert isinstance(planned.look(hours_ahead), Passed)


def test_where_nobody_ever_settled_a_tick_only_those_in_the_grace_count() -> None:
    planned = Ticks(cron(misfire_grace_s=100.0))

    planned.plan(at(0.0))

    assert planned.next == UTC - 60


def test_of_an_unsettled_past_that_has_aged_nothing_stays_due_in_the_past() -> None:
    planned = Ticks(cron(misfire_grace_s=30.0))
    planned.plan(at(65.0))

    assert planned.look(at(95.0)) is None
    assert planned.next == UTC + 120


def test_a_service_is_never_due() -> None:
    planned = Ticks(cron(schedule=None))

    planned.plan(at(0.0))

    assert planned.next is None
    assert planned.look(at(1e6)) is None


# Rule 2: late by more than the grace


def test_a_tick_later_than_its_grace_is_missed() -> None:
    planned = ticks(misfire_grace_s=30.0)

    assert missed(planned, 100.0) == [(60, 60, 1, "later than misfire_grace")]
    assert planned.next == UTC + 120


@pytest.mark.parametrize(("found_at", "tick"), [(89.999, 60), (90.0, None)], ids=["a little less", "exactly"])
def test_a_tick_as_late_as_its_grace_is_missed(found_at: float, tick: float | None) -> None:
    assert due(ticks(misfire_grace_s=30.0), found_at) == tick


def test_every_tick_of_a_long_absence_is_told_before_the_newest_runs() -> None:
    planned = ticks(misfire_grace_s=100.0)

    passed, found = look(planned, 610.0)  # ten ticks: eight past their grace, two in it

    assert [(span.first - UTC, span.last - UTC, span.count) for span in passed] == [(60, 480, 8), (540, 540, 1)]
    assert found == DueTick(UTC + 600, late=True)


def test_what_was_told_to_be_missed_is_not_told_again() -> None:
    planned = ticks(misfire_grace_s=30.0)
    missed(planned, 100.0)

    assert missed(planned, 101.0) == []


@pytest.mark.parametrize("misfire", list(Misfire))
def test_a_tick_that_waited_for_a_run_of_its_job_is_not_late_for_that(misfire: Misfire) -> None:
    planned = ticks(misfire=misfire, misfire_grace_s=30.0)

    assert due(planned, 110.0, waited_from=59.0) == 60


def test_a_tick_older_than_the_run_that_it_waited_for_is_late_as_any() -> None:
    planned = ticks(misfire_grace_s=30.0)

    passed, found = look(planned, 190.0, waited_from=100.0)

    assert [(span.last - UTC, span.why) for span in passed] == [
        (60, "later than misfire_grace"),
        (120, "a newer one is due (misfire: once)"),
    ]
    assert found is not None
    assert found.utc == UTC + 180


def test_a_long_absence_is_told_in_one_span_to_the_last_tick() -> None:
    every_second = ScheduleSpec(cron="* * * * * *")
    planned = ticks(schedule=every_second, misfire_grace_s=10.0)

    passed, found = look(planned, 25_000.0)

    assert found is not None
    assert [(span.why, span.count) for span in passed] == [
        ("later than misfire_grace", 24_990),
        ("a newer one is due (misfire: once)", 9),
    ]


# Rule 3: which of several


@pytest.mark.parametrize(
    ("misfire", "found_at", "tick", "late", "whys"),
    [
        (Misfire.ONCE, 60.5, 60, False, []),
        (Misfire.ONCE, 75.0, 60, False, []),
        (Misfire.ONCE, 76.0, 60, True, []),
        (Misfire.ONCE, 250.0, 240, True, ["a newer one is due (misfire: once)"]),
        (Misfire.SKIP, 74.0, 60, False, []),
        (Misfire.SKIP, 76.0, None, None, ["later than a ttl (misfire: skip)"]),
        (Misfire.SKIP, 130.0, 120, False, ["later than a ttl (misfire: skip)"]),
        (Misfire.ALL, 60.5, 60, False, []),
        (Misfire.ALL, 76.0, 60, True, []),
        (Misfire.ALL, 130.0, 60, True, []),
    ],
    ids=[
        "once: on time",
        "once: within a ttl, as after a take-over",
        "once: later than a ttl",
        "once: the newest of four",
        "skip: within a ttl",
        "skip: later than a ttl",
        "skip: the newest of two, on time",
        "all: on time",
        "all: later than a ttl",
        "all: the oldest of two",
    ],
)
def test_which_tick_runs_and_whether_it_catches_up(
    misfire: Misfire, found_at: float, tick: float | None, late: bool | None, whys: list[str]
) -> None:
    passed, found = look(ticks(misfire=misfire), found_at)

    assert [span.why for span in passed] == whys
    assert (None if found is None else (found.utc - UTC, found.late)) == (None if tick is None else (tick, late))


def test_ticks_within_a_ttl_run_once_whatever_misfire_says_but_all() -> None:
    passed, found = look(ticks(misfire=Misfire.SKIP, schedule=ScheduleSpec(every_s=1.0)), 10.0)

    assert [(span.count, span.why) for span in passed] == [(9, "a newer one is due (misfire: skip)")]
    assert found == DueTick(UTC + 10, late=True)


def test_a_run_that_stands_for_several_ticks_catches_up_though_the_newest_is_on_time() -> None:
    assert look(ticks(), 120.0)[1] == DueTick(UTC + 120, late=True)


def test_the_tick_after_one_that_stood_for_several_does_not_catch_up() -> None:
    planned = ticks()
    look(planned, 120.0)
    planned.on_claimed(at(120.0), server_ms(120))

    assert look(planned, 180.0)[1] == DueTick(UTC + 180, late=False)


def test_nor_does_it_where_the_newest_of_them_did_not_run() -> None:
    planned = ticks()
    look(planned, 120.0)
    planned.plan(at(120.0), server_ms(120))  # it was skipped

    assert look(planned, 180.0)[1] == DueTick(UTC + 180, late=False)


def test_all_that_were_found_together_catch_up_and_the_next_one_does_not() -> None:
    planned = ticks(misfire=Misfire.ALL)
    ran = []

    while (found := look(planned, 185.0)[1]) is not None:
        ran.append((found.utc - UTC, found.late))
        planned.on_claimed(at(185.0), found.ms)

    assert ran == [(60, True), (120, True), (180, True)]
    assert look(planned, 240.0)[1] == DueTick(UTC + 240, late=False)


def test_all_means_the_newest_hundred() -> None:
    planned = ticks(misfire=Misfire.ALL, misfire_grace_s=12 * 3600.0)

    passed, found = look(planned, 60.0 * 480)

    assert [(span.first - UTC, span.count, span.why) for span in passed] == [
        (60, 480 - MOST_CATCH_UP, f"more than {MOST_CATCH_UP} newer ones are due")
    ]
    assert found == DueTick(UTC + 60.0 * 381, late=True)


# Rule 4: what is in doubt


@pytest.mark.parametrize(
    ("settled_at", "doubt_at", "lost_at", "doubtful"),
    [
        (10.0, None, 130.0, (60, 120, 2)),
        (61.0, 57.0, 61.0, (60, 60, 1)),
        (63.0, 61.0, 63.0, None),
        (70.0, None, None, None),
        (180.0, 10.0, 130.0, None),
    ],
    ids=[
        "between the newest claim that survived and the loss",
        "between the last contact and the loss, where the store knows no tick",
        "not what was due before the last contact",
        "nothing without a loss",
        "nothing where a later one was claimed since",
    ],
)
def test_what_may_have_run_in_a_lost_memory_does_not_run(
    settled_at: float, doubt_at: float | None, lost_at: float | None, doubtful: tuple[int, int, int] | None
) -> None:
    planned = Ticks(cron())

    doubt = planned.begin(at(200.0), server_ms(settled_at), _ms(doubt_at), _ms(lost_at))

    assert (doubt and (doubt.first - UTC, doubt.last - UTC, doubt.count)) == doubtful
    assert doubt is None or (doubt.fate, doubt.why) == (Fate.DOUBT, "it may have run before Redis lost its data")


def test_what_was_due_after_the_loss_is_not_in_doubt() -> None:
    planned = Ticks(cron())

    planned.begin(at(150.0), server_ms(10.0), 0, server_ms(130.0))

    assert planned.next == UTC + 180


def test_a_new_holder_finds_the_ticks_that_nobody_could_run() -> None:
    planned = Ticks(cron(misfire_grace_s=10.0))

    planned.begin(at(300.0), server_ms(60), 0, 0)

    assert missed(planned, 315.0) == [(120, 300, 4, "later than misfire_grace")]


# Rule 6: nobody looks again at once


@settings(deadline=None)
@given(
    jitter_ms=st.integers(0, 59_999),
    settled_ms=st.integers(0, 10 * HOUR_MS),
    misfire=st.sampled_from(Misfire),
    grace_s=st.sampled_from([1.0, 30.0, 600.0]),
    at_ms=st.lists(st.integers(0, 10 * HOUR_MS), max_size=4),
)
def test_after_each_look_something_is_to_be_done_or_the_next_one_lies_ahead(
    jitter_ms: int, settled_ms: int, misfire: Misfire, grace_s: float, at_ms: list[int]
) -> None:
    """Else the node would turn in circles; the instants are those at which it wakes, to the last bit."""
    planned = ticks(settled_ms / 1000, misfire=misfire, misfire_grace_s=grace_s)
    planned._jitter_s = jitter_ms / 1000
    planned.plan(at(0.0))

    for boot in [*(ms / 1000 for ms in at_ms), None]:
        assert planned.next is not None
        now = Moment(0.0, planned.next) if boot is None else at(boot)
        found = planned.look(now)
        assert found is not None or planned.next > now.utc
        if isinstance(found, Passed):
            assert found.until_ms > planned.settled_ms
            planned.plan(now, found.until_ms)
        elif found is not None:
            planned.on_claimed(now, found.ms)


# Ticks that do not run


def test_a_due_tick_that_does_not_run_is_settled_as_one() -> None:
    skipped = ticks().one(DueTick(UTC + 60, late=False), Fate.SKIPPED, "a run goes on")

    assert skipped == Passed(UTC + 60, UTC + 60, 1, server_ms(60), Fate.SKIPPED, "a run goes on")


def test_the_ticks_of_a_pause_are_skipped_and_none_after_it() -> None:
    skipped = ticks().in_span(at(200.0), server_ms(150), "it was paused")

    assert skipped == Passed(UTC + 60, UTC + 120, 2, server_ms(120), Fate.SKIPPED, "it was paused")


def test_a_pause_without_a_tick_skips_none() -> None:
    assert ticks().in_span(at(50.0), server_ms(40), "it was paused") is None


def _ms(boot: float | None) -> int:
    return 0 if boot is None else server_ms(boot)
