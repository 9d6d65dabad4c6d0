"""Intents as they are stored: "at ms|JSON {want, who, why, off_ms, catch_up}" under each job.

A field that begins with "!" is no job's: triggers stand in the same hash (see `triggers.py`).
"""

import json
from collections.abc import Iterable, Mapping

from orchestrator.core.nouns import Intent, JobName

LONGEST_INTENT = 4000
"""Bytes; the scripts take anything above 4,096 for broken (`lua/reading.lua`), and `lua/order.lua` adds some."""
LONGEST_WHO = 200
"""Characters."""


def intent_json(intent: Intent) -> str:
    """Return what stands behind the instant; a long `why` is cut."""
    words: dict[str, object] = {"want": intent.want, "who": intent.who[:LONGEST_WHO], "why": intent.why}
    if intent.off_ms:
        words["off_ms"] = intent.off_ms
    if intent.catch_up:
        words["catch_up"] = True
    said = json.dumps(words)
    if len(said) > LONGEST_INTENT:
        # An escaped character takes at most 12 bytes (a surrogate pair).
        said = json.dumps(words | {"why": intent.why[: (LONGEST_INTENT - 3000) // 12] + "..."})
    return said


def parse_intents(stored: Iterable[tuple[str, str]]) -> Mapping[JobName, Intent]:
    """Read all intents; what is malformed counts as absent."""
    parsed = ((JobName(job), _parse(said)) for job, said in stored if not job.startswith("!"))
    return {job: intent for job, intent in parsed if intent is not None}


def _parse(said: str) -> Intent | None:
    at_ms, _, rest = said.partition("|")
    try:
        words = json.loads(rest)
        off_ms, catch_up = int(words.get("off_ms", 0)), words.get("catch_up") is True
        return Intent(str(words["want"]), str(words["who"]), str(words["why"]), int(at_ms), off_ms, catch_up)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return None
