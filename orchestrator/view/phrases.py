"""How single values are said: durations, instants, states, leases, ends of runs."""

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime

from rich.text import Text

from orchestrator.core.ends import describe_end
from orchestrator.core.snapshot import LAST_UTC, JobView, State, iso_utc

NOTHING = "-"
"""An empty cell; never blank, so that every line of a plain table has every column."""

GLYPHS: Mapping[str, tuple[str, str]] = {
    State.RUNNING: ("●", "green"),
    State.WAITING: ("○", "cyan"),
    State.STANDBY: ("○", "cyan"),
    State.STARTING: ("◐", "yellow"),
    State.STOPPING: ("◑", "yellow"),
    State.BACKOFF: ("▲", "yellow"),
    State.STOPPED: ("■", "bright_black"),
    State.PAUSED: ("‖", "bright_black"),
    State.BLOCKED: ("◆", "red"),
    State.FAILED: ("✘", "red"),
    State.UNHELD: ("◌", "red"),
}
"""Glyph and colour of each state."""

BAR_CELLS = 6
_UNKNOWN_GLYPH = ("?", "red")
_HARMLESS_CATEGORIES = frozenset("LMNPS")
"""Letters, marks, numbers, punctuation, symbols: what moves no cursor and reverses no line."""


def clean(value: object) -> str:
    r"""Return text that can only be read: whatever could move the cursor or reorder a line is written as `\x1b`."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if _harmless(char) else _escaped(char) for char in text)


def glyph(state: str) -> Text:
    """Return the mark of a state, in its colour."""
    mark, colour = GLYPHS.get(state, _UNKNOWN_GLYPH)
    return Text(mark, style=colour)


def state_word(state: str) -> Text:
    """Return a state's word, in its colour."""
    return Text(clean(state), style=GLYPHS.get(state, _UNKNOWN_GLYPH)[1])


def span(seconds: float) -> str:
    """Return a duration in at most two units: `0.4s`, `41s`, `12m31s`, `3h04m`, `3d04h`."""
    seconds = max(0.0, seconds)
    if seconds < 10:  # noqa: PLR2004 - a tenth is worth reading below ten seconds only
        return f"{seconds:.1f}s"
    whole = int(seconds)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d{hour:02}h"
    if hours:
        return f"{hours}h{minute:02}m"
    return f"{minutes}m{second:02}s" if minutes else f"{second}s"


def utc_of(instant: object) -> float | None:
    """Read an ISO 8601 instant; None for anything else (it came from Redis and may be anything)."""
    try:
        moment = datetime.fromisoformat(str(instant))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def iso_of(ms: int) -> str | None:
    """Return milliseconds since 1970 as ISO 8601 text; None for 0, and for what no calendar has."""
    try:
        return iso_utc(ms / 1000) if 0 < ms / 1000 <= LAST_UTC else None
    except (ValueError, OverflowError, OSError):
        return None


def holder(row: JobView, node: str | None) -> str:
    """Return who holds a job's lease; `*` marks the node on this machine."""
    if row.holder is None:
        return NOTHING
    return clean(row.holder) + ("*" if row.holder == node else "")


def lease_left(row: JobView) -> str:
    """Return what is left of a lease and what a full one has: `12.4s/15s`; without a holder the ttl alone."""
    full = NOTHING if row.ttl_ms is None else f"{row.ttl_ms / 1000:g}s"
    if row.holder is None or row.lease_ms is None:
        return full if row.ttl_ms is None else f"{NOTHING}/{full}"
    left = "never ends" if row.lease_ms < 0 else f"{row.lease_ms / 1000:.1f}s"
    return left if row.ttl_ms is None else f"{left}/{full}"


def lease_bar(row: JobView, cells: int = BAR_CELLS) -> Text:
    """Return the lease as a bar: green above a half, yellow above a quarter, red below."""
    if row.holder is None or row.lease_ms is None or not row.ttl_ms:
        return Text(" " * cells)
    part = 1.0 if row.lease_ms < 0 else min(1.0, row.lease_ms / row.ttl_ms)
    colour = "green" if part > 0.5 else "yellow" if part > 0.25 else "red"  # noqa: PLR2004 - see above
    filled = min(cells, max(0, round(part * cells)))
    return Text("▮" * filled + "▯" * (cells - filled), style=colour)


def up_or_next(row: JobView, now_utc: float) -> str:
    """Return how long a run is up, or when the next tick or try comes."""
    since, following = utc_of(row.since), utc_of(row.next)
    if row.pid is not None and since is not None:
        return f"up {span(now_utc - since)}"
    if following is None:
        return NOTHING
    word = "retry" if row.state == State.BACKOFF else "in"
    return f"{word} {span(following - now_utc)}" if following > now_utc else f"{word} now"


def last_end(row: JobView, now_utc: float) -> str:
    """Return how the last run ended: `ok 41s, 2h00m ago`, `exit 1 0.3s, 12s ago`."""
    if not row.last:
        return NOTHING
    outcome = str(row.last.get("outcome", ""))
    end = outcome if outcome in ("ok", "stopped", "timeout") else describe_end(row.last)
    elapsed = row.last.get("elapsed_s")
    took = f" {span(elapsed)}" if isinstance(elapsed, int | float) else ""
    ended = utc_of(row.last.get("ended"))
    return clean(end) + took + ("" if ended is None else f", {span(now_utc - ended)} ago")


def ago(instant: object, now_utc: float) -> str:
    """Return an instant and how long ago it was; `-` where there is none."""
    utc = utc_of(instant)
    return NOTHING if utc is None else f"{clean(instant)} ({span(now_utc - utc)} ago)"


def _harmless(char: str) -> bool:
    return char == " " or unicodedata.category(char)[0] in _HARMLESS_CATEGORIES


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004 - how Python itself writes them
