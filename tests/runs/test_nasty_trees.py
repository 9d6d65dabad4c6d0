"""Thirteen trees that resist being killed, and every fault that a node's processes must stand: nothing is left.

The trees of a fault live side by side in one node, as jobs do; each cell is a test of its own.
"""

import asyncio

import pytest

from tests.runs.nasty_scene import FAULTS, SCENES, Outcome, play

CELLS = [
    pytest.param(fault, trees, tree, id=f"{tree}, {fault}") for fault in FAULTS for trees in SCENES for tree in trees
]
Played = dict[tuple[str, tuple[str, ...]], dict[str, Outcome]]


@pytest.fixture(scope="module")
def played() -> Played:
    """What each fault left of the trees that lived side by side, as far as it was played yet."""
    return {}


@pytest.fixture
def outcome(
    fault: str, trees: tuple[str, ...], tree: str, played: Played, tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    """What this fault left of this tree; the first of the trees that asks has it played for all of them."""
    if (fault, trees) not in played:
        played[fault, trees] = {}  # where the scene itself fails, it fails once
        played[fault, trees] = asyncio.run(play(FAULTS[fault], trees, tmp_path_factory.mktemp("scene")))
    assert tree in played[fault, trees], "its scene failed: see the first of its trees"
    return played[fault, trees][tree]


@pytest.mark.parametrize(("fault", "trees", "tree"), CELLS)
def test_nothing_of_a_tree_is_left_within_the_bound(outcome: Outcome) -> None:
    assert outcome.left == []
    assert outcome.gone_after_s <= outcome.bound_s
    assert outcome.left_at_end == [], "main called it ended before it was"
    assert outcome.cause in outcome.expected
