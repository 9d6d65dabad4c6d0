"""A spare: a leash that waits for its run, and below it a first process that waits for its command.

A start is two forks of Python, some hundreds of copied pages and an exec. Done before the tick, all but the exec is
behind us then: main tells the waiting process what to become, and it becomes that while its leash still sleeps.

    main                                    first process             leash
    RUN into the leash's socket                                       sleeps: it waits for the socket's end only
    its alarm set to now, or a bit later
    RUN to the first process                becomes the job
                                                                      wakes, reads RUN, is a leash like any other

It knows the two that wait, their pipes and sockets; it must never know who needs them, or when.

Rules of this file:
1. Both wait in the kernel: nothing polls, no timer runs.
2. The leash is told first. Whatever happens to main then: at the alarm, or at the end of its socket, the leash reads
   what it was told, and knows the run, its deadlines and its orders. Main sets no alarm later than a moment from now.
3. The first process looks at the page once more before its exec: one that was held up starts nothing whose lease is
   over.
4. It dies with its leash, and holds nothing by whose end others know that a leash is dead.
5. Where the first process dies before the leash was told anything, the spare goes: main sees that, and starts
   otherwise.
"""

import os
import select
import signal
import socket
from typing import Any

from orchestrator.runs import first_process, wire
from orchestrator.runs.linux import BootTimer, boot
from orchestrator.runs.page import Page
from orchestrator.runs.wakeups import Wakeups

SAMPLE: dict[str, Any] = {
    "argv": ["/bin/sh", "-c", "echo"],
    "env": {"PATH": "/bin:/usr/bin"},
    "named": [],
    "cwd": None,
    "open_files": 1024,
    "stop_signal": int(signal.SIGTERM),
    "rest_grace_s": 1.0,
    "abandon_grace_s": 1.0,
    "log": {"path": os.devnull, "err_path": None, "max_bytes": 4096, "backups": 1, "timestamps": False},
    "separate": False,
    "identity": {
        **dict.fromkeys(("user", "group", "umask", "nice", "oom_score_adj")),
        "limits": [],
        "env_files": [],
    },
    "cgroup": None,
    "stop_command": None,
    "success": [0],
    "hooks": {},
}
"""A run that writes a line and ends, for rehearsals; see `order.what_to_run`."""


class ReadyProcess:
    """The first process of a spare, and what the leash waits for.

    Attributes:
        pid: The process.
        pipes: The read and the write ends of what is its stdout and its stderr.
        report: The read end of a pipe that exec closes; why it is impossible comes out of it.
        ended_at: When a child of the leash was last seen to end before it looked, on the boot clock; 0: none was.
    """

    __slots__ = ("ended_at", "pid", "pipes", "report")

    def __init__(self, sock: socket.socket, orders: socket.socket, page: Page, place: tuple[int, int]) -> None:
        """Fork it.

        Args:
            sock: The leash's way to main.
            orders: Where its command will come from.
            page: The shared page.
            place: Slot and serial of the run on it.

        Raises:
            OSError: No process can be forked.
        """
        self.ended_at = 0.0
        self.pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        self.report, report = os.pipe2(os.O_CLOEXEC)
        ignored = first_process.ignored_signals()
        leash = os.getpid()
        self.pid = os.fork()
        if not self.pid:
            sock.close()
            ends = (self.pipes[0][1], self.pipes[1][1])
            first_process.wait_for_command(orders, SAMPLE, page, place, leash, ignored, ends, report)
        os.close(report)
        orders.close()

    def wait(self, sock: socket.socket, alarm: BootTimer, wakeups: Wakeups) -> bytes:
        """Wait until it is time to look at what the leash was told; return that, empty if nothing was.

        The end of a child meanwhile is noted and not looked at: others are to be started first.
        """
        waiting = select.poll()
        waiting.register(sock.fileno(), 0)  # its end is told all the same
        waiting.register(alarm.fd, select.POLLIN)
        waiting.register(wakeups.fd, select.POLLIN)
        while [fd for fd, _ in waiting.poll()] == [wakeups.fd]:
            wakeups.clear()
            if self._has_ended():  # else it was only stopped, or continued
                self.ended_at = boot()
                if not wire.is_something_there(sock):
                    return b""
        alarm.clear()
        return wire.receive_bytes(sock)

    def _has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def dismiss(self) -> None:
        """End it and reap it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
