"""Real servers for tests: each its own process, on its own unix socket (or free port), in its own directory.

Nothing is expected to be installed or running: the binary is the embedded one. Where `redis-server` is on
PATH, tests that take `server` run against it too (ids valkey, redis). That the server which answers is the
one just started is checked on every start: a stale one on the same address would prove nothing.
"""

import copy
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from orchestrator.embedded import find_server

START_LIMIT_S = 10.0

BINARIES = {"valkey": find_server()} | ({"redis": found} if (found := shutil.which("redis-server")) else {})


class Server:
    """One server process."""

    def __init__(
        self, binary: str, directory: Path, *options: str, port: int | None = None, password: str | None = None
    ) -> None:
        """Prepare a server in `directory`; on a unix socket, or on `port` (0: a free one) of 127.0.0.1.

        `password` is for the test's own client; the URL has none.
        """
        self._password = password
        self._binary = binary
        self._directory = directory
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = directory / "s"
        self.port = _free_port() if port == 0 else port
        self.url = f"unix://{self.socket}" if self.port is None else f"redis://127.0.0.1:{self.port}/0"
        self.client = self.another_client()

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def another_client(self) -> Any:
        """Return a blocking client of the test's own; the caller closes it.

        Any: redis-py types every reply as bytes or str, also of a client that decodes.
        """
        address = {"unix_socket_path": str(self.socket)} if self.port is None else {"port": self.port}
        return redis.Redis(decode_responses=True, protocol=2, password=self._password, **address)

    def raw_client(self) -> Any:
        """Return a blocking client that decodes nothing; the caller closes it."""
        address = {"unix_socket_path": str(self.socket)} if self.port is None else {"port": self.port}
        return redis.Redis(protocol=2, password=self._password, **address)

    def at(self, url: str) -> Self:
        """Return the same server under another address."""
        seen = copy.copy(self)
        seen.url = url
        return seen

    def start(self) -> Self:
        """Start it and wait until it answers."""
        address = ["--port", str(self.port or 0)] + ([] if self.port else ["--unixsocket", str(self.socket)])
        argv = [
            self._binary,
            *address,
            "--dir",
            str(self._directory),
            "--save",
            "",
            "--appendonly",
            "no",
            *self._options,
        ]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.clock_gettime(time.CLOCK_MONOTONIC) + START_LIMIT_S
        while not self._answers():
            assert self._process.poll() is None, (self._directory / "log").read_text()
            assert time.clock_gettime(time.CLOCK_MONOTONIC) < deadline, "the server did not answer"
            time.sleep(0.003)
        assert self.client.info("server")["process_id"] == self._process.pid
        return self

    def pause(self) -> None:
        """Freeze it: its sockets stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Thaw it."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """SIGKILL it and reap it."""
        self.client.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Another process, on the same address (empty unless options make it persist)."""
        self.stop()
        self.start()

    def server_ms(self) -> int:
        """Return its clock, in milliseconds since 1970."""
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module", params=sorted(BINARIES))
def module_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server a module; take `server`, which empties it."""
    # Not tmp_path: a unix socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="orchestrator-") as directory:
        server = Server(BINARIES[request.param], Path(directory)).start()
        yield server
        server.stop()


@pytest.fixture
def server(module_server: Server) -> Server:
    """Return an empty server that other tests of the module use too; do not stop it."""
    module_server.client.flushall()
    module_server.client.script_flush()
    return module_server


@pytest.fixture(params=sorted(BINARIES))
def start_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Start servers of a test's own, with options; they are killed after it."""
    started: list[Server] = []

    def start(*options: str, port: int | None = None, password: str | None = None) -> Server:
        directory = tempfile.mkdtemp(prefix="orchestrator-")
        started.append(Server(BINARIES[request.param], Path(directory), *options, port=port, password=password))
        return started[-1].start()

    yield start
    for server in started:
        server.stop()
        shutil.rmtree(server.socket.parent, ignore_errors=True)
