"""Launcher and leash, killed and frozen under a living main: never two, nothing left, and proof of it."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.core.messages import StartRun
from orchestrator.core.nouns import RunId, Token
from orchestrator.errors import OrchestratorError
from orchestrator.runs import linux
from tests.runs.node import Node, fresh_tag, job, nasty, send, soon, survivors, until

BOUND_S = 3.0
"""Within which everything must be gone; the limits used here add up to less than one second."""


@asynccontextmanager
async def watchful_node(directory: Path) -> AsyncIterator[Node]:
    """A node that looks after its launcher and leashes several times a second."""
    node = Node(directory, liveness_s=0.2, answer_limit_s=0.3, start_limit_s=0.5)
    await node.runs.open()
    yield node
    await node.runs.close()


async def grown(node: Node, tag: str, run: RunId) -> None:
    await node.started(run)
    await until(lambda: len(survivors(tag)) >= 5, "the tree grows")


async def test_a_killed_leash_makes_its_run_unproven_and_the_launcher_proves_its_end(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await grown(node, tag, run)

    send(node.leash(run), signal.SIGKILL)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert (await node.unproven(run)).why == "its leash died"
    assert (ended.cause, ended.exit_code, ended.error) == ("unproven", None, "")


@pytest.mark.parametrize("mode", ["hopper", "hydra"])
async def test_strays_that_keep_forking_do_not_outrun_the_launcher(node: Node, tmp_path: Path, mode: str) -> None:
    tag = fresh_tag()
    heartbeat = tmp_path / f"nasty-{tag}"  # what changes its pid every 2 ms is hardly ever seen in a listing of /proc
    run = node.start(job(nasty(mode, tag)))
    await node.started(run)
    await until(lambda: heartbeat.exists() if mode == "hopper" else len(survivors(tag)) >= 2, "the tree grows")

    send(node.leash(run), signal.SIGKILL)
    await node.ended(run)

    assert survivors(tag) == []


async def test_one_killed_leash_touches_no_other_run(node: Node) -> None:
    tag, other_tag = fresh_tag(), fresh_tag()
    run, other = node.start(job(nasty("mix", tag))), node.start(job(nasty("mix", other_tag)))
    await grown(node, tag, run)
    await grown(node, other_tag, other)

    send(node.leash(run), signal.SIGKILL)
    await node.ended(run)

    assert survivors(tag) == []
    assert len(survivors(other_tag)) == 5
    assert node.events[-1].run == run


@pytest.mark.parametrize("order", ["kill", "stop"])
async def test_a_frozen_leash_that_is_given_an_order_is_killed(node: Node, order: str) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await grown(node, tag, run)

    send(node.leash(run), signal.SIGSTOP)
    ordered_at = clock.boot()
    if order == "kill":
        node.kill(run)
    else:
        node.stop(run, 0.1)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause == "unproven"
    assert clock.boot() - ordered_at < BOUND_S + (0 if order == "kill" else 2.1)


async def test_the_launcher_kills_a_frozen_leash_that_is_past_its_deadline(node: Node) -> None:
    tag = fresh_tag()
    deadlines = soon(4.0, 4.2)
    run = node.start(job(nasty("mix", tag)), deadlines)
    await grown(node, tag, run)

    send(node.leash(run), signal.SIGSTOP)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause == "unproven"
    assert clock.boot() < deadlines.kill_at + BOUND_S


async def test_a_stopped_leash_is_found_without_any_order(tmp_path: Path) -> None:
    async with watchful_node(tmp_path) as node:
        tag = fresh_tag()
        run = node.start(job(nasty("mix", tag)))
        await grown(node, tag, run)

        send(node.leash(run), signal.SIGSTOP)
        ended = await node.ended(run)

        assert survivors(tag) == []
        assert (await node.unproven(run)).why == "its leash was stopped"
        assert ended.cause == "unproven"


async def test_runs_go_on_without_their_launcher_and_the_next_start_has_a_new_one(node: Node) -> None:
    tag, next_tag = fresh_tag(), fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await grown(node, tag, run)
    first = node.launcher()

    send(first, signal.SIGKILL)
    await until(lambda: node.launcher() not in {0, first}, "a new launcher")
    following = node.start(job(nasty("mix", next_tag)))
    await grown(node, next_tag, following)

    assert len(survivors(tag)) == 5
    assert [event for event in node.events if event.run == run] == [await node.started(run)]
    for each in (run, following):
        node.stop(each, 0.3)
        assert (await node.ended(each)).cause == "stop"
    assert survivors(tag) + survivors(next_tag) == []


async def test_a_leash_that_main_inherited_is_reaped_by_main(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty("plain", tag)))
    await grown(node, tag, run)
    first, leash = node.launcher(), node.leash(run)
    send(first, signal.SIGKILL)
    await until(lambda: node.launcher() not in {0, first}, "a new launcher")

    node.stop(run, 0.3)
    await node.ended(run)

    await until(lambda: not linux.state(leash), "the leash is reaped")


async def test_main_proves_the_end_of_a_run_whose_launcher_and_leash_are_dead(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await grown(node, tag, run)

    send(node.launcher(), signal.SIGKILL)
    send(node.leash(run), signal.SIGKILL)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause == "unproven"


async def test_a_leash_that_dies_after_its_launcher_is_swept_by_main(node: Node) -> None:
    tag, other_tag = fresh_tag(), fresh_tag()
    run, other = node.start(job(nasty("mix", tag))), node.start(job(nasty("mix", other_tag)))
    await grown(node, tag, run)
    await grown(node, other_tag, other)
    first = node.launcher()
    send(first, signal.SIGKILL)
    await until(lambda: node.launcher() not in {0, first}, "a new launcher")

    send(node.leash(run), signal.SIGKILL)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause == "unproven"
    assert len(survivors(other_tag)) == 5, "the other inherited leash is known, and left alone"


async def test_a_frozen_launcher_is_replaced_and_its_runs_go_on(tmp_path: Path) -> None:
    async with watchful_node(tmp_path) as node:
        tag = fresh_tag()
        run = node.start(job(nasty("mix", tag)))
        await grown(node, tag, run)
        first = node.launcher()

        send(first, signal.SIGSTOP)
        await until(lambda: node.launcher() not in {0, first}, "a new launcher")

        assert len(survivors(tag)) == 5
        assert (await node.ended(node.start(job(("true",))))).exit_code == 0


async def test_a_start_that_is_not_answered_is_never_repeated_and_ends_on_proof(tmp_path: Path) -> None:
    async with watchful_node(tmp_path) as node:
        tag = fresh_tag()
        send(node.launcher(), signal.SIGSTOP)

        run = node.start(job(nasty("plain", tag)))
        await node.unproven(run)
        ended = await node.ended(run)
        assert (await node.ended(node.start(job(("true",))))).exit_code == 0  # the new launcher serves

        assert ended.cause == "unproven"
        assert ended.error.startswith("not started: ")
        assert survivors(tag) == []
        assert [type(event).__name__ for event in node.events if event.run == run] == ["RunUnproven", "RunEnded"]


async def test_a_run_id_is_started_once(node: Node) -> None:
    spec = job(("sleep", "20"))
    run = node.start(spec)
    await node.started(run)

    node.runs.start(spec, StartRun(spec.name, run, Token(1), None, {}))
    node.kill(run)
    await node.ended(run)

    assert [line.event for line in node.said] == ["run.start_repeated"]
    assert len([event for event in node.events if event.run == run]) == 2


async def test_a_child_that_main_started_itself_is_no_stray(node: Node) -> None:
    ours = await asyncio.create_subprocess_exec("sleep", "20")
    tag = fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await grown(node, tag, run)

    send(node.launcher(), signal.SIGKILL)
    send(node.leash(run), signal.SIGKILL)
    await node.ended(run)

    assert survivors(tag) == []
    assert ours.returncode is None
    ours.kill()
    assert await ours.wait() == -signal.SIGKILL


async def test_a_spared_child_in_its_own_session_is_no_stray(node: Node) -> None:
    server = await asyncio.create_subprocess_exec("sleep", "20", start_new_session=True)
    node.runs.spare(server.pid)
    run = node.start(job(("sleep", "20")))
    await node.started(run)

    send(node.launcher(), signal.SIGKILL)
    send(node.leash(run), signal.SIGKILL)
    await node.ended(run)

    assert server.returncode is None
    server.kill()
    assert await server.wait() == -signal.SIGKILL


async def test_a_launcher_that_cannot_begin_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.runs.launcher_process._ROOT", tmp_path)  # no such package there

    with pytest.raises(OrchestratorError, match="the launcher died at its start: see "):
        await Node(tmp_path).runs.open()

    assert "ModuleNotFoundError" in (tmp_path / "launcher.log").read_text()
    assert not linux.is_subreaper(), "whoever lives on must not adopt what is not its own"


async def test_runs_that_are_left_at_the_end_are_ended_by_their_leashes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.runs.open()
    tag = fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await grown(node, tag, run)

    await node.runs.close()

    assert survivors(tag) == []
