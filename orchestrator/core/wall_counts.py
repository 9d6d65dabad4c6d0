"""How many wall times of a span satisfy a cron expression: reckoned by dates, not walked from one to the next.

Knows the values of the fields; must never know a zone or an instant. A wall time is a number of seconds since 1970, as
if it were UTC.
"""

from bisect import bisect_left
from datetime import date

from cronsim import CronSim

from orchestrator.core.zones import DAY_S

_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()


class WallCounts:
    """Counts of one expression."""

    __slots__ = ("_a_day", "_hours", "_minutes", "_seconds", "_walker")

    def __init__(self, walker: CronSim) -> None:
        """Take the fields as cronsim read them."""
        self._walker = walker
        self._hours, self._minutes, self._seconds = map(sorted, (walker.hours, walker.minutes, walker.seconds))
        self._a_day = len(self._hours) * len(self._minutes) * len(self._seconds)

    def between(self, low: int, high: int) -> int:
        """Return how many wall times in [low, high) satisfy the expression; 0 where the span is none."""
        if high <= low:
            return 0
        dates = sum(map(self._is_date, range(low // DAY_S, high // DAY_S)))
        return dates * self._a_day + self._earlier_that_day(high) - self._earlier_that_day(low)

    def _earlier_that_day(self, wall: int) -> int:
        day, second = divmod(wall, DAY_S)
        if not self._is_date(day):
            return 0
        hour, second = divmod(second, 3600)
        minute, second = divmod(second, 60)
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        count = bisect_left(hours, hour) * len(minutes) * len(seconds)
        if hour in self._walker.hours:
            count += bisect_left(minutes, minute) * len(seconds)
            if minute in self._walker.minutes:
                count += bisect_left(seconds, second)
        return count

    def _is_date(self, day: int) -> bool:
        shown = date.fromordinal(_EPOCH_ORDINAL + day)
        return shown.month in self._walker.months and self._walker.match_day(shown)
