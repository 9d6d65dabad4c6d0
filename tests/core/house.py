"""Small builders for the tests of the core: a job, a server that was met, a lease that was granted, a node.

Unless a test says otherwise the ttl is 15 s with its scaled numbers (heartbeat 3, request timeout 1, grace 5,
kill time 1, margin 0.5), so that a lease asked for at 0 ends at 14.35, with SIGTERM at 8.35 and SIGKILL at 13.35.
The boot clock of a test begins at 0; its wall clock shows `UTC` then, and so does the server's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from orchestrator.core.answers import (
    LeaseGranted,
    LeaseSeen,
    MembersSeen,
    ServerMet,
    TickClaimed,
    TickRefused,
    TicksSettled,
)
from orchestrator.core.here import Here
from orchestrator.core.info import Identity
from orchestrator.core.job import Job
from orchestrator.core.lease import Lease
from orchestrator.core.messages import Action, Event, RunEnded, Say, StartRun
from orchestrator.core.node import Node
from orchestrator.core.nouns import (
    Intent,
    JobName,
    LeaseValue,
    Member,
    Moment,
    NodeName,
    OpenRun,
    RunId,
    Token,
    Trigger,
)
from orchestrator.core.requests import ClaimTick, SettleTicks
from orchestrator.core.server import Server
from orchestrator.core.snapshot import iso_utc
from orchestrator.core.spec import (
    ClusterSpec,
    JobSpec,
    Kind,
    OnRedisLoss,
    RetrySpec,
    ScheduleSpec,
    bucket_of,
)
from orchestrator.core.ticks import DueTick, Passed, Ticks
from orchestrator.core.timing import LeaseTiming

JOB = JobName("beat")
BUCKET = bucket_of(JOB)
UTC = 1_800_000_000.0
"""2027-01-15T08:00:00Z, a whole minute."""
EPOCH = f"{round(1000 * UTC) - 3_600_000}|r|run0"
"""An epoch that is an hour old."""
TOKEN = Token(round(1000 * UTC))
NEWER = Token(TOKEN + 5000)

_Kind = TypeVar("_Kind")


def at(boot: float) -> Moment:
    """Return a moment of both clocks."""
    return Moment(boot, UTC + boot)


def server_ms(boot: float) -> int:
    """Return what the server's clock shows."""
    return round(1000 * (UTC + boot))


def service(**changes: object) -> JobSpec:
    """Return a service."""
    fields: dict[str, object] = {
        "name": JOB,
        "job": "beat",
        "kind": Kind.SERVICE,
        "argv": ("celery", "beat"),
        "lease": LeaseTiming.scaled(15.0),
        "key": "beat",
        "definition": "d1",
    }
    return JobSpec(**(fields | changes))  # type: ignore[arg-type] # a test names the fields it changes


def cron(**changes: object) -> JobSpec:
    """Return a job that is due every minute."""
    return service(**{"kind": Kind.CRON, "schedule": ScheduleSpec(every_s=60.0), **changes})


def server(*, met_at: float | None = 0.0, epoch: str = EPOCH) -> Server:
    """Return the belief about a server: of a vouched-for first contact, or none yet."""
    belief = Server(BUCKET, heartbeat_s=3.0, request_timeout_s=1.0, clock_rate_error=0.01)
    if met_at is not None:
        belief.on_met(met(met_at, epoch=epoch), met_at, 15.0, vouched=True)
    return belief


def met(boot: float, *, epoch: str = EPOCH, ahead_s: float = 0.0) -> ServerMet:
    """Return the answer of a server to a request written at `boot`."""
    return ServerMet(BUCKET, epoch, created=False, server_ms=server_ms(boot + ahead_s), asked_at=boot)


def standby(spec: JobSpec | None = None, **changes: object) -> Lease:
    """Return a lease that node `a` does not hold."""
    fields: dict[str, object] = {"node": NodeName("a"), "incarnation": "a1", "floor": Token(0)}
    return Lease(spec or service(), **(fields | changes))  # type: ignore[arg-type] # a test names the fields it changes


def holder(spec: JobSpec | None = None, asked_at: float = 0.0) -> Lease:
    """Return a lease that node `a` holds, asked for at `asked_at`."""
    lease = standby(spec)
    lease.ask(at(asked_at), server())
    lease.on_granted(granted(asked_at))
    return lease


def granted(asked_at: float, token: Token = TOKEN, *, last_tick_ms: int = 0) -> LeaseGranted:
    """Return the answer to an ask written at `asked_at`."""
    return LeaseGranted(JOB, token, server_ms(asked_at), False, last_tick_ms, asked_at)


def seen(node: str = "b", token: Token = TOKEN, *, left_ms: int = 10_000, asked_at: float = 0.0) -> LeaseSeen:
    """Return a look at a lease that another node holds."""
    return LeaseSeen(JOB, LeaseValue(token, NodeName(node), f"{node}1"), False, left_ms, asked_at)


ABSENT = LeaseSeen(JOB, None, malformed=False, left_ms=0, asked_at=0.0)


def job(spec: JobSpec | None = None, *, member: bool = True) -> Job:
    """Return a job of node `a` that holds nothing."""
    return Job(spec or service(), Here(NodeName("a"), "a1", member=member), server(), Token(0))


def held_job(spec: JobSpec | None = None, boot: float = 0.0, *, last_tick_ms: int = 0) -> Job:
    """Return a job whose lease was asked for, and granted at once, at `boot`."""
    held = job(spec)
    turn(held, ABSENT, boot=boot)
    list(held.handle(granted(boot, last_tick_ms=last_tick_ms or server_ms(boot)), at(boot)))
    return held


def running_job(spec: JobSpec | None = None, boot: float = 0.0) -> Job:
    """Return a service that holds its lease and has been told to start a run."""
    running = held_job(spec, boot)
    assert of(StartRun, running.advance(at(boot)))
    return running


def turn(machine: Job, *events: Event, boot: float = 0.0) -> list[Action]:
    """Tell a job what happened and let it do what follows."""
    actions: list[Action] = []
    for event in events:
        actions += machine.handle(event, at(boot))
    return [*actions, *machine.advance(at(boot))]


def ended(run: str, *, cause: str = "exit", exit_code: int | None = 0, elapsed_s: float = 1.0) -> RunEnded:
    """Return the proven end of a run."""
    signal = 0 if exit_code is not None else 15
    return RunEnded(JOB, RunId(run), exit_code, signal, "", cause, elapsed_s)


def run_id(machine: Job) -> RunId:
    """Return the id of the run that is alive."""
    assert machine.run is not None
    return machine.run.id


def of(kind: type[_Kind], actions: Iterable[object]) -> list[_Kind]:
    """Return the actions of one kind."""
    return [action for action in actions if isinstance(action, kind)]


def only(kind: type[_Kind], actions: Iterable[object]) -> _Kind:
    """Return the one action of a kind."""
    (found,) = of(kind, actions)
    return found


def intent(want: str, *, at_ms: int = 1, why: str = "") -> Intent:
    """Return a standing order."""
    return Intent(want, "ann@desk", why, at_ms)


def node(*jobs: JobSpec, name: str = "a", new_cluster: bool = True) -> Node:
    """Return a node that has not joined yet."""
    identity = Identity(NodeName(name), f"{name}1", f"state-{name}", "host", 1, "1.0")
    return Node(ClusterSpec("shop", jobs or (service(),)), identity, {}, new_cluster=new_cluster)


def member(name: str, *, since_ms: int = 0, keys: Mapping[str, str] | None = None) -> Member:
    """Return a live node that names these lease keys."""
    return Member(NodeName(name), f"{name}1", since_ms, {"jobs": keys or {}})


def members(*present: Member, asked_at: float = 0.0) -> MembersSeen:
    """Return the answer to a heartbeat, without any order."""
    return MembersSeen(present or (member("a"),), None, 0, server_ms(asked_at), asked_at)


def told(machine: Node, *events: Event, boot: float = 0.0) -> list[Action]:
    """Give a node one turn."""
    return [*machine.handle(events, at(boot)), *machine.tick(at(boot))]


def said(actions: Iterable[Action]) -> list[str]:
    """Return the events that were logged."""
    return [say.event for say in of(Say, actions)]


def joined(machine: Node, boot: float = 0.0) -> Node:
    """Let a node beat, meet its server and become a member."""
    told(machine, boot=boot)
    told(machine, members(asked_at=boot), met(boot), boot=boot)
    return machine


def holding() -> Node:
    """Return a member that holds the lease of its job and has started the run."""
    machine = joined(node())
    told(machine, ABSENT)
    assert of(StartRun, told(machine, granted(0.0)))
    return machine


# Crons: a tick every minute, on the minute, and a lease that ends in no test


def minutely(**changes: object) -> JobSpec:
    """Return a job that is due every minute, whose lease needs no renewal (`on_redis_loss: keep`)."""
    return cron(**{"on_redis_loss": OnRedisLoss.KEEP, **changes})


RETRIED = RetrySpec(count=2, delay_s=30.0)
"""Tried again after half a minute and, if that fails too, after a minute."""


def taken_over(spec: JobSpec | None = None, boot: float = 0.0, **told: object) -> tuple[Job, list[Action]]:
    """Return a cron whose lease was granted at `boot`, with what it did about what the grant told."""
    held = job(spec or minutely())
    turn(held, ABSENT, boot=boot)
    grant = replace(granted(boot, last_tick_ms=server_ms(boot)), **told)  # type: ignore[arg-type] # as in `service`
    return held, list(held.handle(grant, at(boot)))


def waiting(spec: JobSpec | None = None, boot: float = 0.0, **told: object) -> Job:
    """Return a cron that waits for its next tick, with all before `boot` settled."""
    return taken_over(spec, boot, **told)[0]


def claimed(claim: ClaimTick) -> TickClaimed:
    """Return the store's yes to a claim."""
    return TickClaimed(claim.job, claim.value.token, claim.tick_ms, claim.run, claim.asked_at)


def refused(claim: ClaimTick, reason: str, *, last_tick_ms: int = 0) -> TickRefused:
    """Return the store's no to a claim."""
    return TickRefused(claim.job, claim.value.token, claim.tick_ms, reason, last_tick_ms, claim.asked_at, claim.run)


def settled(ask: SettleTicks) -> TicksSettled:
    """Return the store's word that ticks, or an order, are settled."""
    return TicksSettled(ask.job, ask.value.token, ask.until_ms, ask.until_ms, ask.asked_at, ask.order_ms)


def started(machine: Job, boot: float) -> StartRun:
    """Let a cron claim what is due, and start it."""
    claim = only(ClaimTick, turn(machine, boot=boot))
    return only(StartRun, turn(machine, claimed(claim), boot=boot))


def failed(machine: Job, run: str, boot: float) -> list[Action]:
    """Let a run of a cron exit with 1."""
    return turn(machine, ended(run, exit_code=1), boot=boot)


def never_started(run: str) -> RunEnded:
    """Return the proven end of a run whose command could not be started at all, killed before it was."""
    return RunEnded(JOB, RunId(run), None, 0, "", "killed", 0.0)


def trigger(order_at: float, *, tick_at: float | None = None, why: str = "") -> Trigger:
    """Return an order to run the job once, given at `order_at`."""
    tick_ms = None if tick_at is None else server_ms(tick_at)
    return Trigger(JOB, server_ms(order_at), tick_ms, "ann@desk", why)


def ordered(machine: Job, *triggers: Trigger, boot: float) -> list[Action]:
    """Let a cron learn of orders to run it once, and do what follows."""
    assert machine.cron is not None
    machine.cron.triggers = triggers
    return turn(machine, boot=boot)


def open_run(
    tick_at: float, *, attempt: int = 1, retry_at: float | None = None, rerun: bool = False, reruns: int = 0
) -> OpenRun:
    """Return what the store kept of a run on node `b`; with `retry_at` it is to be tried again then."""
    run = RunId(f"beat@{iso_utc(UTC + tick_at)}" + (f".{attempt}" if attempt > 1 else ""))
    retry_ms = 0 if retry_at is None else server_ms(retry_at)
    return OpenRun(run, server_ms(tick_at), TOKEN, NodeName("b"), attempt, "schedule", retry_ms, rerun, reruns)


# Ticks alone, without a lease


def ticks(settled_at: float = 0.0, **changes: object) -> Ticks:
    """Return the ticks of a job whose ticks are settled up to an instant."""
    planned = Ticks(cron(**changes))
    planned.plan(at(settled_at), server_ms(settled_at))
    return planned


def look(planned: Ticks, boot: float, *, waited_from: float | None = None) -> tuple[list[Passed], DueTick | None]:
    """Settle what has passed, and return it with the tick that is to run then."""
    passed: list[Passed] = []
    since = None if waited_from is None else UTC + waited_from
    while isinstance(found := planned.look(at(boot), since), Passed):
        passed.append(found)
        planned.plan(at(boot), found.until_ms)
    return passed, found


def due(planned: Ticks, boot: float, *, waited_from: float | None = None) -> float | None:
    """Return the tick that is to run, by the boot clock of the tests."""
    found = look(planned, boot, waited_from=waited_from)[1]
    return None if found is None else found.utc - UTC
