"""The lease of a job that runs on every node (`scope: node`): none.

It is always to be had, never ends, and nobody else wants it, so that `job.py` needs no second way through its
table. Redis is not asked and may be away; such a run has no fencing token, and no deadline but its node's end.
"""

from orchestrator.core.lease import NEVER, Lease, Phase
from orchestrator.core.nouns import Deadlines, LeaseValue, NodeName, Token
from orchestrator.core.spec import JobSpec

NO_TOKEN = Token(0)


class NodeLease(Lease):
    """Held from the moment it is taken until it is given back."""

    __slots__ = ()

    def __init__(self, spec: JobSpec, *, node: NodeName, incarnation: str, floor: Token) -> None:
        """Begin without it; it is to be had at once."""
        super().__init__(spec, node=node, incarnation=incarnation, floor=floor)
        self.ask_at = 0.0

    def take(self) -> None:
        """Hold it."""
        self.phase = Phase.HELD
        self.value = LeaseValue(NO_TOKEN, self._node, self.incarnation)

    def lose(self) -> None:
        """Give it back: it is to be had again at once."""
        super().lose()
        self.ask_at = 0.0

    def ends_at(self) -> float:
        """Return NEVER."""
        return NEVER

    def deadlines(self) -> Deadlines | None:
        """Return None: a run lives as long as its node does."""
        return None

    def beat(self, _now_boot: float) -> None:
        """Nothing is asked of the store."""
        return
