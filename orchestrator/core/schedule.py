"""When a cron job is due: the next tick after an instant, the newest of a span, and words for people.

Knows periods, and how wall time becomes instants; must never know a clock, a lease or a run. Reading an
expression is `cron_text.py`'s business, a zone's changes are `zones.py`'s, walking dates is cronsim's.
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
4. How 3 is computed: a zone is a line of stretches of constant offset. For a wildcard job a stretch shows
   exactly its own wall times. For a fixed-time job it shows what follows the last wall time of the stretch
   before: of a repeated hour the second pass falls away, and a skipped hour is added, due as the stretch begins.
5. An expression that no date satisfies is refused. 2000 to 2050 proves it: any weekday meets any date in there.
"""

from datetime import datetime, timedelta
from math import floor

from cronsim import CronSim, CronSimError

from orchestrator.core.cron_text import CronText, is_period, read_cron, read_period
from orchestrator.core.spec import ScheduleSpec
from orchestrator.core.zones import Change, Zone

SHORTEST_PERIOD_S = 1.0
LONGEST_PERIOD_S = 3650 * 86_400.0
MOST_STEPS = 10_000
"""How many ticks of a span are counted one by one; more are `at least so many`."""

_LONGEST_GAP_S = 3 * 3600
_FURTHEST_S = 50 * 366 * 86_400
"""How far ahead a tick is looked for; the rarest real one, a Sunday 29 February around 2100, is 40 years away."""

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall times are naive on purpose, see above
_PROOF = datetime(2000, 1, 1)  # noqa: DTZ001 - likewise
_SECOND = timedelta(seconds=1)


def parse_problem(spec: ScheduleSpec, *, name: str = "") -> str:
    """Return what is wrong with a schedule, in one clause that names the field and the cure; "" if nothing.

    `name` is the job's: what `H` stands for, and so whether its date exists, depends on it.
    """
    try:
        _read(spec, name)
    except ValueError as problem:
        return str(problem)
    return ""


class Schedule:
    """When one job is due."""

    def __init__(self, spec: ScheduleSpec, *, name: str = "") -> None:
        """Read the schedule; `name` is the job's, from which `H` draws.

        Raises:
            ValueError: It is unusable; the text is `parse_problem`'s.
        """
        self._ticks = _read(spec, name)

    def next_after(self, utc: float) -> float | None:
        """Return the first tick strictly later than `utc` (seconds since 1970); None: never again."""
        return self._ticks.next_after(utc)

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        """Return the newest tick in (after, until], and how many ticks lie there.

        The count is exact up to `MOST_STEPS`; past that, where ticks follow the wall clock, it says "at
        least so many". The newest tick is exact always. None and 0: there is no tick in the span.
        """
        return self._ticks.newest_in(after, until)

    def describe(self, utc: float) -> str:
        """Return a tick for people: local time and zone, and a mark where a change of the clocks touches it."""
        return self._ticks.describe(utc)


class _Period:
    """Ticks at every multiple of a period since 1970."""

    def __init__(self, period_s: float) -> None:
        self._period_ms = round(period_s * 1000)

    def next_after(self, utc: float) -> float | None:
        return self._tick(self._count_until(utc) + 1)

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        newest = self._count_until(until)
        count = newest - self._count_until(after)
        return (self._tick(newest), count) if count > 0 else (None, 0)

    def describe(self, utc: float) -> str:
        return _say(Zone("UTC"), utc)

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


class _WallTimes:
    """Ticks where the clock of a zone shows what an expression asks for."""

    def __init__(self, cron: CronText, zone: Zone) -> None:
        self._zone = zone
        self._fixed_time = cron.fixed_time
        try:
            # Parsing costs more than walking: one walker serves all questions, its position is set anew each time.
            self._walker = CronSim(cron.text, _PROOF)
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
                return self._newest_between(floor(after), floor(until)), count
            newest, after, count = tick, tick, count + 1
        return newest, count

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


def _read(spec: ScheduleSpec, name: str) -> _Period | _WallTimes:
    """Build what a schedule means; ValueError with one clause for people if it means nothing."""
    if spec.cron and spec.every_s:
        raise ValueError("both cron and every are given: write one of them")
    if spec.cron and not is_period(spec.cron):
        return _WallTimes(read_cron(spec.cron, name=name), Zone(spec.timezone))
    period_s = read_period(spec.cron) if spec.cron else spec.every_s
    if not period_s and not spec.cron:
        raise ValueError('neither cron nor every is given: write for example cron: "0 3 * * *" or every: 5m')
    if not SHORTEST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:  # NaN is neither
        raise ValueError(f"the period {period_s:g}s is out of range: write 1s to 3650d")
    return _Period(period_s)


def _say(zone: Zone, utc: float) -> str:
    local = zone.local(utc)
    precision = "milliseconds" if local.microsecond else "seconds" if local.second else "minutes"
    abbreviation = local.tzname() or ""
    where = zone.name if zone.name == abbreviation else f"{abbreviation} {zone.name}"
    return f"{local:%a %Y-%m-%d} {local.time().isoformat(precision)} {where}"
