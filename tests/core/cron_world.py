"""Two nodes that hold one cron in turn, over the store model and one clock: what `test_cron_accounting.py` plays with.

It keeps its own book: which ticks were claimed and which were settled, as the store took them, and which runs are
alive. Whatever is done to it, `check` says that the book is in order. It must never know how a job decides.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.core.answers import RunRecorded, ServerMet, StoreSilent, TickClaimed, TicksSettled
from orchestrator.core.here import Here
from orchestrator.core.job import Job
from orchestrator.core.messages import Event, KillRun, RunEnded, RunStarted, StartRun, StopRun
from orchestrator.core.nouns import Intent, NodeName, RunId, Token, Trigger
from orchestrator.core.requests import ClaimTick, MeetServer, SettleTicks, StoreRequest
from orchestrator.core.schedule import Schedule
from orchestrator.core.server import Server
from orchestrator.core.spec import JobSpec, Overlap
from tests.core.house import BUCKET, JOB, at, server_ms
from tests.simulation.store_model import StoreModel

MOST_TURNS = 400
"""Turns of one instant; a job that needs more turns in circles (`misfire: all` may start a hundred)."""


@dataclass
class Machine:
    """One node: its job, its runs, and how its network is."""

    job: Job
    runs: dict[RunId, StartRun] = field(default_factory=dict)
    cut_off: bool = False
    answers_lost: int = 0


class World:
    """The two nodes, the store, and the book.

    Attributes:
        boot: The instant, on all clocks.
        store: The server.
        claimed: Ticks that were claimed, by their first attempt, in milliseconds.
        settled: Ticks that were settled as skipped or missed, in milliseconds.
        starts: How often each attempt was started.
    """

    def __init__(self, spec: JobSpec) -> None:
        """Begin with a fresh store and two nodes that hold nothing."""
        assert spec.schedule is not None
        self.spec = spec
        self.boot = 0.0
        self.store = StoreModel()
        self.claimed: list[int] = []
        self.settled: list[int] = []
        self.starts: Counter[RunId] = Counter()
        self._schedule = Schedule(spec.schedule)
        self._incarnations = 0
        self._ordered_ms = 0
        self.machines = {name: self._fresh(name) for name in ("a", "b")}

    # --- what is done to it -------------------------------------------------------------------------

    def wait(self, seconds: float) -> None:
        """Let time pass, with heartbeats and whatever is due meanwhile."""
        end = self.boot + seconds
        while self.boot < end:
            beat = (self.boot // self.spec.lease.heartbeat_s + 1) * self.spec.lease.heartbeat_s
            due = min(machine.job.next_deadline(at(self.boot)) for machine in self.machines.values())
            self.boot = min(end, beat, max(due, self.boot + 0.001))
            for machine in self.machines.values():
                if self.boot == beat:
                    self._beat(machine)
                self._turn(machine)

    def end(self, number: int, how: str) -> None:
        """Let one of the runs end: ok, fail, unproven, or never (it did not even start)."""
        alive = [(machine, run) for machine in self.machines.values() for run in machine.runs]
        if alive:
            machine, run = alive[number % len(alive)]
            if how != "never":
                self._perform(machine, machine.job.handle(RunStarted(JOB, run, 7), at(self.boot)))
            self._finish(machine, run, how)
            self._turn(machine)

    def crash(self, name: str) -> None:
        """Let a node die with its runs, and come again without a past."""
        self.machines[name] = self._fresh(name)

    def cut(self, name: str) -> None:
        """Let a node lose the store, or find it again."""
        self.machines[name].cut_off = not self.machines[name].cut_off

    def lose_answers(self, name: str, count: int) -> None:
        """Let the store carry out the next requests of a node without its hearing of it."""
        self.machines[name].answers_lost = count

    def order(self, what: str) -> None:
        """Have the job paused, running, or running so that what was due meanwhile is caught up on."""
        want, catch_up = ("running", True) if what == "catch up" else (what, False)
        self.store.order((JOB,), Intent(want, "ann", "", 0, catch_up=catch_up), server_ms(self.boot))

    def trigger(self) -> None:
        """Order one run."""
        self._ordered_ms = self.store.trigger(Trigger(JOB, 0, None, "ann", ""), server_ms(self.boot))

    def come_to_rest(self) -> None:
        """Let all runs succeed, everybody reach the store, and everything owed be told."""
        for machine in self.machines.values():
            machine.cut_off, machine.answers_lost = False, 0
        self.order("running")
        for _ in range(6):
            self.wait(self.spec.lease.ttl_s)
            while any(machine.runs for machine in self.machines.values()):
                self.end(0, "ok")

    # --- what must hold -----------------------------------------------------------------------------

    def check(self) -> None:
        """Say that no tick has two fates, no attempt two starts, and no more runs are alive than may be."""
        assert not [tick for tick, count in Counter(self.claimed + self.settled).items() if count > 1]
        assert not [run for run, count in self.starts.items() if count > 1]
        alive = sum(len(machine.runs) for machine in self.machines.values())
        assert alive <= (self.spec.max_instances if self.spec.overlap is Overlap.ALLOW else 1)

    def check_counts(self) -> None:
        """Say that each settled tick has one fate, by the store's counts as by the book, and that nothing is open."""
        past = self.store.past(self.spec.key)
        ticks = self._ticks_in(past.since_ms, past.settled_ms)
        assert sorted(self.claimed + self.settled) == ticks
        assert past.ran == len(self.claimed)
        assert past.skipped + past.missed == len(self.settled)
        assert past.settled_ms > server_ms(self.boot - 120.0)
        assert self.store._ticks(self.spec.key).obeyed_ms == self._ordered_ms
        assert past.open == ()

    # --- inside -------------------------------------------------------------------------------------

    def _fresh(self, name: str) -> Machine:
        self._incarnations += 1
        server = Server(BUCKET, heartbeat_s=3.0, request_timeout_s=1.0, clock_rate_error=0.01)
        here = Here(NodeName(name), f"{name}{self._incarnations}", member=True)
        return Machine(Job(self.spec, here, server, Token(0)))

    def _beat(self, machine: Machine) -> None:
        if not machine.cut_off:
            meeting = MeetServer(self.spec.bucket, asked_at=self.boot)
            met = self.store.execute(meeting, server_ms(self.boot))
            assert isinstance(met, ServerMet)
            machine.job.server.on_met(met, self.boot, self.spec.lease.ttl_s, vouched=True)
            version, intents = self.store._intents()
            machine.job.order(intents.get(JOB) if version else None)
            assert machine.job.cron is not None
            machine.job.cron.triggers = self.store._triggers()
        self._perform(machine, machine.job.beat(at(self.boot)))

    def _turn(self, machine: Machine) -> None:
        turns = 0
        while self._perform(machine, machine.job.advance(at(self.boot))):
            turns += 1
            assert turns < MOST_TURNS

    def _perform(self, machine: Machine, actions: Iterable[object]) -> bool:
        """Do what a job says; return whether it was anything that may change what it does next."""
        done = False
        for action in list(actions):
            if isinstance(action, StartRun):
                self.starts[action.run] += 1
                machine.runs[action.run] = action
            elif isinstance(action, KillRun | StopRun):
                self._finish(machine, action.run, "killed" if isinstance(action, KillRun) else "stop")
            elif isinstance(action, StoreRequest):
                answer = self._answer(machine, action)
                self._perform(machine, machine.job.handle(answer, at(self.boot)))
            else:
                continue
            self.check()
            done = True
        return done

    def _answer(self, machine: Machine, request: StoreRequest) -> Event:
        if machine.cut_off:
            return StoreSilent(request, "no route to host")
        before = self.store.past(self.spec.key)
        answer = self.store.execute(request, server_ms(self.boot))
        self._write_down(request, answer, before.settled_ms)
        if machine.answers_lost and not isinstance(answer, RunRecorded):
            machine.answers_lost -= 1
            return StoreSilent(request, "timeout")
        return answer

    def _write_down(self, request: StoreRequest, answer: object, settled_ms: int) -> None:
        now_ms = self.store.past(self.spec.key).settled_ms
        if now_ms == settled_ms:
            return
        if isinstance(request, ClaimTick) and isinstance(answer, TickClaimed):
            self.claimed.append(request.tick_ms)
        elif isinstance(request, SettleTicks) and isinstance(answer, TicksSettled):
            ticks = self._ticks_in(settled_ms, now_ms)
            assert len(ticks) == request.count == json.loads(request.record)["count"]
            self.settled += ticks

    def _ticks_in(self, after_ms: int, until_ms: int) -> list[int]:
        ticks, tick = [], self._schedule.next_after(after_ms / 1000)
        while tick is not None and tick <= until_ms / 1000:
            ticks.append(round(1000 * tick))
            tick = self._schedule.next_after(tick)
        return ticks

    def _finish(self, machine: Machine, run: RunId, how: str) -> None:
        if machine.runs.pop(run, None) is None:
            return
        exit_code = {"ok": 0, "fail": 1}.get(how)
        cause = how if how in ("unproven", "killed", "stop") else "killed" if how == "never" else "exit"
        signal = 15 if how in ("killed", "stop", "unproven") else 0
        ended = RunEnded(JOB, run, exit_code, signal, "", cause, 1.0)
        self._perform(machine, machine.job.handle(ended, at(self.boot)))
