"""Ticks by example. `cron_cases.tsv` holds the expressions, zones and instants that schedulers get wrong.

Its notes say which of seven others agree: D is Debian's cron, cs cronsim, cr croniter, a3 and a4 APScheduler 3
and 4, cc and ct two further parsers; `differ` gives their answer. ERROR means: must be refused at load.
"""

import csv
from datetime import UTC, datetime
from math import inf
from pathlib import Path

import pytest

from orchestrator.core.schedule import Schedule, parse_problem
from orchestrator.core.spec import Dst, ScheduleSpec

with (Path(__file__).parent / "cron_cases.tsv").open(encoding="utf-8") as _file:
    CASES = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))

REFUSED = [case["expr"] for case in CASES if case["next_utc"] == "ERROR"]
ANSWERED = [case for case in CASES if case["next_utc"] != "ERROR"]


def at(text: str) -> float:
    """Return an ISO instant, UTC where it names no offset, as seconds since 1970."""
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=instant.tzinfo or UTC).timestamp()


def iso(utc: float | None) -> str:
    assert utc is not None
    return datetime.fromtimestamp(utc, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ticks(schedule: Schedule, start: float, count: int) -> list[str]:
    """Return the next ticks, each asked for from the one before."""
    found = []
    for _ in range(count):
        tick = schedule.next_after(start)
        assert tick is not None
        start = tick
        found.append(iso(tick))
    return found


def cron(expression: str, timezone: str = "UTC", *, name: str = "") -> Schedule:
    return Schedule(ScheduleSpec(cron=expression, timezone=timezone), name=name)


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: f"{case['expr']} {case['tz']} {case['start_utc']}")
def test_the_next_ticks_are_those_of_the_table(case: dict[str, str]) -> None:
    expected = case["next_utc"].split(";")

    assert expected == ticks(cron(case["expr"], case["tz"]), at(case["start_utc"]), len(expected)), case["note"]


@pytest.mark.parametrize("expression", REFUSED)
def test_what_the_table_refuses_is_refused(expression: str) -> None:
    assert parse_problem(ScheduleSpec(cron=expression))


def test_the_table_is_whole() -> None:
    assert (len(ANSWERED), len(REFUSED)) == (109, 24)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 5 * * 7", ["2026-01-04T05:00:00Z", "2026-01-11T05:00:00Z", "2026-01-18T05:00:00Z"]),
        ("0 0 * * 1,7", ["2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-11T00:00:00Z"]),
        ("0 5 * * mon-sun", ["2026-01-01T05:00:00Z", "2026-01-02T05:00:00Z", "2026-01-03T05:00:00Z"]),
        ("0 5 * * fri-sun", ["2026-01-02T05:00:00Z", "2026-01-03T05:00:00Z", "2026-01-04T05:00:00Z"]),
        ("0 0 * * sun-mon", ["2026-01-04T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-11T00:00:00Z"]),
        ("0 0 * * friL", ["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-27T00:00:00Z"]),
        ("0 0 * * 7L", ["2026-01-25T00:00:00Z", "2026-02-22T00:00:00Z", "2026-03-29T00:00:00Z"]),
        ("0 0 LW * *", ["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z", "2026-03-31T00:00:00Z"]),
        ("5-5/10 * * * *", ["2026-01-01T00:05:00Z", "2026-01-01T01:05:00Z", "2026-01-01T02:05:00Z"]),
        ("0/20 * * * *", ["2026-01-01T00:20:00Z", "2026-01-01T00:40:00Z", "2026-01-01T01:00:00Z"]),
        ("@midnight", ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"]),
    ],
)
def test_odd_fields_mean_what_people_expect(expression: str, expected: list[str]) -> None:
    assert expected == ticks(cron(expression), at("2026-01-01"), 3)


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        pytest.param(
            "*/30 2 26 10 *",
            "2025-10-26T00:30:00Z",
            ["2025-10-26T01:00:00Z", "2025-10-26T01:30:00Z", "2026-10-26T01:00:00Z"],
            id="the second pass of the repeated hour comes before the date of next year",
        ),
        pytest.param(
            "* 12 15 7 *",
            "2025-11-01T00:00:00Z",
            ["2026-07-15T10:00:00Z", "2026-07-15T10:01:00Z"],
            id="a far tick in summer is found from winter",
        ),
        pytest.param(
            "*/30 12 29 2 *",
            "2025-11-01T00:00:00Z",
            ["2028-02-29T11:00:00Z", "2028-02-29T11:30:00Z"],
            id="a leap day is found over many changes of the clocks",
        ),
    ],
)
def test_a_wildcard_job_is_followed_over_changes_of_the_clocks(
    expression: str, start: str, expected: list[str]
) -> None:
    assert expected == ticks(cron(expression, "Europe/Berlin"), at(start), len(expected))


def test_the_rarest_date_is_found() -> None:
    """A Sunday 29 February: 2100 has none, so that forty years lie between."""
    assert ticks(cron("0 0 29 2 */7"), at("2061-01-01"), 2) == ["2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z"]


def test_a_wildcard_job_that_only_ever_meets_a_gap_never_runs_again() -> None:
    """Central Europe skips the third hour of the last Sunday of March, every year."""
    assert cron("*/10 2 * 3 7L", "Europe/Berlin").next_after(at("2025-01-01")) is None


def test_a_fraction_of_a_second_does_not_repeat_or_lose_a_tick() -> None:
    every_second = cron("* * * * * *")

    assert tuple(every_second.next_after(utc) for utc in (10.0, 10.999, 11.0)) == (11.0, 11.0, 12.0)


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        pytest.param("2025-10-25T12:00", ["2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z"], id="both passes"),
        pytest.param("2025-03-29T12:00", ["2025-03-31T00:30:00Z", "2025-04-01T00:30:00Z"], id="nothing in a gap"),
    ],
)
def test_a_literal_fixed_time_runs_whenever_the_clock_shows_it(day: str, expected: list[str]) -> None:
    literal = Schedule(ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin", dst=Dst.LITERAL))

    assert expected == ticks(literal, at(day), 2)


def test_a_single_instant_is_due_once() -> None:
    schedule = Schedule(ScheduleSpec(at_utc=100.5))

    assert [schedule.next_after(utc) for utc in (0, 100.499, 100.5, 200)] == [100.5, 100.5, None, None]
    assert schedule.newest_in(0, 100.5) == (100.5, 1)
    assert (schedule.newest_in(0, 100.4), schedule.newest_in(100.5, 200)) == ((None, 0), (None, 0))


def test_a_job_after_another_one_is_never_due_by_itself() -> None:
    schedule = Schedule(ScheduleSpec(after="other"))

    assert (schedule.next_after(0), schedule.newest_in(0, 2e9)) == (None, (None, 0))
    assert schedule.describe(at("2025-01-01")) == "Wed 2025-01-01 00:00 UTC"


def test_bounds_belong_to_the_span() -> None:
    hourly = ScheduleSpec(cron="@hourly", not_before_utc=at("2025-01-02"), not_after_utc=at("2025-01-02T02:00"))

    assert ticks(Schedule(hourly), at("2025-01-01"), 3) == [
        *("2025-01-02T00:00:00Z", "2025-01-02T01:00:00Z", "2025-01-02T02:00:00Z")
    ]
    assert Schedule(hourly).next_after(at("2025-01-02T02:00")) is None
    assert Schedule(hourly).newest_in(0, 2e9) == (at("2025-01-02T02:00"), 3)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ScheduleSpec(cron="* * * * * *"), 1),
        (ScheduleSpec(cron="* * * * *"), 60),
        (ScheduleSpec(cron="*/40 * * * *"), 20 * 60),
        (ScheduleSpec(cron="50,5 * * * * *"), 15),
        (ScheduleSpec(cron="0 3 * * *"), 86_400),
        (ScheduleSpec(cron="30 0,23 * * *"), 3600),
        (ScheduleSpec(cron="30 0,23 * * mon"), 23 * 3600),
        (ScheduleSpec(cron="0 3 * * mon"), 7 * 86_400),
        (ScheduleSpec(cron="0 3 1 * *"), 28 * 86_400),
        (ScheduleSpec(cron="0 3 13 * fri"), 86_400),
        (ScheduleSpec(cron="0 3 L * *"), 28 * 86_400),
        (ScheduleSpec(cron="@yearly"), 365 * 86_400),
        (ScheduleSpec(cron="0 0 29 2 *"), 1461 * 86_400),
        (ScheduleSpec(every_s=1.5), 1.5),
        (ScheduleSpec(cron="@every 90s"), 90),
        (ScheduleSpec(at_utc=0.0), inf),
        (ScheduleSpec(after="a"), inf),
    ],
    ids=lambda value: value.identity if isinstance(value, ScheduleSpec) else "",
)
def test_the_shortest_interval_is_that_of_any_two_neighbours(spec: ScheduleSpec, expected: float) -> None:
    assert Schedule(spec).shortest_interval_s() == expected


@pytest.mark.parametrize("every_s", [1.0, 1.001, 1.1, 90.0, 86_400.0])
def test_a_period_gives_each_multiple_since_1970_once(every_s: float) -> None:
    """1.001 s are 1000.9999999999999 ms in floating point: a tick must not answer itself."""
    schedule = Schedule(ScheduleSpec(every_s=every_s))
    first = round(1_700_000_000 / every_s)
    start = (first * round(every_s * 1000)) / 1000

    found = []
    for _ in range(200):
        found.append(start)
        start = schedule.next_after(start) or 0

    assert [n * round(every_s * 1000) / 1000 for n in range(first, first + 200)] == found


@pytest.mark.parametrize(
    ("spec", "after", "until", "expected"),
    [
        pytest.param(ScheduleSpec(cron="*/10 * * * *"), 0, 3600, (3600.0, 6), id="until belongs to the span"),
        pytest.param(ScheduleSpec(cron="*/10 * * * *"), 600, 1199.9, (None, 0), id="after does not"),
        pytest.param(ScheduleSpec(cron="*/10 * * * *"), 600, 600, (None, 0), id="an empty span holds nothing"),
        pytest.param(ScheduleSpec(cron="*/10 * * * *"), 600, 0, (None, 0), id="nor does one that runs backwards"),
        pytest.param(ScheduleSpec(every_s=600), 0, 3600, (3600.0, 6), id="until belongs to the span of a period"),
        pytest.param(ScheduleSpec(every_s=600), 600, 1199.9, (None, 0), id="after does not for a period"),
        pytest.param(ScheduleSpec(every_s=600), 600, 0, (None, 0), id="a period in a backward span"),
        pytest.param(ScheduleSpec(every_s=1), 0, 9e6, (9e6, 9_000_000), id="a period counts without walking"),
        pytest.param(
            ScheduleSpec(cron="* * * * * *"),
            0,
            86_399.5,
            (86_399.0, 86_399),
            id="what is not walked is reckoned",
        ),
        pytest.param(
            ScheduleSpec(cron="* * 0-9 * * *"), 0, 80_000, (35_999.0, 35_999), id="it may lie far before the end"
        ),
        pytest.param(
            ScheduleSpec(cron="* * * * *"), 0, 4e9, (3_999_999_960.0, 66_666_666), id="a century costs no more"
        ),
    ],
)
def test_the_newest_tick_of_a_span(
    spec: ScheduleSpec, after: float, until: float, expected: tuple[float | None, int]
) -> None:
    assert expected == Schedule(spec).newest_in(after, until)


@pytest.mark.parametrize(
    ("spec", "utc", "expected"),
    [
        (ScheduleSpec(cron="0 0 * * *"), "2025-01-01T00:00:00Z", "Wed 2025-01-01 00:00 UTC"),
        (ScheduleSpec(every_s=90), "2025-01-01T00:01:30Z", "Wed 2025-01-01 00:01:30 UTC"),
        (ScheduleSpec(every_s=1.5), "2025-01-01T00:00:01.5Z", "Wed 2025-01-01 00:00:01.500 UTC"),
        (
            ScheduleSpec(at_utc=0.0, timezone="Asia/Tokyo"),
            "2025-01-01T00:00:00Z",
            "Wed 2025-01-01 09:00 JST Asia/Tokyo",
        ),
        (
            ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin", dst=Dst.LITERAL),
            "2025-10-26T01:30:00Z",
            "Sun 2025-10-26 02:30 CET Europe/Berlin (second of two)",
        ),
        (
            ScheduleSpec(cron="0 9 * * *", timezone="Europe/Berlin"),
            "2025-07-01T07:00:00Z",
            "Tue 2025-07-01 09:00 CEST Europe/Berlin",
        ),
        (
            ScheduleSpec(cron="30 2 * * *", timezone="Europe/Berlin"),
            "2025-03-30T01:00:00Z",
            "Sun 2025-03-30 03:00 CEST Europe/Berlin (for 02:30, which the clocks skip)",
        ),
        (
            ScheduleSpec(cron="0 3 * * *", timezone="Europe/Berlin"),
            "2025-03-30T01:00:00Z",
            "Sun 2025-03-30 03:00 CEST Europe/Berlin",
        ),
        (
            ScheduleSpec(cron="0 * * * *", timezone="Europe/Berlin"),
            "2025-03-30T01:00:00Z",
            "Sun 2025-03-30 03:00 CEST Europe/Berlin",
        ),
        (
            ScheduleSpec(cron="0 * * * *", timezone="Europe/Berlin"),
            "2025-10-26T00:00:00Z",
            "Sun 2025-10-26 02:00 CEST Europe/Berlin (first of two)",
        ),
        (
            ScheduleSpec(cron="0 * * * *", timezone="Europe/Berlin"),
            "2025-10-26T01:00:00Z",
            "Sun 2025-10-26 02:00 CET Europe/Berlin (second of two)",
        ),
    ],
)
def test_a_tick_is_told_in_local_time_with_what_the_clocks_did(spec: ScheduleSpec, utc: str, expected: str) -> None:
    assert expected == Schedule(spec).describe(at(utc))


def test_the_shortest_interval_is_that_of_all_calendars() -> None:
    last_sundays = Schedule(ScheduleSpec(cron="0 0 * */3 0L"))

    assert last_sundays.shortest_interval_s() == 84 * 86_400  # 91 days in the first four years
