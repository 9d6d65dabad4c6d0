"""Reads an instant as a person writes it: `2026-12-24T18:00` on the clocks of a zone, or with an offset of its own.

Knows the notation (of ISO 8601 what RFC 3339 took, with minutes as the least); must never know a schedule. The
complaint is a `ValueError` with one clause that says what to write instead.

1. `T` or a blank before the time; `Z`, `+01:00` or no offset. A date alone is its midnight, in the zone.
2. A wall time that the clocks show twice is its first pass; one that they skip is the instant at which the gap ends.
"""

import re
from datetime import datetime

from orchestrator.core.zones import Zone

FIRST_YEAR, LAST_YEAR = 1971, 2999
_INSTANT = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)(?P<offset>Z|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII | re.IGNORECASE,
)


def instant_of(text: str, timezone: str) -> float:
    """Return the instant in seconds since 1970, to the millisecond.

    Args:
        text: As written.
        timezone: IANA name of the zone whose clocks are meant where the text has no offset.

    Raises:
        ValueError: It is no instant, or the zone is unknown.
    """
    match = _INSTANT.fullmatch(text.strip())
    if not match:
        raise ValueError("is no instant; write it as 2026-12-24T18:00, 2026-12-24T18:00:00Z or 2026-12-24")
    try:
        wall = datetime.fromisoformat(f"{match['date']}T{match['time'] or '00:00'}")
        offset = datetime.strptime(match["offset"].upper(), "%z").tzinfo if match["offset"] else None
    except ValueError:
        raise ValueError("is no instant; there is no such date, time or offset") from None
    if not FIRST_YEAR <= wall.year <= LAST_YEAR:
        raise ValueError(f"is out of range; write a year from {FIRST_YEAR} to {LAST_YEAR}")
    utc = wall.replace(tzinfo=offset).timestamp() if offset else Zone(timezone).instant_of(wall)
    return round(utc, 3)
