"""A time zone as a line of stretches: between two changes of its clocks the offset from UTC is constant.

Knows offsets and where they change; must never know a schedule. Instants are whole seconds since 1970 (UTC),
offsets are seconds east of UTC. The tables are zoneinfo's: the system's, else those of the `tzdata` package.

zoneinfo does not tell its changes, so they are found by asking for the offset once a day and halving the days
between which it differs. That is enough: since 1970 no two changes of a zone lie closer than 6.9 days
(tzdata 2025b, all zones).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor
from zoneinfo import ZoneInfo, available_timezones

DAY_S = 86_400
_SECOND = timedelta(seconds=1)

_HOSTS_OWN = ("localtime", "posixrules", "posix/", "right/")
"""Not zones but views of the tables: the host's own zone, and copies of which one counts leap seconds."""


@dataclass(frozen=True, slots=True)
class Change:
    """The clocks of a zone were changed.

    Attributes:
        at: The first instant of the new offset.
        before_s: The offset until then.
        after_s: The offset from then on, until the next change.
    """

    at: int
    before_s: int
    after_s: int

    @property
    def skipped_s(self) -> int:
        """How much wall time was skipped (a gap); negative: repeated; 0: nothing."""
        return self.after_s - self.before_s


class Zone:
    """One IANA zone."""

    def __init__(self, name: str) -> None:
        """Look the zone up.

        Raises:
            ValueError: There is no such zone; the text is one clause for people.
        """
        self.name = name
        tz = _look_up(name)
        if tz is None:
            known = [zone for zone in available_timezones() if not zone.startswith(_HOSTS_OWN)]
            near = get_close_matches(name, known, n=1) or ["Europe/Berlin"]
            raise ValueError(f"time zone {name!r} is unknown: write an IANA name, for example {near[0]}")
        self._tz = tz

    def local(self, utc: float) -> datetime:
        """Return what the clocks of the zone show at an instant."""
        return datetime.fromtimestamp(utc, self._tz)

    def instant_of(self, wall: datetime) -> float:
        """Return when the clocks of the zone show a wall time: of two passes the first, in a gap where it ends."""
        first = wall.replace(tzinfo=self._tz, fold=0).timestamp()
        if self.local(first).replace(tzinfo=None, fold=0) == wall:
            return first
        # In a gap: the one reading lies before its end, the other behind it.
        before = wall.replace(tzinfo=self._tz, fold=1).timestamp()
        change = self.change_between(floor(before), ceil(first))
        return first if change is None else float(change.at)

    def stretch_at(self, utc: int) -> Change:
        """Return the change that began the stretch an instant lies in.

        A change longer than a day ago is not looked for, for nothing of it can be felt any more: the
        stretch then begins a day ago, with no change of offset.
        """
        return _stretch_at(self._tz, utc)

    def change_between(self, after: int, until: int) -> Change | None:
        """Return the first change in (after, until]."""
        return next(_changes_between(self._tz, after, until), None)


def _look_up(name: str) -> ZoneInfo | None:
    if name.startswith(_HOSTS_OWN):
        return None
    try:
        return ZoneInfo(name)
    # zoneinfo answers a bad name with KeyError, ValueError (`../etc`) or OSError (a directory: `America`).
    except (KeyError, ValueError, OSError):
        return None


@lru_cache(maxsize=1024)
def _stretch_at(tz: ZoneInfo, utc: int) -> Change:
    """Cached, since all jobs of a zone ask about the same instant when the ticks of a node are recomputed."""
    offset = _offset_at(tz, utc)
    change = Change(utc - DAY_S, offset, offset)
    for change in _changes_between(tz, utc - DAY_S, utc):  # noqa: B007 - the last one is wanted
        pass
    return change


def _changes_between(tz: ZoneInfo, after: int, until: int) -> Iterator[Change]:
    for year in range(_year_of(after), _year_of(until) + 1):
        for change in _changes_in(tz, year):
            if after < change.at <= until:
                yield change


def _year_of(utc: int) -> int:
    return datetime.fromtimestamp(utc, UTC).year


def _offset_at(tz: ZoneInfo, utc: int) -> int:
    offset = datetime.fromtimestamp(utc, tz).utcoffset() or timedelta()
    return offset // _SECOND


@lru_cache(maxsize=4096)
def _changes_in(tz: ZoneInfo, year: int) -> tuple[Change, ...]:
    """Return the changes of a year (UTC), in order. Costs some 400 look-ups, hence the cache: zones are few."""
    begins = datetime(year, 1, 1, tzinfo=UTC)
    first = int(begins.timestamp())
    # From one second before the year, so that a change at its very first instant belongs to it.
    days = [first - 1, *range(first + DAY_S - 1, first + 367 * DAY_S, DAY_S)]
    offsets = [_offset_at(tz, day) for day in days]
    changes = (
        _halve(tz, *span)
        for span, (before, after) in zip(pairwise(days), pairwise(offsets), strict=True)
        if before != after
    )
    return tuple(change for change in changes if _year_of(change.at) == year)


def _halve(tz: ZoneInfo, low: int, high: int) -> Change:
    """Return the change in (low, high], of which there is exactly one."""
    before, after = _offset_at(tz, low), _offset_at(tz, high)
    while high - low > 1:
        middle = (low + high) // 2
        if _offset_at(tz, middle) == before:
            low = middle
        else:
            high = middle
    return Change(high, before, after)
