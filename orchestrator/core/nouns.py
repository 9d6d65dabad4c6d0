"""What everything is about: names, instants, a lease's value, a member, a standing order.

Frozen data without behaviour. Units: `_s` float seconds, `_ms` int milliseconds (only where Redis is
spoken to), `_at` an instant on the boot clock (CLOCK_BOOTTIME, seconds), `_utc` seconds since 1970.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

JobName = NewType("JobName", str)
"""Name of one job instance: `beat`, or `worker.1` for the second of several."""

NodeName = NewType("NodeName", str)

RunId = NewType("RunId", str)

Token = NewType("Token", int)
"""Fencing token: strictly greater for each new holder of a lease; 13 digits, a server time in ms."""

Bucket = NewType("Bucket", int)
"""Which of the 16 hash tags a lease key lives under; one Redis server answers for a whole bucket."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks, read together.

    Attributes:
        boot: CLOCK_BOOTTIME in seconds; for deadlines. It goes on while the machine is suspended.
        utc: Seconds since 1970; for schedules and for people. It may be set at any time.
    """

    boot: float
    utc: float


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Until when a run may live by its lease, on the boot clock.

    Attributes:
        term_at: SIGTERM to the tree, if nothing moved this by then.
        kill_at: SIGKILL to the tree, again and again until nothing is left.
    """

    term_at: float
    kill_at: float


@dataclass(frozen=True, slots=True)
class LeaseValue:
    """What stands under a lease key: `token|node|incarnation`."""

    token: Token
    node: NodeName
    incarnation: str

    def __str__(self) -> str:
        """Return the value as it is stored."""
        return f"{self.token}|{self.node}|{self.incarnation}"


def parse_lease_value(text: str) -> LeaseValue | None:
    """Read a stored lease value; None for anything malformed (it counts as absent)."""
    token, _, rest = text.partition("|")
    node, _, incarnation = rest.rpartition("|")
    if not (token.isascii() and token.isdigit() and len(token) <= MAX_TOKEN_DIGITS and node and incarnation):
        return None
    return LeaseValue(Token(int(token)), NodeName(node), incarnation)


MAX_TOKEN_DIGITS = 15
"""Lua's numbers are doubles: 15 digits are exact, and milliseconds need 13 until the year 2286."""


@dataclass(frozen=True, slots=True)
class Member:
    """One live node.

    Attributes:
        since_ms: Server time at which this incarnation joined; ties are broken by name.
        info: What it said of itself, parsed JSON: host, pid, version, tags, jobs {instance: lease key}.
    """

    name: NodeName
    incarnation: str
    since_ms: int
    info: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Intent:
    """A standing order for one job: it survives restarts and failovers.

    Attributes:
        want: stopped | paused | running.
        who: Login and host of the one who said so.
        why: In their words, "" if they gave none.
        at_ms: Server time of the order.
        off_ms: Since when the job is stopped or paused, or, of `running`, was until this order; 0: it was not.
        catch_up: `running`: what was due meanwhile is late, and not skipped.
    """

    want: str
    who: str
    why: str
    at_ms: int
    off_ms: int = 0
    catch_up: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """An order to run a cron job once, now. It is obeyed once, by the holder, in the order of `order_ms`.

    Attributes:
        order_ms: Server time of the order; strictly greater for each one.
        tick_ms: The tick it runs for, None: none.
        who, why: As in an `Intent`.
    """

    job: JobName
    order_ms: int
    tick_ms: int | None
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class OpenRun:
    """What the store keeps of a cron's run from its claim to its end, and over the wait for another attempt.

    Attributes:
        run: Of the present attempt, or of the one that ended and is tried again.
        tick_ms: None: it was ordered, and runs for no tick.
        token: Under which it was claimed.
        node: Who claimed it.
        attempt: Counts from 1.
        reason: Why its first attempt was started.
        retry_ms: When the next attempt is due, milliseconds since 1970; 0: the present one has not ended.
        rerun: The next attempt follows a run that was lost, and not one that failed.
        reruns: How many attempts before this one followed a lost run.
    """

    run: RunId
    tick_ms: int | None
    token: Token
    node: NodeName
    attempt: int
    reason: str
    retry_ms: int = 0
    rerun: bool = False
    reruns: int = 0
