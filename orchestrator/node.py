"""The shell of one node: wait, tell the core what happened, do what it orders, wait again.

Knows the store, the runs and the state directory, and decides nothing. One turn:

1. take the events that have come (answers of the store, words of the leashes, signals, nudges);
2. `core.handle(events)`, then `core.tick()`, with one reading of the clock taken before both: every request
   that comes out bears it as `asked_at`, and is written only afterwards;
3. orders for runs at once, all requests of the turn as one batch for the store;
4. sleep until `core.next_deadline()`, an event, or `LONGEST_SLEEP_S`.

No exception of the world reaches this loop. An `InvariantError` ends the process, and the leashes end the runs.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Protocol

from orchestrator import clock
from orchestrator.core.answers import StoreAnswer, StoreSilent
from orchestrator.core.messages import (
    Action,
    Event,
    ExpectRuns,
    ExtendRun,
    KillRun,
    Nudged,
    QuitNode,
    RememberToken,
    Say,
    StartRun,
    StopRun,
)
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, Token
from orchestrator.core.requests import StoreRequest
from orchestrator.core.spec import JobSpec
from orchestrator.errors import OrchestratorError

LONGEST_SLEEP_S = 10.0
"""The wall clock may be set while we sleep; a schedule must notice within this."""

LONGEST_ANSWER_S = 10.0
"""The store answers within its request timeout (a second) and a connection; this is far beyond both."""

LATE_TURN_S = 0.5
"""A turn that comes this much later than planned is said: somebody blocks the loop, or the machine is too busy."""


class Store(Protocol):
    """What the shell needs of the store."""

    async def serve(self, requests: list[StoreRequest]) -> list[StoreAnswer]:
        """Answer each request with exactly one event, in bounded time, and never raise."""

    def nudges(self, deliver: Callable[[JobName | None], None]) -> Coroutine[object, object, None]:
        """Deliver nudges until cancelled."""


class Runs(Protocol):
    """What the shell needs of the run side."""

    def start(self, spec: JobSpec, start: StartRun) -> None:
        """Start a run under a leash."""

    def expect(self, expected: ExpectRuns) -> None:
        """Make ready for starts that are due soon."""

    def extend(self, extend: ExtendRun) -> None:
        """Move its deadlines."""

    def stop(self, stop: StopRun) -> None:
        """Stop it in order."""

    def kill(self, kill: KillRun) -> None:
        """Kill it now."""


class Inbox:
    """What happened and was not yet told to the core; filled on the loop's thread only."""

    def __init__(self) -> None:
        """Begin empty."""
        self._events: list[Event] = []
        self._filled = asyncio.Event()

    def deliver(self, event: Event) -> None:
        """Put an event in and wake the shell."""
        self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """Make `wait` return."""
        self._filled.set()

    def take(self) -> list[Event]:
        """Return all that came, oldest first."""
        events, self._events = self._events, []
        self._filled.clear()
        return events

    async def wait(self, limit_s: float) -> None:
        """Return when something is in it, or after `limit_s`; the other tasks get a turn in any case."""
        # Since Python 3.12 `wait_for` does not yield where there is nothing to wait for: answers of the store,
        # which come by other tasks, would starve behind a shell that is always busy.
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._filled.wait(), limit_s)


class Shell:
    """Drives one core until it quits.

    Attributes:
        problem: Why the node had to quit, "" after an ordered end.
        exit_status: What the process is to end with where there is no problem.
    """

    def __init__(  # noqa: PLR0913 - the parts of a node, each by its name
        self,
        core: Node,
        *,
        inbox: Inbox,
        store: Store,
        runs: Runs,
        remember: Callable[[Mapping[JobName, Token]], None],
        say: Callable[[Say], None],
        on_turn: Callable[[float], None] = lambda _now_boot: None,
        revive: Callable[[], Awaitable[bool]] | None = None,
        longest_answer_s: float = LONGEST_ANSWER_S,
    ) -> None:
        """Wire the parts.

        Args:
            core: Decides.
            inbox: Where everybody delivers what happened.
            store: Redis.
            runs: The processes.
            remember: Keeps the tokens of a turn in the state directory; before any run of that turn starts.
            say: Takes a line for people; must never block.
            on_turn: Called once a turn with the boot clock; feeds the watchdog.
            longest_answer_s: A store that bounds itself answers within this; one that does not is given up.
            revive: Starts the store's server again if it died and is ours to start; says whether it had to.
        """
        self._core = core
        self._store = store
        self._runs = runs
        self._remember = remember
        self._say = say
        self._on_turn = on_turn
        self._revive = revive
        self._longest_answer_s = longest_answer_s
        self._reviving = asyncio.Lock()
        self._inbox = inbox
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._over = False
        self.problem = ""
        self.exit_status = 0

    async def run(self) -> None:
        """Turn until the core quits.

        Raises:
            InvariantError: A bug of ours; whoever catches it must end the process.
        """
        self._spawn(self._store.nudges(lambda job: self._inbox.deliver(Nudged(job))))
        try:
            planned = self._turn()
            while not self._over:
                await self._sleep(planned)
                if self._failure is not None:
                    raise self._failure
                planned = self._turn()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _turn(self) -> float:
        now = clock.now()
        self._perform([*self._core.handle(self._inbox.take(), now), *self._core.tick(now)])
        self._on_turn(now.boot)
        return self._core.next_deadline(now)

    async def _sleep(self, planned: float) -> None:
        await self._inbox.wait(min(LONGEST_SLEEP_S, max(0.0, planned - clock.boot())))
        late_s = clock.boot() - planned
        if late_s > LATE_TURN_S and not self._over:
            self._say(Say("node.late", {"by_s": round(late_s, 2)}, "warning"))

    def _perform(self, actions: Sequence[Action]) -> None:
        tokens = {action.job: action.token for action in actions if isinstance(action, RememberToken)}
        if tokens:
            self._remember(tokens)
        requests: list[StoreRequest] = []
        for action in actions:
            match action:
                case StartRun():
                    self._runs.start(self._core.jobs[action.job].spec, action)
                case ExtendRun() | StopRun() | KillRun() | ExpectRuns():
                    self._steer(action)
                case RememberToken():
                    pass  # all of them at once, above
                case Say():
                    self._say(action)
                case QuitNode():
                    self._over, self.problem, self.exit_status = True, action.problem, action.exit_status
                case _:
                    requests.append(action)
        if requests:
            self._spawn(self._serve(requests))

    def _steer(self, order: ExtendRun | StopRun | KillRun | ExpectRuns) -> None:
        match order:
            case ExtendRun():
                self._runs.extend(order)
            case StopRun():
                self._runs.stop(order)
            case KillRun():
                self._runs.kill(order)
            case ExpectRuns():
                self._runs.expect(order)

    async def _serve(self, requests: list[StoreRequest]) -> None:
        answers = await self._answers(requests)
        for answer in answers:
            self._inbox.deliver(answer)
        if self._revive is not None and any(isinstance(answer, StoreSilent) for answer in answers):
            await self._revive_store(self._revive)

    async def _answers(self, requests: list[StoreRequest]) -> list[StoreAnswer]:
        """Ask the store, which bounds itself; where that fails, for whatever reason, a node must not wait for ever.

        What hangs is told to stop and not waited for: it may be the stopping that hangs.
        """
        asking = asyncio.ensure_future(self._store.serve(requests))
        try:
            await asyncio.wait({asking}, timeout=self._longest_answer_s)
        finally:
            if not asking.done():
                asking.cancel()
        if asking.done():
            return asking.result()
        return [StoreSilent(request, f"no answer within {self._longest_answer_s:g} s") for request in requests]

    async def _revive_store(self, revive: Callable[[], Awaitable[bool]]) -> None:
        if self._reviving.locked():
            return
        async with self._reviving:
            try:
                if await revive():
                    self._say(Say("redis.started_again", level="warning"))
            except OrchestratorError as error:
                self._say(Say("redis.not_started", {"problem": str(error)}, "error"))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:  # a bug of ours: it must not be silent
            self._failure = task.exception()
            self._inbox.wake()
