"""Rules that no story can show broken, because another rule covers for them: each is held by a test of its own.

`tests.simulation.mutants` names them, and the hunt for mutants runs each with its rule switched off.
"""

from orchestrator.core.answers import LeaseGranted, LeaseSeen, ServerMet, TickClaimed, TickRefused
from orchestrator.core.here import Here
from orchestrator.core.job import Job
from orchestrator.core.lease import Lease
from orchestrator.core.messages import Action, RunUnproven, StartRun
from orchestrator.core.nouns import Bucket, JobName, LeaseValue, Moment, NodeName, RunId, Token
from orchestrator.core.requests import AcquireLease, ClaimTick, MeetServer, RecordRun, RenewLease
from orchestrator.core.server import Server
from orchestrator.core.spec import JobSpec, Kind
from orchestrator.core.timing import LeaseTiming
from tests.simulation.store_model import StoreModel
from tests.simulation.stored import Held, Ticks

TIMING = LeaseTiming.scaled(15.0)
SPEC = JobSpec(JobName("beat"), "beat", Kind.SERVICE, ("x",), TIMING, key="beat", definition="d")
TOKEN = Token(1_800_000_000_000)


def at(boot: float) -> Moment:
    return Moment(boot, 1_800_000_000.0 + boot)


def unproven() -> Job:
    """A job that holds its lease since 100 s, and whose run nobody can vouch for."""
    server = Server(
        Bucket(0),
        heartbeat_s=TIMING.heartbeat_s,
        request_timeout_s=TIMING.request_timeout_s,
        clock_rate_error=TIMING.clock_rate_error,
    )
    server.on_met(ServerMet(Bucket(0), "0|a|b", created=False, server_ms=TOKEN, asked_at=0.0), 0.0, 15.0, vouched=True)
    job = Job(SPEC, Here(NodeName("n1"), "i1", member=True), server, Token(0))
    list(job.handle(LeaseSeen(SPEC.name, None, malformed=False, left_ms=0, asked_at=99.0), at(99.5)))
    assert any(isinstance(action, AcquireLease) for action in job.advance(at(99.5)))
    list(job.handle(LeaseGranted(SPEC.name, TOKEN, TOKEN, adopted=False, last_tick_ms=0, asked_at=100.0), at(100.0)))
    run = next(action.run for action in job.advance(at(100.0)) if isinstance(action, StartRun))
    list(job.handle(RunUnproven(SPEC.name, run, "its leash died"), at(101.0)))
    return job


def test_the_lease_of_an_unproven_run_is_not_renewed() -> None:
    job = unproven()

    assert not [action for action in job.beat(at(103.0)) if isinstance(action, RenewLease)]


def test_nothing_is_asked_for_while_an_earlier_run_is_unproven() -> None:
    job = unproven()
    after_its_end = at(120.0)

    actions: list[Action] = [*job.advance(after_its_end)]
    absent = LeaseSeen(SPEC.name, None, malformed=False, left_ms=0, asked_at=120.0)
    actions += [*job.handle(absent, after_its_end), *job.advance(after_its_end)]

    assert not job.lease.held
    assert not [action for action in actions if isinstance(action, AcquireLease | StartRun)]


def test_a_lease_under_the_same_key_knows_what_the_old_one_knew() -> None:
    old = unproven().lease
    fresh = Lease(SPEC, node=NodeName("n1"), incarnation="i1", floor=Token(0))

    fresh.inherit(old)

    assert (fresh.ran, fresh.floor) == (TOKEN, TOKEN)


def test_a_new_token_is_greater_than_any_the_node_ever_saw() -> None:
    store = StoreModel()
    now_ms = 1_800_000_000_000
    met = store.execute(MeetServer(SPEC.bucket, asked_at=0.0), now_ms)
    assert isinstance(met, ServerMet)

    granted = store.execute(
        AcquireLease(
            job=SPEC.name,
            key=SPEC.key,
            node=NodeName("n1"),
            incarnation="i1",
            ttl_ms=15_000,
            longest_ttl_ms=15_000,
            floor=Token(now_ms + 1000),
            seen=Token(0),
            ran=Token(0),
            epoch=met.epoch,
            expected_ms=now_ms,
            tolerance_ms=1000,
            quarantined=False,
            schedule="",
            tick_floor_ms=now_ms,
            asked_at=0.0,
        ),
        now_ms,
    )

    assert isinstance(granted, LeaseGranted)
    assert granted.token == now_ms + 1001


def cron_of_its_holder() -> tuple[StoreModel, LeaseValue]:
    """A store in which node n1 holds the lease of a cron."""
    store = StoreModel()
    value = LeaseValue(TOKEN, NodeName("n1"), "i1")
    store.data["lease", "beat"] = Held(value, TOKEN + 60_000)
    store.data["tick", "beat"] = Ticks(TOKEN, "every 60s", TOKEN)
    return store, value


def claim(value: LeaseValue, run: str, mark: str, *, order_ms: int = 0, instead: str = "") -> ClaimTick:
    return ClaimTick(
        SPEC.name, "beat", value, TOKEN + 1, RunId(run), mark, 1000, asked_at=0.0, order_ms=order_ms, instead=instead
    )


def test_an_order_is_obeyed_once_though_its_claim_is_delivered_again_after_its_run() -> None:
    store, value = cron_of_its_holder()
    ask = claim(value, "beat@manual-7", "m", order_ms=7)
    assert isinstance(store.execute(ask, TOKEN), TickClaimed)
    store.execute(RecordRun(SPEC.name, "beat", TOKEN, ask.run, "{}", asked_at=0.0), TOKEN)

    assert isinstance(store.execute(ask, TOKEN), TickRefused)


def test_another_attempt_is_made_once_though_its_claim_is_delivered_again_after_its_run() -> None:
    store, value = cron_of_its_holder()
    store.execute(claim(value, "beat@t", "m"), TOKEN)
    ask = claim(value, "beat@t.2", "m2", instead="beat@t")
    assert isinstance(store.execute(ask, TOKEN), TickClaimed)
    store.execute(RecordRun(SPEC.name, "beat", TOKEN, ask.run, "{}", asked_at=0.0), TOKEN)

    assert isinstance(store.execute(ask, TOKEN), TickRefused)
