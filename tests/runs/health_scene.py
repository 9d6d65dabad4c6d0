"""Servers to ask, checks that ask them, and everything that the checks told."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from orchestrator.core.messages import RunChecked
from orchestrator.core.nouns import JobName, RunId
from orchestrator.core.spec import HealthSpec
from orchestrator.runs.health import AskLeash, Checks
from tests.runs.node import FIXTURES

JOB = JobName("web")
RUN = RunId("web@1.1")
SOON_S = 0.02
PATIENCE_S = 10.0

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Scene:
    """Checks, everything they told, and servers to ask."""

    def __init__(self, ask_leash: AskLeash) -> None:
        """Check nothing yet."""
        self.told: list[RunChecked] = []
        self._arrived = asyncio.Event()
        self.checks = Checks(self._deliver, ask_leash)
        self._servers: list[asyncio.Server] = []
        self._handlers: list[asyncio.Task[None] | None] = []

    def _deliver(self, checked: RunChecked) -> None:
        self.told.append(checked)
        self._arrived.set()

    async def serve(self, handler: Handler, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> int:
        """Serve; return the port."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._handlers.append(asyncio.current_task())
            try:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await handler(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(handle, host, 0, ssl=tls)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def check(self, spec: HealthSpec, *, times: int = 1) -> RunChecked:
        """Check until so many answers are told; return the last."""
        self.checks.begin(JOB, RUN, spec)
        await self.until(times)
        self.checks.end(RUN)
        return self.told[-1]

    async def until(self, times: int) -> None:
        """Wait until so many answers are told."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.told) < times:
                self._arrived.clear()
                await self._arrived.wait()

    async def close(self) -> None:
        """Close all, and see the servers hang up too."""
        self.checks.close()
        for server in self._servers:
            server.close()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*filter(None, self._handlers), return_exceptions=True)


def answering(answer: bytes) -> Handler:
    """Return what answers every request alike."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    return handle


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await reader.read()


def spec(
    *,
    http: str | None = None,
    tcp: str | None = None,
    exec: tuple[str, ...] | None = None,  # noqa: A002 - the key's name
    interval_s: float = SOON_S,
    timeout_s: float = 5.0,
) -> HealthSpec:
    """Return a check that comes soon."""
    return HealthSpec(http=http, tcp=tcp, exec=exec, interval_s=interval_s, timeout_s=timeout_s)


def closed_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Take every descriptor that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as newest, contextlib.ExitStack() as taken:
        resource.setrlimit(resource.RLIMIT_NOFILE, (newest.fileno() + 1, hard))
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.enter_context(newest.dup())
        yield


def unvouched_tls() -> ssl.SSLContext:
    """Return the server's side of TLS, with a certificate that nobody vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FIXTURES / "elsewhere.pem")
    return context


def open_descriptors() -> set[str]:
    """Return the descriptors of this process, but that of the listing."""
    return {each.name for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
