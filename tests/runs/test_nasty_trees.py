"""Thirteen trees that resist being killed, each ended in three ways: nothing of any is left."""

import pytest

from orchestrator import clock
from orchestrator.core.nouns import RunId
from tests.runs.node import Node, fresh_tag, job, nasty, soon, survivors, until

TREES = {
    "plain": 5,
    "ignterm": 5,
    "leader_exits": 2,
    "setsid": 3,
    "daemon": 2,
    "daemon_leader_exit": 1,
    "mix": 5,
    "envclear": 2,
    "stopped": 3,
    "hopper": 2,
    "hopper_pg": 2,
    "hydra": 5,
    "bomb": 61,
}
"""How many processes each has at least, once it has grown."""
GRACE_S = 0.3
LATE_S = 2.0
"""What a busy machine may add to a grace; on a quiet one a tree dies in a few milliseconds."""

modes = pytest.mark.parametrize("mode", TREES)


async def grown(node: Node, mode: str, tag: str, run: RunId) -> None:
    await node.started(run)
    await until(lambda: len(survivors(tag)) >= TREES[mode], f"the {mode} tree grows")


@modes
async def test_a_stop_leaves_nothing_of_a_tree(node: Node, mode: str) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty(mode, tag), stop_s=GRACE_S))
    await grown(node, mode, tag, run)

    ordered_at = clock.boot()
    node.stop(run, GRACE_S)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause in {"stop", "exit" if mode == "daemon_leader_exit" else "stop"}
    assert clock.boot() - ordered_at < GRACE_S + LATE_S


@modes
async def test_a_kill_leaves_nothing_of_a_tree(node: Node, mode: str) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty(mode, tag)))
    await grown(node, mode, tag, run)

    ordered_at = clock.boot()
    node.kill(run)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause in {"killed", "unproven", "exit" if mode == "daemon_leader_exit" else "killed"}
    assert clock.boot() - ordered_at < LATE_S


@modes
async def test_a_deadline_that_nobody_extends_leaves_nothing_of_a_tree(node: Node, mode: str) -> None:
    tag = fresh_tag()
    deadlines = soon(1.2, 1.2 + GRACE_S)
    run = node.start(job(nasty(mode, tag)), deadlines)

    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause == ("exit" if mode == "daemon_leader_exit" else "deadline")
    assert clock.boot() < deadlines.kill_at + LATE_S
