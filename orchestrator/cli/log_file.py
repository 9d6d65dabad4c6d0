"""A job's log as its readers see it: another process writes it, and rotates it whenever it likes.

Knows files; must never know jobs, nodes or screens. Shared by `logs` and by what `up` shows.

A file that is open is read to its end before the next one is begun, whatever it is called by then: what was
written during a rotation, or during several, is not missed as long as the backups hold it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from orchestrator.view.phrases import clean

_BLOCK_BYTES = 65536
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_MOST_HOLES = 1
"""While backups move up there is one name that no file bears."""


class LogFile:
    """One log, read forwards from where it was told to begin; where there was none yet, from the first file seen."""

    def __init__(self, path: Path) -> None:
        """Note its path; nothing needs to be there yet."""
        self._path = path
        self._file: BinaryIO | None = None

    def begin_at_end(self) -> None:
        """Begin with what is written from now on."""
        self._take(self._open(self._path))
        if self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def begin_before_end(self, lines: int) -> int:
        """Begin so many lines before the end, in a backup if need be, or with the oldest one if there are fewer.

        Returns:
            How many bytes there are from there to what is the end now.
        """
        ahead = 0
        seen: set[tuple[int, int]] = set()
        for file in self._files():
            if _identity(file) in seen:  # it was rotated while we looked
                file.close()
                continue
            seen.add(_identity(file))
            self._take(file)
            position, found = _before_end(file, lines)
            ahead += file.seek(0, os.SEEK_END) - position
            file.seek(position)
            lines -= found
            if lines <= 0:
                break
        return ahead

    def skip_to_last(self, most_bytes: int) -> bool:
        """Leave out what is older than the last `most_bytes` of the present file; tell whether there was any."""
        if self._file is None:
            return False
        newest = os.fstat(self._file.fileno()).st_size - most_bytes
        if self._file.tell() >= newest:
            return False
        self._file.seek(newest)
        return True

    def read(self, most_bytes: int) -> bytes:
        """Return what comes next; nothing if there is nothing new."""
        if self._file is None:
            self._take(self._open(self._path))
        while self._file is not None:
            self._rewind_if_cut_short(self._file)
            if data := self._file.read(most_bytes):
                return data
            following = self._following(self._file)
            if following is None:
                return b""
            if data := self._file.read(most_bytes):  # written between our reading and the rotation
                following.close()
                return data
            self._take(following)
        return b""

    def close(self) -> None:
        """Close what is open."""
        self._take(None)

    def _take(self, file: BinaryIO | None) -> None:
        if self._file is not None:
            self._file.close()
        self._file = file

    def _rewind_if_cut_short(self, file: BinaryIO) -> None:
        if os.fstat(file.fileno()).st_size < file.tell():  # logrotate's copytruncate
            file.seek(0)

    def _following(self, present: BinaryIO) -> BinaryIO | None:
        """Open what was begun after the present file; None if nothing was."""
        newer: BinaryIO | None = None
        for file in self._files():
            if _identity(file) == _identity(present):
                file.close()
                return newer
            if newer is not None:
                newer.close()
            newer = file
        if newer is not None:
            newer.close()
        return self._open(self._path)  # it was removed, moved elsewhere, or pushed out of the backups

    def _files(self) -> Iterator[BinaryIO]:
        """Open the log and its backups, the newest first."""
        holes = number = 0
        while holes <= _MOST_HOLES:
            file = self._open(Path(f"{self._path}.{number}") if number else self._path)
            number += 1
            if file is None:
                holes += 1
            else:
                yield file

    @staticmethod
    def _open(path: Path) -> BinaryIO | None:
        """Open a file; None if there is none. A FIFO without a writer does not hold us."""
        try:
            return open(path, "rb", buffering=0, opener=_open_at_once)
        except FileNotFoundError:
            return None


def readable(line: bytes) -> str:
    """Return a line as it can be shown on a terminal: without its colours, and harmless."""
    text = _COLOURS.sub("", line.decode(errors="replace").removesuffix("\r"))
    return clean(text.expandtabs())


class LineSplitter:
    """Puts whole lines together from what is read piece by piece."""

    def __init__(self, longest_bytes: int) -> None:
        """Set where a line is cut, so that one without end needs no memory without end."""
        self._longest_bytes = longest_bytes
        self._begun = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, without their ends."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        lines = [piece for line in lines for piece in self._cut(line)]
        if len(self._begun) > self._longest_bytes:
            *pieces, self._begun = self._cut(self._begun)
            lines += pieces
        return lines

    def rest(self) -> list[bytes]:
        """Return the line that has no end yet, if there is one, and forget it."""
        begun, self._begun = self._begun, b""
        return [begun] if begun else []

    def _cut(self, line: bytes) -> Iterator[bytes]:
        for start in range(0, max(1, len(line)), self._longest_bytes):
            yield line[start : start + self._longest_bytes]


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _identity(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


def _before_end(file: BinaryIO, lines: int) -> tuple[int, int]:
    """Return where the last lines of a file begin, and how many of the wanted ones they are."""
    size = os.fstat(file.fileno()).st_size
    if not size or not lines:
        return size, 0
    ends = 0
    position = size - 1  # whatever the last byte is, it belongs to the last line
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        block = os.pread(file.fileno(), position - start, start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            ends += 1
            if ends == lines:
                return start + at + 1, lines
        position = start
    return 0, ends + 1
