"""What jobs have written, from the machine where it is and from another."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.control import ControlServer
from orchestrator.core.snapshot import ClusterView, JobView
from tests.cli.conftest import Run
from tests.cli.screen import Screen
from tests.cli.stage import Played
from tests.servers import Server

Play = Callable[..., Played]

pytestmark = pytest.mark.usefixtures("jobs_yaml")


class Shelf:
    """The logs of the nodes that are or were on this machine."""

    def __init__(self, here: Path) -> None:
        """Note where."""
        self._state = here / "state" / "shop"

    def write(self, node: str, name: str, text: str | bytes) -> Path:
        """Write a log."""
        path = self._state / node / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


@pytest.fixture
def shelf(here: Path) -> Shelf:
    return Shelf(here)


@pytest.fixture
def follow() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `logs` with a pipe; who goes on is ended."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*args: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "orchestrator", "logs", *args]
        begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.communicate()


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def numbers(first: int, last: int) -> str:
    return "".join(f"line {number}\n" for number in range(first, last + 1))


async def test_the_last_lines_are_shown(run: Run, shelf: Shelf) -> None:
    shelf.write("n1", "beat.log", numbers(1, 100))

    done = await run("logs", "beat")

    assert (done.status, done.err) == (0, "")
    assert done.out == numbers(81, 100)


async def test_so_many_lines_are_shown_as_were_asked_for_back_into_the_backups(run: Run, shelf: Shelf) -> None:
    shelf.write("n1", "beat.log.1", numbers(1, 10))
    shelf.write("n1", "beat.log", numbers(11, 12))

    assert (await run("logs", "beat", "-n", "5")).out == numbers(8, 12)
    assert (await run("logs", "-n", "99", "beat")).out == numbers(1, 12)
    assert (await run("logs", "beat", "-n", "0")).out == ""


async def test_a_pipe_gets_the_bytes_as_they_are(shelf: Shelf, follow: Callable[..., subprocess.Popen[bytes]]) -> None:
    output = b"\xff\xfe \x1b[31mred\x1b[0m\r\nno end"
    shelf.write("n1", "beat.log", output)

    process = follow("beat")

    assert process.communicate()[0] == output
    assert process.returncode == 0


async def test_a_name_means_all_instances_and_each_line_bears_its_own(run: Run, shelf: Shelf) -> None:
    shelf.write("n1", "worker.log", "one\ntwo")
    shelf.write("n1", "worker.1.log", "three\n")

    assert (await run("logs", "worker")).out == "worker | one\nworker | two\nworker.1 | three\n"
    assert (await run("logs", "worker.1")).out == "three\n"
    assert (await run("logs", "worker.0")).out == "one\ntwo"


async def test_of_several_nodes_here_the_newest_log_is_shown(run: Run, shelf: Shelf) -> None:
    older = shelf.write("n1", "beat.log", "by n1\n")
    os.utime(older, (1, 1))
    shelf.write("n2", "beat.log", "by n2\n")

    assert (await run("logs", "beat")).out == "by n2\n"


async def test_of_runs_that_are_alive_at_once_the_newest_log_is_shown(run: Run, here: Path, shelf: Shelf) -> None:
    with (here / "jobs.yaml").open("a") as file:
        file.write('  often: {command: "true", every: 1s, overlap: allow, max_instances: 3}\n')
    older = shelf.write("n1", "often.log", "older\n")
    os.utime(older, (1, 1))
    shelf.write("n1", "often~1.log", "newer\n")

    assert (await run("logs", "often")).out == "newer\n"
    assert "often~1 | newer\n" in (await run("logs", "often", "beat")).out


def test_following_goes_on_with_all_runs_that_are_alive_at_once(
    here: Path, shelf: Shelf, follow: Callable[..., subprocess.Popen[bytes]]
) -> None:
    with (here / "jobs.yaml").open("a") as file:
        file.write('  often: {command: "true", every: 1s, overlap: allow, max_instances: 3}\n')
    first = shelf.write("n1", "often.log", "one\n")
    process = follow("-f", "often")
    assert line_of(process) == b"often | one\n"

    with first.open("a") as file:
        file.write("cut")
        file.flush()
        shelf.write("n1", "often~2.log", "two\n")
        assert line_of(process) == b"often~2 | two\n"
        file.write(" off\n")

    assert line_of(process) == b"often | cut off\n"


async def test_a_node_here_says_where_its_logs_are(run: Run, server: Server, here: Path) -> None:
    logs = here / "another" / "shop" / "n1" / "logs"
    logs.mkdir(parents=True)
    (logs / "beat.log").write_text("hello\n")

    async def where(_question: Mapping[str, object]) -> Mapping[str, object]:
        return {"cluster": "shop", "node": "n1", "redis": server.url, "state_dir": str(here / "another")}

    control = ControlServer(here / "run" / "shop.n1.sock", {"where": where})
    await control.open()

    done = await run("logs", "beat")

    await control.close()
    assert (done.status, done.out) == (0, "hello\n")


async def test_a_job_without_a_log_yet_is_said_to_have_none(run: Run) -> None:
    done = await run("logs", "beat")

    assert (done.status, done.out) == (1, "")
    said = "beat has no log yet: it has written nothing on this machine"
    assert done.err == f"{said}; no node has kept anything here, unless another --state-dir is meant\n"


async def test_there_is_no_such_job(run: Run) -> None:
    done = await run("logs", "beet")

    assert done.status == 4
    assert done.err == "orchestrator: no such job `beet`; did you mean `beat`?\n"


async def test_from_another_machine_the_last_words_of_the_last_run_are_shown(
    run: Run, server: Server, play: Play
) -> None:
    node = play(server, "far")
    await node.join()
    held = await node.hold("beat")
    await node.record("beat", held, node="far", ended="2026-11-30T13:07:20.123Z", output=["one", "\x1b[2Jtwo"])
    await node.release("beat", held)

    done = await run("logs", "beat")

    assert (done.status, done.out) == (0, "one\n\x1b[2Jtwo\n")
    assert done.err == (
        "beat ran last on far, and its log is there; the last words of its last run, on far,"
        " ended 2026-11-30T13:07:20.123Z:\n"
    )


async def test_while_it_runs_on_another_machine_what_is_old_here_is_not_shown_as_new(
    run: Run, server: Server, play: Play, shelf: Shelf
) -> None:
    shelf.write("n1", "beat.log", "old\n")
    node = play(server, "far")
    await node.join()
    await node.hold("beat")

    done = await run("logs", "beat")

    assert (done.status, done.out) == (1, "")
    assert done.err == "beat runs on far, and its log is there; of its output nothing is on record\n"


async def test_what_is_elsewhere_cannot_be_followed(run: Run, server: Server, play: Play) -> None:
    node = play(server, "far")
    await node.join()
    held = await node.hold("beat")
    await node.record("beat", held, node="far", ended="2026-11-30T13:07:20.123Z", output=["one"])

    done = await run("logs", "-f", "beat")

    assert (done.status, done.out) == (1, "one\n")
    assert done.err.startswith("beat runs on far, and its log is there")


async def test_without_redis_what_is_here_is_shown(run: Run, own_server: Server, here: Path, shelf: Shelf) -> None:
    text = (here / "jobs.yaml").read_text().replace("redis: ", f"redis: {own_server.url} #")
    (here / "jobs.yaml").write_text(text)
    own_server.stop()
    shelf.write("n1", "beat.log", "one\n")

    assert (await run("logs", "beat")).out == "one\n"
    assert (await run("logs", "invoices")).status == 69


async def test_a_job_that_has_no_log_says_why(run: Run, here: Path) -> None:
    with (here / "jobs.yaml").open("a") as file:
        file.write('  quiet: {command: "true", log: none}\n  chatty: {command: "true", log: journal}\n')

    assert (await run("logs", "quiet")).err == "the output of quiet is dropped (`log: none`)\n"
    written = "chatty writes onto its node's own stderr (`log: journal`), and has no log file\n"
    assert (await run("logs", "chatty")).err == written


async def test_stderr_that_is_kept_apart_is_shown_for_the_asking(run: Run, here: Path, shelf: Shelf) -> None:
    with (here / "jobs.yaml").open("a") as file:
        file.write('  apart: {command: "true", log: {stderr: separate}}\n')
    shelf.write("n1", "apart.log", "out\n")
    shelf.write("n1", "apart.err.log", "err\n")

    assert (await run("logs", "apart")).out == "out\n"
    assert (await run("logs", "apart", "--err")).out == "err\n"
    together = await run("logs", "beat", "--err")
    assert together.status == 2
    assert together.err.endswith("the stderr of beat goes where its stdout goes; show it without --err\n")


def test_following_goes_on_across_rotations_until_ctrl_c(
    shelf: Shelf, follow: Callable[..., subprocess.Popen[bytes]]
) -> None:
    path = shelf.write("n1", "beat.log", numbers(1, 3))
    process = follow("-f", "beat", "-n", "1")
    assert line_of(process) == b"line 3\n"

    with path.open("a") as file:
        file.write("line 4\n")
    path.rename(path.with_name("beat.log.1"))
    path.write_text("line 5\n")

    assert [line_of(process), line_of(process)] == [b"line 4\n", b"line 5\n"]
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130


def test_following_waits_for_a_log_that_is_not_there_yet(
    shelf: Shelf, follow: Callable[..., subprocess.Popen[bytes]]
) -> None:
    shelf.write("n1", "worker.log", "")
    process = follow("-f", "beat")
    assert process.stderr is not None
    assert process.stderr.readline() == (
        b"beat has no log yet: it has written nothing on this machine; waiting for it\n"
    )

    shelf.write("n1", "beat.log", "hello\n")

    assert line_of(process) == b"hello\n"


def test_who_stops_reading_ends_it_without_a_word(shelf: Shelf, follow: Callable[..., subprocess.Popen[bytes]]) -> None:
    path = shelf.write("n1", "beat.log", "one\n")
    process = follow("-f", "beat")
    assert line_of(process) == b"one\n"
    assert process.stdout is not None
    assert process.stderr is not None

    process.stdout.close()
    with path.open("a") as file:
        file.write("two\n")

    assert process.wait(10) == 1
    assert process.stderr.read() == b""


def test_on_a_terminal_it_can_only_be_read(shelf: Shelf) -> None:
    shelf.write("n1", "beat.log", b"\x1b[2Jone\n\x1b[32mgreen\x1b[0m\nno end")
    screen = Screen("logs", "beat")

    screen.until(r"\\x1b\[2Jone")
    screen.until("\ngreen\r")
    screen.until("no end")

    assert screen.wait() == 0
    screen.close()


async def test_the_word_of_a_node_here_is_enough_without_a_file(
    run: Run, play: Play, server: Server, here: Path, shelf: Shelf
) -> None:
    file = (here / "jobs.yaml").rename(here / "elsewhere.yaml")
    rows = (JobView("beat", "service", holder="n1"),)
    await play(server).listen(ClusterView("shop", "n1", jobs=rows), file=str(file), redis=server.url)
    shelf.write("n1", "beat.log", "one\n")

    assert (await run("logs", "beat")).out == "one\n"
