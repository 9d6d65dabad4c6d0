"""Lines of jobs on the node's own stderr, whatever that is, and whoever does not read it."""

import fcntl
import os
import pty
import select
import socket
import subprocess
import termios
import tty
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orchestrator import clock as clocks
from orchestrator.runs import journal
from orchestrator.runs.journal import INFORMATION, LONGEST_LINE_BYTES, WARNING, Channel, Lines

FLOOD = b"".join(b"%08d %s\n" % (number, b"y" * 90) for number in range(20_000))  # 2 MB


@dataclass
class Reader:
    """Somebody at the other end of a node's stderr.

    Attributes:
        stderr_fd: What the node has.
        fd: What is read from.
    """

    stderr_fd: int
    fd: int
    failed: list[str] = field(default_factory=list)
    restored: list[int] = field(default_factory=list)

    def channel(self, name: str = "beat") -> Channel:
        """Return the way there."""
        return Channel(name, shared_fd=self.stderr_fd, on_failed=self.failed.append, on_restored=self.restored.append)

    def read(self) -> bytes:
        """Return all that is there."""
        parts = []
        while select.select([self.fd], [], [], 0)[0] and (part := os.read(self.fd, 65536)):
            parts.append(part)
        return b"".join(parts)


def a_pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()
    return write_end, read_end


def a_socket() -> tuple[int, int]:
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def a_terminal() -> tuple[int, int]:
    master, slave = pty.openpty()
    tty.setraw(slave, termios.TCSANOW)  # what is written is what is read
    return slave, master


@pytest.fixture(params=[a_pipe, a_socket, a_terminal], ids=["pipe", "socket", "terminal"])
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    """Return a reader of each kind that can be stuck."""
    reader = Reader(*request.param())
    yield reader
    for fd in {reader.stderr_fd, reader.fd}:
        os.close(fd)


@pytest.fixture
def a_reader() -> Iterator[Reader]:
    """Return a reader of a pipe."""
    reader = Reader(*a_pipe())
    yield reader
    for fd in (reader.stderr_fd, reader.fd):
        os.close(fd)


class Clock:
    """The boot clock of `journal`, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in the place of the real one."""
        self.now = 100.0
        monkeypatch.setattr(journal, "boot", lambda: self.now)


def write(lines: Lines, data: bytes) -> None:
    lines.write(data, len(data))


def test_a_line_bears_the_name_of_its_job(reader: Reader) -> None:
    lines = Lines(reader.channel(), INFORMATION)

    write(lines, b"one\n\ntw")
    write(lines, b"o\n")
    lines.close()

    assert reader.read() == b"beat | one\nbeat | \nbeat | two\n"


@pytest.mark.parametrize(
    ("priority", "line"),
    [
        pytest.param(INFORMATION, b"<6>beat: hello\n", id="stdout is information"),
        pytest.param(WARNING, b"<4>beat: hello\n", id="stderr is a warning"),
    ],
)
def test_the_journal_gets_a_priority(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, priority: int, line: bytes
) -> None:
    found = os.fstat(reader.stderr_fd)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    lines = Lines(reader.channel(), priority)

    write(lines, b"hello\n")
    lines.close()

    assert reader.read() == line


def test_stderr_that_leads_elsewhere_than_the_journal_gets_none(
    a_reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "1:1")
    lines = Lines(a_reader.channel(), INFORMATION)

    write(lines, b"hello\n")
    lines.close()

    assert a_reader.read() == b"beat | hello\n"


def test_a_last_line_without_end_is_sent_at_the_end(a_reader: Reader) -> None:
    lines = Lines(a_reader.channel(), INFORMATION)

    write(lines, b"last words")
    assert a_reader.read() == b""
    lines.close()

    assert a_reader.read() == b"beat | last words\n"


def test_a_long_line_is_cut(a_reader: Reader) -> None:
    lines = Lines(a_reader.channel("x"), INFORMATION)

    write(lines, b"a" * 3000)
    write(lines, b"b" * 1500 + b"\n")
    lines.close()

    pieces = [line.removeprefix(b"x | ") for line in a_reader.read().splitlines()]
    assert pieces == [b"a" * 2000, b"a" * 1000 + b"b" * 1000, b"b" * 500]


def test_no_character_is_cut_in_two(a_reader: Reader) -> None:
    text = "x" + "€" * 1000
    lines = Lines(a_reader.channel("x"), INFORMATION)

    write(lines, text.encode() + b"\n")
    lines.close()

    pieces = [line.removeprefix(b"x | ") for line in a_reader.read().splitlines()]
    assert max(map(len, pieces)) <= LONGEST_LINE_BYTES
    assert "".join(piece.decode() for piece in pieces) == text


def test_no_write_is_larger_than_what_is_written_whole() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # which keeps the bounds of writes
    reader = Reader(ours.fileno(), theirs.fileno())
    lines = Lines(reader.channel(), INFORMATION)

    write(lines, FLOOD[:50_000])
    lines.close()

    theirs.setblocking(False)
    packets = []
    while select.select([theirs], [], [], 0)[0]:
        packets.append(theirs.recv(65536))
    assert max(map(len, packets)) <= select.PIPE_BUF
    assert all(packet.endswith(b"\n") for packet in packets)
    assert b"".join(packets).replace(b"beat | ", b"") == FLOOD[:50_000]
    ours.close()
    theirs.close()


def test_a_reader_that_is_stuck_holds_nobody_and_what_it_misses_is_counted(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    lines = Lines(reader.channel(), INFORMATION)

    began_at = clocks.boot()
    for start in range(0, len(FLOOD), 100_000):
        write(lines, FLOOD[start : start + 100_000])
    took_s = clocks.boot() - began_at
    seen = reader.read()
    clock.now += 1.0
    write(lines, b"at last\n")
    seen += reader.read()
    lines.close()

    assert took_s < 1.0
    assert reader.failed == ["the node's stderr: nobody reads it"]
    shown = seen.splitlines()
    kept = [line.removeprefix(b"beat | ") for line in shown[:-2]]
    lost = sum(map(len, FLOOD.splitlines())) - sum(map(len, kept)) + (20_000 - len(kept)) * (1 + len("beat | "))
    assert kept == FLOOD.splitlines()[: len(kept)]
    assert reader.restored == [lost]
    note = f"beat | [orchestrator: {lost} bytes of output lost: the node's stderr: nobody reads it]"
    assert shown[-2:] == [note.encode(), b"beat | at last"]


def test_it_stays_blocking_for_everybody_else(reader: Reader) -> None:
    lines = Lines(reader.channel(), INFORMATION)

    for _ in range(3):
        write(lines, FLOOD)
    lines.close()

    assert os.get_blocking(reader.stderr_fd)


def test_a_reader_of_another_user_is_not_waited_for_either(a_reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)  # as /proc/self/fd/1 does where somebody else made the pipe
        lines = Lines(a_reader.channel(), INFORMATION)
        write(lines, b"one\n")
    assert a_reader.read() == b"beat | one\n"

    write(lines, FLOOD)
    lines.close()

    assert a_reader.failed == ["the node's stderr: nobody reads it"]
    assert os.get_blocking(a_reader.stderr_fd)


def test_a_burst_larger_than_the_pipe_waits_for_a_reader_that_reads(a_reader: Reader) -> None:
    fcntl.fcntl(a_reader.stderr_fd, fcntl.F_SETPIPE_SZ, 4096)
    lines = Lines(a_reader.channel(), INFORMATION)
    with subprocess.Popen(["cat"], stdin=a_reader.fd, stdout=subprocess.DEVNULL) as cat:  # it needs no turn of ours
        for start in range(0, 200_000, 1000):
            write(lines, FLOOD[start : start + 1000])
        cat.kill()

    lines.close()
    assert a_reader.failed == []


def test_a_reader_that_went_away_is_said_once(a_reader: Reader) -> None:
    fd, gone = a_pipe()
    os.close(gone)
    a_reader.stderr_fd, kept = fd, a_reader.stderr_fd
    lines = Lines(a_reader.channel(), INFORMATION)

    for _ in range(3):
        write(lines, b"one\n")
    lines.close()

    assert a_reader.failed == ["the node's stderr: Broken pipe"]
    os.close(fd)
    a_reader.stderr_fd = kept


def test_a_file_is_written_where_everybody_else_is(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    with path.open("wb", buffering=0) as node:  # not O_APPEND: the position is shared, and must be
        lines = Lines(Channel("beat", shared_fd=node.fileno(), on_failed=print, on_restored=print), INFORMATION)
        node.write(b"event=node.up\n")
        write(lines, b"hello\n")
        node.write(b"event=node.left\n")
        lines.close()

    assert path.read_bytes() == b"event=node.up\nbeat | hello\nevent=node.left\n"


def test_both_streams_of_a_job_go_one_way(a_reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.fstat(a_reader.stderr_fd)
    monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
    channel = a_reader.channel()
    out, err = Lines(channel, INFORMATION), Lines(channel, WARNING)

    write(out, b"0 of 9")
    write(err, b"oh no\n")
    write(out, b"\n")
    out.close()
    write(err, b"again\n")
    err.close()

    assert a_reader.read() == b"<4>beat: oh no\n<6>beat: 0 of 9\n<4>beat: again\n"
