"""What `up` shows: the node's own lines, and on a terminal the output of the jobs that run here.

A thread of its own writes. A terminal that is held (^S), a pipe nobody reads, a slow disk under a log
file: none of them may delay a heartbeat, so the loop only ever puts into a bounded queue, and what does
not fit is counted and said later.
"""

import contextlib
import queue
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from orchestrator import clock
from orchestrator.cli.log_file import LineSplitter, LogFile, readable
from orchestrator.core.messages import Say
from orchestrator.core.nouns import JobName
from orchestrator.core.spec import JobSpec

LONGEST_QUEUE = 10_000
LOOK_EVERY_S = 0.2
MOST_BYTES_A_LOOK = 65_536
LONGEST_LINE = 500
FAREWELL_S = 1.0
"""How long the end of a node may wait for its last lines to be written."""


class Screen:
    """Writes lines in a thread; every method returns at once."""

    def __init__(
        self,
        word: Callable[[Say, float], str],
        *,
        logs: Callable[[JobSpec], tuple[Path | None, ...]] | None,
        colours: bool,
    ) -> None:
        """Choose the wording.

        Args:
            word: Words one line.
            logs: Where a job writes, whose output is then shown from its first run here on; None: show none.
            colours: Paint warnings and job names.
        """
        self._word = word
        self._logs_of = logs
        self._logs: dict[JobName, tuple[Path | None, ...]] = {}
        self._colours = colours
        self._lines: queue.Queue[str | None] = queue.Queue(LONGEST_QUEUE)
        self._dropped = 0
        self._followed: dict[Path, _Followed] = {}
        self._thread = threading.Thread(target=self._write_on, name="screen", daemon=True)
        self._thread.start()

    def show(self, jobs: Iterable[JobSpec]) -> None:
        """Show the output of these jobs; of those that run already, what was told before stays."""
        if self._logs_of is not None:
            self._logs = {job.name: self._logs_of(job) for job in jobs}

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
        for log in self._logs.get(name, ()):
            if log is not None and log not in self._followed:
                self._followed[log] = _Followed(name, log)

    def _write_on(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                self._write_followed()
                continue
            if line is None:
                self._write_followed()
                for followed in self._followed.values():
                    followed.close()
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


class _Followed:
    """The output of one job, from now on."""

    def __init__(self, name: str, log: Path) -> None:
        """Begin at the present end of its log."""
        self.name = name
        self._file = LogFile(log)
        self._lines = LineSplitter(LONGEST_LINE)
        with contextlib.suppress(OSError):  # it may not be read: told by the job's own `log.failed`
            self._file.begin_at_end()

    def read(self) -> list[str]:
        """Return the whole lines that came since; of a flood the newest."""
        try:
            if self._file.skip_to_last(MOST_BYTES_A_LOOK):
                self._lines.rest()
            data = self._file.read(MOST_BYTES_A_LOOK)
        except OSError:
            return []
        return [readable(line) for line in self._lines.feed(data)]

    def close(self) -> None:
        """Close its log."""
        self._file.close()
