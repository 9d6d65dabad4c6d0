"""The stage of a story: real cores, a model of the store, leashes that do what a word of the story said.

Nothing in here is left to chance: time is whole milliseconds since the story began, a message takes one each
way, and what happens at the same instant happens in the order in which it was caused. Each node has a boot
clock of its own, far from the others', so that an instant of the wrong clock shows at once.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.core.answers import MembersSeen, NameRefused, StoreSilent
from orchestrator.core.info import Identity
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import (
    Action,
    Event,
    ExpectRuns,
    ExtendRun,
    KillRun,
    Nudged,
    QuitNode,
    RememberToken,
    RunEnded,
    RunStarted,
    Say,
    StartRun,
    StopRun,
)
from orchestrator.core.node import Node
from orchestrator.core.nouns import Deadlines, JobName, Moment, NodeName, RunId, Token
from orchestrator.core.requests import KeepMembership, ReleaseLease, StoreRequest
from orchestrator.core.spec import ClusterSpec, JobSpec
from tests.simulation.store_model import StoreModel
from tests.stories.told import Teller, is_quiet

BEGIN_UTC = 1_800_000_000
"""2027-01-15T08:00:00Z: every story begins at eight in the morning."""

LATENCY_MS = 1
KILL_MS = 20
"""What SIGKILL and reaping take."""


class Shown(StrEnum):
    """How much of what happens is told."""

    NOTHING = "nothing"
    NEWS = "news"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True)
class Habit:
    """What the command of a job does.

    Attributes:
        lasts_s: It ends by itself after so long; NEVER: it does not.
        exit_code: With which status.
        stops_in_s: How long it takes to obey SIGTERM; NEVER: it ignores it.
    """

    lasts_s: float = NEVER
    exit_code: int = 0
    stops_in_s: float = 0.1


@dataclass(slots=True)
class Leash:
    """One run under its leash."""

    order: StartRun
    habit: Habit
    step_down_grace_s: float
    deadlines: Deadlines | None
    started_ms: int
    cause: str = ""
    signal: int = 0
    ends_ms: float = NEVER
    gone: bool = False


class Stage:
    """Time, the store, and everything that was told and ordered, line by line."""

    def __init__(self) -> None:
        """Begin with an empty store and nobody on stage."""
        self.ms = 0
        self.store = StoreModel()
        self.jobs: list[JobSpec] = []
        self.habits: dict[JobName, Habit] = {}
        self.actors: dict[str, Actor] = {}
        self.shown = Shown.NEWS
        self.server_ahead_ms = 0
        self.lines: list[str] = []
        self.teller = Teller()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0

    def server_ms(self) -> int:
        """Return what the clock of the server shows."""
        return 1000 * BEGIN_UTC + self.ms + self.server_ahead_ms

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        """Do something after a while."""
        self._serial += 1
        heapq.heappush(self._queue, (self.ms + math.ceil(delay_ms), self._serial, call))

    def run_until(self, ms: int) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= ms:
            self.ms, _, call = heapq.heappop(self._queue)
            call()
        self.ms = ms

    def note(self, who: str, mark: str, what: str) -> None:
        """Write a line: `<` the node was told, `>` it ordered, `*` it happened around it."""
        if self.shown is not Shown.NOTHING:
            self.lines.append(f"{self.ms / 1000:9.3f} {who} {mark} {self.teller.short(what)}")


@dataclass
class Actor:
    """One node with its core, its leashes and its link to the store.

    Attributes:
        who: What the story calls it; its `name` may be another's.
        index: Counts the nodes from 1; sets its boot clock apart.
        link: answers | silent | refuses | loses answers.
        frozen: Main is stopped by SIGSTOP; its leashes are not.
    """

    stage: Stage
    who: str
    index: int
    state_id: str
    jobs: tuple[JobSpec, ...]
    name: NodeName
    link: str = "answers"
    frozen: bool = False
    core: Node | None = None
    leashes: dict[RunId, Leash] = field(default_factory=dict)
    floors: dict[JobName, Token] = field(default_factory=dict)
    answered: int = 0
    unanswered: int = 0
    _lives: int = 0
    _inbox: list[Event] = field(default_factory=list)
    _alarm: int = 0
    _pids: int = 0

    # --- clocks -----------------------------------------------------------------------------------

    def now(self) -> Moment:
        """Read both clocks."""
        return Moment(boot=1000.0 * self.index + self.stage.ms / 1000, utc=BEGIN_UTC + self.stage.ms / 1000)

    def since(self, boot: float) -> float:
        """Turn an instant of its boot clock into seconds of the story."""
        return boot - 1000.0 * self.index

    def _ms_until(self, boot: float) -> float:
        return max(0.0, math.ceil(1000 * self.since(boot) - 1e-6) - self.stage.ms)

    # --- main -------------------------------------------------------------------------------------

    def start(self, *, new_cluster: bool) -> None:
        """Start main anew, as another incarnation."""
        self._lives += 1
        identity = Identity(
            self.name, f"{self.who}-{self._lives}", self.state_id, f"host-{self.who}", self._lives, "1.0"
        )
        self.core = Node(ClusterSpec("shop", self.jobs), identity, self.floors, new_cluster=new_cluster)
        self._inbox.clear()
        self.receive([])

    def crash(self) -> None:
        """SIGKILL main: its leashes see their sockets end, and act."""
        self.core = None
        self._lives += 1
        for leash in list(self.leashes.values()):
            self._terminate(leash, "abandoned", leash.step_down_grace_s)

    def receive(self, events: Sequence[Event]) -> None:
        """Tell main something, now or when it runs again."""
        if self.core is None:
            return
        self._inbox.extend(events)
        if not self.frozen:
            self._turn(self.core)

    def _turn(self, core: Node) -> None:
        events, self._inbox = self._inbox, []
        for event in events:
            self._count(event)
            self._note("<", event)
        now = self.now()
        actions = [*core.handle(events, now), *core.tick(now)]
        for action in actions:
            self._note(">", action)
        self._perform(actions, core)
        deadline = core.next_deadline(now)
        assert deadline > now.boot, "after a turn every deadline lies in the future"
        if deadline < NEVER and self.core is core:
            self._alarm += 1
            alarm = self._alarm
            self.stage.later(max(1, self._ms_until(deadline)), lambda: self._wake(core, alarm))

    def _wake(self, core: Node, alarm: int) -> None:
        if self.core is core and alarm == self._alarm:
            self.receive([])

    def _note(self, mark: str, message: Event | Action) -> None:
        if self.stage.shown is Shown.EVERYTHING or not is_quiet(message):
            self.stage.note(self.who, mark, self.stage.teller.tell(message, self.since))

    def _count(self, event: Event) -> None:
        match event:
            case MembersSeen() | NameRefused():
                self.answered += 1
            case StoreSilent(request=KeepMembership()):
                self.unanswered += 1
            case _:
                pass

    def _perform(self, actions: Sequence[Action], core: Node) -> None:
        requests: list[StoreRequest] = []
        for action in actions:
            match action:
                case StartRun():
                    self._start_run(action)
                case ExtendRun():
                    self._extend(action)
                case StopRun() if action.run in self.leashes:
                    self._terminate(self.leashes[action.run], "stop", action.grace_s)
                case KillRun() if action.run in self.leashes:
                    self._end_within(self.leashes[action.run], "killed", KILL_MS, signal=9)
                case RememberToken():
                    self.floors[action.job] = action.token
                case QuitNode():
                    self.core = None
                case Say() | StopRun() | KillRun() | ExpectRuns():
                    pass
                case _:
                    requests.append(action)
        if requests:
            self._send(requests, core)

    # --- the link to the store --------------------------------------------------------------------

    def _send(self, requests: list[StoreRequest], core: Node) -> None:
        if self.link == "silent":
            self._give_up(requests, core)
        elif self.link == "refuses":
            silences = [StoreSilent(request, "connection refused") for request in requests]
            self.stage.later(LATENCY_MS, lambda: self._hear(silences, core))
        else:
            loses = self.link == "loses answers"
            self.stage.later(LATENCY_MS, lambda: self._execute(requests, core, loses=loses))
            if loses:
                self._give_up(requests, core)

    def _give_up(self, requests: list[StoreRequest], core: Node) -> None:
        problem = f"no answer within {core.request_timeout_s:g} s"
        silences = [StoreSilent(request, problem) for request in requests]
        self.stage.later(1000 * core.request_timeout_s, lambda: self._hear(silences, core))

    def _execute(self, requests: list[StoreRequest], core: Node, *, loses: bool) -> None:
        answers = []
        for request in requests:
            answer = self.stage.store.execute(request, self.stage.server_ms())
            answers.append(answer)
            if isinstance(request, ReleaseLease) and getattr(answer, "was_ours", False):
                self._nudge_others(request.job)
        if not loses:
            self.stage.later(LATENCY_MS, lambda: self._hear(answers, core))

    def _nudge_others(self, job: JobName) -> None:
        for other in self.stage.actors.values():
            if other is not self and other.link == "answers":
                self.stage.later(LATENCY_MS, lambda other=other: other.receive([Nudged(job)]))  # type: ignore[misc] # mypy infers no lambda defaults

    def _hear(self, events: Sequence[Event], core: Node) -> None:
        if self.core is core:
            self.receive(events)

    # --- leashes ----------------------------------------------------------------------------------

    def leash_of(self, job: str) -> Leash:
        """Return the leash of a job's run on this node."""
        return next(leash for leash in self.leashes.values() if leash.order.job == job)

    def _start_run(self, order: StartRun) -> None:
        spec = next(spec for spec in self.jobs if spec.name == order.job)
        habit = self.stage.habits[order.job]
        leash = Leash(order, habit, spec.lease.step_down_grace_s, order.deadlines, self.stage.ms)
        self.leashes[order.run] = leash
        self._pids += 1
        started = RunStarted(order.job, order.run, 100 * self.index + self._pids)
        self._tell_later(LATENCY_MS, [started])
        self._watch(leash)
        if habit.lasts_s < NEVER:
            self.stage.later(1000 * habit.lasts_s, lambda: self.gone(leash, "exit"))

    def _tell_later(self, delay_ms: float, events: Sequence[Event]) -> None:
        core = self.core
        if core is not None:
            self.stage.later(delay_ms, lambda: self._hear(events, core))

    def _watch(self, leash: Leash) -> None:
        if leash.deadlines is not None:
            self.stage.later(self._ms_until(leash.deadlines.term_at), lambda: self._look_at_page(leash))

    def _look_at_page(self, leash: Leash) -> None:
        if leash.gone or leash.cause in ("deadline", "unproven") or leash.deadlines is None:
            return
        if self._ms_until(leash.deadlines.term_at) > 0:
            self._watch(leash)
        else:
            self.stage.note(self.who, "*", f"the leash of {leash.order.run} sends SIGTERM: its term_at is here")
            self._terminate(leash, "deadline", self._ms_until(leash.deadlines.kill_at) / 1000)

    def _terminate(self, leash: Leash, cause: str, grace_s: float) -> None:
        leash.cause = leash.cause or cause
        if leash.habit.stops_in_s <= grace_s:
            self._end_within(leash, cause, 1000 * leash.habit.stops_in_s, signal=15)
        else:
            self._end_within(leash, cause, 1000 * grace_s + KILL_MS, signal=9)

    def _end_within(self, leash: Leash, cause: str, delay_ms: float, signal: int) -> None:
        if leash.cause == "unproven":  # nobody is there to do it
            return
        leash.cause = leash.cause or cause
        if self.stage.ms + delay_ms < leash.ends_ms:
            leash.ends_ms = self.stage.ms + delay_ms
            leash.signal = signal
            self.stage.later(delay_ms, lambda: self.gone(leash, leash.cause))

    def _extend(self, order: ExtendRun) -> None:
        if order.run in self.leashes:
            self.leashes[order.run].deadlines = order.deadlines

    def gone(self, leash: Leash, cause: str) -> None:
        """End a run's whole tree, and say so with proof."""
        if leash.gone:
            return
        leash.gone = True
        self.leashes.pop(leash.order.run, None)
        ended = RunEnded(
            leash.order.job,
            leash.order.run,
            exit_code=None if leash.signal else leash.habit.exit_code,
            signal=leash.signal,
            error="",
            cause=cause,
            elapsed_s=(self.stage.ms - leash.started_ms) / 1000,
        )
        if self.core is None:
            self.stage.note(self.who, "*", f"{leash.order.run} is gone, and nobody is there to be told")
        elif self.frozen:
            self.stage.note(self.who, "*", f"{leash.order.run} is gone; main will hear of it when it runs again")
        self._tell_later(LATENCY_MS, [ended])
