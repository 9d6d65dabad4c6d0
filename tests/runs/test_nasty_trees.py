"""Thirteen trees that resist being killed, and every fault that a node's processes must stand: nothing is left.

The trees of a fault live side by side in one node, as jobs do; each cell is a test of its own.
"""

import asyncio

import pytest

from tests.runs.nasty_scene import FAULTS, SCENES, Outcome, play

CELLS = [
    pytest.param(fault, trees, tree, False, id=f"{tree}, {fault}")
    for fault in FAULTS
    for trees in SCENES
    for tree in trees
] + [
    pytest.param(fault, SCENES[0], tree, True, id=f"{tree} in a spare, {fault}")
    for fault in (
        "a stop",
        "a step-down",
        "SIGKILL of main and launcher",
        "SIGSTOP of main and leash",
        "SIGKILL of the leash",
    )
    for tree in SCENES[0]
]
Played = dict[tuple[str, tuple[str, ...], bool], dict[str, Outcome]]


@pytest.fixture(scope="module")
def played() -> Played:
    """What each fault left of the trees that lived side by side, as far as it was played yet."""
    return {}


@pytest.fixture
def outcome(
    fault: str,
    trees: tuple[str, ...],
    tree: str,
    in_spare: bool,
    played: Played,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outcome:
    """What this fault left of this tree; the first of the trees that asks has it played for all of them."""
    scene = fault, trees, in_spare
    if scene not in played:
        played[scene] = {}  # where the scene itself fails, it fails once
        directory = tmp_path_factory.mktemp("scene")
        played[scene] = asyncio.run(play(FAULTS[fault], trees, directory, in_spares=in_spare))
    assert tree in played[scene], "its scene failed: see the first of its trees"
    return played[scene][tree]


@pytest.mark.parametrize(("fault", "trees", "tree", "in_spare"), CELLS)
def test_nothing_of_a_tree_is_left_within_the_bound(outcome: Outcome) -> None:
    assert outcome.left == []
    assert outcome.gone_after_s <= outcome.bound_s
    assert outcome.left_at_end == [], "main called it ended before it was"
    assert outcome.cause in outcome.expected
