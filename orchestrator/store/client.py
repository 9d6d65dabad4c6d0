"""One connection to Redis: commands in, replies or problems out.

With `nudges.py` the only file that imports redis. It knows nothing of leases. Rules:
1. No retries in the client: a command that was repeated behind our back would move a deadline (redis-py
   retries ten times in one constructor and never in the other).
2. Protocol 2: version 3 costs a round trip a connection, breaks PONG on a subscriber and switches off the
   check for connections that the server closed (redis-py 8.1).
3. `run` is bounded by its own timeout and never raises; after a failure the idle connections are dropped,
   since their peer may be gone without a word.
4. A password stands in no problem.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from orchestrator.errors import ConfigError
from orchestrator.redis_url import parse_url
from orchestrator.store.scripts import Script

MAX_CONNECTIONS = 3
"""The beat, the nudges that come in, the nudge that goes out."""
LONGEST_CLAUSE = 200
"""Characters of a server's complaint that are passed on."""

FAILURES = (redis_errors.RedisError, OSError, ValueError, RuntimeError)
"""What redis-py lets through: its own tree; OSError with the builtin TimeoutError; ValueError of a parser that
reads no Redis; RuntimeError of a transport that is closed already."""

_CONNECTIONS = {"redis": Connection, "rediss": SSLConnection, "unix": UnixDomainSocketConnection}

Argument = str | bytes | int


@dataclass(frozen=True, slots=True)
class Command:
    """One command: a script with its keys and arguments, or plain words (`script` is None, `args` the words)."""

    script: Script | None
    keys: Sequence[Argument]
    args: Sequence[Argument]

    def words(self, *, with_text: bool = False) -> tuple[Argument, ...]:
        """Return what is sent; `with_text` for a server that does not know the script."""
        if self.script is None:
            return tuple(self.args)
        if with_text:
            return ("EVAL", self.script.text, len(self.keys), *self.keys, *self.args)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a command has no reply, in one clause for people."""

    clause: str


Reply = object
"""Text, int, None or a list of these; or our `Problem`."""


class Client:
    """A server and how to talk to it."""

    def __init__(self, url: str, *, name: str, timeout_s: float) -> None:
        """Prepare; nothing is connected before the first command.

        Args:
            url: redis://, rediss:// or unix://.
            name: What CLIENT LIST shows.
            timeout_s: For everything up to one `deadline`, connecting included.

        Raises:
            ConfigError: The URL is wrong.
        """
        try:
            self.address = parse_url(url)
        except ValueError as error:
            raise ConfigError(f"redis: {error}") from None
        self.timeout_s = timeout_s
        self._password = str(self.address.options.get("password", ""))
        self._pool = BlockingConnectionPool(
            max_connections=MAX_CONNECTIONS,
            timeout=timeout_s,
            connection_class=_CONNECTIONS[self.address.scheme],
            protocol=2,
            decode_responses=True,
            encoding_errors="replace",  # people may write any bytes under our keys
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # CLIENT SETNAME refuses anything else, and with it the connection.
            client_name="".join(letter if "!" <= letter <= "~" else "-" for letter in name),
            driver_info=None,
            retry=Retry(NoBackoff(), 0),
            **cast("dict[str, Any]", self.address.options),
        )
        self.redis: Redis = Redis(connection_pool=self._pool)
        self._dropping: set[asyncio.Task[None]] = set()

    def deadline(self) -> float:
        """Return the end of what begins now, on the event loop's clock."""
        return asyncio.get_running_loop().time() + self.timeout_s

    async def run(self, commands: Sequence[Command], until: float | None = None) -> list[Reply]:
        """Send all commands at once; return a reply or a `Problem` for each, in their order. Never raises.

        Args:
            commands: What to send.
            until: A `deadline` that several runs share; None: this run has its own.
        """
        replies: list[Reply] = [None] * len(commands)
        pending = list(range(len(commands)))
        try:
            async with asyncio.timeout_at(self.deadline() if until is None else until):
                for with_text in (False, True):
                    words = [commands[i].words(with_text=with_text) for i in pending]
                    for i, reply in zip(pending, await self._exchange(words), strict=True):
                        replies[i] = reply
                    # A restart, a fail-over or SCRIPT FLUSH: the server must be told those scripts again.
                    pending = [i for i in pending if isinstance(replies[i], redis_errors.NoScriptError)]
        except FAILURES as error:
            for i in pending:
                replies[i] = error
        if any(isinstance(reply, Exception) for reply in replies):
            self._drop_idle()
        return [Problem(self.clause(reply)) if isinstance(reply, Exception) else reply for reply in replies]

    async def _exchange(self, commands: Sequence[tuple[Argument, ...]]) -> list[Reply]:
        if not commands:
            return []
        pipeline = self.redis.pipeline(transaction=False)
        for words in commands:
            # Not pipeline.evalsha(): a cluster client refuses that one in a pipeline.
            pipeline.execute_command(*words)
        replies: list[Reply] = await pipeline.execute(raise_on_error=False)
        return replies

    def clause(self, error: BaseException) -> str:
        """Say in one clause, without secrets, what went wrong."""
        said = _clause(error, self.timeout_s)
        if len(self._password) > 2:  # noqa: PLR2004 - a shorter one would black out half of every sentence
            said = said.replace(self._password, "***")
        return said if len(said) <= LONGEST_CLAUSE else said[: LONGEST_CLAUSE - 3] + "..."

    def _drop_idle(self) -> None:
        # In the background: closing a TLS connection to a dead peer takes its time, and a beat has none.
        # The connection that failed was closed by redis-py.
        task = asyncio.ensure_future(self._close_quietly(lambda: self._pool.disconnect(inuse_connections=False)))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def close(self) -> None:
        """Close all connections; bounded, never raises."""
        for task in tuple(self._dropping):
            await task
        await self._close_quietly(lambda: self._pool.disconnect(inuse_connections=True))

    async def _close_quietly(self, closing: Callable[[], Awaitable[None]]) -> None:
        with contextlib.suppress(*FAILURES):
            async with asyncio.timeout(self.timeout_s):
                await closing()


def _clause(error: BaseException, timeout_s: float) -> str:
    # On a unix socket redis-py wraps what the server said at the login in a bare ConnectionError.
    if type(error) is redis_errors.ConnectionError and isinstance(error.__cause__, redis_errors.RedisError):
        error = error.__cause__
    match error:
        # AuthenticationError and BusyLoadingError are ConnectionErrors: the order matters.
        case redis_errors.AuthenticationError():
            return f"the login was refused: {_first_line(error)}"
        case redis_errors.BusyLoadingError():
            return "LOADING: it reads its data and does not answer yet"
        case redis_errors.ReadOnlyError():
            return "READONLY: it is a replica"
        case redis_errors.OutOfMemoryError():
            return "OOM: it is out of memory"
        case redis_errors.TimeoutError() | TimeoutError():
            return f"no answer within {timeout_s:g} s"
        case redis_errors.ResponseError() if str(error).startswith("MISCONF"):
            return "MISCONF: it cannot write to its disk and refuses writes"
        case redis_errors.ResponseError():
            # What a script's command said is wrapped: "... script: <sha>, on @user_script:12."
            return _first_line(error).partition(" script: ")[0].rstrip(".")
        case ValueError():
            return "what answers there is no Redis"
        case _:
            number = _errno(error)
            if number:
                return os.strerror(number).lower()
            # "Error UNKNOWN while writing to socket. Connection lost.": the last sentence says it.
            return _first_line(error).rpartition(". ")[2].lower()


def _errno(error: BaseException) -> int:
    """Return the system's own number of a failure, 0 if it has none; redis-py wraps it in a sentence."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
            return cause.errno
        cause = cause.__cause__ or cause.__context__
    return 0


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
