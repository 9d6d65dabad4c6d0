"""Each line of a job's output with the instant at which it was read.

It knows bytes and the wall clock; it must never know files. Instants are for people: nothing is decided by them.
"""

import time

from orchestrator.runs.pump import Sink

_PIECE_BYTES = 65536
"""A stamp is 25 bytes and a line may have one: more at a time is slower, and would cost a leash megabytes."""
_NEWLINE = 10


class Stamped:
    """Puts the instant before each line and hands it on."""

    __slots__ = ("_at_line_start", "_second", "_sink", "_text")

    def __init__(self, sink: Sink) -> None:
        """Note where the lines go."""
        self._sink = sink
        self._at_line_start = True
        self._second = -1
        self._text = ""

    def write(self, data: bytes | bytearray, size: int) -> None:
        """Stamp the first `size` bytes of `data`; a line that began earlier has its stamp already."""
        stamp = self._stamp()
        for start in range(0, size, _PIECE_BYTES):
            piece = bytes(data[start : min(size, start + _PIECE_BYTES)])
            head = stamp if self._at_line_start else b""
            self._at_line_start = piece[-1] == _NEWLINE
            inner, end = (piece[:-1], b"\n") if self._at_line_start else (piece, b"")
            stamped = b"".join((head, inner.replace(b"\n", b"\n" + stamp), end))
            self._sink.write(stamped, len(stamped))

    def close(self) -> None:
        """Close what it writes to."""
        self._sink.close()

    def _stamp(self) -> bytes:
        """Return now as `2026-11-30T13:07:20.123Z `: always UTC, always as wide, so that columns stand still."""
        second, nanosecond = divmod(time.clock_gettime_ns(time.CLOCK_REALTIME), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._text}.{nanosecond // 1_000_000:03}Z ".encode()
