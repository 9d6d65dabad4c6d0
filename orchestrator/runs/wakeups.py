"""The end of a child, as a readable descriptor: no signal handler does work.

It knows SIGCHLD; it must never know whose children they are.
"""

import os
import signal


def listen_to_children() -> None:
    """Have SIGCHLD noticed at all; once, in the launcher: the leashes inherit it."""
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)


class Wakeups:
    """Readable once a child has ended.

    Attributes:
        fd: The descriptor.
    """

    __slots__ = ("_write_fd", "fd")

    def __init__(self) -> None:
        """Be told from now on, instead of whoever was told before."""
        self.fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Make it unreadable again."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Be told no more."""
        signal.set_wakeup_fd(-1)
        os.close(self.fd)
        os.close(self._write_fd)
