"""Who asks first for a free lease. The lease alone gives safety; this only spreads the work.

Rendezvous hashing (highest random weight): every node computes the same order from the same names, and a
node that joins or leaves changes only the jobs it wins or had.
"""

import hashlib
from collections.abc import Sequence

from orchestrator.core.nouns import JobName, NodeName


def rank_of(node: NodeName, job: JobName, nodes: Sequence[NodeName]) -> int:
    """Return how many of `nodes` come before `node` for this job; 0: it asks at once."""
    own = _weight(node, job)
    return sum(1 for other in nodes if other != node and _weight(other, job) > own)


def _weight(node: NodeName, job: JobName) -> bytes:
    return hashlib.sha256(f"{node}|{job}".encode()).digest()[:8]
