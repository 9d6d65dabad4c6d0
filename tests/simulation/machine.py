"""One node of a story: the real `core.node.Node`, fed with events and obeyed, on a machine that may fail.

Its main may be stopped or killed, its leashes may die, its machine may freeze or lose power, its link may
be cut. It decides nothing itself.
"""

from collections.abc import Sequence

from orchestrator.core.answers import StoreAnswer, StoreSilent
from orchestrator.core.info import Identity
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import (
    Action,
    Event,
    ExpectRuns,
    ExtendRun,
    FileReloaded,
    KillRun,
    LeaveOrdered,
    QuitNode,
    RememberToken,
    RunEnded,
    RunStarted,
    Say,
    StartRun,
    StopRun,
)
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, NodeName, RunId, Token
from orchestrator.core.requests import StoreRequest
from orchestrator.core.spec import ClusterSpec, JobSpec
from tests.simulation.hardware import Hardware
from tests.simulation.leash import Leash
from tests.simulation.world import World

SHORT_LIVED = 0.3
"""The share of a service's runs that end by themselves after some minutes."""

LONG_CRONS = 0.2
"""The share of a cron's runs that last into its next tick, or nearly."""

CRASHES_IN_S = 0.5
"""How long a service runs on a machine where something is amiss."""


class Call:
    """One batch on its way to the server and back, for one life of a main."""

    __slots__ = ("_answered", "_life", "_machine", "_requests")

    def __init__(self, machine: "Machine", requests: list[StoreRequest]) -> None:
        """Take the batch; nothing is sent yet."""
        self._machine = machine
        self._requests = requests
        self._life = machine.life
        self._answered = False

    def execute(self) -> None:
        """Be carried out, and send the answers back."""
        world = self._machine.world
        answers = world.execute(self._requests)
        world.later(world.latency_s(), lambda: self._reply(answers))

    def give_up(self) -> None:
        """Reach the request timeout."""
        if self._open:
            self._answered = True
            self._machine.disturbed()
            self._machine.receive([StoreSilent(request, "no answer") for request in self._requests])

    def _reply(self, answers: list[StoreAnswer]) -> None:
        if self._open and not self._machine.cut:
            self._answered = True
            self._machine.receive(answers)

    @property
    def _open(self) -> bool:
        return not self._answered and self._life == self._machine.life


class Machine:
    """One node on its machine.

    Attributes:
        core: The node's core; None while no main lives.
        life: Counts the lives of main; what was meant for an earlier one is dropped.
        troubled_at: When main was last kept from doing its work in time.
        sick: Services crash here.
    """

    def __init__(self, world: World, spec: ClusterSpec, name: NodeName) -> None:
        """Build it, switched off."""
        self.world = world
        self.name = name
        self.hardware = Hardware(world)
        self.core: Node | None = None
        self.cut = False
        self.main_stopped = False
        self.life = 0
        self.troubled_at = 0.0
        self.sick = False
        self.leashes: dict[RunId, Leash] = {}
        self._spec = spec
        self._floors: dict[JobName, Token] = {}
        self._inbox: list[Event] = []
        self._generation = 0
        self._wake_at = NEVER
        world.subscribers.append(self._hear)

    @property
    def suspended(self) -> bool:
        """Whether nothing on the machine runs."""
        return self.hardware.suspended

    @property
    def impaired(self) -> bool:
        """Whether its main cannot speak to the server just now."""
        return self.cut or self.main_stopped or self.suspended

    def holds(self, job: JobName) -> bool:
        """Say whether it believes to hold a job's lease."""
        return self.core is not None and job in self.core.jobs and self.core.jobs[job].lease.held

    def disturbed(self) -> None:
        """Keep in mind that main cannot do its work in time now."""
        self.troubled_at = self.world.at

    # --- what befalls it --------------------------------------------------------------------------

    def start_main(self) -> None:
        """Start the node anew; leashes of an earlier life end by themselves."""
        if self.core is not None or self.suspended:
            return
        self.life += 1
        identity = Identity(self.name, f"{self.name}-{self.life}", f"state-{self.name}", "sim", self.life, "sim")
        self.core = Node(self._spec, identity, dict(self._floors))
        self.main_stopped = False
        self._inbox.clear()
        self._wake_at = NEVER
        self.receive([])

    def stop_main(self) -> None:
        """SIGSTOP of main alone."""
        self.disturbed()
        self.main_stopped = True

    def continue_main(self) -> None:
        """SIGCONT of main."""
        if self.main_stopped:
            self.disturbed()
            self.main_stopped = False
            self._deliver_soon()

    def kill_main(self) -> None:
        """SIGKILL of main: the leashes see the end of their sockets and act."""
        self._forget_main()
        for leash in self.leashes.values():
            self.hardware.act(leash.abandon)

    def lose_power(self) -> None:
        """Pull the plug."""
        self._forget_main()
        for leash in list(self.leashes.values()):
            leash.lose_power()
        self.leashes.clear()

    def suspend(self) -> None:
        """Freeze the whole machine, leashes and jobs too."""
        self.disturbed()
        self.hardware.suspend()
        for leash in self.leashes.values():
            self.world.history.suspended(leash.execution, self.world.at)

    def resume(self) -> None:
        """Thaw it."""
        if not self.suspended:
            return
        self.disturbed()
        self.hardware.resume()
        history = self.world.history
        for leash in self.leashes.values():
            history.thawed(leash.execution, self.world.at)
            job = leash.order.job
            self.world.later(history.thaw_s + 0.001, lambda job=job: history.check(job, self.world.at))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        self._deliver_soon()

    def cut_link(self) -> None:
        """Let nothing through to the server, and nothing back."""
        self.disturbed()
        self.cut = True

    def mend_link(self) -> None:
        """Let everything through again."""
        self.disturbed()
        self.cut = False

    def leave(self) -> None:
        """Order the node to go."""
        self.receive([LeaveOrdered(0)])

    def reload(self, spec: ClusterSpec) -> None:
        """Have another file, now or when main is started next."""
        self._spec = spec
        self.receive([FileReloaded(spec)])

    def _forget_main(self) -> None:
        self.disturbed()
        self.core = None
        self.life += 1

    # --- turns of the core ------------------------------------------------------------------------

    def receive(self, events: Sequence[Event]) -> None:
        """Hand events to main, now or when it runs again."""
        if self.core is None:
            return
        self._inbox.extend(events)
        if not (self.suspended or self.main_stopped):
            self._turn(self.core)

    def _hear(self, event: Event) -> None:
        if not self.cut:
            self.receive([event])

    def _tell(self, event: Event) -> None:
        """Hand an event of a leash to main: over a socket, a moment later, to this life only."""
        life = self.life
        if isinstance(event, RunEnded):
            self.leashes.pop(event.run, None)
        self.world.later(0.001, lambda: self.receive([event]) if life == self.life else None)

    def _deliver_soon(self) -> None:
        self.world.later(0.0, lambda: self.receive([]))

    def _turn(self, core: Node) -> None:
        events, self._inbox = self._inbox, []
        now = self.hardware.now()
        self._perform([*core.handle(events, now), *core.tick(now)], core.request_timeout_s)
        if self.core is not None:
            self._arm(self.core.next_deadline(now), now.boot)

    def _arm(self, at_boot: float, now_boot: float) -> None:
        if at_boot < self._wake_at or self._wake_at <= now_boot:
            self._wake_at = at_boot
            if at_boot < NEVER:
                self._generation += 1
                generation, life = self._generation, self.life
                self.world.later(self.hardware.after_boot(at_boot) + 1e-6, lambda: self._wake(generation, life))

    def _wake(self, generation: int, life: int) -> None:
        if generation == self._generation and life == self.life:
            self._wake_at = NEVER
            self.receive([])

    # --- what the core orders ---------------------------------------------------------------------

    def _perform(self, actions: Sequence[Action], limit_s: float) -> None:
        requests: list[StoreRequest] = []
        for action in actions:
            match action:
                case StartRun():
                    self._start(action)
                case ExtendRun() | StopRun() | KillRun():
                    self._steer(action)
                case ExpectRuns():
                    pass
                case RememberToken():
                    self._floors[action.job] = max(self._floors.get(action.job, Token(0)), action.token)
                case Say():
                    self.world.note(self.name, f"{action.event} {dict(action.fields)}")
                    self.world.history.said(action)
                case QuitNode():
                    self._forget_main()
                case _:
                    requests.append(action)
        if requests:
            self._send(requests, limit_s)

    def _send(self, requests: list[StoreRequest], limit_s: float) -> None:
        call = Call(self, requests)
        self.world.later(self.hardware.true_s(limit_s), call.give_up)
        if not self.cut:
            self.world.deliver(requests, call.execute)

    def _start(self, order: StartRun) -> None:
        self.world.history.tried(order.env.get("ORCHESTRATOR_TICK"), order.job)
        assert self.core is not None  # it has just ordered this
        spec = self.core.jobs[order.job].spec
        leash = Leash(self.hardware, self.name, order, spec.lease, self._tell)
        if order.deadlines is not None and self.hardware.boot() >= order.deadlines.kill_at:
            self._tell(RunEnded(order.job, order.run, None, 0, "too late", "deadline", 0.0))
            return
        self.leashes[order.run] = leash
        self._tell(RunStarted(order.job, order.run, 1))
        leash.begin(self._life_s(spec))

    def _life_s(self, spec: JobSpec) -> float:
        chance = self.world.random
        if spec.schedule is not None:
            longest_s = self.world.timing.ttl_s * 0.8 if chance.random() < LONG_CRONS else 5.0
            return chance.uniform(0.2, longest_s)
        if self.sick:
            return CRASHES_IN_S
        return chance.uniform(50, 900) if chance.random() < SHORT_LIVED else NEVER

    def _steer(self, order: ExtendRun | StopRun | KillRun) -> None:
        leash = self.leashes.get(order.run)
        match order:
            case _ if leash is None:
                pass
            case ExtendRun():
                leash.extend(order.deadlines)
            case StopRun():
                leash.stop(order.grace_s)
            case KillRun():
                leash.kill()
