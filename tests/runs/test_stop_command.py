"""A stop command: it stands for the stop signal, and for nothing else."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.core.nouns import Deadlines, RunId
from orchestrator.core.spec import JobSpec
from tests.runs.node import Node, job, soon, until

QUICK_S = 3.0
"""What a busy machine may need for what takes no time."""


def job_with(command: str, directory: Path) -> JobSpec:
    """A job that exits with 5 once there is a certain file, and with 7 when it gets the stop signal."""
    script = (
        f"trap 'echo got TERM; exit 7' TERM; echo ready; until [ -e {directory}/stop ]; do sleep 0.05; done; exit 5"
    )
    spec = job(("sh", "-c", script))
    return replace(spec, stop=replace(spec.stop, command=("sh", "-c", command)))


async def ready(node: Node, spec: JobSpec, deadlines: Deadlines | None = None) -> RunId:
    run = node.start(spec, deadlines)
    await node.started(run)
    await until(lambda: b"ready" in node.log(spec), "it is ready")
    return run


async def test_the_command_runs_instead_of_the_signal(node: Node, tmp_path: Path) -> None:
    spec = job_with(f"echo $ORCHESTRATOR_HOOK $ORCHESTRATOR_PID; touch {tmp_path}/stop; sleep 0.3", tmp_path)
    run = await ready(node, spec)

    node.stop(run, 10)
    ended = await node.ended(run)

    pid = (await node.started(run)).pid
    assert (ended.exit_code, ended.cause) == (5, "stop")
    assert ended.tail == ("ready", f"stop {pid}")


@pytest.mark.parametrize(
    ("command", "why"),
    [("true", None), ("exit 3", "exit 3"), ("exec /no/such/file", "exit 127")],
    ids=["it does nothing", "it fails", "it is missing"],
)
async def test_what_the_command_leaves_gets_the_signal(
    node: Node, tmp_path: Path, command: str, why: str | None
) -> None:
    run = await ready(node, job_with(command, tmp_path))

    node.stop(run, 10)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (7, "stop")
    assert [fields["why"] for fields in node.told("hook.failed")] == ([why] if why else [])


async def test_a_command_that_cannot_be_executed_costs_nothing_but_a_word(node: Node, tmp_path: Path) -> None:
    spec = job_with("", tmp_path)
    run = await ready(node, replace(spec, stop=replace(spec.stop, command=("/no/such/file",))))

    ordered_at = clock.boot()
    node.stop(run, 60)

    assert (await node.ended(run)).exit_code == 7
    assert clock.boot() - ordered_at < QUICK_S
    (told,) = node.told("hook.failed")
    assert (told["hook"], told["why"]) == ("stop", "no such file: '/no/such/file'")


async def test_a_command_that_hangs_takes_no_more_than_the_grace(node: Node, tmp_path: Path) -> None:
    run = await ready(node, job_with("trap '' TERM; while :; do sleep 0.05; done", tmp_path))

    ordered_at = clock.boot()
    node.stop(run, 0.5)
    ended = await node.ended(run)

    assert (ended.signal, ended.cause) == (signal.SIGKILL, "stop")
    assert clock.boot() - ordered_at < QUICK_S


async def test_a_shorter_grace_reaches_a_command_that_runs(node: Node, tmp_path: Path) -> None:
    run = await ready(node, job_with("sleep 20", tmp_path))

    ordered_at = clock.boot()
    node.stop(run, 60)
    node.stop(run, 0.3)
    await node.ended(run)

    assert clock.boot() - ordered_at < QUICK_S


async def test_the_lease_has_no_time_for_the_command(node: Node, tmp_path: Path) -> None:
    spec = job_with(f"touch {tmp_path}/witness", tmp_path)
    run = await ready(node, spec, soon(2.0, 12.0))

    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (7, "deadline")
    assert not (tmp_path / "witness").exists()


async def test_a_lease_that_strikes_during_the_command_sends_the_signal_at_once(node: Node, tmp_path: Path) -> None:
    run = await ready(node, job_with("sleep 20", tmp_path), soon(2.0, 12.0))

    node.stop(run, 60)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (7, "stop")


async def test_the_command_does_not_run_for_a_kill_or_for_a_job_that_ends_by_itself(node: Node, tmp_path: Path) -> None:
    spec = job_with(f"touch {tmp_path}/witness", tmp_path)
    killed, exited = await ready(node, spec), node.start(replace(spec, argv=("true",)))

    node.kill(killed)

    assert [(await node.ended(run)).cause for run in (killed, exited)] == ["killed", "exit"]
    assert not (tmp_path / "witness").exists()
