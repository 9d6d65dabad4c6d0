"""What becomes of a run that is alive: the rows of the table in the head of `core/job.py` that have one."""

import pytest

from orchestrator.core.answers import LeaseLost, LeaseRenewed, StatePublished, StoreSilent
from orchestrator.core.messages import ExtendRun, KillRun, RunStarted, RunStuck, RunUnproven, Say, StartRun, StopRun
from orchestrator.core.minding import AT_ONCE
from orchestrator.core.nouns import RunId, Token
from orchestrator.core.requests import AcquireLease, LookAtLease, PublishState, ReleaseLease, RenewLease
from orchestrator.core.spec import StopSpec
from tests.core.house import (
    ABSENT,
    JOB,
    NEWER,
    TOKEN,
    at,
    ended,
    intent,
    job,
    of,
    only,
    run_id,
    running_job,
    server_ms,
    service,
    turn,
)

RENEWED_AT_3 = LeaseRenewed(JOB, TOKEN, server_ms(3), put_back=False, asked_at=3.0)
LOST = LeaseLost(JOB, TOKEN, "node b holds it", asked_at=3.0)
UNPROVEN = RunUnproven(JOB, RunId(f"beat@{TOKEN}.1"), "its leash died")


# standby, a run alive: kill it


def test_a_run_whose_lease_is_lost_is_killed_at_once() -> None:
    running = running_job()

    kill = only(KillRun, turn(running, LOST, boot=3.0))

    assert kill.run == run_id(running)
    assert not running.lease.held
    assert of(KillRun, turn(running, boot=3.1)) == []


def test_a_loss_under_another_token_is_old_news() -> None:
    running = running_job()

    assert turn(running, LeaseLost(JOB, NEWER, "late", asked_at=3.0), boot=3.0) == []
    assert running.lease.held


def test_while_a_run_is_being_killed_nothing_is_asked_for() -> None:
    running = running_job()
    turn(running, LOST, boot=3.0)

    assert of(AcquireLease, turn(running, ABSENT, boot=6.0)) == []
    assert of(AcquireLease, turn(running, ended(run_id(running), cause="killed"), boot=6.1))


# held, a run alive: renew, extend, stop


def test_a_renewal_extends_the_run() -> None:
    running = running_job()

    extended = only(ExtendRun, turn(running, RENEWED_AT_3, boot=3.1))

    assert extended.run == run_id(running)
    assert extended.deadlines.kill_at == pytest.approx(3.0 + 13.35)


def test_a_run_is_not_extended_by_another_token_s_renewal() -> None:
    running = running_job()

    other = LeaseRenewed(JOB, NEWER, server_ms(3), put_back=False, asked_at=3.0)

    assert of(ExtendRun, turn(running, other, boot=3.1)) == []


def test_a_run_of_an_earlier_token_is_killed_and_never_extended() -> None:
    running = running_job()
    assert running.run is not None
    running.run.token = Token(TOKEN - 1)

    actions = turn(running, RENEWED_AT_3, boot=3.1)

    assert of(ExtendRun, actions) == []
    assert of(KillRun, actions)


def test_a_lease_that_was_put_back_is_said_and_shown_again() -> None:
    running = running_job()
    list(running.publish({"state": "running"}, at(1.0)))
    turn(running, StatePublished(JOB, was_ours=True, asked_at=1.0), boot=1.0)
    assert list(running.publish({"state": "running"}, at(2.0))) == []

    back = LeaseRenewed(JOB, TOKEN, server_ms(3), put_back=True, asked_at=3.0)

    assert only(Say, turn(running, back, boot=3.1)).event == "lease.put_back"
    assert of(PublishState, running.publish({"state": "running"}, at(3.1)))


def test_a_stop_by_order_is_said_once_and_the_lease_is_renewed_as_long_as_it_takes() -> None:
    running = running_job(service(stop=StopSpec(timeout_s=3600.0)))
    running.order(intent("stopped"))

    assert only(StopRun, turn(running, boot=1.0)).grace_s == 3600.0
    assert of(StopRun, turn(running, boot=2.0)) == []
    assert of(RenewLease, running.beat(at(3.0)))
    assert of(ExtendRun, turn(running, RENEWED_AT_3, boot=3.1))


@pytest.mark.parametrize(("urgency", "grace_s"), [(0, 300.0), (1, 5.0)], ids=["the job's own", "the step-down grace"])
def test_a_node_that_leaves_stops_its_runs(urgency: int, grace_s: float) -> None:
    running = running_job(service(stop=StopSpec(timeout_s=300.0)))
    running.here.urgency = urgency

    assert only(StopRun, turn(running, boot=1.0)).grace_s == grace_s


@pytest.mark.parametrize("grace_s", [5.0, 60.0], ids=["the same", "a longer one"])
def test_a_later_order_only_shortens_the_grace(grace_s: float) -> None:
    running = running_job(service(stop=StopSpec(timeout_s=5.0)))
    running.here.urgency = 1
    turn(running, boot=1.0)

    running.spec = service(stop=StopSpec(timeout_s=grace_s))
    running.here.urgency = 0

    assert of(StopRun, turn(running, boot=1.5)) == []


def test_a_third_order_kills() -> None:
    running = running_job()
    running.here.urgency = AT_ONCE

    assert of(KillRun, turn(running, boot=1.0))


def test_a_run_has_a_time_limit() -> None:
    running = running_job(service(timeout_s=5.0))

    assert running.next_deadline(at(0.0)) == 5.0
    assert of(StopRun, turn(running, boot=4.99)) == []
    assert only(StopRun, turn(running, boot=5.0)).why == "its time limit is over"


# held, its end unproven


def test_an_unproven_run_is_neither_renewed_nor_released_nor_replaced() -> None:
    running = running_job()
    turn(running, UNPROVEN, boot=1.0)
    running.order(intent("stopped"))

    assert of(RenewLease, running.beat(at(3.0))) == []
    assert of(ReleaseLease, turn(running, boot=3.0)) == []
    running.order(None)
    actions = turn(running, boot=14.36)
    assert of(StartRun, actions) == []
    assert not running.lease.held


def test_until_there_is_proof_nothing_is_asked_for() -> None:
    running = running_job()
    turn(running, UNPROVEN, boot=1.0)
    turn(running, boot=14.36)

    assert of(AcquireLease, turn(running, ABSENT, boot=20.0)) == []
    assert of(LookAtLease, running.beat(at(20.0))) == []

    proof = ended(run_id(running), cause="unproven", exit_code=None)
    assert of(AcquireLease, turn(running, proof, boot=21.0))


def test_news_of_another_run_changes_nothing() -> None:
    running = running_job()

    for news in (RunStarted(JOB, RunId("x"), 1), RunUnproven(JOB, RunId("x"), "?"), ended("x")):
        assert turn(running, news, boot=1.0) == []
    assert running.run is not None


def test_what_cannot_be_killed_is_said_with_its_pids() -> None:
    running = running_job()

    stuck = only(Say, turn(running, RunStuck(JOB, run_id(running), (11, 12), "in state D"), boot=1.0))

    assert (stuck.level, stuck.fields["why"]) == ("error", "in state D (pid 11, 12)")
    assert of(RenewLease, running.beat(at(3.0)))


# held, silent; and its end passed


def test_while_the_store_is_silent_nothing_is_ordered_and_the_leash_acts_alone() -> None:
    running = running_job()
    request = only(RenewLease, running.beat(at(3.0)))

    assert turn(running, StoreSilent(request, "no answer"), boot=4.0) == []
    assert turn(running, boot=13.0) == []
    assert running.next_deadline(at(13.0)) == pytest.approx(14.35)


def test_past_its_end_a_lease_is_nobody_s() -> None:
    running = running_job()

    actions = turn(running, boot=14.36)

    assert [say.event for say in of(Say, actions)] == ["lease.ended"]
    assert of(KillRun, actions)
    assert not running.lease.held


def test_a_silent_ask_is_repeated_with_the_heartbeat_and_not_at_once() -> None:
    standby = job()
    request = only(AcquireLease, turn(standby, ABSENT))

    assert turn(standby, StoreSilent(request, "no answer"), boot=1.0) == []
    assert of(LookAtLease, standby.beat(at(3.0)))
