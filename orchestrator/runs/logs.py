"""A log file that cannot grow without bound, for bytes; and the last lines of a run.

It knows bytes and files; it must never know runs, and nothing it does may end or block a job.

Rules of this file:
1. Bytes end to end: no decoding, so no output can break it (Supervisor#638, #876 stopped reading for ever).
2. A file is rotated at the end of a line, before it would grow past `max_bytes`. Only the line that is
   being written may run over, by at most `LONGEST_OVERRUN_BYTES`; a longer one is cut there.
   So all files together take at most (max_bytes + LONGEST_OVERRUN_BYTES) x (backups + 1).
3. Nobody needs to tell us that the file was removed, renamed or cut short (logrotate's create and copytruncate):
   it is looked for once a second, at a write, and before a rotation.
4. A full disk or a missing permission costs output, never the job: what cannot be written is dropped and
   counted, said once, tried again each second, and the file itself says afterwards what is missing.
5. Only regular files are rotated: `/dev/null` and a FIFO stay what they are.
"""

import os
import stat
from collections.abc import Callable

from orchestrator.runs.linux import boot

LONGEST_OVERRUN_BYTES = 65536
"""By how much a file may grow past its limit to end in a whole line."""
TAIL_BYTES = 4096
"""How much of a run's last output is kept in memory for its record."""
TAIL_LINES = 20

_LOOK_EVERY_S = 1.0
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO without a reader must not block
_MODE = 0o640  # output holds what programs print, secrets too
_NEWLINE = 10


class RotatingFile:
    """An append-only file with backups `<path>.1` (the newest) to `<path>.<backups>`.

    Attributes:
        lost_bytes: What was dropped since writing began to fail; 0 while all is well.
    """

    __slots__ = (
        "_at_line_start",
        "_backups",
        "_fd",
        "_identity",
        "_look_at",
        "_max_bytes",
        "_must_rotate",
        "_on_failed",
        "_on_restored",
        "_path",
        "_problem",
        "_rotates",
        "_size",
        "lost_bytes",
    )

    def __init__(
        self,
        path: str,
        *,
        max_bytes: int,
        backups: int,
        on_failed: Callable[[str], object] = lambda _problem: None,
        on_restored: Callable[[int], object] = lambda _lost_bytes: None,
    ) -> None:
        """Note the path; the file is opened by the first write.

        Args:
            path: Absolute; missing directories are made.
            max_bytes: Of one file.
            backups: Rotated files that are kept; 0: what is full is thrown away.
            on_failed: Called once when writing begins to fail, with the reason in one clause.
            on_restored: Called when it works again, with the number of bytes lost.
        """
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._on_failed = on_failed
        self._on_restored = on_restored
        self._fd = -1
        self._identity = (0, 0)
        self._rotates = True
        self._size = 0
        self._at_line_start = True
        self._must_rotate = False
        self._look_at = 0.0
        self._problem = ""
        self.lost_bytes = 0

    def write(self, data: bytes | bytearray, size: int) -> None:
        """Append the first `size` bytes of `data`; never raises."""
        now = boot()
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY_S
            self._look()
        if self._fd < 0:
            self.lost_bytes += size
            return
        start = 0
        try:
            while start < size:
                end = self._fitting(data, start, size)
                while start < end:
                    start += self._append(memoryview(data)[start:end])
                if start < size:
                    self._rotate()
        except OSError as error:
            self.lost_bytes += size - start
            self._fail(error)

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            self._look_at = 0.0

    def _look(self) -> None:
        """Make sure that the open file is the one at the path; open it if it is not."""
        if self._fd >= 0 and self._is_in_place():
            return
        self._drop()
        try:
            self._open()
            if self._must_rotate:
                self._rotate()  # else a file that is full and cannot be moved would be restored each second
            if self._problem:
                self._say_what_is_lost()
        except OSError as error:
            self._fail(error)

    def _is_in_place(self) -> bool:
        """Tell whether the open file is still the one at the path; its size may have been changed by others."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 - pathlib is too heavy for a leash
        except PermissionError:
            return True  # the directory was closed to us, which takes nothing from a file that is open
        except OSError:
            return False  # removed or renamed
        if _identity(found) != self._identity:
            return False
        if self._rotates:
            self._size = found.st_size
        return True

    def _open(self) -> None:
        try:
            self._fd = os.open(self._path, _FLAGS, _MODE)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH103, PTH120 - pathlib is too heavy
            self._fd = os.open(self._path, _FLAGS, _MODE)
        found = os.fstat(self._fd)
        self._identity = _identity(found)
        self._rotates = stat.S_ISREG(found.st_mode)
        self._size = found.st_size if self._rotates else 0
        self._at_line_start = True
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._append(memoryview(b"\n"))  # an earlier run's last words had no end of line

    def _append(self, data: memoryview) -> int:
        """Write what can be written at once, and return how much it was."""
        written = os.write(self._fd, data)
        self._size += written
        self._at_line_start = data[written - 1] == _NEWLINE
        return written

    def _fitting(self, data: bytes | bytearray, start: int, size: int) -> int:
        """Return up to where `data` goes into the present file; what is left then goes into the next."""
        room = max(0, self._max_bytes - self._size)
        if size - start <= room or not self._rotates:
            return size
        line_end = data.rfind(b"\n", start, start + room) + 1
        if line_end:
            return line_end
        if self._at_line_start and self._size:
            return start
        # In the middle of a line: it may run over, but not for ever.
        furthest = start + max(0, self._max_bytes + LONGEST_OVERRUN_BYTES - self._size)
        line_end = data.find(b"\n", start + room, furthest) + 1
        return line_end or min(size, furthest)

    def _rotate(self) -> None:
        """Go on in a new file, or in the present one where somebody else made room."""
        self._must_rotate = True
        believed_size = self._size
        if not self._is_in_place():
            self._reopen()
        elif self._size and self._size >= believed_size:
            self._shift()
            self._reopen()
        self._must_rotate = False

    def _reopen(self) -> None:
        self._drop()
        self._open()

    def _shift(self) -> None:
        oldest = f"{self._path}.{self._backups}" if self._backups else self._path
        # Removed first: ext4 writes out at once what is renamed over another file (its auto_da_alloc), and the
        # next removal would wait for that (measured: half the throughput).
        if os.path.exists(oldest):  # noqa: PTH110 - pathlib is too heavy for a leash
            os.unlink(oldest)  # noqa: PTH108 - as above
        number = 1
        while number < self._backups and os.path.exists(f"{self._path}.{number}"):  # noqa: PTH110 - as above
            number += 1
        while number > 1:
            os.rename(f"{self._path}.{number - 1}", f"{self._path}.{number}")  # noqa: PTH104 - as above
            number -= 1
        if self._backups:
            os.rename(self._path, f"{self._path}.1")  # noqa: PTH104 - as above

    def _fail(self, error: OSError) -> None:
        self._drop()
        self._look_at = boot() + _LOOK_EVERY_S
        if not self._problem:
            self._problem = f"{self._path}: {error.strerror or error}"
            self._on_failed(self._problem)

    def _say_what_is_lost(self) -> None:
        note = f"[orchestrator: {self.lost_bytes} bytes of output lost: {self._problem}]\n"
        left = memoryview(note.encode(errors="replace"))
        while left:
            left = left[self._append(left) :]
        lost, self.lost_bytes, self._problem = self.lost_bytes, 0, ""
        self._on_restored(lost)

    def _drop(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Tail:
    """The last lines that went by, of one stream or of several."""

    __slots__ = ("_kept", "_stream")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept = b""
        self._stream = 0

    def add(self, data: bytes | bytearray, size: int, stream: int = 0) -> None:
        """Take the first `size` bytes of `data` into account; another stream's begin on a line of their own."""
        end = bytes(data[max(0, size - TAIL_BYTES) : size])
        if stream != self._stream:
            self._stream = stream
            if self._kept and self._kept[-1] != _NEWLINE:
                self._kept += b"\n"
        self._kept = end if len(end) == TAIL_BYTES else (self._kept + end)[-TAIL_BYTES:]

    def lines(self) -> list[str]:
        """Return the last lines, oldest first, without one that was cut; undecodable bytes are replaced."""
        text = self._kept
        if len(text) == TAIL_BYTES:
            text = text.partition(b"\n")[2] or text
        return text.decode(errors="replace").splitlines()[-TAIL_LINES:]


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
