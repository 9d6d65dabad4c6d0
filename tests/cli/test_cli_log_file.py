"""A log that somebody else writes and rotates is read without a gap."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cli.log_file import LineSplitter, LogFile, readable
from orchestrator.runs.logs import RotatingFile


class Writer:
    """What writes the log: as a leash does, a file full now and then."""

    def __init__(self, path: Path, *, max_bytes: int = 20, backups: int = 3) -> None:
        """Open it."""
        self._file = RotatingFile(str(path), max_bytes=max_bytes, backups=backups)

    def write(self, text: str) -> None:
        """Write a text."""
        self._file.write(text.encode(), len(text.encode()))

    def close(self) -> None:
        """Close it."""
        self._file.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    opened = Writer(path)
    yield opened
    opened.close()


@pytest.fixture
def log(path: Path) -> Iterator[LogFile]:
    opened = LogFile(path)
    yield opened
    opened.close()


def all_of(log: LogFile, most_bytes: int = 7) -> str:
    """Read until there is nothing new."""
    parts = []
    while data := log.read(most_bytes):
        parts.append(data)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        pytest.param(0, "", id="none"),
        pytest.param(1, "seven", id="one without an end"),
        pytest.param(2, "six\nseven", id="those of the file"),
        pytest.param(4, "four\nfive\nsix\nseven", id="some of a backup"),
        pytest.param(7, "one\ntwo\nthree\nfour\nfive\nsix\nseven", id="all there are"),
        pytest.param(99, "one\ntwo\nthree\nfour\nfive\nsix\nseven", id="more than there are"),
    ],
)
def test_it_begins_so_many_lines_before_the_end(path: Path, log: LogFile, lines: int, shown: str) -> None:
    path.write_text("five\nsix\nseven")
    path.with_name("job.log.1").write_text("three\nfour\n")
    path.with_name("job.log.2").write_text("one\ntwo\n")

    ahead = log.begin_before_end(lines)

    assert all_of(log) == shown
    assert ahead == len(shown)


def test_lines_are_found_where_they_are_longer_than_what_is_read_at_once(path: Path, log: LogFile) -> None:
    path.write_text(f"one\n{'y' * 200_000}\n{'z' * 65_535}\n")

    log.begin_before_end(2)

    assert all_of(log, 1 << 20) == f"{'y' * 200_000}\n{'z' * 65_535}\n"


def test_a_log_that_is_not_there_is_read_from_its_beginning(log: LogFile, writer: Writer) -> None:
    log.begin_before_end(3)
    assert all_of(log) == ""

    writer.write("one\ntwo\n")

    assert all_of(log) == "one\ntwo\n"


def test_what_comes_after_the_end_is_read_across_rotations(log: LogFile, writer: Writer) -> None:
    writer.write("before\n")
    log.begin_at_end()

    writer.write("one, which is long\ntwo, which is long\nthree, which is long\n")
    assert all_of(log) == "one, which is long\ntwo, which is long\nthree, which is long\n"
    writer.write("four, which is long\n")

    assert all_of(log) == "four, which is long\n"


@settings(deadline=None)  # it writes to a disk
@given(steps=st.lists(st.integers(0, 9) | st.just("read"), max_size=60))
def test_whenever_it_is_read_no_byte_is_missed_and_none_comes_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int | str]
) -> None:
    path = tmp_path_factory.mktemp("logs") / "job.log"
    writer, log = Writer(path, max_bytes=10, backups=60), LogFile(path)
    writer.write("before\n")
    log.begin_at_end()
    written = read = ""

    for step in steps:
        if isinstance(step, int):
            text = f"{'y' * step}\n"
            writer.write(text)
            written += text
        else:
            read += all_of(log)
    read += all_of(log)
    log.close()
    writer.close()

    assert read == written


def test_a_file_that_was_moved_elsewhere_is_read_to_its_end_first(path: Path, log: LogFile) -> None:
    path.write_text("one\n")
    log.begin_at_end()

    with path.open("a") as kept:
        path.rename(path.with_name("elsewhere"))
        kept.write("two\n")
        kept.flush()
        assert all_of(log) == "two\n"
        kept.write("three\n")
    path.write_text("four\n")

    assert all_of(log) == "three\nfour\n"


def test_a_file_that_was_cut_short_is_read_from_its_beginning(path: Path, log: LogFile) -> None:
    path.write_text("one two three\n")
    log.begin_at_end()

    os.truncate(path, 0)
    with path.open("a") as file:
        file.write("four\n")

    assert all_of(log) == "four\n"


def test_where_the_backups_moved_on_without_us_it_goes_on_with_the_present_file(path: Path, log: LogFile) -> None:
    writer = Writer(path, max_bytes=5, backups=1)
    writer.write("one\n")
    assert all_of(log) == "one\n"

    for text in ("two\n", "three\n", "four\n"):
        writer.write(text)

    assert all_of(log) == "four\n"
    writer.close()


def test_of_a_flood_the_newest_can_be_had_at_once(path: Path, log: LogFile) -> None:
    log.begin_at_end()
    path.write_text("one two three four")
    assert not log.skip_to_last(4)  # it was not there when it was told where to begin
    assert log.read(3) == b"one"

    assert log.skip_to_last(4)
    assert not log.skip_to_last(4)

    assert all_of(log) == "four"


def test_lines_are_put_together_from_pieces() -> None:
    lines = LineSplitter(longest_bytes=8)

    assert lines.feed(b"on") == []
    assert lines.feed(b"e\n\ntwo") == [b"one", b""]
    assert lines.feed(b" and three, and") == [b"two and ", b"three, a"]
    assert lines.feed(b"\n") == [b"nd"]
    assert lines.rest() == []
    assert lines.feed(b"four") == []
    assert lines.rest() == [b"four"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param(b"caf\xc3\xa9 \xe2\x82\xac", "café €", id="text is shown as it is"),
        pytest.param(b"\xff\xfe", "��", id="what is no text is replaced"),
        pytest.param(b"\x1b[1;31mred\x1b[0m", "red", id="colours are left out"),
        pytest.param(b"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07", id="nothing moves the cursor"),
        pytest.param(b"a\tb\r", "a       b", id="tabs are blanks, and lines of other systems end alike"),
    ],
)
def test_a_line_can_only_be_read(line: bytes, shown: str) -> None:
    assert readable(line) == shown
