"""From a job's pipe into its log: never blocks, never waits for the end of the pipe.

It knows descriptors; it must never know why a run ends.
The end of a pipe says nothing about the end of a job (an escaped child may hold it for days,
process-compose#258), so nobody waits for it.
"""

import contextlib
import fcntl
import os
from typing import Protocol

from orchestrator.runs.logs import Tail

PIPE_BYTES = 1 << 20
"""What a pipe can hold once a job turned out to be talkative: what unprivileged processes may have by default."""

_ORDINARY_BYTES = 16384
_FLOOD_BYTES = 1 << 18  # measured: larger reads are not faster, and fall out of the processor's cache


class Sink(Protocol):
    """Where output goes; what it cannot take is dropped, and nothing is raised."""

    def write(self, data: bytes | bytearray, size: int) -> None:
        """Take the first `size` bytes of `data`."""

    def close(self) -> None:
        """Write what was held back."""


class Pump:
    """Moves what comes out of one pipe.

    Attributes:
        fd: The read end of the pipe; -1 once all writers are gone.
    """

    __slots__ = ("_buffer", "_sink", "_stream", "_tail", "fd")

    def __init__(self, fd: int, sink: Sink | None, tail: Tail, stream: int) -> None:
        """Begin with the read end of a pipe.

        Args:
            fd: The read end.
            sink: Where the output goes; None: only the tail is kept.
            tail: Told of all of it.
            stream: Which of the streams that share the tail this is.
        """
        os.set_blocking(fd, False)
        self.fd = fd
        self._sink = sink
        self._tail = tail
        self._stream = stream
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
        self._tail.add(data, size, self._stream)
        if self._sink is not None:
            self._sink.write(data, size)
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
