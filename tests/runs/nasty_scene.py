"""Nasty trees side by side under one main, one fault, and an onlooker who counts what is left.

Knows the trees, the faults, and within which bound each must leave nothing. The onlooker knows nothing of
the product: it reads the tag of each tree on the command lines below /proc, and the heartbeat that the pid
hoppers write, since a pass over /proc may miss what changes its pid every two milliseconds.

The bounds are those of docs/guarantees.md; G step_down_grace, K kill_time, M margin (a late scheduler):

    an ordered stop, a time limit     stop.timeout + K + M after the order
    the lease is another's            K + M after the order
    leash killed                      K + M after the fault
    main killed, launcher too or not  G + K + M after the fault: the leashes see it at once
    nobody renews any more            T(1-rho), counted from the last renewal: before the lease can be another's
"""

import asyncio
import json
import math
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator import clock
from orchestrator.runs import linux
from tests.runs.nasty_main import LEASE, STOP_S
from tests.runs.node import fresh_tag, send, until

ROOT = Path(__file__).parents[2]
SIGKILL, SIGSTOP = signal.SIGKILL, signal.SIGSTOP

TREES = {
    "plain": 5,
    "ignterm": 5,
    "leader_exits": 2,
    "setsid": 3,
    "daemon": 2,
    "mix": 5,
    "envclear": 2,
    "stopped": 3,
    "hopper": 1,
    "hopper_pg": 1,
    "hydra": 5,
    "daemon_leader_exit": 2,
    "bomb": 61,
}
"""How many processes are seen of each at least, once it has grown; what hops from pid to pid shows by its heartbeat."""
BRIEF = "daemon_leader_exit"
"""Its first process exits by itself after 0.3 s, and that ends its run. It is started when the others have grown and
the fault follows at once; where this machine was busy elsewhere for so long, the end comes first."""
SCENES = (tuple(tree for tree in TREES if tree != "bomb"), ("bomb",))
"""What lives side by side. The bomb takes all processors, so it is alone: the others' instants would blur."""
HOPPERS = ("hopper", "hopper_pg")
QUIET_S = 0.25
"""Nothing of a tree may come back in so long; a hopper writes its heartbeat every few milliseconds."""
LOOK_PERIOD_S = 0.05
"""A pass over a busy machine's /proc takes 25 ms; nobody shall wait for a processor because of the onlooker."""
PATIENCE_S = 20.0
"""How long the onlooker waits for what must come, far beyond any bound: what comes too late is to be measured."""

TAKEN_S = LEASE.ttl_s * (1 - LEASE.clock_rate_error)
"""From the last renewal to the first instant at which another node may hold the lease."""
GONE_S = LEASE.kill_time_s + LEASE.margin_s


class Onlooker:
    """Sees processes by their command lines, and heartbeats.

    Attributes:
        gone_at: The first instant from which on nothing of a tree was seen any more.
    """

    def __init__(self, tags: dict[str, str], directory: Path) -> None:
        """Look for the tag of each tree, and for the heartbeats in `directory`."""
        self._trees = {tag.encode(): tree for tree, tag in tags.items()}
        self._beats = {tree: directory / f"nasty-{tags[tree]}" for tree in HOPPERS if tree in tags}
        self._beat: dict[str, bytes] = {}
        self._alive_at = clock.boot()
        self.gone_at: dict[str, float] = {}

    def look(self) -> dict[str, list[int]]:
        """Return the pids of every tree that is seen now."""
        seen: dict[str, list[int]] = {}
        for entry in os.listdir("/proc"):  # noqa: PTH208 - a pass must be short, and Path objects take half of it
            words = linux.read_file(f"/proc/{entry}/cmdline").split(b"\0") if entry.isdigit() else []
            for tag in self._trees.keys() & words:
                seen.setdefault(self._trees[tag], []).append(int(entry))
        alive = seen.keys() | self._beats_since_the_last_look()
        now = clock.boot()
        self._alive_at = now if alive else self._alive_at
        self.gone_at = {tree: self.gone_at.get(tree, now) for tree in self._trees.values() if tree not in alive}
        return seen

    def _beats_since_the_last_look(self) -> set[str]:
        before = self._beat
        self._beat = {tree: path.read_bytes() for tree, path in self._beats.items() if path.exists()}
        return {tree for tree, beat in self._beat.items() if beat != before.get(tree)}

    def hops(self, tree: str) -> bool:
        """Tell whether a tree is no pid hopper, or one that hops by now."""
        return tree not in self._beats or tree in self._beat

    async def all_quiet(self) -> dict[str, list[int]]:
        """Return what is left when nothing was seen alive for a while, or when patience is over."""
        give_up_at = clock.boot() + PATIENCE_S
        while (left := self.look()) or clock.boot() < self._alive_at + QUIET_S:
            if clock.boot() > give_up_at:
                break
            await asyncio.sleep(LOOK_PERIOD_S)
        return left


@dataclass(slots=True)
class Struck:
    """A main that runs in a process of its own, and what it told.

    Attributes:
        launcher: Pid.
        leashes: Pid of each tree's leash.
        counted_from: The instant from which a fault's bound counts.
        ended: Cause of each end that main has proof of.
        left_at_end: What the onlooker saw of a tree after main had called it ended.
    """

    process: Process
    onlooker: Onlooker
    launcher: int = 0
    leashes: dict[str, int] = field(default_factory=dict)
    let_go_at: float = 0.0
    counted_from: float = 0.0
    ended: dict[str, str] = field(default_factory=dict)
    left_at_end: dict[str, list[int]] = field(default_factory=dict)

    def order(self, **words: object) -> None:
        """Send main a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words).encode() + b"\n")

    def hit(self, signum: signal.Signals, *pids: int) -> None:
        """Send a signal to processes of the node that live; the bound counts from before the first."""
        self.counted_from = self.counted_from or clock.boot()
        for pid in pids:
            if pid == self.process.pid or is_ours(pid):
                send(pid, signum)

    async def listen(self) -> None:
        """Take in what main tells, until it is gone."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            match json.loads(line):
                case {"launcher": pid}:
                    self.launcher = pid
                case {"started": tree, "leash": pid}:
                    self.leashes[tree] = pid
                case {"let_go": instant}:
                    self.let_go_at = instant
                case {"ended": tree, "cause": cause}:
                    self.left_at_end[tree] = self.onlooker.look().get(tree, [])
                    self.ended[tree] = cause
                case _:
                    pass


async def _order(main: Struck, what: str) -> None:
    main.counted_from = clock.boot()
    main.order(do=what)


async def _let_go(main: Struck) -> None:
    main.order(do="let go")
    await until(lambda: main.let_go_at, "main stops renewing")
    main.counted_from = main.let_go_at


async def _freeze_main_and_leashes(main: Struck) -> None:
    main.hit(SIGSTOP, main.process.pid)
    main.hit(SIGSTOP, *main.leashes.values())


async def _kill_main_and_launcher(main: Struck) -> None:
    main.hit(SIGKILL, main.process.pid, main.launcher)


async def _freeze_main(main: Struck) -> None:
    main.hit(SIGSTOP, main.process.pid)


async def _kill_main(main: Struck) -> None:
    main.hit(SIGKILL, main.process.pid)


async def _kill_leashes(main: Struck) -> None:
    main.hit(SIGKILL, *main.leashes.values())


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to all trees at once.

    Attributes:
        strike: Does it, and notes from when on the bound counts.
        bound_s: Within which nothing may be left.
        cause: What main must call the end; "" where there is no main left to say it.
    """

    strike: Callable[[Struck], Awaitable[None]]
    bound_s: float
    cause: str = ""


FAULTS = {
    "a stop": Fault(lambda main: _order(main, "stop"), STOP_S + GONE_S, "stop"),
    "a time limit": Fault(lambda main: _order(main, "fail"), STOP_S + GONE_S, "stop"),
    "a step-down": Fault(_let_go, TAKEN_S, "deadline"),
    "another's lease": Fault(lambda main: _order(main, "kill"), GONE_S, "killed"),
    "SIGKILL of main": Fault(_kill_main, LEASE.step_down_grace_s + GONE_S),
    "SIGKILL of main and launcher": Fault(_kill_main_and_launcher, LEASE.step_down_grace_s + GONE_S),
    "SIGSTOP of main": Fault(_freeze_main, TAKEN_S),
    "SIGSTOP of main and leash": Fault(_freeze_main_and_leashes, TAKEN_S),
    "SIGKILL of the leash": Fault(_kill_leashes, GONE_S, "unproven"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fault left of one tree.

    Attributes:
        left: Pids that lived when patience was over.
        gone_after_s: From the fault, or what its bound counts from, until nothing was seen any more.
        bound_s: Within which that must be.
        cause: What main called the end; "" where main was dead or frozen.
        expected: What it may call it.
        left_at_end: Pids that lived after main had called it ended.
    """

    left: list[int]
    gone_after_s: float
    bound_s: float
    cause: str
    expected: set[str]
    left_at_end: list[int]


async def play(fault: Fault, trees: tuple[str, ...], directory: Path, *, in_spares: bool = False) -> dict[str, Outcome]:
    """Let the trees grow, strike, and look at what becomes of each; `in_spares`: under leashes that waited for them."""
    tags = {tree: fresh_tag() for tree in trees}
    onlooker = Onlooker(tags, directory)
    async with _a_main(directory, onlooker) as main:
        await _grow(main, tags, in_spares=in_spares)
        await fault.strike(main)
        left = await onlooker.all_quiet()
        if fault.cause:
            await until(lambda: main.ended.keys() >= tags.keys(), "main has proof of every end")
    return {
        tree: Outcome(
            left=left.get(tree, []),
            gone_after_s=onlooker.gone_at.get(tree, math.inf) - main.counted_from,
            bound_s=fault.bound_s,
            cause=main.ended.get(tree, ""),
            expected={fault.cause, "exit"} if tree == BRIEF else {fault.cause},
            left_at_end=main.left_at_end.get(tree, []),
        )
        for tree in trees
    }


async def _grow(main: Struck, tags: dict[str, str], *, in_spares: bool) -> None:
    """Return when every tree is at its full size."""

    def grown(tree: str) -> bool:
        there = tree in main.leashes and len(seen.get(tree, [])) >= TREES[tree] and main.onlooker.hops(tree)
        return there or (tree == BRIEF and tree in main.ended)

    for wave in ([tree for tree in tags if tree != BRIEF], [tree for tree in tags if tree == BRIEF]):
        main.order(start={tree: tags[tree] for tree in wave}, **{"in spares": in_spares})
        seen = main.onlooker.look()
        give_up_at = clock.boot() + PATIENCE_S
        while missing := [tree for tree in wave if not grown(tree)]:
            assert clock.boot() < give_up_at, f"{', '.join(missing)}: not grown within {PATIENCE_S:g} s"
            await asyncio.sleep(LOOK_PERIOD_S)
            seen = main.onlooker.look()


@asynccontextmanager
async def _a_main(directory: Path, onlooker: Onlooker) -> AsyncIterator[Struck]:
    """Start a main; whatever happened to it, it and its launcher and leashes are gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.runs.nasty_main", str(directory)),
        cwd=ROOT,
        stdin=PIPE,
        stdout=PIPE,
        start_new_session=True,
    )
    main = Struck(process, onlooker)
    listening = asyncio.create_task(main.listen())
    try:
        await until(lambda: main.launcher, "main begins")
        yield main
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await listening
        for pid in (*main.leashes.values(), main.launcher):
            if is_ours(pid):
                send(pid, signal.SIGCONT)
                await until(lambda pid=pid: not is_ours(pid), "launcher and leash go when main is gone")  # type: ignore[misc]  # mypy cannot infer a lambda's default


def is_ours(pid: int) -> bool:
    """Tell whether the pid is a launcher or a leash that lives."""
    return linux.state(pid) not in {"", "Z"} and linux.read_file(f"/proc/{pid}/comm").startswith(b"orch-")
