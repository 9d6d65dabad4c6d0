"""Nudges: "something changed, look now". Correctness never depends on one; a lost nudge costs a beat.

Receiving is a loop that survives everything a network does. Its traps, each measured with redis-py 8.1:
1. Never `listen()`: on Python 3.11+ the system's ETIMEDOUT is the builtin TimeoutError, which redis-py takes
   for "nothing came yet"; `listen()` then spins without yielding, for ever, and the whole event loop stands.
2. redis-py's health check sends PING and never waits for the answer: so an own ping, and a deadline of silence.
3. `get_message` may return at once and for ever on a dead connection (the same cause): so a pause.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

from redis.asyncio.client import PubSub

from orchestrator.core.nouns import JobName
from orchestrator.store.client import FAILURES, Client

POLL_S = 1.0
"""How long one wait for a message lasts."""
PING_S = 2.0
"""A healthy link is never silent for longer."""
SILENCE_S = 5.0
"""After this the peer is taken for dead."""
PAUSE_S = 0.05
"""Between two waits that ended at once."""
LONGEST_BACKOFF_S = 5.0
"""A nudge is worth one try each five seconds; with jitter, so that twenty nodes do not come back as one."""


class Nudges:
    """The receiving end of the nudge channel."""

    def __init__(self, client: Client, channel: str) -> None:
        """Remember where to listen."""
        self._client = client
        self._channel = channel

    async def receive(self, deliver: Callable[[JobName | None], None]) -> None:
        """Deliver nudges until cancelled; None once after each (re)connection."""
        backoff_s = PAUSE_S
        while True:
            subscription = self._client.redis.pubsub()
            try:
                await self._subscribe(subscription)
                backoff_s = PAUSE_S
                deliver(None)
                await self._until_silent(subscription, deliver)
            except FAILURES:
                # Nothing to say: the next beat meets the same server, and says what ails it.
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, no secret
                backoff_s = min(2 * backoff_s, LONGEST_BACKOFF_S)
            finally:
                with contextlib.suppress(*FAILURES):
                    await subscription.aclose()  # type: ignore[no-untyped-call] # redis-py types half of it

    async def _subscribe(self, subscription: PubSub) -> None:
        async with asyncio.timeout(self._client.timeout_s):
            await subscription.subscribe(self._channel)
            # The subscription stands when the server says so, not when the request is written.
            if not _says(await subscription.get_message(timeout=self._client.timeout_s), "subscribe"):
                raise TimeoutError

    async def _until_silent(self, subscription: PubSub, deliver: Callable[[JobName | None], None]) -> None:
        clock = asyncio.get_running_loop().time
        heard_at = pinged_at = clock()
        while True:
            began_at = clock()
            if began_at - pinged_at >= PING_S:
                pinged_at = began_at
                await subscription.ping()
            message = await subscription.get_message(timeout=POLL_S)
            if message is not None:
                heard_at = clock()
                if _says(message, "message"):
                    deliver(JobName(str(message["data"])) if message["data"] else None)
            elif clock() - heard_at > SILENCE_S:
                raise TimeoutError
            elif clock() - began_at < PAUSE_S:
                await asyncio.sleep(PAUSE_S)


def _says(message: object, kind: str) -> bool:
    return isinstance(message, dict) and message.get("type") == kind
