"""Reload: a signal to the first process, or a command; a running job is told to read its own files again."""

import sys
from dataclasses import replace

import pytest

from orchestrator.core.nouns import RunId
from orchestrator.core.spec import JobSpec, ReloadSpec
from tests.runs.node import Node, job, until

FAMILY = """
import os, signal, time
told, tell = os.pipe()
child = os.fork()
name = "parent" if child else "child"
signal.signal(signal.SIGHUP, lambda *_: print(name, "got HUP", flush=True))
if child:
    os.read(told, 1)
    print("ready", flush=True)
else:
    os.write(tell, b"x")
while True:
    time.sleep(60)
"""
"""Says that it is ready when both of them are: a signal that comes before its handler ends a process."""


async def ready(node: Node, spec: JobSpec) -> RunId:
    run = node.start(spec)
    await node.started(run)
    await until(lambda: b"ready" in node.log(spec), "it is ready")
    return run


async def test_the_signal_goes_to_the_first_process_alone(node: Node) -> None:
    spec = replace(job((sys.executable, "-I", "-S", "-c", FAMILY)), reload=ReloadSpec(signal="SIGHUP"))
    run = await ready(node, spec)

    assert node.runs.reload(run)
    await until(lambda: b"got HUP" in node.log(spec), "it is told")
    node.kill(run)

    assert (await node.ended(run)).tail == ("ready", "parent got HUP")


async def test_a_command_runs_beside_the_job(node: Node) -> None:
    command = ("sh", "-c", "echo $ORCHESTRATOR_HOOK $ORCHESTRATOR_PID")
    spec = replace(job(("sh", "-c", "echo ready; exec sleep 20")), reload=ReloadSpec(command=command))
    run = await ready(node, spec)

    assert node.runs.reload(run)
    await until(lambda: b"reload" in node.log(spec), "it has run")
    node.kill(run)

    assert (await node.ended(run)).tail == ("ready", f"reload {(await node.started(run)).pid}")


@pytest.mark.parametrize(
    ("command", "why"),
    [(("sh", "-c", "exit 6"), "exit 6"), (("no-such",), "no such program on its PATH: 'no-such'")],
    ids=["it fails", "no program"],
)
async def test_a_command_that_fails_is_told_and_the_job_runs_on(node: Node, command: tuple[str, ...], why: str) -> None:
    spec = replace(job(("sh", "-c", "echo ready; exec sleep 20")), reload=ReloadSpec(command=command))
    run = await ready(node, spec)

    assert node.runs.reload(run)
    await until(lambda: node.told("hook.failed"), "it is told")

    (told,) = node.told("hook.failed")
    assert (told["hook"], told["why"], told["job"]) == ("reload", why, spec.name)
    assert len(node.events) == 1
    node.kill(run)
    await node.ended(run)


async def test_a_job_without_a_way_to_reload_and_a_run_that_ended_are_not_told(node: Node) -> None:
    run = await ready(node, job(("sh", "-c", "echo ready; exec sleep 20")))
    assert not node.runs.reload(run)

    node.kill(run)
    await node.ended(run)

    assert not node.runs.reload(run)
