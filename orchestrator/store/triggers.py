"""Orders to run a cron once, as they are stored: "order ms|JSON {job, tick, who, why}" under "!<order ms>".

They stand among the intents (see `intents.py`), so that one version tells whether anything was ordered.
"""

import json
from collections.abc import Iterable

from orchestrator.core.nouns import JobName, Trigger
from orchestrator.core.open_runs import LAST_MS
from orchestrator.store.intents import LONGEST_INTENT, LONGEST_WHO

MARK = "!"
"""The first character of their fields: no job's name has one (`config/values.py`)."""
MOST_TRIGGERS = 1000
"""So many wait at most (`lua/trigger.lua`)."""


def trigger_json(trigger: Trigger) -> str:
    """Return what stands behind the instant; a long `why` is cut."""
    words = {"job": trigger.job, "tick": trigger.tick_ms, "who": trigger.who[:LONGEST_WHO], "why": trigger.why}
    said = json.dumps(words)
    if len(said) > LONGEST_INTENT:
        # An escaped character takes at most 12 bytes (a surrogate pair).
        said = json.dumps(words | {"why": trigger.why[: (LONGEST_INTENT - 3000) // 12] + "..."})
    return said


def parse_triggers(stored: Iterable[tuple[str, str]]) -> tuple[Trigger, ...]:
    """Read all triggers, oldest first; what is malformed counts as absent."""
    parsed = (_parse(field, said) for field, said in stored if field.startswith(MARK))
    found = sorted((trigger for trigger in parsed if trigger is not None), key=lambda trigger: trigger.order_ms)
    return tuple(found[:MOST_TRIGGERS])


def _parse(field: str, said: str) -> Trigger | None:
    order_ms, _, rest = said.partition("|")
    if order_ms != field.removeprefix(MARK) or not (order_ms.isascii() and order_ms.isdigit()):
        return None
    try:
        words = json.loads(rest)
        tick = words["tick"]
        tick_ms = None if tick is None else int(tick)
        if not 0 <= (tick_ms or 0) <= LAST_MS or int(order_ms) > LAST_MS:
            return None
        return Trigger(JobName(str(words["job"])), int(order_ms), tick_ms, str(words["who"]), str(words["why"]))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None
