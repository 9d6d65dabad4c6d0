"""Who asks first for a free lease."""

from collections import Counter
from itertools import permutations

from orchestrator.core.nouns import JobName, NodeName
from orchestrator.core.placement import rank_of

NODES = [NodeName(name) for name in ("a", "b", "c", "d")]
JOBS = [JobName(f"job{number}") for number in range(400)]


def first(job: JobName, nodes: list[NodeName]) -> NodeName:
    (node,) = (node for node in nodes if rank_of(node, job, nodes) == 0)
    return node


def test_every_node_has_its_own_rank_for_a_job() -> None:
    for job in JOBS:
        assert sorted(rank_of(node, job, NODES) for node in NODES) == [0, 1, 2, 3]


def test_all_nodes_agree_whatever_the_order_they_know_each_other_in() -> None:
    for nodes in permutations(NODES):
        assert [rank_of(node, JOBS[0], nodes) for node in NODES] == [rank_of(node, JOBS[0], NODES) for node in NODES]


def test_the_jobs_spread_over_the_nodes() -> None:
    counts = Counter(first(job, NODES) for job in JOBS)

    assert all(70 <= counts[node] <= 130 for node in NODES)


def test_a_node_that_leaves_moves_only_its_own_jobs() -> None:
    left = NODES[:3]

    assert [job for job in JOBS if first(job, NODES) in left and first(job, NODES) != first(job, left)] == []


def test_a_node_that_nobody_sees_yet_still_has_a_rank() -> None:
    assert rank_of(NodeName("z"), JOBS[0], []) == 0
