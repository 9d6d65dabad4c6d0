"""Intents as they are stored: "at ms|JSON {want, who, why}" under each job."""

import json
from collections.abc import Iterable, Mapping

from orchestrator.core.nouns import Intent, JobName

LONGEST_INTENT = 4000
"""Bytes; the scripts take anything above 4,096 for broken (`lua/reading.lua`)."""


def intent_json(intent: Intent) -> str:
    """Return what stands behind the instant; a long `why` is cut."""
    words = {"want": intent.want, "who": intent.who[:200], "why": intent.why}
    said = json.dumps(words)
    if len(said) > LONGEST_INTENT:
        # An escaped character takes at most 12 bytes (a surrogate pair).
        said = json.dumps(words | {"why": intent.why[: (LONGEST_INTENT - 3000) // 12] + "..."})
    return said


def parse_intents(stored: Iterable[tuple[str, str]]) -> Mapping[JobName, Intent]:
    """Read all intents; what is malformed counts as absent."""
    parsed = ((JobName(job), _parse(said)) for job, said in stored)
    return {job: intent for job, intent in parsed if intent is not None}


def _parse(said: str) -> Intent | None:
    at_ms, _, rest = said.partition("|")
    try:
        words = json.loads(rest)
        return Intent(str(words["want"]), str(words["who"]), str(words["why"]), int(at_ms))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
