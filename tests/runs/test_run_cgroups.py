"""A run in a cgroup of its own: all of it lives there, and the cgroup goes with the run."""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.nouns import RunId
from orchestrator.core.spec import Hook, JobSpec
from tests.runs.cgroup_tree import NEEDS_CGROUPS, Delegated, delegated
from tests.runs.node import Node, job, send, until

IN_SPARE = pytest.mark.parametrize("in_spare", [False, True], ids=["forked for it", "in a spare"])

pytestmark = [pytest.mark.root, NEEDS_CGROUPS]

WHERE = "echo $ORCHESTRATOR_HOOK in $(sed -n 's/^0:://p' /proc/self/cgroup)"


@pytest.fixture
def ours() -> Iterator[Delegated]:
    with delegated() as made:
        yield made


def groups(ours: Delegated) -> list[Path]:
    return [entry for entry in ours.path.iterdir() if entry.is_dir()]


async def started(node: Node, spec: JobSpec, *, in_spare: bool) -> RunId:
    await node.spares(int(in_spare))
    run = node.start(spec)
    await node.started(run)
    return run


@IN_SPARE
async def test_the_job_and_its_hooks_live_in_a_cgroup_that_goes_with_the_run(
    tmp_path: Path, ours: Delegated, *, in_spare: bool
) -> None:
    node = Node(tmp_path, cgroup=str(ours.path))
    await node.runs.open()
    hook = Hook(("sh", "-c", WHERE))
    spec = replace(job(("sh", "-c", f"{WHERE}; sleep 0.5"), stop_s=10), on_start=hook, on_success=hook)

    ended = await node.ended(await started(node, spec, in_spare=in_spare))

    places = {line.split()[-1] for line in ended.tail}
    assert len(ended.tail) == 3
    assert [Path(place).parent.name for place in places] == [ours.path.name]
    assert groups(ours) == []
    await node.runs.close()


@IN_SPARE
async def test_the_cgroup_of_a_run_whose_leash_was_killed_goes_too(
    tmp_path: Path, ours: Delegated, *, in_spare: bool
) -> None:
    node = Node(tmp_path, cgroup=str(ours.path))
    await node.runs.open()
    run = await started(node, job(("sleep", "20")), in_spare=in_spare)
    assert len(groups(ours)) == 1

    send(node.leash(run), signal.SIGKILL)
    ended = await node.ended(run)

    assert ended.cause == "unproven"
    await until(lambda: not groups(ours), "it is removed")
    await node.runs.close()
