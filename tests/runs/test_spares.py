"""Spares: leashes that were made before their runs are due. A run in one is a run like any other."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import clock
from orchestrator.core.messages import ExpectRuns
from orchestrator.core.spec import LogSpec
from orchestrator.runs import linux, spares
from orchestrator.runs.handing_over import A_TURN
from tests.runs.node import Node, fresh_tag, job, nasty, send, soon, survivors, until

ROOT = Path(__file__).parents[2]
BOUND_S = 3.0
"""Within which everything must be over; the limits used here add up to less than one second."""
MANY = 3 * A_TURN  # a burst


def first_process_of(leash: int) -> int:
    """Return the process that waits below a spare."""
    (pid,) = linux.children(leash)
    return pid


def gone(pid: int) -> bool:
    """Tell whether a process is gone, or is only waited for."""
    return linux.state(pid) in {"", "Z"}


@asynccontextmanager
async def impatient_node(directory: Path) -> AsyncIterator[Node]:
    """A node that waits half a second for an answer to a start."""
    node = Node(directory, start_limit_s=0.5)
    await node.runs.open()
    yield node
    await node.runs.close()


@asynccontextmanager
async def watchful_node(directory: Path) -> AsyncIterator[Node]:
    """A node that looks after its launcher several times a second."""
    node = Node(directory, liveness_s=0.2, answer_limit_s=0.3)
    await node.runs.open()
    yield node
    await node.runs.close()


async def test_a_run_in_a_spare_is_a_run_like_any_other(node: Node) -> None:
    (leash,) = await node.spares(1)
    first = first_process_of(leash)
    spec = job(("sh", "-c", "echo $$ $ORCHESTRATOR_TICK; echo err >&2; exit 3"))

    run = node.start(spec, soon(60, 70), {"ORCHESTRATOR_TICK": "noon"})
    ended = await node.ended(run)

    assert node.leash_of(run) == leash
    assert (await node.started(run)).pid == first
    assert (ended.exit_code, ended.cause, ended.error) == (3, "exit", "")
    assert 0 < ended.elapsed_s < BOUND_S
    assert node.log(spec) == f"{first} noon\nerr\n".encode()
    assert ended.tail == (f"{first} noon", "err")
    assert node.waiting() == []


async def test_a_job_finds_nothing_of_the_spare_it_began_in(node: Node) -> None:
    await node.spares(1)
    spec = job(
        ("sh", "-c", "ls -l /proc/self/fd | grep -c -e socket -e anon -e memfd; cat /proc/$$/comm; ps -o sid= $$")
    )

    run = node.start(spec)
    await node.ended(run)

    counted, name, session = node.log(spec).split()
    assert (counted, name) == (b"0", b"sh")
    assert int(session) == (await node.started(run)).pid


@pytest.mark.parametrize(
    "log",
    [LogSpec(stderr="separate"), LogSpec(mode="none"), LogSpec(timestamps=True)],
    ids=["stderr apart", "no log", "time stamps"],
)
async def test_every_kind_of_log_is_served(node: Node, log: LogSpec) -> None:
    await node.spares(1)
    spec = job(("sh", "-c", "echo out; echo err >&2"), log=log)

    ended = await node.ended(node.start(spec))

    assert sorted(ended.tail) == ["err", "out"]
    written = sorted(path.read_bytes().split()[-1] for path in node.directory.glob("logs/*"))
    assert written == {"separate": [b"err", b"out"], "merge": [b"err"]}[log.stderr][: 2 if log.mode == "file" else 0]


async def test_what_cannot_be_executed_is_said_in_the_same_words(node: Node) -> None:
    await node.spares(1)

    ended = await node.ended(node.start(job(("no-such-program",))))

    assert ended.error == "no such program on its PATH: 'no-such-program'"
    assert ended.exit_code is None


async def test_an_environment_that_fits_into_no_message_starts_otherwise(node: Node) -> None:
    (leash,) = await node.spares(1)
    spec = replace(job(("sh", "-c", "echo ${#LONG}")), env={"LONG": "x" * 70_000})

    run = node.start(spec)

    assert (await node.ended(run)).exit_code == 0
    assert node.log(spec) == b"70000\n"
    assert node.leash_of(run) != leash
    await until(lambda: gone(leash), "the spare goes, since it was told nothing")


async def test_spares_that_nobody_needs_go_by_themselves(node: Node) -> None:
    waiting = await node.spares(3)
    first = [first_process_of(leash) for leash in waiting]

    node.runs.expect(ExpectRuns(0, 0.0))

    assert node.waiting() == waiting, "they stay as long as was said before"
    node.runs.expect(ExpectRuns(3, clock.boot() - spares.KEPT_S))
    await until(lambda: node.waiting() == [], "their time is over", patience_s=spares.KEPT_S + BOUND_S)
    await until(lambda: all(map(gone, [*waiting, *first])), "they have ended")
    await until(lambda: linux.children(node.launcher()) == [], "they are reaped")


async def test_spares_are_made_only_when_they_are_needed_soon(node: Node) -> None:
    node.runs.expect(ExpectRuns(2, clock.boot() + 60))
    await node.ended(node.start(job(("true",))))

    await until(lambda: linux.children(node.launcher()) == [], "its only leash is gone")
    assert node.waiting() == []


async def test_what_is_expected_is_what_is_made_and_no_more(node: Node) -> None:
    waiting = await node.spares(2)

    node.runs.expect(ExpectRuns(2, clock.boot() + 1.0))
    await node.ended(node.start(job(("true",))))  # a start was expected, and came

    assert node.waiting() == waiting[1:]


async def test_a_machine_that_is_short_of_files_has_fewer_spares(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spares.resource, "getrlimit", lambda _which: (64, 64))  # type: ignore[attr-defined]  # what it imports

    node.runs.expect(ExpectRuns(100, clock.boot() + 1.0))
    await until(lambda: len(node.waiting()) == 4, "as many as a sixteenth")
    await node.ended(node.start(job(("true",))))

    await until(lambda: len(linux.children(node.launcher())) == 3, "one of them was used")
    assert len(node.waiting()) == 3


async def test_the_run_in_a_spare_is_in_the_ledger_before_it_begins(node: Node) -> None:
    (leash,) = await node.spares(1)
    run = node.start(job(("sleep", "20")))
    await node.started(run)

    (line,) = [line for line in (node.directory / "ledger").read_text().splitlines() if run in line]

    entry = json.loads(line.removeprefix("+ "))
    assert (entry["leash"][0], entry["leader"][0]) == (leash, (await node.started(run)).pid)
    assert entry["launcher"][0] == node.launcher()
    node.kill(run)
    await node.ended(run)


# Many at once.


async def test_a_burst_starts_all_of_them_and_loses_nothing(node: Node) -> None:
    waiting = await node.spares(MANY)
    specs = [job(("sh", "-c", f"echo {number}; exit {number % 5}")) for number in range(MANY)]

    runs = [node.start(spec, soon(60, 70)) for spec in specs]
    ended = [await node.ended(run) for run in runs]

    assert [each.exit_code for each in ended] == [number % 5 for number in range(MANY)]
    assert [node.log(spec) for spec in specs] == [b"%d\n" % number for number in range(MANY)]
    assert {node.leash_of(run) for run in runs} == set(waiting)


async def test_how_long_a_short_run_of_a_burst_took_is_told_as_it_was(node: Node) -> None:
    await node.spares(MANY)
    quick, slow = job(("true",)), job(("sleep", "0.5"))
    started = clock.boot()

    runs = [node.start(quick) for _ in range(MANY - 1)]
    last = node.start(slow)
    ended = [await node.ended(run) for run in runs]

    assert sum(each.elapsed_s for each in ended) < (clock.boot() - started) * MANY / 2
    assert (await node.ended(last)).elapsed_s >= 0.5


@pytest.mark.parametrize("order", ["stop", "kill"])
async def test_a_run_of_a_burst_hears_an_order_at_once(node: Node, order: str) -> None:
    await node.spares(MANY)
    runs = [node.start(job(("sleep", "20"))) for _ in range(MANY)]
    await until(lambda: any(linux.read_file(f"/proc/{first}/comm") == b"sleep\n" for first in leaders(node)), "a start")

    ordered_at = clock.boot()
    for run in runs:
        node.stop(run, 0.5) if order == "stop" else node.kill(run)
    causes = {(await node.ended(run)).cause for run in runs}

    assert causes <= {"stop", "killed", "unproven"}
    assert causes & {"stop", "killed"}
    assert clock.boot() - ordered_at < BOUND_S


def leaders(node: Node) -> list[int]:
    """Return the first processes of all runs."""
    runs = node.runs.pids()["runs"]
    assert isinstance(runs, dict)
    return [run["child"] for run in runs.values()]


async def test_a_renewal_does_not_put_off_what_a_resting_leash_must_see(node: Node) -> None:
    await node.spares(MANY)
    runs = [node.start(job(("true",)), soon(60, 70)) for _ in range(MANY)]

    for run in runs:
        node.extend(run, clock.boot() + 120, clock.boot() + 130)
    told_at = clock.boot()

    assert {(await node.ended(run)).exit_code for run in runs} == {0}
    assert clock.boot() - told_at < BOUND_S


async def test_a_start_that_is_taken_back_at_once_never_runs(node: Node, tmp_path: Path) -> None:
    await node.spares(2)
    mark = tmp_path / "ran"
    run, other = node.start(job(("touch", str(mark)))), node.start(job(("true",)))

    node.stop(run, 1.0)

    ended = await node.ended(run)
    assert (ended.cause, ended.error) == ("stop", "ended before it was started")
    assert (await node.ended(other)).exit_code == 0
    assert not mark.exists()


# Faults.


async def test_a_spare_that_was_killed_is_not_used(node: Node) -> None:
    first, second = await node.spares(2)
    node.runs.expect(ExpectRuns(0, 0.0))

    send(first, signal.SIGKILL)
    await until(lambda: node.waiting() == [second], "it is missed")
    run = node.start(job(("true",)))

    assert (await node.ended(run)).exit_code == 0
    assert node.leash_of(run) == second


@pytest.mark.parametrize("victim", [lambda leash: leash, first_process_of], ids=["leash", "first process"])
async def test_a_run_whose_spare_dies_as_it_is_told_runs_once_or_not_at_all(
    node: Node, tmp_path: Path, victim: Callable[[int], int]
) -> None:
    (leash,) = await node.spares(1)
    mark = tmp_path / "ran"
    spec = job(("sh", "-c", f"echo once >>{mark}"))

    send(victim(leash), signal.SIGKILL)
    run = node.start(spec)
    ended = await node.ended(run)

    lines = mark.read_text().splitlines() if mark.exists() else []
    assert lines in ([], ["once"])
    assert (ended.exit_code == 0) <= (lines == ["once"])
    assert (await node.ended(node.start(job(("true",))))).exit_code == 0


async def test_a_spare_whose_first_process_died_goes_and_the_run_starts_otherwise(node: Node) -> None:
    (leash,) = await node.spares(1)

    send(first_process_of(leash), signal.SIGKILL)
    await until(lambda: node.waiting() == [], "the spare goes")
    run = node.start(job(("true",)))

    assert (await node.ended(run)).exit_code == 0
    assert node.leash_of(run) != leash


async def test_spares_go_with_their_launcher_and_the_next_one_makes_others(node: Node) -> None:
    waiting = await node.spares(3)
    first = [first_process_of(leash) for leash in waiting]

    send(node.launcher(), signal.SIGKILL)
    await until(lambda: not set(node.waiting()) & set(waiting), "they are let go")
    run = node.start(job(("true",)))

    assert (await node.ended(run)).exit_code == 0
    await until(lambda: not any(linux.state(pid) for pid in [*waiting, *first]), "they have ended and are reaped")
    assert len(await node.spares(2)) == 2


async def test_a_run_in_a_spare_goes_on_without_its_launcher(node: Node) -> None:
    await node.spares(1)
    tag = fresh_tag()
    first = node.launcher()
    run = node.start(job(nasty("mix", tag)))
    await asyncio.sleep(0)  # it is told at the end of this turn

    send(first, signal.SIGKILL)
    await node.started(run)
    await until(lambda: node.launcher() not in {0, first}, "a new launcher")

    node.stop(run, 0.3)
    assert (await node.ended(run)).cause == "stop"
    assert survivors(tag) == []


async def test_a_frozen_spare_that_is_given_a_run_is_killed_with_all_of_it(tmp_path: Path) -> None:
    async with impatient_node(tmp_path) as node:
        (leash,) = await node.spares(1)
        tag = fresh_tag()

        send(leash, signal.SIGSTOP)
        run = node.start(job(nasty("plain", tag)))
        unproven = await node.unproven(run)
        ended = await node.ended(run)

        assert survivors(tag) == []
        assert unproven.why == "its leash did not answer within 0.5 s"
        assert (ended.cause, ended.error) == ("unproven", "")


async def test_a_frozen_spare_that_is_given_a_run_is_killed_by_the_launcher_at_its_bound(node: Node) -> None:
    (leash,) = await node.spares(1)
    tag = fresh_tag()

    send(leash, signal.SIGSTOP)
    deadlines = soon(1.0, 1.2)
    run = node.start(job(nasty("plain", tag)), deadlines)
    ended = await node.ended(run)

    assert survivors(tag) == []
    assert ended.cause == "unproven"
    assert clock.boot() < deadlines.kill_at + BOUND_S
    assert (await node.unproven(run)).why == "its leash died", "not main: the launcher"


async def test_a_first_process_that_was_held_up_starts_nothing_whose_lease_is_over(node: Node, tmp_path: Path) -> None:
    (leash,) = await node.spares(1)
    first = first_process_of(leash)
    mark = tmp_path / "ran"

    send(first, signal.SIGSTOP)
    deadlines = soon(0.3, 20.0)
    run = node.start(job(("touch", str(mark))), deadlines)
    await until(lambda: clock.boot() > deadlines.term_at, "its lease ends")
    send(first, signal.SIGCONT)
    ended = await node.ended(run)

    assert (ended.cause, ended.error) == ("deadline", "its lease was over before it could start")
    assert not mark.exists()


async def test_a_first_process_that_stays_frozen_is_killed_in_time(node: Node, tmp_path: Path) -> None:
    (leash,) = await node.spares(1)
    first = first_process_of(leash)
    mark = tmp_path / "ran"

    send(first, signal.SIGSTOP)
    deadlines = soon(0.3, 0.6)
    ended = await node.ended(node.start(job(("touch", str(mark))), deadlines))

    assert ended.cause == "deadline"
    assert gone(first)
    assert not mark.exists()


async def test_spares_are_no_strays_of_a_dead_leash(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(job(nasty("mix", tag)))
    await node.started(run)
    waiting = await node.spares(2)

    send(node.leash(run), signal.SIGKILL)
    await node.ended(run)

    assert survivors(tag) == []
    assert node.waiting() == waiting
    assert not any(map(gone, waiting))


async def test_spares_end_with_the_node(tmp_path: Path) -> None:
    node = Node(tmp_path)
    await node.runs.open()
    waiting = await node.spares(3)
    first = [first_process_of(leash) for leash in waiting]

    await node.runs.close()

    assert all(map(gone, [*waiting, *first]))


@pytest.mark.parametrize("frozen", [False, True], ids=["all awake", "one frozen"])
async def test_spares_end_when_main_dies(tmp_path: Path, *, frozen: bool) -> None:
    main = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.runs.host", str(tmp_path), "plain", "3"),
        cwd=ROOT,
        env={**os.environ, "TREE_TAG": fresh_tag()},
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert main.stdout is not None
    told = json.loads(await main.stdout.readline())
    waiting = told["spares"]
    everything = [told["launcher"], told["leash"], *waiting, *map(first_process_of, waiting)]
    if frozen:
        send(waiting[1], signal.SIGSTOP)

    main.kill()
    await main.wait()

    await until(lambda: all(map(gone, everything)), "launcher, spares and what waits below them have ended")


async def test_a_run_waits_for_a_launcher_that_does_not_read_and_loses_nothing(tmp_path: Path) -> None:
    async with watchful_node(tmp_path) as node:
        await node.spares(1)
        launcher = node.runs._launching.current
        assert launcher is not None
        send(launcher.pid, signal.SIGSTOP)
        with contextlib.suppress(BlockingIOError):
            while launcher.send("nobody reads this"):
                pass

        ended = await node.ended(node.start(job(("true",))))

        assert ended.exit_code == 0, "by the next launcher, since this one is killed with its spares"
