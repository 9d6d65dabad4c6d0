"""Which wall clock the schedules of a node go by, where somebody sets one of them.

A node's own clock counts, exact to the microsecond; that of Redis is known to some milliseconds, and is a witness.

| the own clock | that of Redis | then |
|---|---|---|
| goes on | whatever | the own one counts |
| was set, away from Redis's | goes on | time goes on as before until the own one is right again: no tick notices |
| was set, nearer to Redis's | goes on | the own one counts: it was put right |
| was set | was set too, or is not known | the own one counts: the time is another one |

A clock that is set back brings no tick again: what was settled stays so (`core/ticks.py`). The machine's sleep is no
jump, the boot clock goes on meanwhile. Slewing is followed; what moves faster is set, in however small steps.
"""

from collections.abc import Iterator

from orchestrator.core.messages import Say
from orchestrator.core.nouns import Moment

SET_S = 2.0
"""By so much a clock must move against the boot clock, beyond what slewing explains, to count as set."""

MOST_SLEW = 0.1
"""Seconds a second: chrony slews by a twelfth at most, ntpd by a two thousandth."""

APART_S = 1.0
"""From here on it is said that the clocks of node and Redis differ: ticks that far ahead are not claimed."""
TOGETHER_S = 0.5


class WallClock:
    """The wall clock of one node."""

    __slots__ = ("_ahead_s", "_apart", "_looked_at", "_redis_s", "_steady_s", "_unsaid", "_wrong")

    def __init__(self) -> None:
        """Begin by believing the node."""
        self._ahead_s: float | None = None
        self._steady_s: float | None = None  # the own clock as slewing alone could have left it
        self._looked_at = 0.0
        self._redis_s: float | None = None
        self._wrong = False
        self._apart = False
        self._unsaid: list[Say] = []

    def right(self, now: Moment, redis_ahead_s: float | None) -> Moment:
        """Return the moment by the clock that counts.

        Args:
            now: Both clocks of the machine.
            redis_ahead_s: By how much Redis's clock is ahead of the boot clock, of the last heartbeat; None: unknown.
        """
        own_s, steady_s, redis_before_s = now.utc - now.boot, self._steady_s, self._redis_s
        slewed_s, self._looked_at = MOST_SLEW * (now.boot - self._looked_at), now.boot
        self._redis_s = redis_ahead_s
        if steady_s is None:
            return self._believe(now, own_s)
        away_s = own_s - steady_s
        if abs(away_s) <= SET_S:
            if self._wrong:
                self._unsaid.append(Say("clock.right"))
            return self._believe(now, steady_s + max(-slewed_s, min(slewed_s, away_s)))
        if redis_ahead_s is not None and redis_before_s is not None:
            moved_s = redis_ahead_s - redis_before_s
            if abs(moved_s) <= SET_S and abs(own_s - redis_ahead_s) > abs(steady_s - redis_ahead_s):
                if not self._wrong:
                    self._unsaid.append(Say("clock.wrong", {"by_s": round(away_s, 1)}, "warning"))
                self._ahead_s = self._steady_s = steady_s + (moved_s if self._wrong else 0.0)
                self._wrong = True
                return Moment(now.boot, now.boot + self._ahead_s)
        self._unsaid.append(Say("clock.set", {"by_s": round(away_s, 1)}, "warning"))
        return self._believe(now, own_s)

    def _believe(self, now: Moment, steady_s: float) -> Moment:
        """Go by the own clock."""
        self._ahead_s, self._steady_s, self._wrong = now.utc - now.boot, steady_s, False
        return now

    def say(self, redis_ahead_s: float | None) -> Iterator[Say]:
        """Say what people must know of the clocks; called once a heartbeat."""
        yield from self._unsaid
        self._unsaid.clear()
        if redis_ahead_s is None or self._ahead_s is None:
            return
        apart_s = abs(redis_ahead_s - self._ahead_s)
        if not self._apart and apart_s > APART_S:
            self._apart = True
            ahead = "ahead of" if self._ahead_s > redis_ahead_s else "behind"
            yield Say("clock.differs", {"by_s": round(apart_s, 1), "which": ahead}, "warning")
        elif self._apart and apart_s < TOGETHER_S:
            self._apart = False
            yield Say("clock.agrees", {})
