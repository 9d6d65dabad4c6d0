"""One launcher, seen from main: start it, talk to it, notice that it is frozen or dead.

It knows a process and a socket; it must never know runs. A launcher that does not answer is killed: its
leashes do not need it, and main, a sub-reaper, inherits them.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from orchestrator import clock
from orchestrator.runs import launcher, wire

_ROOT = Path(__file__).parents[2]
_FIRST_ANSWER_S = 10.0
"""An interpreter on a busy machine with a cold disk needs seconds until it listens."""
_WORDS_A_TURN = 16
_OWN_STDERR_FD = 2
_MAX_ERRORS_BYTES = 1 << 20
"""What launchers and leashes say when they break is kept in a file up to this size."""


class LauncherProcess:
    """A launcher that main started.

    Attributes:
        pid: Its process.
        born_at: When it was started, on the boot clock.
        alive: False once it was reaped; its children are main's by then.
        answered: Set by its first answer, or by its death.
        reaped: Set when `alive` turns False.
    """

    def __init__(
        self,
        *,
        page_fd: int,
        errors: Path,
        on_message: Callable[["LauncherProcess", wire.Message], None],
        on_dead: Callable[["LauncherProcess"], None],
    ) -> None:
        """Start it.

        Args:
            page_fd: The shared page.
            errors: The file that its tracebacks go to.
            on_message: Called with everything it says but its answers to pings.
            on_dead: Called once it is reaped, after all it ever said was passed on.

        Raises:
            OSError: No process can be started.
        """
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_dead = on_dead
        self._pings = 0
        self._pongs = 0
        self.born_at = clock.boot()
        self.alive = True
        self.answered = asyncio.Event()
        self.reaped = asyncio.Event()
        self._sock, theirs = wire.pair()
        try:
            self._process = _spawn(theirs.fileno(), page_fd, errors)
        except OSError:
            self._sock.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._loop.add_reader(self._sock, self._read)
        self.ping(_FIRST_ANSWER_S)

    def send(self, *message: object, fds: tuple[int, ...] = ()) -> bool:
        """Send a message; False if the launcher is gone and will never read it.

        Raises:
            BlockingIOError: Its buffer is full; nothing was sent.
        """
        return self._sock.fileno() >= 0 and wire.send(self._sock, *message, fds=fds)

    def ping(self, limit_s: float) -> None:
        """Kill it unless it answers within `limit_s`."""
        self._pings += 1
        with contextlib.suppress(BlockingIOError):  # it does not read: the limit runs all the same
            self.send(wire.PING, self._pings)
        self._loop.call_later(limit_s, self._check, self._pings)

    def kill(self) -> None:
        """SIGKILL it."""
        self._process.kill()

    def hang_up(self) -> None:
        """Close the socket: it goes as soon as it has no leash left. Nothing it says is heard any more."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            self._bury()

    def _check(self, ping: int) -> None:
        # An answer that came while main itself was frozen is read before this timer runs: readers go first.
        if self.alive and self._sock.fileno() >= 0 and self._pongs < ping:
            self.kill()

    def _read(self) -> None:
        for _ in range(_WORDS_A_TURN):  # a thousand leashes may go at once, and renewals must get their turn
            if self._sock.fileno() < 0:
                return
            try:
                received = wire.receive(self._sock)
            except BlockingIOError:
                return
            if received is None:
                self.hang_up()
                return
            message, _ = received
            if message[0] == wire.PONG:
                self._pongs = message[1]
                self.answered.set()
            else:
                self._on_message(self, message)

    def _bury(self) -> None:
        """Reap it: only then have its children been inherited."""
        if self._process.poll() is None:
            self._loop.call_later(0.005, self._bury)
            return
        self.alive = False
        self.reaped.set()
        self.answered.set()
        self._on_dead(self)


def _spawn(sock_fd: int, page_fd: int, errors: Path) -> subprocess.Popen[bytes]:
    # -I -S: no site-packages, no PYTHON* variables, so it starts fast and small. The path is appended: nothing
    # that happens to stand beside the package may shadow the standard library.
    # Main has imported it, so its bytecode stands: a launcher that has to compile leaves every leash a larger heap.
    code = (
        f"import sys; sys.path.append({str(_ROOT)!r}); from {launcher.__name__} import main; main({sock_fd}, {page_fd})"
    )
    errors.parent.mkdir(parents=True, exist_ok=True)
    fresh = os.O_TRUNC if errors.exists() and errors.stat().st_size > _MAX_ERRORS_BYTES else 0
    errors_fd = os.open(errors, os.O_WRONLY | os.O_APPEND | os.O_CREAT | fresh, 0o640)
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
            [sys.executable, "-I", "-S", "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=_OWN_STDERR_FD,  # the leashes write the output of jobs there whose `log` is the journal
            stderr=errors_fd,
            pass_fds=(sock_fd, page_fd),
            start_new_session=True,
        )
    finally:
        os.close(errors_fd)
