"""All output of one run: its pipes, where they lead, and its last lines.

It knows what a job's `log` means; it must never know why a run ends.

    log None                        one pipe, only the tail is kept
    log with a path                 one pipe, or two into two files (`err_path`)
    log with `journal`              one pipe, or two, line by line onto the node's stderr
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.runs.journal import INFORMATION, WARNING, Channel, Lines
from orchestrator.runs.logs import RotatingFile, Tail
from orchestrator.runs.pump import Pump, Sink
from orchestrator.runs.stamps import Stamped


class Output:
    """The output of one run.

    Attributes:
        stdout_fd: The end that the job writes to; -1 once closed here.
        stderr_fd: The same for its stderr; the same number where both go the same way.
        tail: The last lines of both.
    """

    __slots__ = ("_pumps", "_sinks", "stderr_fd", "stdout_fd", "tail")

    def __init__(
        self,
        log: dict[str, Any] | None,
        *,
        on_failed: Callable[[str], object],
        on_restored: Callable[[int], object],
        pipes: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Make the pipes; nothing is opened for writing before there is output.

        Args:
            log: See `order.what_to_run`.
            on_failed: Called once when output begins to get lost, with the reason in one clause.
            on_restored: Called when it is written again, with the number of bytes lost.
            pipes: Those that are there already; what is not needed of them is closed.

        Raises:
            OSError: No pipe can be made.
        """
        self.tail = Tail()
        self._sinks = _sinks(log, on_failed, on_restored)
        self._pumps: dict[int, Pump] = {}
        self.stdout_fd = self.stderr_fd = -1
        ends = []
        for stream, sink in enumerate(self._sinks):
            read_end, write_end = pipes[stream] if pipes else os.pipe2(os.O_CLOEXEC)
            self._pumps[read_end] = Pump(read_end, sink, self.tail, stream)
            ends.append(write_end)
        self.stdout_fd, self.stderr_fd = ends[0], ends[-1]
        for unneeded in pipes[len(self._sinks) :]:
            for end in unneeded:
                os.close(end)

    def close_child_ends(self) -> None:
        """Close the ends that belong to the job, once it has them."""
        for fd in {self.stdout_fd, self.stderr_fd} - {-1}:
            os.close(fd)
        self.stdout_fd = self.stderr_fd = -1

    def read_fds(self) -> list[int]:
        """Return the pipes that have not come to their end."""
        return list(self._pumps)

    def pull(self, fd: int) -> bool:
        """Move what is there in one pipe; False: it has come to its end and is closed."""
        pump = self._pumps[fd]
        pump.pull()
        if pump.fd < 0:
            del self._pumps[fd]
            return False
        return True

    def drain(self) -> None:
        """Move what is left once nobody of the tree lives, without waiting, and close everything."""
        self.close_child_ends()
        for pump in self._pumps.values():
            pump.drain()
        self._pumps.clear()
        for sink in self._sinks:
            if sink is not None:
                sink.close()


def _sinks(
    log: dict[str, Any] | None, on_failed: Callable[[str], object], on_restored: Callable[[int], object]
) -> list[Sink | None]:
    """Return where the streams of a job lead: one for both, or one for stdout and one for stderr."""
    if log is None:
        return [None]
    sinks: list[Sink]
    if log.get("journal"):
        channel = Channel(log["name"], on_failed=on_failed, on_restored=on_restored)
        sinks = [
            Lines(channel, priority) for priority in ((INFORMATION, WARNING) if log["separate"] else (INFORMATION,))
        ]
    else:
        limits = {"max_bytes": log["max_bytes"], "backups": log["backups"]}
        paths = [path for path in (log["path"], log["err_path"]) if path is not None]
        sinks = [RotatingFile(path, on_failed=on_failed, on_restored=on_restored, **limits) for path in paths]
    return [Stamped(sink) if log["timestamps"] else sink for sink in sinks]
