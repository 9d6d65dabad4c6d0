"""What `up` shows: the node's own lines, and on a terminal the output of the jobs that run here.

A thread of its own writes. A terminal that is held (^S), a pipe nobody reads, a slow disk under a log
file: none of them may delay a heartbeat, so the loop only ever puts into a bounded queue, and what does
not fit is counted and said later.
"""

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator import clock
from orchestrator.core.messages import Say
from orchestrator.core.nouns import JobName
from orchestrator.view.phrases import clean

LONGEST_QUEUE = 10_000
LOOK_EVERY_S = 0.2
MOST_BYTES_A_LOOK = 65_536
LONGEST_LINE = 500
FAREWELL_S = 1.0
"""How long the end of a node may wait for its last lines to be written."""


class Screen:
    """Writes lines in a thread; every method returns at once."""

    def __init__(
        self, word: Callable[[Say, float], str], *, logs: Mapping[JobName, Path | None], colours: bool
    ) -> None:
        """Choose the wording.

        Args:
            word: Words one line.
            logs: Where the jobs write that are to be shown, from their first run here on.
            colours: Paint warnings and job names.
        """
        self._word = word
        self._logs = logs
        self._colours = colours
        self._lines: queue.Queue[str | None] = queue.Queue(LONGEST_QUEUE)
        self._dropped = 0
        self._followed: dict[str, _Followed] = {}
        self._thread = threading.Thread(target=self._write_on, name="screen", daemon=True)
        self._thread.start()

    def say(self, say: Say) -> None:
        """Take one of the node's own lines."""
        line = self._word(say, clock.now().utc)
        if self._colours and say.level != "info":
            line = f"\x1b[{'31' if say.level == 'error' else '33'}m{line}\x1b[0m"
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1
        if say.event == "lease.acquired":  # what an earlier holder of the log wrote is not shown again
            self._follow(JobName(str(say.fields.get("job"))))

    def close(self) -> None:
        """Write what is left, for at most `FAREWELL_S`."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(None)
        self._thread.join(FAREWELL_S)

    def _follow(self, name: JobName) -> None:
        log = self._logs.get(name)
        if log is not None and name not in self._followed:
            self._followed[name] = _Followed(name, log, _size(log))

    def _write_on(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                self._write_followed()
                continue
            if line is None:
                self._write_followed()
                return
            self._write(line)
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._write(f"({dropped} lines were not written: the terminal or pipe was too slow)")

    def _write_followed(self) -> None:
        for followed in list(self._followed.values()):
            for text in followed.read():
                name = f"{followed.name:<12}"
                self._write(f"         \x1b[36m{name}\x1b[0m │ {text}" if self._colours else f"{name} | {text}")

    def _write(self, line: str) -> None:
        # A reader that went away must not end the node; the log files of the jobs have everything.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


@dataclass(slots=True)
class _Followed:
    """A log file and how far it was shown."""

    name: str
    log: Path
    position: int
    inode: int = 0
    rest: bytes = b""

    def read(self) -> list[str]:
        """Return the whole lines that came since; a rotated file is read from its beginning."""
        try:
            with self.log.open("rb") as file:
                status = os.fstat(file.fileno())
                if (self.inode and status.st_ino != self.inode) or status.st_size < self.position:
                    self.position, self.rest = 0, b""
                self.inode = status.st_ino
                if status.st_size - self.position > MOST_BYTES_A_LOOK:
                    self.position, self.rest = status.st_size - MOST_BYTES_A_LOOK, b""
                file.seek(self.position)
                data = self.rest + file.read(MOST_BYTES_A_LOOK)
                self.position = file.tell()
        except OSError:
            return []
        *whole, self.rest = data.split(b"\n")
        return [clean(line[:LONGEST_LINE].decode(errors="replace")) for line in whole]


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0
