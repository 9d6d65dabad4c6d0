"""A job's lines onto the node's own stderr: into the journal, a container's log, a terminal.

It knows lines and one descriptor; it must never know runs.

Rules of this file:
1. The descriptor is main's too, and everybody's who started main. Nobody may find it non-blocking because of us
   (O_NONBLOCK belongs to what was opened, not to who uses it), and a reader that is stuck never holds a leash.
2. Each write is whole lines and at most what a pipe takes at once (pipe(7): PIPE_BUF), so that no two writers mix.
3. What is not read within `PATIENCE_S` is dropped and counted, said once, tried again each second; then the
   stream itself says what is missing.
4. The journal gets `<N>`, a line's priority (sd-daemon(3)), and the job's name; everybody else the name.
"""

import os
import select
import socket
import stat
from collections.abc import Callable, Iterator

from orchestrator.runs.linux import boot

NODE_STDERR_FD = 1
"""Main's stderr in the launcher and its leashes; their own stderr is a file for what breaks in them."""
LONGEST_LINE_BYTES = 2000
"""A longer line is cut into several; the journal would cut it too (LineMax=), only later."""
PATIENCE_S = 0.02
"""How long one batch of output may wait for a reader that kept up so far: bursts are larger than a pipe."""
INFORMATION, WARNING = 6, 4

_TRY_EVERY_S = 1.0
_LONGEST_CHARACTER_BYTES = 4


class Channel:
    """The way to the node's stderr, for all streams of one run.

    Attributes:
        lost_bytes: What was dropped since it could not be written; 0 while all is well.
    """

    __slots__ = (
        "_fd",
        "_name",
        "_on_failed",
        "_on_restored",
        "_ours",
        "_poll",
        "_problem",
        "_rest",
        "_shared_fd",
        "_sock",
        "_try_at",
        "lost_bytes",
    )

    def __init__(
        self,
        name: str,
        *,
        on_failed: Callable[[str], object],
        on_restored: Callable[[int], object],
        shared_fd: int = NODE_STDERR_FD,
    ) -> None:
        """Note whose lines they are; nothing is opened before the first.

        Args:
            name: The job's.
            on_failed: Called once when lines begin to get lost, with the reason in one clause.
            on_restored: Called when they are written again, with the number of bytes lost.
            shared_fd: The node's stderr.
        """
        self._name = name
        self._on_failed = on_failed
        self._on_restored = on_restored
        self._shared_fd = shared_fd
        self._fd = -1
        self._ours = False
        self._sock: socket.socket | None = None
        self._poll = select.poll()
        self._problem = ""
        self._rest = b""
        self._try_at = 0.0
        self.lost_bytes = 0

    def prefix(self, priority: int) -> bytes:
        """Return what each line begins with."""
        found = os.fstat(self._shared_fd)
        if os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}":  # systemd.exec(5)
            return f"<{priority}>{self._name}: ".encode()
        return f"{self._name} | ".encode()

    def send(self, blocks: list[bytes]) -> None:
        """Write blocks of whole lines, each of at most PIPE_BUF bytes; never raises."""
        give_up_at = boot()
        if self._problem:
            if give_up_at < self._try_at:
                self.lost_bytes += sum(map(len, blocks))
                return
            blocks = [self._note(), *blocks]
        else:
            give_up_at += PATIENCE_S
        sent = 0
        try:
            if self._fd < 0:
                self._open()
            for block in blocks:
                self._put(block, give_up_at)
                sent += 1
                if self._problem:
                    self._say_restored()
        except OSError as error:
            noted = 1 if self._problem and not sent else 0  # our own note is nobody's loss
            self.lost_bytes += sum(map(len, blocks[sent + noted :]))
            self._fail(error)

    def close(self) -> None:
        """Close our own way; the descriptor that is shared stays."""
        if self._sock is not None:
            self._sock.close()
        elif self._fd >= 0:
            os.close(self._fd)
        self._sock, self._fd = None, -1

    def _open(self) -> None:
        """Find a way of our own that never blocks."""
        kind = os.fstat(self._shared_fd).st_mode
        self._ours = True
        if stat.S_ISSOCK(kind):
            self._sock = socket.socket(fileno=os.dup(self._shared_fd))
            self._fd = self._sock.fileno()
        elif stat.S_ISFIFO(kind) or stat.S_ISCHR(kind):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            try:
                self._fd = os.open(f"/proc/self/fd/{self._shared_fd}", flags)
            except OSError:  # another user's, or it has no reader
                self._fd = os.dup(self._shared_fd)
                self._ours = False
        else:
            self._fd = os.dup(self._shared_fd)  # a file blocks nobody; its position is shared and must be
        self._poll.register(self._fd, select.POLLOUT)

    def _put(self, block: bytes, give_up_at: float) -> None:
        """Write a block, behind what a terminal did not take of the one before; one that was begun will be ended.

        Raises:
            OSError: It cannot be written; BlockingIOError: not before `give_up_at`.
        """
        left = self._rest + block
        while left:
            try:
                left = left[self._write(left) :]
            except BlockingIOError:
                wait_ms = int(1000 * (give_up_at - boot()))
                if wait_ms > 0 and self._poll.poll(wait_ms):
                    continue
                begun = len(left) < len(block)
                self._rest = left if begun else left[: len(left) - len(block)]
                if begun:
                    return
                raise
        self._rest = b""

    def _write(self, data: bytes) -> int:
        if self._sock is not None:
            return self._sock.send(data, socket.MSG_DONTWAIT)
        # Room for so much that was seen is taken by another writer now and then, and we wait for the reader then.
        if not self._ours and not self._poll.poll(0):
            raise BlockingIOError
        return os.write(self._fd, data)

    def _fail(self, error: OSError) -> None:
        self._try_at = boot() + _TRY_EVERY_S
        if not self._problem:
            reason = "nobody reads it" if isinstance(error, BlockingIOError) else error.strerror or str(error)
            self._problem = f"the node's stderr: {reason}"
            self._on_failed(self._problem)

    def _note(self) -> bytes:
        text = f"[orchestrator: {self.lost_bytes} bytes of output lost: {self._problem}]\n"
        return self.prefix(WARNING) + text.encode()

    def _say_restored(self) -> None:
        lost, self.lost_bytes, self._problem = self.lost_bytes, 0, ""
        self._on_restored(lost)


class Lines:
    """One stream of a job, as lines for a channel."""

    __slots__ = ("_begun", "_channel", "_prefix", "_priority")

    def __init__(self, channel: Channel, priority: int) -> None:
        """Begin at the beginning of a line."""
        self._channel = channel
        self._priority = priority
        self._prefix = b""
        self._begun = b""

    def write(self, data: bytes | bytearray, size: int) -> None:
        """Send the lines that the first `size` bytes of `data` complete; never raises."""
        *lines, self._begun = (self._begun + bytes(memoryview(data)[:size])).split(b"\n")
        if len(self._begun) > LONGEST_LINE_BYTES:
            *pieces, self._begun = _pieces(self._begun)
            lines += pieces
        self._send(lines)

    def close(self) -> None:
        """Send the line that has no end, and close the channel."""
        if self._begun:
            self._send([self._begun])
            self._begun = b""
        self._channel.close()

    def _send(self, lines: list[bytes]) -> None:
        if not lines:
            return
        self._prefix = self._prefix or self._channel.prefix(self._priority)
        self._channel.send(list(self._blocks(lines)))

    def _blocks(self, lines: list[bytes]) -> Iterator[bytes]:
        """Put as many lines together as may be written at once."""
        block: list[bytes] = []
        room = select.PIPE_BUF
        for line in lines:
            for piece in _pieces(line):
                size = len(self._prefix) + len(piece) + 1
                if size > room and block:
                    yield b"".join(block)
                    block, room = [], select.PIPE_BUF
                block += (self._prefix, piece, b"\n")
                room -= size
        yield b"".join(block)


def _pieces(line: bytes) -> Iterator[bytes]:
    """Cut a line that is too long, not within a character: the journal shows what is no UTF-8 as a blob."""
    start = 0
    while len(line) - start > LONGEST_LINE_BYTES:
        end = start + LONGEST_LINE_BYTES
        while end > start + LONGEST_LINE_BYTES - _LONGEST_CHARACTER_BYTES and line[end] & 0xC0 == 0x80:  # noqa: PLR2004 - UTF-8: 10xxxxxx goes on with a character
            end -= 1
        yield line[start:end]
        start = end
    yield line[start:]
