"""Why a run that goes on is stopped or killed: one rule after the other, the most urgent first.

Knows what may end a run; must never know how the lease or the schedule came to say so.
"""

from collections.abc import Iterator

from orchestrator.core.fitness import Fitness
from orchestrator.core.here import Here
from orchestrator.core.messages import Action
from orchestrator.core.nouns import Moment
from orchestrator.core.run import LEASE_LOST, TIMED_OUT, Run
from orchestrator.core.spec import JobSpec

AT_ONCE = 2
"""The urgency of a third request to go (`LeaveOrdered`): kill."""


def mind(
    run: Run, spec: JobSpec, here: Here, fitness: Fitness, now: Moment, *, holds: bool, unwanted: str, cut: bool
) -> Iterator[Action]:
    """End a run that must not go on; calling it again changes nothing.

    Args:
        run: The run.
        spec: Of its job.
        here: The node.
        fitness: Whether it does its work.
        now: Both clocks.
        holds: Its lease is held under its token.
        unwanted: Why the node should not hold the lease, "" if it should.
        cut: A change of the file ends it.
    """
    if not holds:
        yield from run.kill(LEASE_LOST)
    elif here.urgency == AT_ONCE:
        yield from run.kill("the node was told to go at once")
    elif unwanted:
        grace_s = spec.stop.timeout_s
        if here.urgency:
            grace_s = min(grace_s, spec.lease.step_down_grace_s)
        yield from run.stop(grace_s, unwanted)
    elif cut:
        yield from run.stop(spec.stop.timeout_s, "its definition changed")
    elif run.exited:
        pass
    elif spec.timeout_s is not None and now.boot >= run.started.boot + spec.timeout_s:
        yield from run.stop(spec.stop.timeout_s, TIMED_OUT, failure=True)
    elif run.unfit is None and (verdict := fitness.verdict(now)) is not None:
        run.unfit = verdict
        yield from run.stop(spec.stop.timeout_s, verdict.why, failure=verdict.failure)


def due_at(run: Run, spec: JobSpec, fitness: Fitness) -> float:
    """Return the boot instant at which `mind` may have something to do."""
    if run.killed or run.stop_why or run.exited:
        return float("inf")
    at = fitness.due_at()
    return at if spec.timeout_s is None else min(at, run.started.boot + spec.timeout_s)
