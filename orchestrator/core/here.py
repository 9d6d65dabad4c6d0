"""What a job must know of its node: one object, shared by all jobs of the node, which alone changes it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.core.capacity import Capacity
from orchestrator.core.nouns import JobName, Moment, NodeName

MOST_ASKS = 250
"""Asks in one batch: the store carries them out in some 20 ms, far below any request timeout."""


def _always(_job: str, _now: Moment) -> str:
    return ""


def _nobody(_job: str) -> tuple[JobName, ...]:
    return ()


@dataclass(slots=True)
class Here:
    """One node, as its jobs see it.

    Attributes:
        member: The node bears its name undisputed; before that nothing may be asked for.
        urgency: None while the node stays; 0, 1, 2 when it leaves (see `LeaveOrdered`).
        silence: Why the store does not answer, "" while it does.
        why_not_up: Why a job (by its name in the file) does not run well, here or elsewhere; "" if it does.
        capacity: The room for runs of cron jobs.
        asks: The room for asks for a lease that were not answered yet.
        followers: The crons that run after each success of a job (by its name in the file).
        key_of: The lease key of a job, by its name in the file.
    """

    node: NodeName
    incarnation: str
    member: bool = False
    urgency: int | None = None
    silence: str = ""
    why_not_up: Callable[[str, Moment], str] = _always
    capacity: Capacity = field(default_factory=Capacity)
    asks: Capacity = field(default_factory=lambda: Capacity(MOST_ASKS))
    followers: Callable[[str], tuple[JobName, ...]] = _nobody
    key_of: Callable[[str], str] = str
