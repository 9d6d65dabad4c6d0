"""Random schedules against a walk that knows nothing of how ours is done: look at every minute that there is.

The walk asks zoneinfo what the clocks show at each instant, and applies the rules of `schedule.py` word for word:
a wildcard job runs whenever that satisfies the fields; a fixed-time job not in a second pass (PEP 495's fold),
and for all minutes that a jump of at most three hours left out, at the first instant after it. With `dst: literal`
every job is treated as a wildcard job.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.schedule import Schedule, jitter_of, parse_problem
from orchestrator.core.spec import Dst, ScheduleSpec

CHANGES = [
    ("Europe/Berlin", "2025-03-30T01:00:00Z"),
    ("Europe/Berlin", "2025-10-26T01:00:00Z"),
    ("Europe/Dublin", "2024-03-31T01:00:00Z"),
    ("America/New_York", "2025-11-02T06:00:00Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00:00Z"),
    ("America/Caracas", "2016-05-01T07:00:00Z"),
    ("Africa/Cairo", "2024-04-25T22:00:00Z"),
    ("Africa/Casablanca", "2025-02-23T02:00:00Z"),
    ("Australia/Lord_Howe", "2025-04-05T15:00:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T15:30:00Z"),
    ("Antarctica/Troll", "2024-03-31T01:00:00Z"),
    ("Antarctica/Troll", "2024-10-27T01:00:00Z"),
    ("Antarctica/Vostok", "1994-01-31T17:00:00Z"),
    ("Antarctica/Vostok", "1994-10-31T17:00:00Z"),
    ("Pacific/Chatham", "2025-09-27T14:00:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00:00Z"),
    ("Asia/Kathmandu", "2025-06-01T00:00:00Z"),
    ("UTC", "2025-12-31T00:00:00Z"),
]
"""Zones and an instant at which their clocks were changed (the last two: an ordinary day)."""

LONGEST_GAP = timedelta(hours=3)


@dataclass(frozen=True)
class Part:
    """One field as text, and whether a wall time satisfies it."""

    text: str
    holds: Callable[[datetime], bool]


def numbers(low: int, high: int, shown: Callable[[datetime], set[int]]) -> st.SearchStrategy[Part]:
    """Draw a field of values, ranges and steps; `shown` is what a wall time shows in that field."""

    def part(text: str, allowed: Iterable[int]) -> Part:
        values = frozenset(allowed)
        return Part(text, lambda wall: not values.isdisjoint(shown(wall)))

    number, step = st.integers(low, high), st.integers(1, high + 2)
    span = st.tuples(number, number).map(lambda pair: (min(pair), max(pair)))
    return st.one_of(
        st.just(part("*", range(low, high + 1))),
        step.map(lambda by: part(f"*/{by}", range(low, high + 1, by))),
        st.lists(number, min_size=1, max_size=4).map(lambda some: part(",".join(map(str, some)), some)),
        st.builds(lambda first, by: part(f"{first}/{by}", range(first, high + 1, by)), number, step),
        span.map(lambda ends: part(f"{ends[0]}-{ends[1]}", range(ends[0], ends[1] + 1))),
        st.builds(
            lambda ends, by: part(f"{ends[0]}-{ends[1]}/{by}", range(ends[0], ends[1] + 1, by)),
            span,
            step,
        ),
    )


def week_of(wall: datetime) -> int:
    """Return whether it is the first, second ... of its weekday in the month."""
    return (wall.day + 6) // 7


def is_last_of_month(wall: datetime, days: int) -> bool:
    """Whether so many days later another month is shown."""
    return (wall + timedelta(days=days)).month != wall.month


def weekday(wall: datetime) -> set[int]:
    """Return the weekday; Sunday is both 0 and 7."""
    return {wall.isoweekday(), wall.isoweekday() % 7}


ANY = Part("*", lambda _: True)
SECONDS = numbers(0, 59, lambda wall: {wall.second})
MINUTES = numbers(0, 59, lambda wall: {wall.minute})
HOURS = numbers(0, 23, lambda wall: {wall.hour})
DAYS = st.one_of(
    st.just(ANY),
    numbers(1, 31, lambda wall: {wall.day}),
    st.just(Part("L", lambda wall: is_last_of_month(wall, 1))),
)
MONTHS = st.one_of(st.just(ANY), numbers(1, 12, lambda wall: {wall.month}))
WEEKDAYS = st.one_of(
    st.just(ANY),
    numbers(0, 7, weekday),
    st.integers(0, 7).map(lambda day: Part(f"{day}L", lambda wall: day in weekday(wall) and is_last_of_month(wall, 7))),
    st.builds(
        lambda day, nth: Part(f"{day}#{nth}", lambda wall: day in weekday(wall) and week_of(wall) == nth),
        st.integers(0, 7),
        st.integers(1, 5),
    ),
)


@dataclass(frozen=True)
class Expression:
    """A whole expression: six fields, or five where the second is None."""

    second: Part | None
    minute: Part
    hour: Part
    day: Part
    month: Part
    weekday: Part

    @property
    def text(self) -> str:
        """The expression as a person writes it."""
        fields = (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        return " ".join(field.text for field in fields if field)

    @property
    def fixed_time(self) -> bool:
        """No second, minute or hour field begins with a star."""
        return not any(field.text.startswith("*") for field in (self.second, self.minute, self.hour) if field)

    def holds(self, wall: datetime) -> bool:
        """Whether the expression asks for this wall time."""
        second = self.second.holds(wall) if self.second else wall.second == 0
        if not (second and self.minute.holds(wall) and self.hour.holds(wall) and self.month.holds(wall)):
            return False
        days = (self.day.holds(wall), self.weekday.holds(wall))
        either = not (self.day.text.startswith("*") or self.weekday.text.startswith("*"))
        return any(days) if either else all(days)


FIVE_FIELDS = st.builds(Expression, st.none(), MINUTES, HOURS, DAYS, MONTHS, WEEKDAYS)
SIX_FIELDS = st.builds(Expression, SECONDS, MINUTES, HOURS, st.just(ANY), st.just(ANY), st.just(ANY))


def every_tick(
    expression: Expression, zone: ZoneInfo, dst: Dst, start: int, until: int, step_s: int
) -> Iterator[float]:
    """Look at each instant in (start, until] that lies on the grid of `step_s`."""
    step = timedelta(seconds=step_s)
    shown = datetime.fromtimestamp(start, zone).replace(tzinfo=None, fold=0)
    for utc in range(start + step_s, until + 1, step_s):
        local = datetime.fromtimestamp(utc, zone)
        before, shown = shown, local.replace(tzinfo=None, fold=0)
        due = expression.holds(shown)
        if expression.fixed_time and dst is Dst.CRON:
            skipped = (shown - before - step) if shown - before - step <= LONGEST_GAP else timedelta()
            due = (due and not local.fold) or any(
                expression.holds(before + n * step) for n in range(1, skipped // step + 1)
            )
        if due:
            yield float(utc)


def check(expression: Expression, place: tuple[str, str], dst: Dst, start: int, span_s: int, step_s: int) -> None:
    """Compare all ticks of a span that begins `start` steps from a change of the clocks."""
    zone, change = place
    begins = int(datetime.fromisoformat(change).timestamp()) + start * step_s
    until = begins + span_s
    try:
        schedule = Schedule(ScheduleSpec(cron=expression.text, timezone=zone, dst=dst))
    except ValueError as problem:
        assert "no date has" in str(problem)  # noqa: PT017 - any other refusal is a fault
        assert not any(every_tick(expression, ZoneInfo(zone), dst, begins, until, step_s))
        return
    expected = list(every_tick(expression, ZoneInfo(zone), dst, begins, until, step_s))

    found, tick = [], schedule.next_after(begins)
    while tick is not None and tick <= until:
        found.append(tick)
        assert schedule.next_after(tick - 0.001) == tick
        tick = schedule.next_after(tick)

    assert expected == found
    assert (expected[-1] if expected else None, len(expected)) == schedule.newest_in(begins, until)


@settings(deadline=None, max_examples=120)
@given(FIVE_FIELDS, st.sampled_from(CHANGES), st.sampled_from(Dst), st.integers(-36 * 60, 6 * 60))
def test_five_fields_agree_with_a_walk_over_every_minute(
    expression: Expression, place: tuple[str, str], dst: Dst, start: int
) -> None:
    check(expression, place, dst, start, span_s=40 * 3600, step_s=60)


@settings(deadline=None, max_examples=30)
@given(SIX_FIELDS, st.sampled_from(CHANGES), st.sampled_from(Dst), st.integers(-2 * 3600, 3600))
def test_six_fields_agree_with_a_walk_over_every_second(
    expression: Expression, place: tuple[str, str], dst: Dst, start: int
) -> None:
    check(expression, place, dst, start, span_s=2 * 3600 + 1800, step_s=1)


@settings(deadline=None, max_examples=100)
@given(
    FIVE_FIELDS,
    st.sampled_from([zone for zone, _ in CHANGES]),
    st.sampled_from(Dst),
    st.floats(0, 4_000_000_000, allow_nan=False),
)
def test_the_next_tick_is_always_strictly_later(expression: Expression, zone: str, dst: Dst, utc: float) -> None:
    spec = ScheduleSpec(cron=expression.text, timezone=zone, dst=dst)
    if parse_problem(spec):
        return
    schedule = Schedule(spec)

    for _ in range(5):
        tick = schedule.next_after(utc)
        if tick is None:
            return
        assert tick > utc
        utc = tick


PLAIN = st.one_of(
    FIVE_FIELDS.map(lambda expression: ScheduleSpec(cron=expression.text, timezone="Europe/Berlin")),
    st.integers(1000, 10**7).map(lambda period_ms: ScheduleSpec(every_s=period_ms / 1000)),
    st.integers(1_761_400_000, 1_761_500_000).map(lambda at: ScheduleSpec(at_utc=float(at))),
)
BOUNDS = st.integers(1_761_300_000_000, 1_761_600_000_000).map(lambda ms: ms / 1000)
"""Instants about the last Sunday of October 2025."""


def ticks_in(schedule: Schedule, after: float, until: float) -> list[float]:
    """Return at most 300 ticks in (after, until]."""
    found: list[float] = []
    while len(found) < 300 and (tick := schedule.next_after(after)) is not None and tick <= until:
        found.append(tick)
        after = tick
    return found


@settings(deadline=None, max_examples=100)
@given(PLAIN, BOUNDS, BOUNDS, BOUNDS, st.data())
def test_bounds_take_ticks_away_and_move_none(
    plain: ScheduleSpec, begin: float, end: float, start: float, data: st.DataObject
) -> None:
    if parse_problem(plain):
        return
    until = start + 86_400
    every = ticks_in(Schedule(plain), start, until)
    if every:  # a bound that is a tick belongs to the span
        begin = data.draw(st.sampled_from([begin, *every[:5]]))
        end = data.draw(st.sampled_from([end, *every[-5:]]))
    bounded = Schedule(replace(plain, not_before_utc=begin, not_after_utc=end))

    found = ticks_in(bounded, start, every[-1] if every else until)

    expected = [tick for tick in every if begin <= tick <= end]
    assert found[: len(expected)] == expected
    assert all(begin <= tick <= end for tick in found)
    if len(every) < 300:
        assert bounded.newest_in(start, until) == (expected[-1] if expected else None, len(expected))


@settings(deadline=None, max_examples=60)
@given(FIVE_FIELDS)
def test_no_two_ticks_come_closer_than_the_shortest_interval(expression: Expression) -> None:
    spec = ScheduleSpec(cron=expression.text)
    if parse_problem(spec):
        return
    schedule = Schedule(spec)

    found = ticks_in(schedule, 1_700_000_000, 1_700_000_000 + 10 * 366 * 86_400)

    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert all(gap >= schedule.shortest_interval_s() for gap in gaps)


@given(st.text(max_size=30), st.floats(0.001, 86_400))
def test_the_jitter_of_a_job_is_always_the_same_and_shorter_than_it_may_be(name: str, jitter_s: float) -> None:
    drawn = jitter_of(name, jitter_s)

    assert drawn == jitter_of(name, jitter_s)
    assert 0 <= drawn < jitter_s + 0.0005
    assert drawn == round(drawn, 3)


def test_jitter_spreads_similar_names() -> None:
    drawn = [jitter_of(f"report-{number}", 300.0) for number in range(200)]

    assert len({int(each) for each in drawn}) >= 100
    assert min(drawn) < 15
    assert max(drawn) > 285


def test_no_jitter_is_none() -> None:
    assert jitter_of("a", 0.0) == 0.0
