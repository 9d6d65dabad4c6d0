"""The node's process side as tests drive it: real launcher, real leashes, real trees."""

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator import clock
from orchestrator.core.messages import (
    ExpectRuns,
    ExtendRun,
    KillRun,
    RunEnded,
    RunEvent,
    RunStarted,
    RunUnproven,
    Say,
    StartRun,
    StopRun,
)
from orchestrator.core.nouns import Deadlines, JobName, RunId, Token
from orchestrator.core.spec import JobSpec, Kind, LogSpec, StopSpec
from orchestrator.core.timing import LeaseTiming
from orchestrator.runs.client import Runs
from orchestrator.runs.oversight import Limits

FIXTURES = Path(__file__).parents[1] / "fixtures"
LIFE_S = 25
"""Whatever a broken test leaves behind ends by itself."""
PATIENCE_S = 15.0
"""How long a test waits for what must come, on a busy machine."""

LEASE = LeaseTiming(
    ttl_s=4.0,
    heartbeat_s=0.5,
    request_timeout_s=0.3,
    step_down_grace_s=0.4,
    kill_time_s=0.3,
    margin_s=0.4,
)


def fresh_tag() -> str:
    """Return a word that stands on no other command line."""
    return f"tree-{uuid.uuid4().hex}"


def survivors(tag: str) -> list[int]:
    """Return every process that has the tag on its command line, this one excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if tag.encode() in words:
                found.append(int(entry.name))
    return found


def nasty(mode: str, tag: str) -> tuple[str, ...]:
    """Return the command of a tree that resists being killed."""
    return (sys.executable, str(FIXTURES / "nasty.py"), mode, tag, str(LIFE_S))


def job(
    argv: tuple[str, ...],
    *,
    stop_s: float = 0.5,
    stop_signal: str = "SIGTERM",
    cwd: str | None = None,
    log: LogSpec | None = None,
) -> JobSpec:
    """Return a job with a name of its own, a short lease and a short stop timeout."""
    name = f"job-{uuid.uuid4().hex[:8]}"
    return JobSpec(
        name=JobName(name),
        job=name,
        kind=Kind.SERVICE,
        argv=argv,
        lease=LEASE,
        key=name,
        definition="0",
        stop=StopSpec(signal=stop_signal, timeout_s=stop_s),
        log=log or LogSpec(),
        cwd=cwd,
    )


async def until(holds: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds; for what no event tells of."""
    give_up_at = clock.boot() + patience_s
    while not holds():
        assert clock.boot() < give_up_at, f"{what}: not within {patience_s:g} s"
        await asyncio.sleep(0.01)


class Node:
    """An open `Runs` and everything it delivered."""

    def __init__(
        self, directory: Path, environ: dict[str, str] | None = None, *, cgroup: str | None = None, **limits: float
    ) -> None:
        """Note the state directory, and a cgroup that is ours to divide; `limits` are fields of `Limits`."""
        self.events: list[RunEvent] = []
        self.said: list[Say] = []
        self._arrived = asyncio.Event()
        self._leashes: dict[RunId, int] = {}
        self.directory = directory
        inherited = dict(os.environ) if environ is None else environ
        self.runs = Runs(
            directory=directory,
            deliver=self._deliver,
            environ=inherited | {"NASTY_DIR": str(directory)},
            cgroup=cgroup,
            say=self.said.append,
            limits=Limits(**limits),
        )

    def _deliver(self, event: RunEvent) -> None:
        self.events.append(event)
        if isinstance(event, RunStarted):
            self._leashes[event.run] = self.leash(event.run)
        self._arrived.set()

    def start(
        self,
        spec: JobSpec,
        deadlines: Deadlines | None = None,
        env: dict[str, str] | None = None,
        *,
        lane: int = 0,
        last_attempt: bool = True,
    ) -> RunId:
        """Start a run and return its id."""
        run = RunId(uuid.uuid4().hex)
        order = StartRun(spec.name, run, Token(1), deadlines, env or {}, lane=lane, last_attempt=last_attempt)
        self.runs.start(spec, order)
        return run

    async def spares(self, count: int) -> list[int]:
        """Have so many leashes wait for runs, and return their pids once they do."""
        self.runs.expect(ExpectRuns(count, clock.boot() + 1.0))
        await until(lambda: len(self.waiting()) >= count, "spares are ready")
        return self.waiting()

    def waiting(self) -> list[int]:
        """Return the pids of the leashes that wait for a run."""
        pids = self.runs.pids()["spares"]
        assert isinstance(pids, list)
        return pids

    def stop(self, run: RunId, grace_s: float, *, failure: bool = False) -> None:
        """Stop a run."""
        self.runs.stop(StopRun(run, grace_s, "a test", failure))

    def kill(self, run: RunId) -> None:
        """Kill a run."""
        self.runs.kill(KillRun(run, "a test"))

    def extend(self, run: RunId, term_at: float, kill_at: float) -> None:
        """Move a run's deadlines."""
        self.runs.extend(ExtendRun(run, Deadlines(term_at, kill_at)))

    def told(self, event: str) -> list[Mapping[str, object]]:
        """Return the fields of each line of a kind that was said, oldest first."""
        return [line.fields for line in self.said if line.event == event]

    def seen(self, run: RunId, kind: type[RunEvent]) -> RunEvent | None:
        """Return the first event of a kind about a run."""
        return next((event for event in self.events if event.run == run and isinstance(event, kind)), None)

    async def started(self, run: RunId) -> RunStarted:
        """Wait until the command runs."""
        event = await self._wait(run, RunStarted)
        assert isinstance(event, RunStarted)
        return event

    async def unproven(self, run: RunId) -> RunUnproven:
        """Wait until the run is unproven."""
        event = await self._wait(run, RunUnproven)
        assert isinstance(event, RunUnproven)
        return event

    async def ended(self, run: RunId) -> RunEnded:
        """Wait until the run has ended."""
        event = await self._wait(run, RunEnded)
        assert isinstance(event, RunEnded)
        return event

    async def _wait(self, run: RunId, kind: type[RunEvent]) -> RunEvent:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if event := self.seen(run, kind):
                    return event
                assert kind is RunEnded or not self.seen(run, RunEnded), self.seen(run, RunEnded)
                self._arrived.clear()
                await self._arrived.wait()

    def launcher(self) -> int:
        """Return the launcher's pid."""
        pid = self.runs.pids()["launcher"]
        assert isinstance(pid, int)
        return pid

    def leash(self, run: RunId) -> int:
        """Return the pid of a run's leash."""
        runs = self.runs.pids()["runs"]
        assert isinstance(runs, dict)
        pid: int = runs[run]["leash"]
        return pid

    def leash_of(self, run: RunId) -> int:
        """Return the pid of the leash that a run was started under, also when it has ended."""
        return self._leashes[run]

    def log(self, spec: JobSpec) -> bytes:
        """Return what the job's present log file holds; nothing while there is none."""
        path = self.runs.log_path(spec)
        assert path is not None
        return path.read_bytes() if path.exists() else b""


def send(pid: int, signum: signal.Signals) -> None:
    """Send a signal to a process of the test."""
    assert pid > 1, "not a process of the test"
    os.kill(pid, signum)


def soon(term_in_s: float, kill_in_s: float) -> Deadlines:
    """Return deadlines counted from now."""
    now = clock.boot()
    return Deadlines(now + term_in_s, now + kill_in_s)
