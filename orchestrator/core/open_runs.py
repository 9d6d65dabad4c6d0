"""The texts that keep a cron's open runs in the store: written by whoever claims, read by whoever holds the lease next.

Knows the words of that text; must never trust them: another version, or another program, may have written them.
"""

import json

from orchestrator.core.nouns import NodeName, OpenRun, RunId, Token

LAST_MS = 253_402_300_799_000
"""The end of the year 9999, in milliseconds since 1970: no calendar goes further."""

MOST_ATTEMPTS = 1_000_000
"""What is above was not written by us."""


def mark_of(run: OpenRun) -> str:
    """Return the text that is kept of an open run."""
    told = {
        "tick": run.tick_ms,
        "token": run.token,
        "node": run.node,
        "attempt": run.attempt,
        "reason": run.reason,
        "retry": run.retry_ms,
        "rerun": run.rerun,
        "reruns": run.reruns,
    }
    return json.dumps(told, separators=(",", ":"))


def parse_mark(run: str, text: str) -> OpenRun | None:
    """Read what is kept of an open run; None for anything that we would not have written."""
    try:
        told = json.loads(text)
        tick_ms = told["tick"]
        open_run = OpenRun(
            run=RunId(run),
            tick_ms=None if tick_ms is None else int(tick_ms),
            token=Token(int(told["token"])),
            node=NodeName(str(told["node"])),
            attempt=int(told["attempt"]),
            reason=str(told["reason"]),
            retry_ms=int(told["retry"]),
            rerun=bool(told["rerun"]),
            reruns=int(told["reruns"]),
        )
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        return None
    instants_ms = (open_run.tick_ms or 0, open_run.retry_ms, open_run.token)
    counts_well = 0 <= open_run.reruns < open_run.attempt <= MOST_ATTEMPTS
    return open_run if counts_well and all(0 <= ms <= LAST_MS for ms in instants_ms) else None
