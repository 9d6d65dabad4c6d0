"""The loop around a core: what it does in a turn, and what it never does."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

import pytest

from orchestrator.core.answers import StoreAnswer, StoreSilent
from orchestrator.core.info import Identity
from orchestrator.core.messages import LeaveOrdered, Say
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, NodeName
from orchestrator.core.requests import LeaveCluster, StoreRequest
from orchestrator.core.spec import ClusterSpec
from orchestrator.errors import InvariantError, OrchestratorError
from orchestrator.node import Inbox, Shell
from tests.core.house import service

LIMIT_S = 10


class SilentStore:
    """A store that never answers; remembers what it was asked."""

    def __init__(self) -> None:
        """Begin without a question."""
        self.batches: list[list[StoreRequest]] = []

    async def serve(self, requests: list[StoreRequest]) -> list[StoreAnswer]:
        """Answer nothing."""
        self.batches.append(requests)
        return [StoreSilent(request, "nobody is there") for request in requests]

    async def nudges(self, deliver: Callable[[JobName | None], None]) -> None:  # noqa: ARG002 - the shell names it
        """Deliver none."""
        await asyncio.Event().wait()


class BrokenStore(SilentStore):
    """A store with a bug."""

    async def serve(self, requests: list[StoreRequest]) -> list[StoreAnswer]:
        """Fail."""
        self.batches.append(requests)
        raise InvariantError("a bug of ours")


class HangingStore(SilentStore):
    """A store that never comes back, and whose stopping hangs too for a while."""

    async def serve(self, requests: list[StoreRequest]) -> list[StoreAnswer]:
        """Hang."""
        self.batches.append(requests)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()
        return []


class NoRuns:
    """Nothing is started in these tests."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Refuse whatever is called."""
        raise AssertionError(name)


class Stage:
    """A shell around a real core, with what it said."""

    def __init__(self, store: SilentStore, revive: Callable[[], Coroutine[object, object, bool]] | None = None) -> None:
        """Wire it."""
        jobs = (service(), service(name=JobName("mail"), job="mail", key="mail"))
        identity = Identity(NodeName("n1"), "i1", "s1", "host", 1, "0")
        self.said: list[Say] = []
        self.turns = 0
        self._told = False
        self._wanted: Callable[[], bool] = lambda: False
        self.inbox = Inbox()
        self.shell = Shell(
            Node(ClusterSpec("shop", jobs), identity, {}),
            inbox=self.inbox,
            store=store,
            runs=NoRuns(),
            remember=lambda _tokens: None,
            say=self.said.append,
            on_turn=self._count,
            revive=revive,
            longest_answer_s=0.05,
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        """Let the shell run until something holds after a turn, then tell it to go."""
        self._wanted = holds
        async with asyncio.timeout(LIMIT_S):
            await self.shell.run()

    def _count(self, _now_boot: float) -> None:
        self.turns += 1
        if self._wanted() and not self._told:
            self._told = True
            self.inbox.deliver(LeaveOrdered(0))


async def test_a_heartbeat_is_one_batch_for_the_store() -> None:
    store = SilentStore()
    await Stage(store).until(lambda: bool(store.batches))

    kinds = [type(request).__name__ for request in store.batches[0]]
    assert kinds.count("KeepMembership") == 1
    assert kinds.count("LookAtLease") == 2


async def test_a_silent_store_never_ends_a_node_and_leaving_is_not_held_up_by_it() -> None:
    store = SilentStore()
    stage = Stage(store)
    await stage.until(lambda: len(store.batches) >= 2)

    assert [say.event for say in stage.said].count("redis.silent") == 1
    assert isinstance(store.batches[-1][-1], LeaveCluster)
    assert stage.shell.problem == ""


async def test_a_store_that_hangs_is_given_up_and_leaving_is_not_held_up_by_it() -> None:
    store = HangingStore()
    stage = Stage(store)
    await stage.until(lambda: len(store.batches) >= 2)

    silent = next(say for say in stage.said if say.event == "redis.silent")
    assert dict(silent.fields) == {"problem": "no answer within 0.05 s"}
    assert isinstance(store.batches[-1][-1], LeaveCluster)


async def test_a_server_that_is_ours_is_started_again_when_it_falls_silent() -> None:
    revived = asyncio.Event()

    async def revive() -> bool:
        revived.set()
        return True

    stage = Stage(SilentStore(), revive)
    await stage.until(lambda: any(say.event == "redis.started_again" for say in stage.said))

    assert revived.is_set()


async def test_a_server_that_cannot_be_started_is_said_and_the_node_lives_on() -> None:
    async def revive() -> bool:
        raise OrchestratorError("no room on the disk")

    stage = Stage(SilentStore(), revive)
    await stage.until(lambda: any(say.event == "redis.not_started" for say in stage.said))

    assert {"problem": "no room on the disk"} in [dict(say.fields) for say in stage.said]


async def test_a_bug_ends_the_shell_and_is_not_silent() -> None:
    with pytest.raises(InvariantError, match="a bug of ours"):
        await Stage(BrokenStore()).until(lambda: False)


async def test_a_busy_shell_lets_the_other_tasks_run() -> None:
    inbox = Inbox()
    ran = asyncio.Event()
    task = asyncio.create_task(asyncio.sleep(0))
    task.add_done_callback(lambda _task: ran.set())

    for _ in range(10):
        inbox.deliver(LeaveOrdered(0))
        await inbox.wait(0.0)

    assert ran.is_set()


async def test_every_turn_feeds_the_watchdog() -> None:
    store = SilentStore()
    stage = Stage(store)
    await stage.until(lambda: stage.turns >= 3)

    assert stage.turns >= 3
