"""The output of one run: one pipe or two, into files, onto the node's stderr, or nowhere."""

import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import clock
from orchestrator.core.spec import LogSpec
from orchestrator.runs.logs import RotatingFile
from orchestrator.runs.output import Output
from orchestrator.runs.stamps import Stamped
from tests.runs.node import Node, job

STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ")

Open = Callable[..., Output]


def complain(what: object) -> None:
    """Take what nobody expects."""
    raise AssertionError(what)


@pytest.fixture
def open_output(tmp_path: Path) -> Iterator[Open]:
    """Open outputs below a directory; what a test leaves open is closed."""
    opened: list[Output] = []

    def begin(*, separate: bool = False, timestamps: bool = False, **more: Any) -> Output:
        log: dict[str, Any] = {"path": str(tmp_path / "job.log"), "max_bytes": 1000, "backups": 2}
        log |= {"err_path": str(tmp_path / "job.err.log") if separate else None, "timestamps": timestamps}
        opened.append(Output(log | more, on_failed=complain, on_restored=complain))
        return opened[-1]

    yield begin
    for output in opened:
        output.drain()


def pull_all(output: Output) -> None:
    for fd in output.read_fds():
        assert output.pull(fd)


def test_stdout_and_stderr_are_one_pipe_into_one_file(open_output: Open, tmp_path: Path) -> None:
    output = open_output()

    assert output.stdout_fd == output.stderr_fd
    for line in (b"one\n", b"two\n"):
        os.write(output.stdout_fd, line)
    pull_all(output)

    assert (tmp_path / "job.log").read_bytes() == b"one\ntwo\n"


def test_separate_streams_are_two_pipes_into_two_files(open_output: Open, tmp_path: Path) -> None:
    output = open_output(separate=True)

    os.write(output.stdout_fd, b"out\n")
    os.write(output.stderr_fd, b"err\n")
    pull_all(output)

    assert len(output.read_fds()) == 2
    assert (tmp_path / "job.log").read_bytes() == b"out\n"
    assert (tmp_path / "job.err.log").read_bytes() == b"err\n"
    assert output.tail.lines() == ["out", "err"]


def test_in_the_tail_no_stream_goes_on_in_a_line_of_the_other(open_output: Open) -> None:
    output = open_output(separate=True)
    out, err = output.read_fds()

    os.write(output.stdout_fd, b"0 of 9")
    assert output.pull(out)
    os.write(output.stderr_fd, b"oh no\n")
    assert output.pull(err)
    os.write(output.stdout_fd, b"1 of 9")
    assert output.pull(out)

    assert output.tail.lines() == ["0 of 9", "oh no", "1 of 9"]


def test_without_a_log_only_the_last_lines_are_kept(tmp_path: Path) -> None:
    output = Output(None, on_failed=complain, on_restored=complain)

    os.write(output.stderr_fd, b"gone\n")
    pull_all(output)
    output.drain()

    assert output.tail.lines() == ["gone"]
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_a_pipe_is_told_once_and_the_other_goes_on(open_output: Open) -> None:
    output = open_output(separate=True)
    out, err = output.read_fds()
    kept = os.dup(output.stderr_fd)

    output.close_child_ends()

    assert (output.stdout_fd, output.stderr_fd) == (-1, -1)
    assert not output.pull(out)
    assert output.read_fds() == [err]
    assert output.pull(err)
    os.close(kept)


def test_what_is_left_is_moved_without_waiting_for_who_keeps_the_pipe(open_output: Open, tmp_path: Path) -> None:
    output = open_output()
    kept = os.dup(output.stdout_fd)
    output.close_child_ends()

    os.write(kept, b"last words\n")
    output.drain()

    assert output.read_fds() == []
    assert (tmp_path / "job.log").read_bytes() == b"last words\n"
    os.close(kept)


def test_nothing_is_created_before_there_is_output(open_output: Open, tmp_path: Path) -> None:
    output = open_output(separate=True)
    os.write(output.stdout_fd, b"out\n")
    pull_all(output)

    assert [path.name for path in tmp_path.iterdir()] == ["job.log"]


def test_each_line_begins_with_the_instant_at_which_it_was_read(open_output: Open, tmp_path: Path) -> None:
    output = open_output(timestamps=True)

    before = clock.now().utc
    for part in (b"one\ntw", b"o\n", b"\n", b"three"):
        os.write(output.stdout_fd, part)
        pull_all(output)
    after = clock.now().utc

    lines = (tmp_path / "job.log").read_bytes().split(b"\n")
    assert [STAMP.sub(b"", line, count=1) for line in lines] == [b"one", b"two", b"", b"three"]
    for line in lines:
        instant = datetime.strptime(line[:24].decode(), "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
        assert before - 0.001 <= instant <= after
    assert output.tail.lines() == ["one", "two", "", "three"]


@settings(deadline=None)  # it writes to a disk
@given(parts=st.lists(st.sampled_from([b"\n", b"word", b"word\n", b"\n\n", b"x" * 20000, b"y\n" * 9000]), max_size=8))
def test_however_it_arrives_each_line_has_one_stamp(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("logs") / "job.log"
    stamped = Stamped(RotatingFile(str(path), max_bytes=10_000_000, backups=0))

    for part in parts:
        stamped.write(part, len(part))
    stamped.close()

    written = path.read_bytes() if path.exists() else b""
    whole, lines = b"".join(parts), written.split(b"\n")
    assert [STAMP.match(line) is not None for line in lines] == [True] * (len(lines) - 1) + [bool(lines[-1])]
    assert b"\n".join(line[25:] for line in lines) == whole


def test_a_file_with_timestamps_is_rotated_at_the_end_of_a_line(open_output: Open, tmp_path: Path) -> None:
    output = open_output(timestamps=True, max_bytes=100, backups=9)

    for number in range(20):
        os.write(output.stdout_fd, b"number %02d\nnumber" % number)
        pull_all(output)

    rotated = sorted(tmp_path.glob("job.log.*"), key=lambda each: -int(each.suffix[1:]))
    assert len(rotated) > 5
    for path in rotated:
        assert path.stat().st_size <= 100 + 25
        assert all(STAMP.match(line) for line in path.read_bytes().splitlines())
        assert path.read_bytes().endswith(b"\n")


SAY_BOTH = ("sh", "-c", "echo out; echo err >&2")


async def test_a_run_keeps_its_stderr_apart(node: Node, tmp_path: Path) -> None:
    spec = job(SAY_BOTH, log=LogSpec(stderr="separate"))

    ended = await node.ended(node.start(spec))

    assert (tmp_path / "logs" / f"{spec.name}.log").read_bytes() == b"out\n"
    assert (tmp_path / "logs" / f"{spec.name}.err.log").read_bytes() == b"err\n"
    assert sorted(ended.tail) == ["err", "out"]


async def test_a_run_has_its_lines_stamped(node: Node) -> None:
    spec = job(SAY_BOTH, log=LogSpec(timestamps=True))

    await node.ended(node.start(spec))

    lines = node.log(spec).splitlines()
    assert [line[25:] for line in lines] == [b"out", b"err"]
    assert all(STAMP.match(line) for line in lines)


async def test_a_run_writes_onto_the_stderr_of_its_node(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    node = Node(tmp_path)  # the launcher gets what is stderr when it is started: not a fixture that came before
    await node.runs.open()
    spec = job(SAY_BOTH, log=LogSpec(mode="journal", stderr="separate"))

    ended = await node.ended(node.start(spec))
    await node.runs.close()

    assert sorted(capfd.readouterr().err.splitlines()) == [f"{spec.name} | err", f"{spec.name} | out"]
    assert sorted(ended.tail) == ["err", "out"]
    assert not (tmp_path / "logs").exists()
