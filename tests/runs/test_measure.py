"""The memory and the processor time of real trees below real leashes."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from orchestrator import clock
from orchestrator.core.messages import RunMeasured
from orchestrator.core.nouns import JobName, RunId
from orchestrator.runs import measure
from orchestrator.runs.measure import Measuring, Usage, usage
from tests.runs.node import Node, job, until

JOB = JobName("web")
NOBODY = 2**22
"""Above the greatest pid that there can be."""
HELD_BYTES = 60_000_000
BURNT_S = 0.3
ROUNDED_S = 0.05
"""The kernel tells times in hundredths, user's and system's apart, cut off."""

HUNGRY = f"import time; held = b'x' * {HELD_BYTES}; print('ready', flush=True); time.sleep(30)"
ALONE = "while [ $(wc -w </proc/$PPID/task/$PPID/children) -gt 1 ]; do sleep 0.02; done"
"""Shell that waits until its leash has no other child."""
BUSY = f"import time\nwhile time.process_time() < {BURNT_S}: pass"


def python(code: str) -> str:
    """Return a shell's command for an interpreter that is soon there."""
    return f"'{sys.executable}' -I -S -c \"{code}\""


async def leash_of(node: Node, script: str) -> int:
    """Start a shell's tree; return the pid of its leash when the script has said `ready`."""
    spec = job(("sh", "-c", script))
    run = node.start(spec)
    await until(lambda: b"ready" in node.log(spec), "it is ready")
    return node.leash(run)


# A look at one run.


@pytest.mark.parametrize("has_proc", [True, False], ids=["/proc", "psutil"])
async def test_what_is_below_the_leash_counts_and_the_leash_does_not(
    node: Node, monkeypatch: pytest.MonkeyPatch, *, has_proc: bool
) -> None:
    monkeypatch.setattr(measure, "HAS_PROC", has_proc)
    leash = await leash_of(node, f"setsid {python(HUNGRY)} & wait")

    used = usage(leash)

    below = psutil.Process(leash).children(recursive=True)
    assert used.processes == len(below) == 2
    assert used.rss_bytes == pytest.approx(sum(process.memory_info().rss for process in below), rel=0.05)
    assert used.rss_bytes > HELD_BYTES


@pytest.mark.parametrize("has_proc", [True, False], ids=["/proc", "psutil"])
async def test_the_time_of_what_runs_counts(node: Node, monkeypatch: pytest.MonkeyPatch, *, has_proc: bool) -> None:
    monkeypatch.setattr(measure, "HAS_PROC", has_proc)
    leash = await leash_of(node, f"exec {python(BUSY + chr(10) + HUNGRY)}")

    assert BURNT_S - ROUNDED_S < usage(leash).cpu_s < 10 * BURNT_S


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"{python(BUSY)}; echo ready; sleep 30; :", id="reaped by its parent"),
        pytest.param(f"({python(BUSY)} &); {ALONE}; echo ready; sleep 30; :", id="an orphan, reaped by its leash"),
    ],
)
async def test_the_time_of_what_has_ended_counts(node: Node, script: str) -> None:
    leash = await leash_of(node, script)

    assert usage(leash).cpu_s > BURNT_S - ROUNDED_S


async def test_a_zombie_is_no_process(node: Node) -> None:
    unreaped = "import os, time; os.posix_spawn('/bin/true', ['true'], {}); print('ready', flush=True); time.sleep(30)"
    leash = await leash_of(node, f"exec {python(unreaped)}")

    await until(lambda: usage(leash).processes == 1, "only its parent counts")

    assert len(psutil.Process(leash).children(recursive=True)) == 2


@pytest.mark.parametrize("has_proc", [True, False], ids=["/proc", "psutil"])
def test_a_leash_that_is_gone_uses_nothing(monkeypatch: pytest.MonkeyPatch, *, has_proc: bool) -> None:
    monkeypatch.setattr(measure, "HAS_PROC", has_proc)

    assert usage(NOBODY) == Usage(rss_bytes=0, cpu_s=0.0, processes=0)


# One pass a period.


class Told(list[RunMeasured]):
    """What was told, and when."""

    def __init__(self) -> None:
        """Nothing yet."""
        super().__init__()
        self.at: list[float] = []

    def take(self, measured: RunMeasured) -> None:
        """Note it."""
        self.append(measured)
        self.at.append(clock.boot())


@pytest.fixture
def told() -> Told:
    """Return an empty list."""
    return Told()


@pytest.fixture
async def measuring(told: Told) -> AsyncIterator[Measuring]:
    """Measure every 50 ms."""
    made = Measuring(told.take, period_s=0.05)
    yield made
    made.close()


async def test_the_memory_of_a_run_is_told_once_a_period(node: Node, measuring: Measuring, told: Told) -> None:
    leash = await leash_of(node, f"{python(HUNGRY)} & wait")

    measuring.begin(JOB, RunId("web@1.1"), leash)
    await until(lambda: len(told) == 3, "it is told again and again")

    assert {(each.job, each.run) for each in told} == {(JOB, RunId("web@1.1"))}
    assert min(each.rss_bytes for each in told) > HELD_BYTES
    assert min(later - earlier for earlier, later in itertools.pairwise(told.at)) >= 0.045


async def test_only_what_was_begun_and_has_not_ended_is_told(measuring: Measuring, told: Told) -> None:
    for number in range(3):
        measuring.begin(JOB, RunId(f"run {number}"), NOBODY)
    measuring.end(RunId("run 1"))
    measuring.end(RunId("never begun"))

    await until(lambda: len(told) == 4, "two passes")

    assert [each.run for each in told] == ["run 0", "run 2", "run 0", "run 2"]


async def test_a_run_may_be_ended_by_whoever_is_told() -> None:
    told: list[RunId] = []

    def deliver(measured: RunMeasured) -> None:
        told.append(measured.run)
        for run in ("first", "second"):
            runs.end(RunId(run))

    runs = Measuring(deliver, period_s=0.01)
    runs.begin(JOB, RunId("first"), NOBODY)
    runs.begin(JOB, RunId("second"), NOBODY)

    await until(lambda: told, "the first is told")
    await asyncio.sleep(0)

    assert told == ["first"]
    assert runs._next is None


async def test_nothing_wakes_up_while_there_is_nothing_to_measure(measuring: Measuring, told: Told) -> None:
    assert measuring._next is None

    measuring.begin(JOB, RunId("run"), NOBODY)
    assert measuring._next is not None

    measuring.end(RunId("run"))
    assert measuring._next is None

    measuring.begin(JOB, RunId("run"), NOBODY)
    await until(lambda: told, "it is measured again")
    measuring.close()
    assert measuring._next is None


async def test_many_runs_let_the_loop_turn_in_between(measuring: Measuring, told: Told) -> None:
    loop = asyncio.get_running_loop()
    told_at_turns: list[int] = []

    def turn() -> None:
        told_at_turns.append(len(told))
        if len(told) < 100:
            loop.call_soon(turn)

    for number in range(100):
        measuring.begin(JOB, RunId(f"run {number}"), NOBODY)
    loop.call_soon(turn)
    await until(lambda: len(told) >= 100, "a whole pass")

    assert max(later - earlier for earlier, later in itertools.pairwise(told_at_turns)) <= measure.MOST_AT_ONCE
    assert len({each.run for each in told[:100]}) == 100


@pytest.mark.parametrize(
    ("took_s", "pause_s"),
    [pytest.param(0.0005, 0.05, id="a period"), pytest.param(0.008, 0.4, id="longer, after a pass that took long")],
)
async def test_the_next_pass_comes_after(
    measuring: Measuring, monkeypatch: pytest.MonkeyPatch, took_s: float, pause_s: float
) -> None:
    measuring.begin(JOB, RunId("run"), NOBODY)
    pending(measuring).cancel()
    readings = itertools.chain([1000.0], itertools.repeat(1000.0 + took_s))
    monkeypatch.setattr(clock, "boot", lambda: next(readings))

    measuring._begin_pass()

    assert pending(measuring).when() - asyncio.get_running_loop().time() == pytest.approx(pause_s, abs=0.02)


def pending(measuring: Measuring) -> asyncio.TimerHandle:
    """Return the timer for its next pass."""
    assert isinstance(measuring._next, asyncio.TimerHandle)
    return measuring._next
