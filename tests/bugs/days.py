"""Days of a cluster in a moment: the real cores in one thread, on clocks that a test sets as it likes.

The machines, the network and the server are those of `tests/simulation`, in calm weather and with clocks that run
true; its checker looks on and raises where two runs overlap, a start is made twice, or a tick is passed over in
silence. Nothing in here knows how a node decides.

    days = Days(cron("*/5 * * * *"), nodes=2, begin="2027-01-15T10:00:00Z")
    days.go("10:03:00")
    days.holder().lose_power()
    days.go("10:06:00")
    assert days.ticks() == ["10:05:00"]

Instants are written as a clock shows them: `10:05:00` is the next time that it shows this, and a whole instant has
its date. True time is that of the test; a machine's clock shows something else where `set_clocks` says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from orchestrator.core.answers import StoreAnswer
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import Event, RunEnded, Say, StartRun
from orchestrator.core.nouns import Intent, JobName, NodeName
from orchestrator.core.past import Past
from orchestrator.core.requests import StoreRequest
from orchestrator.core.schedule import Schedule
from orchestrator.core.snapshot import JobView, iso_utc
from orchestrator.core.spec import ClusterSpec, JobSpec, Kind, ScheduleSpec, StopSpec
from orchestrator.core.timing import LeaseTiming
from tests.simulation.history import History
from tests.simulation.machine import Machine
from tests.simulation.world import CALM, EPOCH_UTC, World

BEGIN = "2027-01-15T10:00:00Z"
CRON = JobName("cron")
SERVICE = JobName("service")
TTL_S = 15.0
HEARTBEAT_S = TTL_S / 5
SOON_S = 0.5
"""A start that is on time is not later: the clocks of the machines differ by so little, and messages take a moment."""


def timing(ttl_s: float = TTL_S) -> LeaseTiming:
    """Return the numbers of a lease between clocks that run true: a day shows no drift."""
    return LeaseTiming.scaled(ttl_s, clock_rate_error=1e-6)


def cron(expression: str = "", *, name: str = CRON, ttl_s: float = TTL_S, **changes: object) -> JobSpec:
    """Return a cron; `every_s`, `timezone` and the like belong to its schedule, all else to the job."""
    of_schedule = {word: changes.pop(word) for word in tuple(changes) if word in ScheduleSpec.__slots__}
    fields: dict[str, object] = {
        "name": JobName(name),
        "job": name,
        "kind": Kind.CRON,
        "argv": ("x",),
        "lease": timing(ttl_s),
        "key": name,
        "definition": sha256(f"{expression} {of_schedule}".encode()).hexdigest(),
        "schedule": ScheduleSpec(cron=expression, **of_schedule),  # type: ignore[arg-type] # a test names the fields it changes
    }
    return JobSpec(**(fields | changes))  # type: ignore[arg-type] # likewise


def service(name: str = SERVICE, *, ttl_s: float = TTL_S) -> JobSpec:
    """Return a service that runs until it is stopped."""
    stop = StopSpec(timeout_s=2.0)
    return JobSpec(JobName(name), name, Kind.SERVICE, ("x",), timing(ttl_s), key=name, definition="d", stop=stop)


@dataclass(frozen=True, slots=True)
class Start:
    """One start, in true time.

    Attributes:
        tick: For which it was, seconds since 1970; None: for none.
        at: When it was, seconds since 1970.
    """

    job: JobName
    run: str
    node: NodeName
    token: int
    reason: str
    tick: float | None
    at: float

    @property
    def late_s(self) -> float:
        """How long after its tick it was."""
        assert self.tick is not None
        return self.at - self.tick


class Ledger(History):
    """The simulation's checker, for ticks of any schedule; it also keeps what was said."""

    def __init__(self, lease: LeaseTiming, attempts: int) -> None:
        """Begin without a job."""
        super().__init__(lease, attempts=attempts)
        self.sayings: list[Say] = []
        self._schedules: dict[JobName, Schedule] = {}
        self._asks: JobName | None = None

    def learn(self, job: JobSpec) -> None:
        """Count the ticks of one job more by its schedule; of two of one name the first counts."""
        if job.schedule is not None:
            self._schedules.setdefault(job.name, Schedule(job.schedule, name=job.job))

    def due(self, job: JobName, past: Past) -> int:
        """Return how many ticks of a job lie in the time in which they are counted."""
        return self._schedules[job].newest_in(past.since_ms / 1000, past.settled_ms / 1000)[1]

    def witness(self, request: StoreRequest, answer: StoreAnswer, at: float) -> None:
        """A request was carried out at the server."""
        self._asks = getattr(request, "job", None)
        super().witness(request, answer, at)

    def ticks_between(self, after_ms: int, until_ms: int) -> int:
        """Return how many ticks of the job that just asked lie in (after, until]."""
        schedule = self._schedules.get(self._asks) if self._asks is not None else None
        return schedule.newest_in(after_ms / 1000, until_ms / 1000)[1] if schedule is not None else 0

    def said(self, saying: Say) -> None:
        """Keep it."""
        super().said(saying)
        self.sayings.append(saying)


class OrderlyMachine(Machine):
    """A machine on which a run takes as long as the test says, and ends with exit status 0."""

    def __init__(self, days: "Days", world: World, spec: ClusterSpec, name: NodeName) -> None:
        """Build it, switched off."""
        super().__init__(world, spec, name)
        self._days = days

    def row(self, job: str = CRON) -> JobView:
        """Return what `status` shows of a job here."""
        assert self.core is not None
        return next(row for row in self.core.view(self.hardware.now()).jobs if row.name == job)

    def _start(self, order: StartRun) -> None:
        super()._start(order)
        if order.run in self.leashes:
            self._days.note(order, self.name)

    def _life_s(self, spec: JobSpec) -> float:
        return self._days.lasts_s.get(spec.name, NEVER if spec.kind is Kind.SERVICE else 0.01)

    def _tell(self, event: Event) -> None:
        super()._tell(replace(event, exit_code=0) if isinstance(event, RunEnded) else event)


class Days:
    """True time, machines and a server.

    Attributes:
        lasts_s: How long runs of a job take; unless it is said, a cron's takes a moment.
        starts: Everything that was started, in order.
    """

    def __init__(
        self,
        *jobs: JobSpec,
        nodes: int = 1,
        begin: str = BEGIN,
        lasts_s: Mapping[JobName, float] | None = None,
        files: Sequence[Sequence[JobSpec]] = (),
        begun: bool = True,
    ) -> None:
        """Begin with nodes that have joined, and hold what they can.

        Args:
            jobs: What stands in the file.
            nodes: How many; they are n0, n1 ...
            begin: When, ISO 8601.
            lasts_s: How long runs of a job take.
            files: A file for each node, where they differ; else all have `jobs`.
            begun: False: no node is started yet.
        """
        self.begin = instant(begin)
        self.lasts_s = dict(lasts_s or {})
        self.starts: list[Start] = []
        each = list(files) or [jobs] * nodes
        specs = [job for file in each for job in file]
        lease = max((job.lease for job in specs), key=lambda lease: lease.ttl_s)
        self.ledger = Ledger(lease, attempts=1 + max(job.retries.count for job in specs))
        self.world = World(1, lease, CALM, self.ledger)
        self.world.server_offset = self.begin
        self.machines: list[OrderlyMachine] = []
        for file in each:
            self.join(ClusterSpec("days", tuple(file)), begun=begun)
        if begun:
            self.pass_s(4 * lease.ttl_s)  # a first contact with a server is waited out, and whoever is first holds

    # --- time ---------------------------------------------------------------------------------------

    @property
    def utc(self) -> float:
        """True time, seconds since 1970."""
        return self.begin + self.world.at

    def go(self, when: str) -> None:
        """Let time pass until an instant, or until a clock that is right shows this the next time."""
        self.world.run_until(self._next(when) - self.begin)

    def pass_s(self, seconds: float) -> None:
        """Let so much time pass."""
        self.world.run_until(self.world.at + seconds)

    def set_clocks(
        self, ahead_s: float, *, machines: Iterable[OrderlyMachine] | None = None, server: bool = False
    ) -> None:
        """Set clocks so far ahead of the truth: those of machines (all, if none are named), and of the server."""
        for machine in self.machines if machines is None else machines:
            machine.hardware.set_wall_clock(self.begin - EPOCH_UTC + ahead_s)
        if server:
            self.world.server_offset = self.begin + ahead_s
            self.ledger.clock_stepped()

    def _next(self, when: str) -> float:
        if "T" in when:
            return instant(when)
        now = datetime.fromtimestamp(self.utc, UTC)
        shown = datetime.combine(now.date(), datetime.strptime(when, "%H:%M:%S").replace(tzinfo=UTC).timetz())
        return (shown if shown > now else shown + timedelta(days=1)).timestamp()

    # --- the cluster --------------------------------------------------------------------------------

    def join(self, file: ClusterSpec, *, begun: bool = True) -> None:
        """Have one node more, on a machine of its own; `begun`: it is started at once."""
        for job in file.jobs:
            self.ledger.learn(job)
        machine = OrderlyMachine(self, self.world, file, NodeName(f"n{len(self.machines)}"))
        self.machines.append(machine)
        self.set_clocks(0.0, machines=[machine])
        if begun:
            machine.start_main()

    def holder(self, job: JobName = CRON) -> OrderlyMachine:
        """Return the machine that holds a job."""
        (found,) = [machine for machine in self.machines if machine.holds(job)]
        return found

    def standbys(self, job: JobName = CRON) -> list[OrderlyMachine]:
        """Return the machines that do not hold it."""
        return [machine for machine in self.machines if not machine.holds(job)]

    def order(self, want: str, job: JobName = CRON, *, catch_up: bool = False) -> None:
        """Give a standing order, as a client does."""
        intent = Intent(want, "ann@desk", "", 0, catch_up=catch_up)
        self.world.store.order((job,), intent, self.world.server_ms())
        self.world.nudge(None)

    # --- what was seen ------------------------------------------------------------------------------

    def note(self, order: StartRun, node: NodeName) -> None:
        """Note a start."""
        tick = order.env.get("ORCHESTRATOR_TICK")
        self.starts.append(
            Start(
                order.job,
                order.run,
                node,
                order.token,
                order.env["ORCHESTRATOR_REASON"],
                None if tick is None else instant(tick),
                self.utc,
            )
        )

    def of(self, job: JobName = CRON) -> list[Start]:
        """Return the starts of one job."""
        return [start for start in self.starts if start.job == job]

    def ticks(self, job: JobName = CRON) -> list[str]:
        """Return for which ticks a job was started, as a clock of UTC shows them."""
        return [clock_time(start.tick) for start in self.of(job) if start.tick is not None]

    def past(self, job: JobName = CRON) -> Past:
        """Return what `history` shows of a job."""
        return self.world.store.past(job)

    def not_run(self, job: JobName = CRON) -> list[tuple[object, ...]]:
        """Return what history tells of ticks that did not run, oldest first: outcome, first, last, count, why."""
        words = ("outcome", "first", "last", "count", "why")
        spans = [entry for entry in reversed(self.past(job).entries) if entry["outcome"] in ("skipped", "missed")]
        return [tuple(entry[word] for word in words) for entry in spans]

    def said(self, event: str) -> list[Say]:
        """Return what was said of one kind."""
        return [saying for saying in self.ledger.sayings if saying.event == event]

    def assert_every_tick_is_told_of(self, job: JobName = CRON) -> None:
        """Assert that ran, skipped and missed are all ticks, and that each that ran was started."""
        past = self.past(job)
        due = self.ledger.due(job, past)
        assert (past.ran + past.skipped + past.missed, due > 0) == (due, True)
        names = [start.tick for start in self.of(job) if start.reason in ("schedule", "catch_up")]
        assert len(names) == len(set(names)) == past.ran


def instant(iso: str) -> float:
    """Return an instant in seconds since 1970."""
    return datetime.fromisoformat(iso).timestamp()


def clock_time(utc: float) -> str:
    """Return what a clock of UTC shows."""
    return iso_utc(utc)[11:19]
