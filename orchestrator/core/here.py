"""What a job must know of its node: one object, shared by all jobs of the node, which alone changes it."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.nouns import Moment, NodeName


def _always(_job: str, _now: Moment) -> bool:
    return True


@dataclass(slots=True)
class Here:
    """One node, as its jobs see it.

    Attributes:
        member: The node bears its name undisputed; before that nothing may be asked for.
        urgency: None while the node stays; 0, 1, 2 when it leaves (see `LeaveOrdered`).
        silence: Why the store does not answer, "" while it does.
        is_up: Whether a job (by its name in the file) runs, here or elsewhere, and is not known to be unhealthy.
    """

    node: NodeName
    incarnation: str
    member: bool = False
    urgency: int | None = None
    silence: str = ""
    is_up: Callable[[str, Moment], bool] = _always
