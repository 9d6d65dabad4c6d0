"""Health checks: whether a service that runs also does its work. Main's side; no process is started here.

It knows how to ask (a connection, an HTTP answer, a command by way of the run's leash) and when; it must
never know what follows from an answer: failures are counted, and services stopped, by the core.

Rules of this file:
1. One check at a time for each run. The first comes `interval_s` after `begin`, each other one `interval_s`
   after the end of the one before: a slow service is not asked more often for being slow.
2. What is wrong with us says nothing about the service, and is not told: no descriptors left, or a limit that
   struck late because this process was frozen. The next check comes as usual.
3. Nothing blocks the loop. Names are looked up by threads of our own, and `localhost` by none (RFC 6761): a
   name server that hangs must not make healthy local services look ill. Of many checks that are due in one
   instant a few begin in each turn of the loop, so that heartbeats of leases come in between.
4. `https` is spoken without looking at the certificate, as Kubernetes' probes do: whether the service works is
   asked, not who it is; at 127.0.0.1 its certificate would hardly ever fit. Nothing secret is sent.
5. An answer is bounded: of HTTP its first line counts, redirects are not followed, and what comes behind is read
   only for a moment, so that an honest server does not have to log a broken pipe.
"""

import asyncio
import collections
import contextlib
import errno
import functools
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator import clock
from orchestrator.core.messages import RunChecked
from orchestrator.core.nouns import JobName, RunId
from orchestrator.core.spec import HealthSpec

AskLeash = Callable[[RunId, tuple[str, ...], float, Callable[[bool, str], None]], None]
"""Run a command under a run's leash, with a limit in seconds; tell once whether it was healthy, and why not."""

MOST_AT_ONCE = 8
"""Checks that begin in one turn of the loop: each costs about 0.4 ms in all."""
MOST_LOOKUPS = 8
"""Threads that look up names; a lookup that hangs keeps one for as long as the resolver's own limit."""
LONGEST_LINE_BYTES = 4096
MOST_LEFT_BYTES = 65536
LEFT_WITHIN_S = 0.2
LEASH_SLACK_S = 2.0
"""The leash keeps the limit of a command itself; this much later it counts as silent."""
FROZEN_S = 0.5
"""A limit that strikes this much too late was not the service's fault."""

_OUR_TROUBLE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_STATUS_LINE = re.compile(rb"HTTP/\d(?:\.\d)? +(\d{3})\b")
_HEALTHY_STATUS = range(200, 400)
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """Where a check goes that needs a connection.

    Attributes:
        host: Name or address, without brackets.
        request: What is sent over HTTP; b"": a connection is all that is asked for.
        tls: Over TLS.
    """

    host: str
    port: int
    request: bytes = b""
    tls: bool = False

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def target_of(health: HealthSpec) -> Target | None:
    """Return where the checks go, None where they are a command."""
    if health.tcp is not None:
        host, _, port = health.tcp.rpartition(":")
        return Target(host.strip("[]"), int(port))
    if health.http is None:
        return None
    url = urlsplit(health.http)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {url.netloc}",
        "User-Agent: orchestrator",
        "Accept: */*",
        "Connection: close",
    )
    request = "\r\n".join((*lines, "", "")).encode()
    return Target(url.hostname or "", url.port or _PORTS[url.scheme], request, tls=url.scheme == "https")


@dataclass(slots=True, eq=False)
class _Watched:
    """One run that is being checked: either `timer` waits for the next check, or it is due, or `task` is one."""

    job: JobName
    run: RunId
    health: HealthSpec
    target: Target | None
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class Checks:
    """The health checks of all runs of one node."""

    def __init__(self, deliver: Callable[[RunChecked], None], ask_leash: AskLeash) -> None:
        """Begin with none.

        Args:
            deliver: Told how each check ended, on the event loop, never from within a call of ours.
            ask_leash: Runs the command of a check.
        """
        self._deliver = deliver
        self._ask_leash = ask_leash
        self._watched: dict[RunId, _Watched] = {}
        self._due: collections.deque[_Watched] = collections.deque()
        self._names = ThreadPoolExecutor(MOST_LOOKUPS, thread_name_prefix="names")

    def begin(self, job: JobName, run: RunId, health: HealthSpec) -> None:
        """Check a run from now on."""
        self.end(run)
        watched = self._watched[run] = _Watched(job, run, health, target_of(health))
        self._wait(watched)

    def end(self, run: RunId) -> None:
        """Check a run no longer; a check that is on its way is given up, and not told."""
        watched = self._watched.pop(run, None)
        if watched is None:
            return
        if watched.timer is not None:
            watched.timer.cancel()
        if watched.task is not None:
            watched.task.cancel()

    def close(self) -> None:
        """Check nothing any more."""
        for run in list(self._watched):
            self.end(run)
        self._names.shutdown(wait=False, cancel_futures=True)

    # When.

    def _wait(self, watched: _Watched) -> None:
        loop = asyncio.get_running_loop()
        watched.timer = loop.call_later(watched.health.interval_s, self._on_due, watched)

    def _on_due(self, watched: _Watched) -> None:
        watched.timer = None
        self._due.append(watched)
        if len(self._due) == 1:
            asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        for _ in range(min(MOST_AT_ONCE, len(self._due))):
            watched = self._due.popleft()
            if self._watched.get(watched.run) is watched:
                watched.task = asyncio.get_running_loop().create_task(self._check(watched))
        if self._due:
            asyncio.get_running_loop().call_soon(self._start_some)

    async def _check(self, watched: _Watched) -> None:
        problem = await self._problem(watched)
        watched.task = None
        self._wait(watched)
        if problem is not None:
            self._deliver(RunChecked(watched.job, watched.run, not problem, problem))

    # How.

    async def _problem(self, watched: _Watched) -> str | None:
        """Ask; return "" if the run is healthy, why it is not, or None if that is not known (rule 2)."""
        target, timeout_s = watched.target, watched.health.timeout_s
        limit_s = timeout_s if target else timeout_s + LEASH_SLACK_S
        began_at = clock.boot()
        try:
            if target is None:
                return await self._exec(watched.run, watched.health.exec or (), timeout_s, limit_s)
            return await (self._get(target, limit_s) if target.request else self._reach(target, limit_s))
        except OSError as error:
            if isinstance(error, TimeoutError) and error.errno is None:  # the limit's, and not the kernel's ETIMEDOUT
                frozen = clock.boot() > began_at + limit_s + FROZEN_S
                return None if frozen else f"no answer within {timeout_s:g} s"
            return None if error.errno in _OUR_TROUBLE else _clause(error, target)
        except ValueError as error:  # what no resolver and no certificate takes for a name
            return f"{error}: {target}"

    async def _exec(self, run: RunId, command: tuple[str, ...], timeout_s: float, limit_s: float) -> str:
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_answer(healthy: bool, why: str) -> None:
            if not answered.done():  # given up meanwhile
                answered.set_result("" if healthy else why or "it failed")

        self._ask_leash(run, command, timeout_s, on_answer)
        async with asyncio.timeout(limit_s):
            return await answered

    async def _reach(self, target: Target, limit_s: float) -> str:
        async with asyncio.timeout(limit_s):
            _, writer = await self._connect(target)
        writer.transport.abort()
        return ""

    async def _get(self, target: Target, limit_s: float) -> str:
        writer = None
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await self._connect(target)
                writer.write(target.request)
                line = await reader.readuntil(b"\n")
            await _read_the_rest(reader)  # the answer is there: the limit is none of it
        except asyncio.IncompleteReadError as error:
            return "not an HTTP answer" if error.partial else "closed without an answer"
        except asyncio.LimitOverrunError:
            return "not an HTTP answer"
        finally:
            if writer is not None:
                writer.transport.abort()  # `close` could wait for the other side
        found = _STATUS_LINE.match(line)
        if found is None:
            return "not an HTTP answer"
        return "" if int(found[1]) in _HEALTHY_STATUS else f"HTTP {int(found[1])}"

    async def _connect(self, target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the first address that answers; raise what the first one that does not said."""
        problem: OSError | None = None
        tls = _tls() if target.tls else None
        for address in await self._addresses(target):
            try:
                reader, writer = await asyncio.open_connection(
                    address,
                    target.port,
                    limit=LONGEST_LINE_BYTES,
                    ssl=tls,
                    server_hostname=target.host if tls else None,
                )
            except OSError as error:
                problem = problem or error
                continue
            if writer.get_extra_info("sockname") != writer.get_extra_info("peername"):
                return reader, writer
            # Nobody listens, and the kernel gave us this very port to come from: TCP met itself.
            writer.transport.abort()
            problem = problem or ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        raise problem or OSError(errno.EADDRNOTAVAIL, "No address")

    async def _addresses(self, target: Target) -> list[str]:
        if target.host == "localhost":
            return ["127.0.0.1", "::1"]
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(target.host))]
        lookup = functools.partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._names, lookup)
        return [str(address[0]) for *_, address in found]


async def _read_the_rest(reader: asyncio.StreamReader) -> None:
    left = MOST_LEFT_BYTES
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(LEFT_WITHIN_S):
            while left > 0 and (part := await reader.read(left)):
                left -= len(part)


def _clause(error: OSError, target: Target | None) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {(error.reason or 'it failed').replace('_', ' ').lower()}: {target}"
    if error.errno is None or isinstance(error, socket.gaierror):  # a resolver's numbers are not the kernel's
        words = error.strerror or str(error)
    else:
        words = os.strerror(error.errno)  # asyncio puts words of its own in its place
    return f"{words[:1].lower()}{words[1:]}: {target}"


@functools.cache
def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
