"""What is refused and in which words, and what `H` stands for."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.cron_text import read_cron
from orchestrator.core.schedule import Schedule, parse_problem
from orchestrator.core.spec import ScheduleSpec

FIVE = " (the fields are: minute hour day-of-month month day-of-week)"
SIX = " (the fields are: second minute hour day-of-month month day-of-week)"
COUNT = ": write 5 (minute hour day-of-month month day-of-week) or 6 with the second first; there is no year"


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("60 * * * *", f"minute 60 is out of range: write 0 to 59{FIVE}"),
        ("0 30 * * *", f"hour 30 is out of range: write 0 to 23{FIVE}"),
        ("0 0 30 * * *", f"hour 30 is out of range: write 0 to 23{SIX}"),
        ("60 * * * * *", f"second 60 is out of range: write 0 to 59{SIX}"),
        ("* * 32 * *", f"day-of-month 32 is out of range: write 1 to 31{FIVE}"),
        ("* * * * 8", f"day-of-week 8 is out of range: write 0 to 7 or sun to sat{FIVE}"),
        ("* * * mon *", f"month 'mon' is not understood: write 1 to 12 or jan to dec{FIVE}"),
        ("1,,2 * * * *", f"minute '' is not understood: write 0 to 59{FIVE}"),
        ("? * * * *", f"minute '?' is not understood: write 0 to 59{FIVE}"),
        ("*/0 * * * *", f"minute '*/0' has step 0: write a step of at least 1{FIVE}"),
        ("5-1 * * * *", f"minute range 5-1 runs backwards: write two ranges, 5-59,0-1{FIVE}"),
        ("0 0 * * FRI-MON", f"day-of-week range 5-1 runs backwards: write two ranges, 5-7,0-1{FIVE}"),
        ("0 0 15W * *", f"day-of-month '15W' is not supported: write a day, or LW for the last weekday{FIVE}"),
        ("0 0 L-3 * *", f"day-of-month 'L-3' is not understood: write L (last day) or LW (last weekday) alone{FIVE}"),
        ("0 0 * * L", f"day-of-week 'l' is not understood: write 0 to 7 or sun to sat{FIVE}"),
        ("0 0 * * fri#6", f"day-of-week 'fri#6' is not understood: write for example fri#2 (1 to 5){FIVE}"),
        ("H(0-60) * * * *", f"minute 60 is out of range: write 0 to 59{FIVE}"),
        ("0 0 * * 1 2026 x", f"7 fields{COUNT}"),
        ("noon", f"1 field{COUNT}"),
        ("   ", f"0 fields{COUNT}"),
        (
            "CRON_TZ=UTC 0 9 * * *",
            "a zone inside the expression is not read: write `timezone:` beside it",
        ),
        (
            "@reboot",
            (
                "@reboot is no instant: write a service with `restart: never`, which runs once, whichever node; an"
                " order to start it runs it again"
            ),
        ),
        (
            "@fortnightly",
            (
                "alias '@fortnightly' is unknown: write one of @yearly, @annually, @monthly, @weekly, @daily,"
                " @midnight, @hourly or @every 5m"
            ),
        ),
        ("@every", "@every '' is not a duration: write for example @every 90s, 5m, 1h30m or 1d"),
        ("@every 90", "@every '90' is not a duration: write for example @every 90s, 5m, 1h30m or 1d"),
        ("@every 500ms", "the period 0.5s is out of range: write 1s to 3650d"),
        ("0 0 \u0663 * *", "'\\u0663' is not ASCII: write the fields with plain digits and letters"),
        (
            "0 0 31 2 *",
            (
                "no date has day-of-month 31, month 2 and day-of-week *, the job would never run:"
                " write a day that occurs, for example L for the last of the month"
            ),
        ),
        (
            "0 0 */32 * mon#2",
            (
                "no date has day-of-month */32, month * and day-of-week 1#2, the job would never run:"
                " write a day that occurs, for example L for the last of the month"
            ),
        ),
    ],
)
def test_a_complaint_names_the_field_and_the_cure(expression: str, problem: str) -> None:
    assert problem == parse_problem(ScheduleSpec(cron=expression))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            ScheduleSpec(),
            'neither cron nor every is given: write for example cron: "0 3 * * *" or every: 5m',
        ),
        (ScheduleSpec(cron="* * * * *", every_s=5), "both cron and every are given: write one of them"),
        (ScheduleSpec(every_s=0.999), "the period 0.999s is out of range: write 1s to 3650d"),
        (ScheduleSpec(every_s=-5), "the period -5s is out of range: write 1s to 3650d"),
        (ScheduleSpec(every_s=float("nan")), "the period nans is out of range: write 1s to 3650d"),
        (ScheduleSpec(every_s=float("inf")), "the period infs is out of range: write 1s to 3650d"),
    ],
)
def test_a_schedule_is_one_expression_or_one_period(spec: ScheduleSpec, problem: str) -> None:
    assert problem == parse_problem(spec)


@pytest.mark.parametrize(
    "zone",
    [
        pytest.param("Mars/Olympus", id="nowhere"),
        pytest.param("America", id="a folder of the tables"),
        pytest.param("../etc/passwd", id="a way out of the tables"),
        pytest.param("localtime", id="the host's own"),
        pytest.param("right/Europe/Berlin", id="one that counts leap seconds"),
        pytest.param("", id="empty"),
    ],
)
def test_what_is_no_zone_of_the_world_is_refused(zone: str) -> None:
    problem = parse_problem(ScheduleSpec(cron="* * * * *", timezone=zone))

    assert problem.startswith(f"time zone {zone!r} is unknown: write an IANA name, for example ")


@pytest.mark.parametrize(
    ("zone", "meant"), [("europe/berlin", "Europe/Berlin"), ("America/NewYork", "America/New_York")]
)
def test_a_misspelt_zone_is_refused_with_the_likely_one(zone: str, meant: str) -> None:
    assert parse_problem(ScheduleSpec(cron="* * * * *", timezone=zone)).endswith(f"for example {meant}")


def test_a_schedule_cannot_be_built_from_what_is_refused() -> None:
    with pytest.raises(ValueError, match="minute 60 is out of range"):
        Schedule(ScheduleSpec(cron="60 * * * *"))


@given(st.text(alphabet="0123456789*/-,LWH#?() @everymonsutjaz\u0663\u0131", max_size=30))
def test_any_text_is_either_refused_in_words_or_has_a_tick(text: str) -> None:
    spec = ScheduleSpec(cron=text or "*")

    assert parse_problem(spec) or Schedule(spec).next_after(0)


@pytest.mark.parametrize(
    ("expression", "lows_and_highs"),
    [
        pytest.param("H H H H H", ((0, 59), (0, 23), (1, 28), (1, 12), (0, 6)), id="alone it takes the whole field"),
        pytest.param("H(10-19) H(3-4) * * *", ((10, 19), (3, 4)), id="with a range it keeps inside"),
    ],
)
def test_h_draws_a_value_of_its_field(expression: str, lows_and_highs: tuple[tuple[int, int], ...]) -> None:
    drawn = [read_cron(expression, name=f"job-{n}").fields[1:] for n in range(2000)]

    for field, (low, high) in enumerate(lows_and_highs):
        assert set(range(low, high + 1)) == {int(fields[field]) for fields in drawn}


@pytest.mark.parametrize(
    ("expression", "firsts"),
    [
        pytest.param("H/15 * * * *", {f"{n}-59/15" for n in range(15)}, id="every quarter of an hour"),
        pytest.param("H(8-10)/2 * * * *", {"8-10/2", "9-10/2"}, id="every second value of a range"),
        pytest.param("H(8-10)/5 * * * *", {"8-10/5", "9-10/5", "10"}, id="a step past the range"),
    ],
)
def test_h_with_a_step_draws_where_to_begin(expression: str, firsts: set[str]) -> None:
    assert firsts == {read_cron(expression, name=f"job-{n}").fields[1] for n in range(500)}


def test_h_is_the_same_for_ever() -> None:
    """Nodes of different versions must draw alike, or a tick is run twice."""
    assert read_cron("H H * * *", name="invoices").text == "0 10 2 * * *"


def test_whether_a_drawn_date_exists_depends_on_the_name() -> None:
    problems = {bool(parse_problem(ScheduleSpec(cron="0 0 31 H *"), name=name)) for name in string.ascii_lowercase}

    assert {False, True} == problems
