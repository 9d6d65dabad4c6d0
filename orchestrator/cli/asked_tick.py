"""May a tick that somebody names be run once more, or late? Judges by the schedule and by the job's past; asks nothing.

Refused are instants that no schedule has, ticks to come, those that the holder has yet to see to, and those that ran;
`again` lets the last two pass. The past is bounded: a tick whose entry is gone counts as one that did not run.
"""

from orchestrator.core.past import Past
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import iso_utc
from orchestrator.view import phrases
from orchestrator.view.entries import entry_of

_SAME_S = 0.0005
"""Half of what an instant is rounded to."""
_LOOK_BACK_S = (3600.0, 86_400.0, 31 * 86_400.0, 366 * 86_400.0, 50 * 366 * 86_400.0)
"""How far back the tick before an instant is looked for: the first span that has one is short to count."""


def refusal(tick: float, *, now_utc: float, schedule: Schedule | None, past: Past, again: bool) -> str:
    """Return why a tick is not run, in one clause; "" if it may.

    Args:
        tick: Seconds since 1970, as is `now_utc`.
        now_utc: By the server's clock.
        schedule: None: its ticks follow from another job's successes, and any instant of the past may be one.
        past: Of the job.
        again: It is wanted though it ran.
    """
    said = iso_utc(tick)
    if tick > now_utc:
        return f"the tick {said} lies in the future"
    if schedule is not None and not _has(schedule, tick):
        return f"{said} is no tick of its schedule{_neighbours(schedule, tick)}"
    if again:
        return ""
    tick_ms = round(tick * 1000)
    if any(run.tick_ms == tick_ms for run in past.open):
        return f"the tick {said} is being run; --again runs it once more"
    for entry in map(entry_of, past.entries):
        utc = phrases.utc_of(entry.tick)
        if entry.outcome == "ok" and utc is not None and round(utc * 1000) == tick_ms:
            return f"the tick {said} ran already ({entry.run} on {entry.node}); --again runs it once more"
    if past.settled_ms and tick_ms > past.settled_ms:
        return f"the tick {said} is still to be run or skipped by itself; --again runs it in addition"
    return ""


def _has(schedule: Schedule, tick: float) -> bool:
    found = schedule.next_after(tick - _SAME_S)
    return found is not None and abs(found - tick) < _SAME_S


def _neighbours(schedule: Schedule, instant: float) -> str:
    spans = (schedule.newest_in(instant - span_s, instant)[0] for span_s in _LOOK_BACK_S)
    before = next((tick for tick in spans if tick is not None), None)
    near = [iso_utc(tick) for tick in (before, schedule.next_after(instant)) if tick is not None]
    return f"; the nearest are {' and '.join(near)}" if near else ""
