"""What is ordered, what the lease says, and what becomes of it in the run's end."""

import signal
import sys
from pathlib import Path

import pytest

from orchestrator import clock
from tests.runs.node import Node, fresh_tag, job, soon, survivors, until

STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
POLITE = """
import signal, sys, time
def end(*_):
    print("got TERM", flush=True)
    time.sleep(0.5)
    sys.exit("last words")
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


async def test_an_exit_status_is_reported(node: Node) -> None:
    ended = await node.ended(node.start(job(("sh", "-c", "exit 7"))))

    assert (ended.exit_code, ended.signal, ended.cause, ended.error) == (7, 0, "exit", "")


async def test_a_signal_that_ends_the_first_process_is_reported(node: Node) -> None:
    ended = await node.ended(node.start(job(("sh", "-c", "kill -USR1 $$"))))

    assert (ended.exit_code, ended.signal, ended.cause) == (None, signal.SIGUSR1, "exit")


async def test_started_names_the_first_process(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(job((sys.executable, "-c", "import time; time.sleep(20)", tag)))

    started = await node.started(run)

    assert survivors(tag) == [started.pid]
    node.kill(run)
    await node.ended(run)


@pytest.mark.parametrize(
    ("argv", "cwd", "error"),
    [
        (("no-such-program",), None, "no such program on its PATH: 'no-such-program'"),
        (("/no/such/file",), None, "no such file: '/no/such/file'"),
        (("./plain.txt",), ".", "not permitted to execute: './plain.txt'"),
        (("./no-hash-bang",), ".", "neither a binary nor a script with a #! line: './no-hash-bang'"),
        (("./lost",), ".", "its interpreter is missing: './lost' (see its first line)"),
        (("true",), "/no/such/place", "working directory '/no/such/place': no such file or directory"),
        (("true", "a" * 200_000), None, "cannot execute 'true': argument list too long"),
    ],
    ids=["not on PATH", "no file", "not executable", "no format", "no interpreter", "no directory", "too long"],
)
async def test_what_cannot_start_says_why_in_one_clause(
    node: Node, tmp_path: Path, argv: tuple[str, ...], cwd: str | None, error: str
) -> None:
    for name, text, mode in (("plain.txt", "", 0o644), ("no-hash-bang", "x\n", 0o755), ("lost", "#!/no/such\n", 0o755)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    spec = job(argv, cwd=str(tmp_path) if cwd == "." else cwd)

    ended = await node.ended(node.start(spec))

    assert (ended.error, ended.exit_code, ended.signal, ended.cause) == (error, None, 0, "exit")
    assert [type(event).__name__ for event in node.events] == ["RunEnded"]


async def test_last_words_after_the_stop_signal_are_in_the_log(node: Node) -> None:
    spec = job((sys.executable, "-I", "-S", "-c", POLITE))
    run = node.start(spec)
    await until(lambda: b"ready" in node.log(spec), "it is ready")

    node.stop(run, 10)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (1, "stop")
    assert node.log(spec) == b"ready\ngot TERM\nlast words\n"
    assert node.runs.last_lines(run) == ("ready", "got TERM", "last words")


async def test_a_second_stop_with_a_shorter_grace_shortens_the_first(node: Node) -> None:
    spec = job(("sh", "-c", STUBBORN))
    run = node.start(spec)
    await until(lambda: b"ready" in node.log(spec), "it is ready")

    ordered_at = clock.boot()
    node.stop(run, 60)
    node.stop(run, 0.2)
    ended = await node.ended(run)

    assert (ended.cause, ended.signal) == ("stop", signal.SIGKILL)
    assert clock.boot() - ordered_at < 3


async def test_a_second_stop_with_a_longer_grace_changes_nothing(node: Node) -> None:
    spec = job(("sh", "-c", STUBBORN))
    run = node.start(spec)
    await until(lambda: b"ready" in node.log(spec), "it is ready")

    ordered_at = clock.boot()
    node.stop(run, 0.2)
    node.stop(run, 60)
    await node.ended(run)

    assert clock.boot() - ordered_at < 3


async def test_a_stop_longer_than_the_lease_goes_on_while_the_lease_is_extended(node: Node) -> None:
    spec = job(("sh", "-c", "trap 'sleep 1.2; exit 3' TERM; echo ready; while :; do sleep 0.05; done"))
    deadlines = soon(1.5, 1.8)
    run = node.start(spec, deadlines)
    await until(lambda: b"ready" in node.log(spec), "it is ready")

    node.stop(run, 60)
    later = soon(20, 21)
    node.extend(run, later.term_at, later.kill_at)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (3, "stop")


async def test_a_lease_that_is_not_extended_cuts_a_stop_short(node: Node) -> None:
    deadlines = soon(0.8, 1.0)
    spec = job(("sh", "-c", STUBBORN))
    run = node.start(spec, deadlines)
    await until(lambda: b"ready" in node.log(spec), "it is ready")

    node.stop(run, 60)
    ended = await node.ended(run)

    assert (ended.cause, ended.signal) == ("stop", signal.SIGKILL)
    assert clock.boot() < deadlines.kill_at + 2


async def test_an_extended_run_outlives_its_first_deadline(node: Node) -> None:
    run = node.start(job(("sleep", "1")), soon(0.5, 0.6))
    later = soon(20, 21)

    node.extend(run, later.term_at, later.kill_at)
    ended = await node.ended(run)

    assert (ended.exit_code, ended.cause) == (0, "exit")


async def test_a_run_whose_lease_is_over_is_not_even_started(node: Node, tmp_path: Path) -> None:
    witness = tmp_path / "witness"

    ended = await node.ended(node.start(job(("touch", str(witness))), soon(-2, -1)))

    assert (ended.cause, ended.error) == ("deadline", "its lease was over before it could start")
    assert not witness.exists()


async def test_a_kill_that_overtakes_the_start_ends_the_run(node: Node) -> None:
    tag = fresh_tag()
    run = node.start(job(("sh", "-c", "sleep 20; :", tag)))

    node.kill(run)
    ended = await node.ended(run)

    assert ended.cause == "killed"
    assert survivors(tag) == []


async def test_a_stop_that_overtakes_exec_still_ends_the_run_in_order(node: Node) -> None:
    runs = [node.start(job(("sleep", "20"))) for _ in range(12)]
    for run in runs:
        await until(lambda run=run: node.leash(run), "its leash answers")  # type: ignore[misc]  # mypy cannot infer a lambda's default
        node.stop(run, 10)

    ended = [await node.ended(run) for run in runs]

    assert {each.cause for each in ended} == {"stop"}
    assert signal.SIGKILL not in {each.signal for each in ended}


async def test_a_background_child_that_keeps_the_pipe_does_not_keep_the_run(node: Node) -> None:
    spec = job(("sh", "-c", "sleep 300 & sleep 0.3; echo done"), stop_s=0.5)

    ended = await node.ended(node.start(spec))

    assert (ended.exit_code, ended.cause) == (0, "exit")
    assert ended.elapsed_s < 3
    assert node.log(spec) == b"done\n"


async def test_what_the_first_process_leaves_behind_has_a_short_grace(node: Node) -> None:
    tag = fresh_tag()
    left = "trap '' TERM; while :; do sleep 0.05; done"
    run = node.start(job(("sh", "-c", f'sh -c "{left}" {tag} & exit 4'), stop_s=0.3))

    ended = await node.ended(run)

    assert survivors(tag) == []
    assert (ended.exit_code, ended.cause) == (4, "exit")
    assert ended.elapsed_s < 3


async def test_a_job_gets_its_own_stop_signal(node: Node) -> None:
    spec = job(("sh", "-c", "trap 'exit 5' INT; echo ready; while :; do sleep 0.05; done"), stop_signal="SIGINT")
    run = node.start(spec)
    await until(lambda: b"ready" in node.log(spec), "it is ready")

    node.stop(run, 10)

    assert (await node.ended(run)).exit_code == 5


async def test_many_starts_at_once_all_run(node: Node) -> None:
    runs = [node.start(job(("true",))) for _ in range(150)]

    ended = [await node.ended(run) for run in runs]

    assert {each.exit_code for each in ended} == {0}


async def test_a_start_that_was_not_sent_yet_can_be_taken_back(node: Node, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    runs = [node.start(job(("true",))) for _ in range(100)]
    last = node.start(job(("touch", str(witness))))

    node.stop(last, 5)
    ended = await node.ended(last)

    assert (ended.cause, ended.error) == ("stop", "ended before it was started")
    for run in runs:
        await node.ended(run)
    assert not witness.exists()


async def test_orders_about_unknown_runs_are_ignored(node: Node) -> None:
    run = node.start(job(("true",)))
    await node.ended(run)

    node.stop(run, 1)
    node.kill(run)
    node.extend(run, 1, 2)

    assert len(node.events) == 2


async def test_what_a_job_finds_when_it_begins(node: Node) -> None:
    script = """
import os, resource, signal, sys
status = dict(line.split(":\\t") for line in open("/proc/self/status") if ":\\t" in line)
print(f'{int(status["SigIgn"], 16) & ~(0b11 << 31):016x}', status["SigBlk"].strip())
print(os.getsid(0) == os.getpid(), os.readlink("/proc/self/fd/0"), os.readlink("/proc/self/fd/1").partition(":")[0])
fds = sorted(map(int, os.listdir("/proc/self/fd")))
print(os.readlink("/proc/self/fd/1") == os.readlink("/proc/self/fd/2"), fds[:-1])  # the last is the listing's own
print(os.environ["ORCHESTRATOR_JOB"])
"""
    spec = job((sys.executable, "-I", "-S", "-c", script))
    run = node.start(spec, env={"ORCHESTRATOR_JOB": "the job"})
    await node.ended(run)

    # Python itself ignores SIGPIPE (bit 12) and SIGXFSZ (bit 24) once it runs; nothing else is. Signals 32 and 33
    # are the C library's own: whoever started us may have ignored them, and nobody can change that.
    assert node.runs.last_lines(run) == (
        "0000000001001000 0000000000000000",
        "True /dev/null pipe",
        "True [0, 1, 2]",
        "the job",
    )
