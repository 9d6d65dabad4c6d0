"""Reports of ticks that were lost, doubled, or repeated without end on the days on which clocks are changed.

Each case is a night as it was reported, lived through by a whole node; what an expression means on any such day stands
in `tests/core/cron_cases.tsv`, that the next tick is always later in `tests/core/test_schedule_walk.py`.
"""

from itertools import pairwise

import pytest

from orchestrator.core.nouns import JobName
from tests.bugs.days import SOON_S, Days, cron

BESIDE = JobName("beside")


@pytest.mark.parametrize(
    ("expression", "zone", "begin", "end", "expected"),
    [
        pytest.param(
            *("0 2 * * *", "America/New_York", "2019-03-10T05:30:00Z", "2019-03-10T12:30:00Z", ["07:00:00"]),
            id="nomad#5410, #7289: 02:00 is skipped, and it was launched thousands of times, or never again",
        ),
        pytest.param(
            *("0 2 * * *", "Europe/Berlin", "2025-10-25T22:30:00Z", "2025-10-26T04:30:00Z", ["00:00:00"]),
            id="kubernetes#121594: 02:00 comes twice, and the second run met a restore",
        ),
        pytest.param(
            *("30 2 * * *", "Europe/Berlin", "2025-10-25T22:45:00Z", "2025-10-26T04:45:00Z", ["00:30:00"]),
            id="kubernetes#121594: 02:30 comes twice",
        ),
        pytest.param(
            *("4 16 * * *", "America/New_York", "2025-03-08T20:30:00Z", "2025-03-10T20:30:00Z"),
            ["21:04:00", "20:04:00", "20:04:00"],
            id="celery#1604, #9653, django-celery-beat#134: an hour early and again, or an hour late",
        ),
        pytest.param(
            *("0 * * * *", "US/Pacific", "2026-11-01T07:30:00Z", "2026-11-01T10:30:00Z"),
            ["08:00:00", "09:00:00", "10:00:00"],
            id="celery#10107: an hourly job skipped the second 01:00",
        ),
        pytest.param(
            *("45 1 * * *", "US/Pacific", "2026-11-01T07:30:00Z", "2026-11-01T12:30:00Z", ["08:45:00"]),
            id="apscheduler#980, #1021, #1036: the same instant was due for ever",
        ),
        pytest.param(
            *("0 0 * * *", "Africa/Cairo", "2024-04-25T21:30:00Z", "2024-04-26T03:30:00Z", ["22:00:00"]),
            id="cronie#218: midnight does not exist, and the day was lost",
        ),
        pytest.param(
            *("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T14:40:00Z", "2025-10-04T20:40:00Z", ["15:30:00"]),
            id="croniter#258: half an hour is skipped, and the day was lost",
        ),
    ],
)
def test_a_night_of_changed_clocks_has_each_run_once(
    expression: str, zone: str, begin: str, end: str, expected: list[str]
) -> None:
    beside = cron("*/10 * * * *", name=BESIDE, ttl_s=120.0)
    days = Days(cron(expression, timezone=zone, ttl_s=120.0), beside, begin=begin)

    days.go(end)

    assert days.ticks() == expected
    assert all(abs(start.late_s) < SOON_S for start in days.starts)
    assert {after.tick - before.tick for before, after in pairwise(days.of(BESIDE))} == {600.0}  # type: ignore[operator]
    days.assert_every_tick_is_told_of()
    days.assert_every_tick_is_told_of(BESIDE)


def test_a_job_of_every_seven_seconds_does_not_pause_while_the_clocks_are_changed() -> None:
    """apscheduler#1059, #1103: the next time was one that does not exist, and an hour was slept instead of a second."""
    days = Days(cron("*/7 * * * * *", timezone="America/Los_Angeles"), begin="2026-03-08T09:57:30Z")

    days.go("10:02:30")

    runs = [start.at for start in days.of()]
    assert runs[-1] - runs[0] > 200.0
    assert max(later - earlier for earlier, later in pairwise(runs)) < 7.0 + SOON_S
