"""A terminal with a command in it, and somebody who types and reads."""

import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

LIMIT_S = 20.0


class Screen:
    """A command in a terminal of 100 columns and 24 lines."""

    def __init__(self, *args: str) -> None:
        """Start it."""
        self._user, self.program = pty.openpty()
        self.resize(100, 24)
        self.found = termios.tcgetattr(self.program)
        self.seen = b""
        command = [sys.executable, "-m", "orchestrator", *args]
        self.child = subprocess.Popen(
            # A session's leader that opens a terminal gets it as its controlling one: only so ^C is a signal.
            ["sh", "-c", 'exec "$@" <"$TERMINAL" >"$TERMINAL" 2>&1', "sh", *command],
            env=os.environ | {"TERM": "xterm-256color", "TERMINAL": os.ttyname(self.program)},
            start_new_session=True,
        )

    def resize(self, columns: int, lines: int) -> None:
        """Change the window."""
        ioctl(self.program, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._user, keys)

    def until(self, shown: str) -> None:
        """Read the screen until a text is shown; what was shown before is forgotten."""
        wanted = re.compile(shown.encode())
        deadline = time.clock_gettime(time.CLOCK_MONOTONIC) + LIMIT_S
        while not (found := wanted.search(self.seen)):
            assert time.clock_gettime(time.CLOCK_MONOTONIC) < deadline, self.seen
            self._read(0.1)
        self.seen = self.seen[found.end() :]

    def wait(self) -> int:
        """Return how it ended; the screen is read meanwhile, as a terminal does."""
        deadline = time.clock_gettime(time.CLOCK_MONOTONIC) + LIMIT_S
        while self.child.poll() is None:
            assert time.clock_gettime(time.CLOCK_MONOTONIC) < deadline, self.seen
            self._read(0.05)
        self._read(0.05)
        return self.child.returncode

    def close(self) -> None:
        """End it, whatever it does."""
        self.child.kill()
        self.child.wait()
        os.close(self._user)
        os.close(self.program)

    def _read(self, wait_s: float) -> None:
        if select.select([self._user], [], [], wait_s)[0]:
            self.seen += os.read(self._user, 65536)
