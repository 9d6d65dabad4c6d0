"""When a cron job is due: the next tick after an instant, the newest of a span, and words for people.

Knows periods, and how wall time becomes instants; must never know a clock, a lease or a run. Reading an
expression is `cron_text.py`'s business, an instant `instants.py`'s, a zone's changes are `zones.py`'s, walking
dates is cronsim's.
cronsim only ever sees naive local times: given a zone it answers a question from inside the second pass of
a repeated hour with an instant in the past, and loses minutes where clocks are changed by half an hour (2.8).

1. The next tick is always strictly later than what was asked about; equal instants are one tick.
2. A period (`every`, `@every`) is anchored to 1970-01-01T00:00Z: a restart or a failover moves no tick.
3. Everything else follows the wall clock of its zone. Where that clock is changed:

   | job        | wall time repeated         | wall time skipped, at most 3 h    | skipped, more than 3 h |
   |------------|----------------------------|-----------------------------------|------------------------|
   | fixed-time | its first pass counts      | due once, where the gap ends      | that date did not exist|
   | wildcard   | both passes count          | nothing: it follows the clock     | nothing                |

   So a nightly job is neither lost nor run twice, and an hourly one stays hourly (cron(8) of Debian, which
   also sets the three hours). Fixed-time is what `cron_text.py` says; it holds for five fields and for six.
   `dst: literal` makes every job one that follows the clock.
4. How 3 is computed: a zone is a line of stretches of constant offset. For a wildcard job a stretch shows
   exactly its own wall times. For a fixed-time job it shows what follows the last wall time of the stretch
   before: of a repeated hour the second pass falls away, and a skipped hour is added, due as the stretch begins.
5. An expression that no date satisfies is refused. 2000 to 2050 proves it: any weekday meets any date in there.
6. `not_before` and `not_after` take ticks away and move none; both bounds belong to the span.
7. A job that runs after another one is due at no instant that could be known beforehand: here it has none.
8. A tick keeps its name however much later its run starts: jitter is no part of the schedule, only drawn here.
"""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from math import floor, inf, nextafter
from typing import Protocol

from cronsim import CronSim, CronSimError

from orchestrator.core.cron_text import CronText, is_period, read_cron, read_period
from orchestrator.core.spec import Dst, ScheduleSpec
from orchestrator.core.wall_counts import WallCounts
from orchestrator.core.zones import DAY_S, Change, Zone

SHORTEST_PERIOD_S = 1.0
LONGEST_PERIOD_S = 3650 * 86_400.0
MOST_STEPS = 32
"""How many ticks of a span are counted one by one; the rest is reckoned, which costs as much as some of them."""

_LONGEST_GAP_S = 3 * 3600
_ALL_CALENDARS = 28 * 366
_FURTHEST_S = 50 * 366 * 86_400
"""How far ahead a tick is looked for; the rarest real one, a Sunday 29 February around 2100, is 40 years away."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall times are naive on purpose, see above
_PROOF = datetime(2000, 1, 1)  # noqa: DTZ001 - likewise
_SECOND, _HOUR, _DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


def parse_problem(spec: ScheduleSpec, *, name: str = "") -> str:
    """Return what is wrong with a schedule, in one clause that names the field and the cure; "" if nothing.

    `name` is the job's: what `H` stands for, and so whether its date exists, depends on it.
    """
    try:
        _read(spec, name)
    except ValueError as problem:
        return str(problem)
    return ""


def jitter_of(job: str, jitter_s: float) -> float:
    """Return how many seconds after its ticks a job starts: always the same, in whole milliseconds below `jitter_s`.

    It is drawn from the job's name, so that all nodes agree and a failover moves nothing; from SHA-256, since a sum
    of characters puts similar names on the same second.
    """
    jitter_ms = round(jitter_s * 1000)
    return int.from_bytes(sha256(job.encode()).digest()[:8]) % jitter_ms / 1000 if jitter_ms else 0.0


class Schedule:
    """When one job is due."""

    def __init__(self, spec: ScheduleSpec, *, name: str = "") -> None:
        """Read the schedule; `name` is the job's, from which `H` draws.

        Raises:
            ValueError: It is unusable; the text is `parse_problem`'s.
        """
        self._ticks = _read(spec, name)
        # What is asked about is an instant that is no tick itself, and the first one counts.
        self._before = -inf if spec.not_before_utc is None else nextafter(spec.not_before_utc, -inf)
        self._last = inf if spec.not_after_utc is None else spec.not_after_utc

    def next_after(self, utc: float) -> float | None:
        """Return the first tick strictly later than `utc` (seconds since 1970); None: never again."""
        if utc >= self._last:
            return None
        tick = self._ticks.next_after(max(utc, self._before))
        return None if tick is None or tick > self._last else tick

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        """Return the newest tick in (after, until], and how many ticks lie there.

        None and 0: there is no tick in the span. Both cost next to nothing, however long the span is.
        """
        return self._ticks.newest_in(max(after, self._before), min(until, self._last))

    def shortest_interval_s(self) -> float:
        """Return how close two ticks can come, in seconds, where no clock is changed; infinite for a single tick."""
        return self._ticks.shortest_interval_s()

    def describe(self, utc: float) -> str:
        """Return a tick for people: local time and zone, and a mark where a change of the clocks touches it."""
        return self._ticks.describe(utc)


class _Ticks(Protocol):
    """What every kind of schedule answers; see `Schedule`."""

    def next_after(self, utc: float) -> float | None: ...

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]: ...

    def shortest_interval_s(self) -> float: ...

    def describe(self, utc: float) -> str: ...


class _Instants:
    """Ticks that are known one by one: a single one, or none."""

    def __init__(self, *instants: float, zone: Zone) -> None:
        self._instants = instants
        self._zone = zone

    def next_after(self, utc: float) -> float | None:
        return next((instant for instant in self._instants if instant > utc), None)

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        found = [instant for instant in self._instants if after < instant <= until]
        return (found[-1], len(found)) if found else (None, 0)

    def shortest_interval_s(self) -> float:
        return inf

    def describe(self, utc: float) -> str:
        return _say(self._zone, utc)


class _Period:
    """Ticks at every multiple of a period since 1970."""

    def __init__(self, period_s: float, zone: Zone) -> None:
        self._period_ms = round(period_s * 1000)
        self._zone = zone

    def next_after(self, utc: float) -> float | None:
        return self._tick(self._count_until(utc) + 1)

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        newest = self._count_until(until)
        count = newest - self._count_until(after)
        return (self._tick(newest), count) if count > 0 else (None, 0)

    def shortest_interval_s(self) -> float:
        return self._period_ms / 1000

    def describe(self, utc: float) -> str:
        return _say(self._zone, utc)

    def _tick(self, count: int) -> float:
        return count * self._period_ms / 1000

    def _count_until(self, utc: float) -> int:
        """Return the number of the newest tick not later than `utc`."""
        count = floor(utc * 1000) // self._period_ms
        # The product above is rounded: 1.001 s are 1000.9999999999999 ms. The comparison of instants decides.
        while self._tick(count) > utc:
            count -= 1
        while self._tick(count + 1) <= utc:
            count += 1
        return count


class _Walker(CronSim):
    """cronsim, which tries one hour and one minute after the other, with a jump to the next one that is asked for."""

    def advance_hour(self) -> bool:
        now = self.dt
        if now.hour in self.hours:
            return False
        later = min((hour for hour in self.hours if hour > now.hour), default=None)
        midnight = now.replace(hour=0, minute=0, second=0)
        self.dt = midnight + _DAY if later is None else midnight.replace(hour=later)
        return True

    def advance_minute(self) -> bool:
        now = self.dt
        if now.minute in self.minutes:
            return False
        later = min((minute for minute in self.minutes if minute > now.minute), default=None)
        full_hour = now.replace(minute=0, second=0)
        self.dt = full_hour + _HOUR if later is None else full_hour.replace(minute=later)
        return True


class _WallTimes:
    """Ticks where the clock of a zone shows what an expression asks for."""

    def __init__(self, cron: CronText, zone: Zone, dst: Dst) -> None:
        self._zone = zone
        self._cron = cron
        self._fixed_time = cron.fixed_time and dst is Dst.CRON
        try:
            # Parsing costs more than walking: one walker serves all questions, its position is set anew each time.
            self._walker = _Walker(cron.text, _PROOF)
            self._counts = WallCounts(self._walker)
            next(self._walker)
        except (CronSimError, StopIteration):
            day, month, weekday = cron.fields[3:]
            raise ValueError(
                f"no date has day-of-month {day}, month {month} and day-of-week {weekday}, the job would never run:"
                " write a day that occurs, for example L for the last of the month"
            ) from None

    def next_after(self, utc: float) -> float | None:
        """Walk from stretch to stretch until a match falls into the stretch it was looked for in (rule 4)."""
        after = floor(utc)  # ticks are whole seconds
        stretch = self._zone.stretch_at(after)
        searched, match = 0, None
        while stretch.at <= after + _FURTHEST_S:
            wall = self._first_wall(stretch, after)
            if match is None or not searched <= wall <= match:
                searched, match = wall, self._first_match(wall)
            if match is None:
                break
            tick = max(stretch.at, match - stretch.after_s)
            change = self._zone.change_between(max(after, stretch.at), tick)
            if change is None:
                return float(tick)
            stretch = change
        return None

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        newest, count = None, 0
        while (tick := self.next_after(after)) is not None and tick <= until:
            if count == MOST_STEPS:
                span = floor(after), floor(until)
                return self._newest_between(*span), count + self._count(*span)
            newest, after, count = tick, tick, count + 1
        return newest, count

    def shortest_interval_s(self) -> float:
        """Compare the gaps of each field; `between` is how long the fields below it last from first to last."""
        shortest, between = inf, 0
        fields = (self._walker.seconds, self._walker.minutes, self._walker.hours)
        for unit_s, values in zip((1, 60, 3600), fields, strict=True):
            shortest = min(shortest, unit_s * _smallest_gap(sorted(values)) - between)
            between += unit_s * (max(values) - min(values))
        return min(shortest, DAY_S * _days_between(*self._cron.fields[3:]) - between)

    def describe(self, utc: float) -> str:
        return _say(self._zone, utc) + self._say_change(utc)

    def _first_wall(self, stretch: Change, after: int) -> int:
        """Return the first wall time of a stretch that counts (rules 3 and 4) and is later than `after`."""
        joins = self._fixed_time and stretch.skipped_s <= _LONGEST_GAP_S
        first = stretch.at + (stretch.before_s if joins else stretch.after_s)
        return first if after < stretch.at else max(first, after + 1 + stretch.after_s)

    def _first_match(self, wall: int) -> int | None:
        """Return the first wall time from `wall` on that satisfies the expression; seconds, as if it were UTC."""
        try:
            self._walker.dt = _EPOCH + timedelta(seconds=wall - 1)
            return (next(self._walker) - _EPOCH) // _SECOND
        except (StopIteration, OverflowError):  # nothing in cronsim's 50 years, or past the year 9999
            return None

    def _count(self, after: int, until: int) -> int:
        """Return how many ticks lie in (after, until], stretch by stretch (rule 4)."""
        count = 0
        stretch: Change | None = self._zone.stretch_at(after)
        while stretch is not None:
            following = self._zone.change_between(max(after, stretch.at), until)
            first, shown = self._first_wall(stretch, after), stretch.at + stretch.after_s
            end = (until + 1 if following is None else following.at) + stretch.after_s
            if first < shown:  # a skipped hour: what it would have shown is due once, as the stretch begins
                count += min(1, self._counts.between(first, shown + 1))
                first = shown + 1
            count += self._counts.between(first, end)
            stretch = following
        return count

    def _newest_between(self, low: int, high: int) -> float | None:
        """Return the newest tick in (low, high], of which there is at least one, by halving the span."""
        newest = None
        while low < high:
            middle = (low + high) // 2
            tick = self.next_after(middle)
            if tick is not None and tick <= high:
                newest, low = tick, floor(tick)
            else:
                high = middle
        return newest

    def _say_change(self, utc: float) -> str:
        local = self._zone.local(utc)
        passes = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
        if passes:
            return " (second of two)" if local.fold else " (first of two)"
        stretch = self._zone.stretch_at(floor(utc))
        if stretch.at == utc and self._fixed_time and 0 < stretch.skipped_s <= _LONGEST_GAP_S:
            skipped = self._first_match(stretch.at + stretch.before_s)
            if skipped is not None and skipped < stretch.at + stretch.after_s:
                return f" (for {_EPOCH + timedelta(seconds=skipped):%H:%M}, which the clocks skip)"
        return ""


def _smallest_gap(values: Sequence[int]) -> float:
    return min((later - earlier for earlier, later in pairwise(values)), default=inf)


@lru_cache(maxsize=256)
@lru_cache(maxsize=256)
def _days_between(day: str, month: str, weekday: str) -> float:
    """Return how few days lie between two dates that three fields ask for; after 28 years all calendars have been."""
    walker = CronSim(f"0 0 0 {day} {month} {weekday}", _PROOF)
    dates: list[int] = []
    for number in range(_PROOF.toordinal(), _PROOF.toordinal() + _ALL_CALENDARS):
        shown = date.fromordinal(number)
        if shown.month in walker.months and walker.match_day(shown):
            if dates and number - dates[-1] == 1:
                return 1
            dates.append(number)
    return min(_smallest_gap(dates), _ALL_CALENDARS)


def _read(spec: ScheduleSpec, name: str) -> _Ticks:
    """Build what a schedule means; ValueError with one clause for people if it means nothing."""
    kinds = {
        "cron": bool(spec.cron),
        "every": bool(spec.every_s),
        "at": spec.at_utc is not None,
        "after": bool(spec.after),
    }
    given = [kind for kind, is_given in kinds.items() if is_given]
    if len(given) > 1:
        raise ValueError(f"both {given[0]} and {given[1]} are given: write one of them")
    if not given:
        raise ValueError('neither cron nor every is given: write for example cron: "0 3 * * *" or every: 5m')
    zone = Zone(spec.timezone)
    if spec.at_utc is not None:
        return _Instants(spec.at_utc, zone=zone)
    if spec.after:
        return _Instants(zone=zone)
    if spec.cron and not is_period(spec.cron):
        return _WallTimes(read_cron(spec.cron, name=name), zone, spec.dst)
    period_s = read_period(spec.cron) if spec.cron else spec.every_s
    if not SHORTEST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:  # NaN is neither
        raise ValueError(f"the period {period_s:g}s is out of range: write 1s to 3650d")
    return _Period(period_s, zone)


def _say(zone: Zone, utc: float) -> str:
    local = zone.local(utc)
    precision = "milliseconds" if local.microsecond else "seconds" if local.second else "minutes"
    abbreviation = local.tzname() or ""
    where = zone.name if zone.name == abbreviation else f"{abbreviation} {zone.name}"
    return f"{local:%a %Y-%m-%d} {local.time().isoformat(precision)} {where}"
