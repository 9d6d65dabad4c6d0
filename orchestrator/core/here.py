"""What a job must know of its node: one object, shared by all jobs of the node, which alone changes it."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.nouns import Moment, NodeName


def _always(_job: str, _now: Moment) -> str:
    return ""


@dataclass(slots=True)
class Here:
    """One node, as its jobs see it.

    Attributes:
        member: The node bears its name undisputed; before that nothing may be asked for.
        urgency: None while the node stays; 0, 1, 2 when it leaves (see `LeaveOrdered`).
        silence: Why the store does not answer, "" while it does.
        why_not_up: Why a job (by its name in the file) does not run well, here or elsewhere; "" if it does.
    """

    node: NodeName
    incarnation: str
    member: bool = False
    urgency: int | None = None
    silence: str = ""
    why_not_up: Callable[[str, Moment], str] = _always
