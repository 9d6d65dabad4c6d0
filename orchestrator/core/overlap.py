"""What is in the way of another start of a cron (`overlap`, `max_instances`).

A run that is to be tried again is in the way as one that runs is: else a tick would come between two attempts.
"""

from collections.abc import Collection

from orchestrator.core.nouns import RunId
from orchestrator.core.spec import JobSpec, Overlap


def in_the_way(spec: JobSpec, runs: Collection[RunId], retries: Collection[RunId]) -> str:
    """Return what is in the way, in one clause with its rule; "" if nothing is.

    Args:
        spec: Of the job.
        runs: What runs, oldest first.
        retries: What is to be tried again.
    """
    limit = spec.max_instances if spec.overlap is Overlap.ALLOW else 1
    if len(runs) + len(retries) < limit:
        return ""
    if spec.overlap is Overlap.ALLOW:
        return f"{limit} runs go on (max_instances)"
    if runs:
        return f"{next(iter(runs))} still runs (overlap: {spec.overlap})"
    return f"{next(iter(retries))} is to be tried again (overlap: {spec.overlap})"
