"""Log files that cannot grow without bound, lose no line, and never trouble a job."""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.spec import LogSpec
from orchestrator.runs import logs
from orchestrator.runs.logs import LONGEST_OVERRUN_BYTES, TAIL_BYTES, TAIL_LINES, RotatingFile, Tail
from tests.runs.node import Node, job

FLOOD = "import sys\nfor i in range(int(sys.argv[1])): sys.stdout.write('%08d %s\\n' % (i, 'y' * 90))\n"
ONE_LINE = "import sys\nfor i in range(int(sys.argv[1])): sys.stdout.write('y' * 100)\n"


def write(file: RotatingFile, data: bytes) -> None:
    file.write(data, len(data))


def files(path: Path) -> list[Path]:
    """The rotated files and the present one, oldest first."""
    rotated = sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: -int(each.suffix[1:]))
    return [*rotated, path]


def whole(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in files(path))


class Clock:
    """The boot clock of `logs`, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in the place of the real one."""
        self.now = 100.0
        monkeypatch.setattr(logs, "boot", lambda: self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_file_is_rotated_at_the_end_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=10, backups=2)

    write(file, b"one\ntwo\nthree\nfour\n")

    assert [each.read_bytes() for each in files(path)] == [b"one\ntwo\n", b"three\n", b"four\n"]
    file.close()


def test_only_so_many_backups_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=4, backups=2)

    write(file, b"one\ntwo\nsix\nten\n")

    assert [each.read_bytes() for each in files(path)] == [b"two\n", b"six\n", b"ten\n"]
    file.close()


def test_without_backups_what_is_full_is_thrown_away(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=4, backups=0)

    write(file, b"one\ntwo\n")

    assert [each.read_bytes() for each in files(path)] == [b"two\n"]
    file.close()


def test_a_line_that_is_being_written_may_run_over(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=10, backups=2)

    for part in (b"one\ntwo th", b"ree four\n", b"five\n"):
        write(file, part)

    assert [each.read_bytes() for each in files(path)] == [b"one\ntwo three four\n", b"five\n"]
    file.close()


def test_a_line_without_end_is_cut_at_the_limit_of_the_overrun(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=10, backups=9)

    write(file, b"y" * (2 * LONGEST_OVERRUN_BYTES))

    assert [len(each.read_bytes()) for each in files(path)] == [10 + LONGEST_OVERRUN_BYTES, LONGEST_OVERRUN_BYTES - 10]
    file.close()


@settings(deadline=None)  # it writes to a disk
@given(
    parts=st.lists(st.binary(max_size=30) | st.sampled_from([b"\n", b"word\n"]), max_size=20),
    max_bytes=st.integers(1, 40),
)
def test_no_byte_is_lost_and_no_line_is_cut(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], max_bytes: int
) -> None:
    path = tmp_path_factory.mktemp("logs") / "job.log"
    file = RotatingFile(str(path), max_bytes=max_bytes, backups=600)

    for part in parts:
        write(file, part)
    file.close()

    assert (whole(path) if path.exists() else b"") == b"".join(parts)
    for each in files(path)[:-1]:
        assert each.read_bytes().endswith(b"\n")
        assert b"\n" not in each.read_bytes()[max_bytes:-1]


def test_a_new_run_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"last words")
    file = RotatingFile(str(path), max_bytes=100, backups=1)

    write(file, b"hello\n")

    assert path.read_bytes() == b"last words\nhello\n"
    file.close()


@pytest.mark.parametrize("moved", [True, False], ids=["renamed", "removed"])
def test_a_file_that_is_gone_is_opened_anew_within_a_second(tmp_path: Path, clock: Clock, moved: bool) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=100, backups=1)
    write(file, b"before\n")

    if moved:
        path.rename(tmp_path / "elsewhere")
    else:
        path.unlink()
    clock.advance(1.0)
    write(file, b"after\n")

    assert path.read_bytes() == b"after\n"
    file.close()


def test_a_rotation_does_not_move_a_file_that_somebody_else_put_there(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=10, backups=2)
    write(file, b"one\n")
    path.rename(tmp_path / "elsewhere")
    path.write_bytes(b"new\n")

    clock.advance(0.5)
    write(file, b"two three\n")

    assert [each.read_bytes() for each in files(path)] == [b"new\n", b"two three\n"]
    file.close()


def test_a_missing_directory_is_made(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "job.log"
    file = RotatingFile(str(path), max_bytes=10, backups=1)

    write(file, b"one\n")

    assert path.read_bytes() == b"one\n"
    file.close()


def test_what_cannot_be_written_is_dropped_said_once_and_counted(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "place" / "job.log"
    (tmp_path / "place").write_text("a file where a directory should be")
    failed: list[str] = []
    restored: list[int] = []
    file = RotatingFile(str(path), max_bytes=1000, backups=1, on_failed=failed.append, on_restored=restored.append)

    for _ in range(3):
        write(file, b"lost\n")
        clock.advance(1.0)
    (tmp_path / "place").unlink()
    write(file, b"found\n")

    assert failed == [f"{path}: Not a directory"]
    assert restored == [15]
    assert path.read_text() == f"[orchestrator: 15 bytes of output lost: {path}: Not a directory]\nfound\n"
    file.close()


@pytest.mark.parametrize("late", [True, False], ids=["within a second", "at a rotation"])
def test_a_file_that_was_cut_short_is_filled_anew(tmp_path: Path, clock: Clock, late: bool) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=20, backups=2)
    write(file, b"one two three four\n")

    (tmp_path / "copy").write_bytes(path.read_bytes())
    os.truncate(path, 0)  # logrotate's copytruncate
    clock.advance(1.0 if late else 0.5)
    write(file, b"five\n")
    write(file, b"six\n")

    assert [each.read_bytes() for each in files(path)] == [b"five\nsix\n"]
    file.close()


def test_a_file_that_was_removed_just_before_a_rotation_costs_nothing(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "job.log"
    file = RotatingFile(str(path), max_bytes=10, backups=2, on_failed=pytest.fail)
    write(file, b"one two\n")

    path.unlink()
    clock.advance(0.5)
    write(file, b"three four\n")

    assert [each.read_bytes() for each in files(path)] == [b"three four\n"]
    file.close()


@contextlib.contextmanager
def files_may_have(size: int) -> Iterator[None]:
    """Let no file grow past a size: to who writes it, it is a full disk (EFBIG for ENOSPC)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_said_once_and_what_it_cost_stands_in_the_log(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "job.log"
    failed: list[str] = []
    restored: list[int] = []
    file = RotatingFile(str(path), max_bytes=1000, backups=1, on_failed=failed.append, on_restored=restored.append)
    write(file, b"one\n")

    with files_may_have(10):
        for _ in range(5):
            write(file, b"two three\n")
            clock.advance(1.0)
    write(file, b"four\n")

    lost_bytes = 5 * len("two three\n") - len("two th")
    assert failed == [f"{path}: File too large"]
    assert restored == [lost_bytes]
    note = f"[orchestrator: {lost_bytes} bytes of output lost: {path}: File too large]"
    assert path.read_text() == f"one\ntwo th\n{note}\nfour\n"
    file.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_small_disk_that_is_full_is_said_once_too(tmp_path: Path, clock: Clock) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], check=True)
    failed: list[str] = []
    restored: list[int] = []
    path = disk / "job.log"
    try:
        file = RotatingFile(
            str(path), max_bytes=20_000, backups=9, on_failed=failed.append, on_restored=restored.append
        )
        for number in range(3000):
            write(file, b"%05d %s\n" % (number, b"y" * 44))
            clock.advance(0.01)
        assert failed == [f"{path}: No space left on device"]

        for each in disk.glob("job.log.*"):
            each.unlink()
        clock.advance(1.0)
        write(file, b"at last\n")

        assert len(failed) == len(restored) == 1
        assert b"bytes of output lost" in path.read_bytes()
        assert path.read_bytes().endswith(b"\nat last\n")
        file.close()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_rotation_that_is_refused_is_said_once(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "job.log"
    (tmp_path / "job.log.1" / "full").mkdir(parents=True)  # no file can take its place
    failed: list[str] = []
    restored: list[int] = []
    file = RotatingFile(str(path), max_bytes=10, backups=1, on_failed=failed.append, on_restored=restored.append)

    for _ in range(5):
        write(file, b"one two\n")
        clock.advance(1.0)
    (tmp_path / "job.log.1" / "full").rmdir()
    (tmp_path / "job.log.1").rmdir()
    write(file, b"three\n")

    lost_bytes = 4 * len("one two\n")
    assert failed == [f"{path}: Is a directory"]
    assert restored == [lost_bytes]
    note = f"[orchestrator: {lost_bytes} bytes of output lost: {path}: Is a directory]\n"
    assert (tmp_path / "job.log.1").read_text() == note
    assert path.read_bytes() == b"three\n"
    file.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root is refused nothing")
def test_a_directory_that_was_closed_costs_nothing_while_the_file_is_open(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "place" / "job.log"
    file = RotatingFile(str(path), max_bytes=100, backups=1, on_failed=pytest.fail)
    write(file, b"one\n")

    path.parent.chmod(0)
    try:
        clock.advance(1.0)
        write(file, b"two\n")
    finally:
        path.parent.chmod(0o700)

    assert path.read_bytes() == b"one\ntwo\n"
    file.close()


def test_a_device_is_never_rotated_away() -> None:
    file = RotatingFile(os.devnull, max_bytes=4, backups=2)

    write(file, b"one\ntwo\nthree\n")

    assert Path(os.devnull).is_char_device()
    file.close()


def test_the_tail_keeps_the_last_lines() -> None:
    tail = Tail()

    for number in range(100):
        data = b"%d\n" % number
        tail.add(data, len(data))

    assert tail.lines() == [str(number) for number in range(100 - TAIL_LINES, 100)]


def test_the_tail_is_bounded_and_leaves_out_a_line_that_was_cut() -> None:
    tail = Tail()
    data = b"x" * (2 * TAIL_BYTES) + b"\nlast\xff\n"

    tail.add(data, len(data))

    assert tail.lines() == ["last\ufffd"]


async def test_a_flood_is_bounded_and_the_newest_lines_are_whole(node: Node) -> None:
    log = LogSpec(max_bytes=1_000_000, backups=3)
    spec = job((sys.executable, "-I", "-S", "-c", FLOOD, "2000000"), log=log)  # 200 MB

    ended = await node.ended(node.start(spec))

    path = node.runs.log_path(spec)
    assert path is not None
    lines = whole(path).splitlines()
    assert ended.exit_code == 0
    assert [each.stat().st_size <= log.max_bytes for each in files(path)] == [True] * 4
    assert [int(line[:8]) for line in lines] == list(range(2_000_000 - len(lines), 2_000_000))


async def test_no_line_of_a_flood_is_lost_or_cut_where_the_backups_suffice(node: Node) -> None:
    spec = job((sys.executable, "-I", "-S", "-c", FLOOD, "200000"), log=LogSpec(max_bytes=1_000_000, backups=30))

    await node.ended(node.start(spec))

    path = node.runs.log_path(spec)
    assert path is not None
    assert len(files(path)) > 10
    for each in files(path):
        assert each.read_bytes().endswith(b"\n")
    assert [int(line[:8]) for line in whole(path).splitlines()] == list(range(200_000))


async def test_one_endless_line_is_bounded_too(node: Node) -> None:
    log = LogSpec(max_bytes=1_000_000, backups=3)
    spec = job((sys.executable, "-I", "-S", "-c", ONE_LINE, "200000"), log=log)  # one line of 20 MB

    ended = await node.ended(node.start(spec))

    path = node.runs.log_path(spec)
    assert path is not None
    assert ended.exit_code == 0
    assert len(whole(path)) <= (log.max_bytes + LONGEST_OVERRUN_BYTES) * (log.backups + 1)


async def test_a_job_whose_log_cannot_be_written_runs_on(node: Node, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file where a directory should be")
    run = node.start(job(("sh", "-c", "echo hello; exit 3")))

    ended = await node.ended(run)

    assert ended.exit_code == 3
    assert [(line.event, line.level) for line in node.said] == [("log.failed", "warning")]
    assert node.runs.last_lines(run) == ("hello",)


async def test_two_runs_of_one_job_that_are_alive_at_once_share_no_file(node: Node) -> None:
    spec = job(("sh", "-c", "echo $LANE; sleep 0.2; echo $LANE"), log=LogSpec(stderr="separate"))

    runs = [node.start(spec, env={"LANE": str(lane)}, lane=lane) for lane in range(3)]
    for run in runs:
        await node.ended(run)

    written = {path.name: path.read_text() for path in (node.directory / "logs").iterdir()}
    assert written == {
        f"{spec.name}.log": "0\n0\n",
        f"{spec.name}~1.log": "1\n1\n",
        f"{spec.name}~2.log": "2\n2\n",
    }
