"""When a job is asked for, started and given back: the rows of the table in the head of `core/job.py` without a run."""

import pytest

from orchestrator.core.answers import (
    LeaseLost,
    LeaseReleased,
    LeaseRenewed,
    StoreSilent,
    TickClaimed,
    TicksSettled,
)
from orchestrator.core.lease import NEVER, Phase
from orchestrator.core.messages import Nudged, RunUnproven, Say, StartRun
from orchestrator.core.nouns import RunId
from orchestrator.core.requests import AcquireLease, ClaimTick, ReleaseLease, SettleTicks
from orchestrator.core.spec import Backoff, OnRedisLoss, Restart
from tests.core.house import (
    ABSENT,
    JOB,
    TOKEN,
    at,
    cron,
    ended,
    granted,
    held_job,
    intent,
    job,
    of,
    only,
    run_id,
    running_job,
    seen,
    server,
    server_ms,
    service,
    turn,
)

RENEWED_AT_3 = LeaseRenewed(JOB, TOKEN, server_ms(3), put_back=False, asked_at=3.0)
LOST = LeaseLost(JOB, TOKEN, "node b holds it", asked_at=3.0)
UNPROVEN = RunUnproven(JOB, RunId(f"beat@{TOKEN}.1"), "its leash died")


# standby, no run: ask when it is time, if the job is wanted here


def test_a_standby_asks_when_the_key_is_absent() -> None:
    assert only(AcquireLease, turn(job(), ABSENT)).asked_at == 0.0


def test_a_standby_waits_for_the_end_of_a_foreign_lease() -> None:
    standby = job()

    assert of(AcquireLease, turn(standby, seen(left_ms=10_000))) == []
    assert standby.next_deadline(at(0.0)) == pytest.approx(10.102)
    assert of(AcquireLease, turn(standby, boot=10.2))


def test_a_nudge_makes_a_standby_ask_at_once() -> None:
    standby = job()
    turn(standby, seen(left_ms=10_000))

    assert of(AcquireLease, turn(standby, Nudged(JOB), boot=5.0))


def test_nothing_is_asked_of_a_server_that_nobody_has_met() -> None:
    standby = job()
    standby.server = server(met_at=None)

    assert of(AcquireLease, turn(standby, ABSENT)) == []


@pytest.mark.parametrize(
    ("unwanted", "why"),
    [
        ({"spec": service(enabled=False)}, "it is disabled in the file"),
        ({"member": False}, "the node has not joined the cluster yet"),
        ({"urgency": 0}, "the node leaves"),
        ({"intent": intent("stopped")}, "stop was ordered"),
        ({"conflict": "node b runs it under the lease key `x`"}, "node b runs it under the lease key `x`"),
    ],
    ids=["disabled", "not a member yet", "leaving", "stopped by order", "another key elsewhere"],
)
def test_what_is_not_wanted_here_is_not_asked_for(unwanted: dict[str, object], why: str) -> None:
    standby = job(unwanted.get("spec"), member=bool(unwanted.get("member", True)))  # type: ignore[arg-type] # a test's own dict
    standby.here.urgency = unwanted.get("urgency")  # type: ignore[assignment] # likewise
    standby.intent = unwanted.get("intent")  # type: ignore[assignment] # likewise
    standby.conflict = str(unwanted.get("conflict", ""))

    assert of(AcquireLease, turn(standby, ABSENT)) == []
    assert standby.unwanted == why
    assert standby.next_deadline(at(0.0)) == NEVER


# held, no run: start


def test_a_service_is_started_as_soon_as_its_lease_is_held() -> None:
    start = only(StartRun, held_job().advance(at(0.0)))

    assert start.token == TOKEN
    assert start.deadlines is not None
    assert start.deadlines.kill_at == pytest.approx(13.35)


def test_a_child_is_told_who_it_is() -> None:
    env = only(StartRun, held_job(service(job="worker", instance=2)).advance(at(0.0))).env

    assert env == {
        "ORCHESTRATOR_JOB": "worker",
        "ORCHESTRATOR_RUN_ID": f"beat@{TOKEN}.1",
        "ORCHESTRATOR_FENCING_TOKEN": str(TOKEN),
        "ORCHESTRATOR_NODE": "a",
        "ORCHESTRATOR_INSTANCE": "2",
        "ORCHESTRATOR_ATTEMPT": "1",
        "ORCHESTRATOR_REASON": "start",
    }


def test_a_run_without_any_time_left_is_not_started() -> None:
    late = job()
    turn(late, ABSENT)

    assert of(StartRun, turn(late, granted(0.0), boot=9.0)) == []


def test_a_lease_without_an_end_gives_its_run_none() -> None:
    start = only(StartRun, held_job(service(on_redis_loss=OnRedisLoss.KEEP)).advance(at(0.0)))

    assert start.deadlines is None


def test_a_service_that_ended_is_started_again_when_its_backoff_allows() -> None:
    running = running_job()

    assert of(StartRun, turn(running, ended(run_id(running), exit_code=1), boot=2.0)) == []
    ready_at = running.restarts.ready_at
    assert running.next_deadline(at(2.0)) == ready_at
    again = only(StartRun, turn(running, boot=ready_at))
    assert again.run == f"beat@{TOKEN}.2"


@pytest.mark.parametrize(
    ("restart", "exit_code", "again"),
    [
        (Restart.ALWAYS, 0, True),
        (Restart.ALWAYS, 1, True),
        (Restart.ON_FAILURE, 0, False),
        (Restart.ON_FAILURE, 1, True),
        (Restart.NEVER, 0, False),
        (Restart.NEVER, 1, False),
    ],
)
def test_the_file_says_whether_a_service_is_started_again(restart: Restart, exit_code: int, again: bool) -> None:
    running = running_job(service(restart=restart))

    turn(running, ended(run_id(running), exit_code=exit_code), boot=2.0)

    assert bool(of(StartRun, turn(running, boot=7.0))) is again
    assert running.lease.held


def test_a_service_is_given_up_after_so_many_failures_until_somebody_orders_a_start() -> None:
    running = running_job(service(backoff=Backoff(max_failures=1)))
    turn(running, ended(run_id(running), exit_code=1), boot=2.0)
    assert of(StartRun, turn(running, boot=7.0)) == []

    running.order(intent("running"))

    assert of(StartRun, turn(running, boot=7.0))


def test_an_order_that_is_already_known_forgets_nothing() -> None:
    running = running_job(service(backoff=Backoff(max_failures=1)))
    running.order(intent("running"))
    turn(running, ended(run_id(running), exit_code=1), boot=2.0)

    running.order(intent("running"))

    assert of(StartRun, turn(running, boot=7.0)) == []


def test_a_run_that_was_stopped_is_no_failure() -> None:
    running = running_job()

    turn(running, ended(run_id(running), cause="deadline", exit_code=None), boot=2.0)

    assert running.restarts.failures == 0


# held, a cron's tick


def test_a_cron_job_claims_its_tick_and_starts_when_it_is_claimed() -> None:
    waiting = held_job(cron(), boot=55.0)
    assert of(StartRun, turn(waiting, boot=55.0)) == []
    assert waiting.next_deadline(at(55.0)) == pytest.approx(60.0)

    claim = only(ClaimTick, turn(waiting, boot=60.0))
    start = only(StartRun, turn(waiting, TickClaimed(JOB, TOKEN, claim.tick_ms, claim.run, 60.0), boot=60.1))

    assert start.run == claim.run
    assert start.env["ORCHESTRATOR_TICK"] == "2027-01-15T08:01:00.000Z"
    assert start.env["ORCHESTRATOR_REASON"] == "schedule"


def test_a_tick_that_is_due_while_the_last_run_lives_is_settled_as_skipped() -> None:
    busy = held_job(cron(on_redis_loss=OnRedisLoss.KEEP), boot=50.0)
    first = only(ClaimTick, turn(busy, boot=60.0))
    turn(busy, TickClaimed(JOB, TOKEN, first.tick_ms, first.run, 60.0), boot=60.0)

    settle = only(SettleTicks, turn(busy, boot=120.0))
    settled = TicksSettled(JOB, TOKEN, settle.until_ms, settle.until_ms, 120.0)
    actions = turn(busy, settled, boot=120.0)

    assert (settle.what, settle.count, settle.until_ms) == ("skipped", 1, server_ms(120.0))
    assert of(StartRun, actions) == []
    skipped = only(Say, actions)
    assert skipped.event == "tick.skipped"
    assert skipped.fields["why"] == f"{first.run} still runs (overlap: skip)"


def test_no_tick_is_claimed_for_a_job_that_is_not_wanted() -> None:
    waiting = held_job(cron(), boot=50.0)
    waiting.order(intent("stopped"))

    assert of(ClaimTick, turn(waiting, boot=60.0)) == []


# held, no run, not wanted: release


def test_a_lease_that_is_not_wanted_is_released_when_no_run_is_left() -> None:
    running = running_job()
    running.order(intent("stopped"))

    assert of(ReleaseLease, turn(running, boot=1.0)) == []
    released = only(ReleaseLease, turn(running, ended(run_id(running), cause="stop"), boot=4.0))

    assert released.value.token == TOKEN
    assert running.lease.phase is Phase.RELEASING


def test_a_released_lease_is_a_standby_s() -> None:
    stopped = held_job()
    stopped.order(intent("stopped"))
    turn(stopped, boot=1.0)

    turn(stopped, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=1.0), boot=1.1)

    assert stopped.idle


def test_a_release_that_was_not_answered_is_not_repeated() -> None:
    stopped = held_job()
    stopped.order(intent("stopped"))
    request = only(ReleaseLease, turn(stopped, boot=1.0))

    actions = turn(stopped, StoreSilent(request, "no answer"), boot=2.0)

    assert of(ReleaseLease, actions) == []
    assert stopped.idle
