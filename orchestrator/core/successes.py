"""The ticks of a cron that runs after another one (`after`): the instants at which that one succeeded, as told.

It answers like a `Schedule`, so that misfire, overlap, retries and the counts know no difference; it is never due by
itself. Must never know who that other job is, or how its successes are come by.
"""

from bisect import bisect_right
from collections.abc import Iterable

MOST_KEPT = 1000
"""Far more than the store keeps of them."""


class Successes:
    """Instants, seconds since 1970."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        """Know of none."""
        self._at: list[float] = []

    def tell(self, at_ms: Iterable[int]) -> None:
        """Take in instants, in milliseconds, whichever of them are known already."""
        self._at = sorted({*self._at, *(ms / 1000 for ms in at_ms)})[-MOST_KEPT:]

    def next_after(self, utc: float) -> float | None:
        """Return the first one strictly later than `utc`; None: none is known."""
        place = bisect_right(self._at, utc)
        return self._at[place] if place < len(self._at) else None

    def newest_in(self, after: float, until: float) -> tuple[float | None, int]:
        """Return the newest in (after, until], and how many lie there."""
        first, end = bisect_right(self._at, after), bisect_right(self._at, until)
        return (self._at[end - 1], end - first) if end > first else (None, 0)
