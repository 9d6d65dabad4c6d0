"""What the store keeps of a cron's or a service's past: one shape for `history`, `trigger` and the tests.

Knows what an entry tells; must never know Redis.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.nouns import OpenRun


@dataclass(frozen=True, slots=True)
class Past:
    """The past of one job instance.

    Attributes:
        entries: Newest first: of runs the record that `status` shows as `last`, of ticks that did not run
            {outcome: skipped | missed, tick, first, last, count, node, token, why, ended}. Bounded, see `HistorySpec`.
        since_ms: Ticks later than this are counted; 0: none are (a service, or nobody held it yet).
        settled_ms: Ticks up to here are counted: ran + skipped + missed are all ticks in (since, settled].
        ran, skipped, missed: The counts; they go on where entries are dropped.
        open: Runs that were claimed and have not ended, and those that are to be tried again.
    """

    entries: tuple[Mapping[str, object], ...] = ()
    since_ms: int = 0
    settled_ms: int = 0
    ran: int = 0
    skipped: int = 0
    missed: int = 0
    open: tuple[OpenRun, ...] = ()
