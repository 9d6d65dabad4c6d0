"""What main asks about its runs: health checks by a command under the run's leash, and memory."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.core.messages import RunChecked, RunMeasured
from orchestrator.core.nouns import RunId
from orchestrator.core.spec import HealthSpec, JobSpec
from orchestrator.runs.wire import MAX_MESSAGE_BYTES
from tests.runs.node import Node, fresh_tag, job, nasty, survivors, until

QUICK_S = 3.0
"""What a busy machine may need for what takes no time."""
HANGS = "trap '' TERM; echo check; while :; do sleep 0.05; done"


def checked(argv: tuple[str, ...], command: tuple[str, ...], timeout_s: float = 20.0) -> JobSpec:
    return replace(job(argv), health=HealthSpec(exec=command, interval_s=0.05, timeout_s=timeout_s))


async def answers(node: Node, run: RunId, count: int) -> list[tuple[bool, str]]:
    """Wait for answers, and return what they say."""
    found: list[RunChecked] = []

    def enough() -> bool:
        found[:] = [event for event in node.events if isinstance(event, RunChecked) and event.run == run]
        return len(found) >= count

    await until(enough, f"{count} answers")
    return [(event.healthy, event.why) for event in found]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("true",), (True, "")),
        (("sh", "-c", "exit 2"), (False, "exit 2")),
        (("sh", "-c", "kill -USR1 $$"), (False, "signal 10")),
        (("no-such-check",), (False, "no such program on its PATH: 'no-such-check'")),
    ],
    ids=["healthy", "an exit status", "a signal", "no program"],
)
async def test_a_command_says_whether_a_job_is_healthy(
    node: Node, command: tuple[str, ...], answer: tuple[bool, str]
) -> None:
    run = node.start(checked(("sleep", "20"), command))

    assert set(await answers(node, run, 3)) == {answer}
    assert node.told("hook.failed") == []

    node.kill(run)
    await node.ended(run)


async def test_a_check_finds_what_the_job_finds(node: Node, tmp_path: Path) -> None:
    command = (
        "sh",
        "-c",
        'test "$(pwd) $ORCHESTRATOR_HOOK $OF_THE_JOB" = "$EXPECTED health yes" && kill -0 $ORCHESTRATOR_PID',
    )
    spec = replace(checked(("sleep", "20"), command), cwd=str(tmp_path))
    run = node.start(spec, env={"OF_THE_JOB": "yes", "EXPECTED": str(tmp_path)})

    assert set(await answers(node, run, 2)) == {(True, "")}

    node.kill(run)
    await node.ended(run)


async def test_a_check_that_does_not_answer_is_killed_with_all_below_it(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(checked(("sleep", "20"), nasty("setsid", tag), timeout_s=0.5))

    assert set(await answers(node, run, 2)) == {(False, "no answer within 0.5 s")}

    node.kill(run)
    await node.ended(run)
    assert survivors(tag) == []


@pytest.mark.parametrize("end", ["exit", "stop"])
async def test_a_check_that_hangs_does_not_keep_the_run(node: Node, end: str) -> None:
    script = "echo ready; " + ("until [ -e go ]; do sleep 0.02; done; exit 4" if end == "exit" else "exec sleep 20")
    spec = replace(checked(("sh", "-c", script), ("sh", "-c", HANGS)), cwd=str(node.directory))
    run = node.start(spec)
    await until(lambda: b"check" in node.log(spec), "a check runs")

    ordered_at = clock.boot()
    if end == "exit":
        (node.directory / "go").touch()
    else:
        node.stop(run, 10)
    ended = await node.ended(run)

    assert (ended.cause, ended.exit_code) == (("exit", 4) if end == "exit" else ("stop", None))
    assert clock.boot() - ordered_at < QUICK_S
    assert not any(isinstance(event, RunChecked) for event in node.events)


async def test_a_command_that_fits_into_no_message_is_said_to_be_too_long(node: Node) -> None:
    run = node.start(checked(("sleep", "20"), ("true", "x" * MAX_MESSAGE_BYTES)))

    assert set(await answers(node, run, 1)) == {(False, "its command is too long")}

    node.kill(run)
    assert (await node.ended(run)).cause == "killed"


async def test_a_run_is_not_checked_once_it_was_told_to_stop(node: Node) -> None:
    script = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: time.sleep(0.5) or exit()); time.sleep(20)"
    run = node.start(checked((sys.executable, "-c", script), ("true",)))
    await answers(node, run, 1)

    node.stop(run, 10)
    before = len(node.events)
    await node.ended(run)

    assert [type(event).__name__ for event in node.events[before:]] == ["RunEnded"]


async def test_the_memory_of_a_run_is_told_where_its_job_limits_it(node: Node) -> None:
    limited = node.start(replace(job(("sleep", "30")), max_rss_bytes=1))
    other = node.start(job(("sleep", "30")))

    await until(lambda: node.seen(limited, RunMeasured), "it is measured")

    measured = node.seen(limited, RunMeasured)
    assert isinstance(measured, RunMeasured)
    assert measured.rss_bytes > 100_000
    assert node.seen(other, RunMeasured) is None
    for run in (limited, other):
        node.kill(run)
        await node.ended(run)
