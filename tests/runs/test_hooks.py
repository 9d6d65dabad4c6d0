"""Hooks: when each runs, what it finds, what bounds it, and that it changes nothing about its run."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import RunId
from orchestrator.core.spec import Hook, JobSpec
from tests.runs.node import LEASE, Node, fresh_tag, job, nasty, send, soon, survivors, until

TELL = 'echo "$ORCHESTRATOR_HOOK pid=$ORCHESTRATOR_PID code=$ORCHESTRATOR_EXIT_CODE signal=$ORCHESTRATOR_SIGNAL"'
DEAF = "trap '' TERM; echo hook; while :; do sleep 0.05; done"
OBEDIENT = "echo ready; trap 'echo got TERM; exit 0' TERM; while :; do sleep 0.05; done"
QUICK_S = 3.0
"""What a busy machine may need for what takes no time."""


def sh(script: str, timeout_s: float = 20.0) -> Hook:
    return Hook(("sh", "-c", script), timeout_s)


def ending_job(script: str, hook: Hook) -> JobSpec:
    """A job that ends by itself, with one hook for either outcome."""
    return replace(job(("sh", "-c", script)), on_success=hook, on_failure=hook)


def spoken(ended: RunEnded) -> tuple[str, ...]:
    """Return the last lines without the shell's own words about a `sleep` that got the signal too."""
    return tuple(line for line in ended.tail if line != "Terminated")


def why_hooks_failed(node: Node) -> list[tuple[object, object]]:
    return [(fields["hook"], fields["why"]) for fields in node.told("hook.failed")]


async def ready(node: Node, spec: JobSpec, run: RunId, words: bytes = b"ready") -> None:
    await node.started(run)
    await until(lambda: words in node.log(spec), f"it says {words!r}")


async def test_the_hook_for_failures_waits_for_the_last_attempt(node: Node) -> None:
    spec = replace(ending_job("exit 4", sh(TELL)), on_start=sh(TELL))

    ended = await node.ended(node.start(spec, last_attempt=False))
    last = await node.ended(node.start(spec))

    assert not any(line.startswith("on_failure") for line in ended.tail)
    assert last.tail[-1] == "on_failure pid= code=4 signal="


async def test_the_hook_for_success_runs_at_the_first_that_succeeds(node: Node) -> None:
    ended = await node.ended(node.start(ending_job("exit 0", sh(TELL)), last_attempt=False))

    assert ended.tail == ("on_success pid= code=0 signal=",)


async def test_the_hook_for_the_start_finds_the_job_running(node: Node) -> None:
    spec = replace(job(("sleep", "20")), on_start=sh(TELL + "; echo $ORCHESTRATOR_JOB"))
    run = node.start(spec, env={"ORCHESTRATOR_JOB": "the job"})
    await ready(node, spec, run, b"the job")

    node.kill(run)
    await node.ended(run)

    pid = (await node.started(run)).pid
    assert node.runs.last_lines(run) == (f"on_start pid={pid} code= signal=", "the job")


async def test_the_hook_for_the_start_runs_to_its_end_though_the_job_was_quicker(node: Node) -> None:
    spec = replace(job(("true",), stop_s=10), on_start=sh("echo through"))

    ended = await node.ended(node.start(spec))

    assert (ended.exit_code, ended.cause, ended.tail) == (0, "exit", ("through",))
    assert why_hooks_failed(node) == []


async def test_a_job_that_cannot_start_has_failed_and_has_not_started(node: Node) -> None:
    spec = replace(job(("/no/such/file",)), on_start=sh(TELL), on_success=sh(TELL), on_failure=sh(TELL))

    ended = await node.ended(node.start(spec))

    assert (ended.error, ended.exit_code) == ("no such file: '/no/such/file'", None)
    assert spoken(ended) == ("on_failure pid= code= signal=",)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", "on_success pid= code=0 signal="),
        ("exit 3", "on_success pid= code=3 signal="),
        ("exit 4", "on_failure pid= code=4 signal="),
        ("kill -USR1 $$", "on_failure pid= code= signal=10"),
    ],
    ids=["exit 0", "a success of its own", "another exit status", "a signal"],
)
async def test_success_codes_decide_which_hook_runs(node: Node, script: str, said: str) -> None:
    spec = replace(ending_job(script, sh(TELL)), success_exit_codes=frozenset({0, 3}))

    ended = await node.ended(node.start(spec))

    assert spoken(ended) == (said,)


async def test_the_hook_for_the_end_comes_when_nothing_of_the_job_is_left(node: Node, tmp_path: Path) -> None:
    left = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    wait = f"until [ -s {tmp_path}/pid ]; do sleep 0.01; done"
    hook = sh(f"kill -0 $(cat {tmp_path}/pid) && echo alive || echo gone")
    spec = ending_job(f'sh -c "$LEFT" & {wait}; exit 1', hook)

    ended = await node.ended(node.start(spec, env={"LEFT": left}))

    assert ended.tail[-1] == "gone"


async def test_what_is_told_is_the_end_of_the_job_and_not_of_its_hook(node: Node) -> None:
    began_at = clock.boot()

    ended = await node.ended(node.start(ending_job("exit 4", sh("sleep 1.5; exit 9"))))

    assert (ended.exit_code, ended.signal, ended.error, ended.cause) == (4, 0, "", "exit")
    assert ended.elapsed_s < clock.boot() - began_at - 1.4
    assert why_hooks_failed(node) == [("on_failure", "exit 9")]


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (Hook(("no-such-hook",)), "no such program on its PATH: 'no-such-hook'"),
        (sh("kill -USR1 $$"), "signal 10"),
        (sh("sleep 20", 0.3), "not done in 0.3 s"),
    ],
    ids=["no program", "a signal", "too slow"],
)
async def test_a_hook_that_fails_is_told_and_changes_nothing(node: Node, hook: Hook, why: str) -> None:
    ended = await node.ended(node.start(ending_job("exit 0", hook)))

    assert (ended.exit_code, ended.cause, ended.error) == (0, "exit", "")
    assert why_hooks_failed(node) == [("on_success", why)]


async def test_a_hook_that_is_too_slow_goes_with_all_below_it_while_the_job_runs_on(node: Node) -> None:
    tag = fresh_tag()
    spec = replace(job(("sleep", "20")), on_start=Hook(nasty("setsid", tag), 1.0))
    run = node.start(spec)
    await node.started(run)

    await until(lambda: node.told("hook.failed"), "it is killed")
    await until(lambda: not survivors(tag), "nothing of it is left")

    assert why_hooks_failed(node) == [("on_start", "not done in 1 s")]
    assert len(node.events) == 1
    node.kill(run)
    await node.ended(run)


@pytest.mark.parametrize("order", ["stop", "kill"])
@pytest.mark.parametrize("hook", [sh("echo hook; sleep 20"), sh(DEAF)], ids=["obedient", "deaf"])
async def test_an_order_shortens_the_hook_for_the_end(node: Node, order: str, hook: Hook) -> None:
    spec = ending_job("exit 1", hook)
    run = node.start(spec)
    await ready(node, spec, run, b"hook")

    ordered_at = clock.boot()
    if order == "kill":
        node.kill(run)
    else:
        node.stop(run, 0.3)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (1, "exit")
    assert clock.boot() - ordered_at < QUICK_S
    assert why_hooks_failed(node) == [("on_failure", "the run ended before it did")]


async def test_an_order_that_came_while_the_job_ended_holds_for_its_hook(node: Node) -> None:
    left = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    spec = replace(
        ending_job('sh -c "$LEFT" & sleep 0.3; exit 1', sh(DEAF)), stop=replace(job(("x",)).stop, timeout_s=2)
    )
    run = node.start(spec, env={"LEFT": left})
    await ready(node, spec, run)
    await until(lambda: not survivors("sleep 0.3; exit 1"), "the first process is gone")

    ordered_at = clock.boot()
    node.stop(run, 0.5)
    await node.ended(run)

    assert clock.boot() - ordered_at < QUICK_S


async def test_no_hook_outlives_the_lease(node: Node) -> None:
    spec = ending_job("exit 1", sh(DEAF))
    deadlines = soon(2.0, 2.3)
    run = node.start(spec, deadlines)
    await ready(node, spec, run, b"hook")

    ended = await node.ended(run)

    assert ended.cause == "exit"
    assert deadlines.kill_at - 0.5 < clock.boot() < deadlines.kill_at + QUICK_S


async def test_a_hook_goes_on_while_the_lease_is_extended(node: Node) -> None:
    spec = ending_job("exit 1", sh("echo hook; sleep 1.5; echo through"))
    run = node.start(spec, soon(1.5, 1.8))
    await ready(node, spec, run, b"hook")

    later = soon(20, 21)
    node.extend(run, later.term_at, later.kill_at)

    assert (await node.ended(run)).tail == ("hook", "through")


async def test_a_stop_for_a_failure_runs_the_hook_for_failures(node: Node) -> None:
    # Longer than main gives a leash that was told to stop: the hook has its own time.
    spec = replace(job(("sh", "-c", OBEDIENT)), on_failure=sh(f"sleep 3; {TELL}"), on_success=sh("echo wrong"))
    run = node.start(spec)
    await ready(node, spec, run)

    node.stop(run, 0.5, failure=True)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (0, "stop")
    assert spoken(ended) == ("ready", "got TERM", "on_failure pid= code=0 signal=")


@pytest.mark.parametrize("order", ["stop", "kill"])
async def test_what_was_ordered_is_neither_success_nor_failure(node: Node, order: str) -> None:
    spec = replace(job(("sh", "-c", OBEDIENT)), on_failure=sh(TELL), on_success=sh(TELL), on_step_down=sh(TELL))
    run = node.start(spec)
    await ready(node, spec, run)

    if order == "kill":
        node.kill(run)
    else:
        node.stop(run, 10)
    ended = await node.ended(run)

    assert ended.cause == ("killed" if order == "kill" else "stop")
    assert spoken(ended) == (("ready",) if order == "kill" else ("ready", "got TERM"))


async def test_a_kill_after_a_stop_for_a_failure_leaves_no_time_for_a_hook(node: Node) -> None:
    spec = replace(job(("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")), on_failure=sh(TELL))
    run = node.start(spec)
    await ready(node, spec, run)

    node.stop(run, 60, failure=True)
    node.kill(run)
    ended = await node.ended(run)

    assert spoken(ended) == ("ready",)
    assert why_hooks_failed(node) == [("on_failure", "no time was left for it")]


async def test_the_hook_for_stepping_down_runs_once_the_job_was_asked_to_end(node: Node) -> None:
    spec = replace(
        job(("sh", "-c", "trap 'echo got TERM' TERM; echo ready; while :; do sleep 0.05; done")),
        on_step_down=sh(f"sleep 0.2; {TELL}"),
        on_failure=sh("echo wrong"),
    )
    run = node.start(spec, soon(1.5, 3.5))
    await ready(node, spec, run)

    ended = await node.ended(run)

    pid = (await node.started(run)).pid
    assert ended.cause == "deadline"
    assert spoken(ended) == ("ready", "got TERM", f"on_step_down pid={pid} code= signal=")


async def test_the_hook_for_stepping_down_is_killed_with_the_tree(node: Node) -> None:
    spec = replace(job(("sh", "-c", OBEDIENT)), on_step_down=sh(DEAF))
    deadlines = soon(1.5, 2.0)
    run = node.start(spec, deadlines)

    ended = await node.ended(run)

    assert set(spoken(ended)) == {"ready", "got TERM", "hook"}
    assert clock.boot() < deadlines.kill_at + QUICK_S
    assert why_hooks_failed(node) == [("on_step_down", "the run ended before it did")]


async def test_where_a_lease_ends_without_a_grace_there_is_no_time_to_step_down(node: Node) -> None:
    deadlines = soon(1.5, 1.5)
    spec = replace(job(("sh", "-c", OBEDIENT)), on_step_down=sh(TELL))

    ended = await node.ended(node.start(spec, deadlines))

    assert ended.cause == "deadline"
    assert why_hooks_failed(node) == [("on_step_down", "no time was left for it")]


async def test_runs_that_main_abandons_end_in_order_and_run_the_hook_for_stepping_down(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.runs.open()
    spec = replace(job(("sh", "-c", OBEDIENT)), on_step_down=sh(f"{TELL} > {tmp_path}/witness"))
    run = node.start(replace(spec, lease=replace(LEASE, step_down_grace_s=10)))
    await ready(node, spec, run)

    await node.runs.close()

    assert (tmp_path / "witness").read_text().startswith("on_step_down ")
    assert b"got TERM" in node.log(spec)


async def test_a_hook_that_runs_does_not_keep_the_run(node: Node) -> None:
    began_at = clock.boot()

    ended = await node.ended(node.start(replace(job(("sh", "-c", "exit 4"), stop_s=0.3), on_start=sh(DEAF))))

    assert (ended.exit_code, ended.cause) == (4, "exit")
    assert clock.boot() - began_at < QUICK_S
    assert why_hooks_failed(node) == [("on_start", "the run ended before it did")]


async def test_a_stop_ends_a_hook_that_runs_in_order(node: Node) -> None:
    spec = replace(
        job(("sh", "-c", OBEDIENT)),
        on_start=sh("trap 'echo bye; exit 1' TERM; echo hook; while :; do sleep 0.05; done"),
    )
    run = node.start(spec)
    await ready(node, spec, run)
    await until(lambda: b"hook" in node.log(spec), "the hook runs")

    ordered_at = clock.boot()
    node.stop(run, 10)
    ended = await node.ended(run)

    assert ended.cause == "stop"
    assert "bye" in ended.tail
    assert clock.boot() - ordered_at < QUICK_S


async def test_a_frozen_leash_in_a_hook_is_killed_when_the_lease_ends(node: Node) -> None:

    spec = ending_job("exit 1", sh(DEAF))
    deadlines = soon(2.0, 2.3)
    run = node.start(spec, deadlines)
    await ready(node, spec, run, b"hook")

    send(node.leash(run), signal.SIGSTOP)
    ended = await node.ended(run)

    assert ended.cause == "unproven"
    assert clock.boot() < deadlines.kill_at + LEASE.margin_s / 2 + QUICK_S
