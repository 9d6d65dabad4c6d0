"""From a job's pipe into its log: never blocks, never waits for the end of the pipe.

It knows descriptors; it must never know why a run ends.
The end of a pipe says nothing about the end of a job (an escaped child may hold it for days,
process-compose#258), so nobody waits for it.
"""

import contextlib
import fcntl
import os

from orchestrator.runs.logs import RotatingFile, Tail

PIPE_BYTES = 1 << 20
"""What a pipe can hold once a job turned out to be talkative: what unprivileged processes may have by default."""

_ORDINARY_BYTES = 16384
_FLOOD_BYTES = 1 << 18  # measured: larger reads are not faster, and fall out of the processor's cache


class Pump:
    """Moves the output of one run.

    Attributes:
        fd: The read end of the pipe; -1 once all writers are gone.
        tail: The last lines.
    """

    __slots__ = ("_buffer", "_file", "fd", "tail")

    def __init__(self, fd: int, file: RotatingFile | None) -> None:
        """Begin with the read end of a pipe; without a file the output is only kept as the tail."""
        os.set_blocking(fd, False)
        self.fd = fd
        self.tail = Tail()
        self._file = file
        self._buffer: bytearray | None = None

    def pull(self) -> int:
        """Move what is there, at most one buffer of it; return how many bytes it was."""
        data: bytes | bytearray
        try:
            if self._buffer is None:
                data = os.read(self.fd, _ORDINARY_BYTES)
                size = len(data)
            else:
                data = self._buffer
                size = os.readv(self.fd, (data,))
        except BlockingIOError:
            return 0
        if not size:
            self.close()
            return 0
        if size == _ORDINARY_BYTES and self._buffer is None:
            self._expect_a_flood()
        self.tail.add(data, size)
        if self._file is not None:
            self._file.write(data, size)
        return size

    def drain(self) -> None:
        """Move what is left once nobody of the tree lives, without waiting: at most what a pipe can hold."""
        moved = 0
        while self.fd >= 0 and moved <= PIPE_BYTES:
            size = self.pull()
            if not size:
                break
            moved += size
        self.close()
        if self._file is not None:
            self._file.close()

    def close(self) -> None:
        """Close the pipe."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _expect_a_flood(self) -> None:
        """Take a large buffer and a large pipe, which most runs never need."""
        self._buffer = bytearray(_FLOOD_BYTES)
        with contextlib.suppress(OSError):  # this user's pipes may hold no more in all: slower, nothing else
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
