"""Every state that a job can be in has its word and, where it is not the ordinary one, its reason."""

import pytest

from orchestrator.core.answers import LeaseLost, LeaseRefused
from orchestrator.core.job import Job
from orchestrator.core.job_view import job_view, published_state
from orchestrator.core.messages import RunStarted, RunStuck, RunUnproven
from orchestrator.core.nouns import JobName, RunId
from orchestrator.core.snapshot import JobView
from orchestrator.core.spec import Backoff, Restart
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
    met,
    run_id,
    running_job,
    seen,
    server,
    service,
    turn,
)


def viewed(machine: Job, boot: float = 1.0) -> JobView:
    return job_view(machine, at(boot))


def refused(reason: str) -> LeaseRefused:
    return LeaseRefused(JOB, reason, None, 100, 0, asked_at=0.0)


# Held here


def test_a_run_is_starting_until_its_command_runs() -> None:
    running = running_job()
    assert viewed(running).state == "starting"

    turn(running, RunStarted(JOB, run_id(running), 4711), boot=0.5)

    row = viewed(running)
    assert (row.state, row.pid, row.since) == ("running", 4711, "2027-01-15T08:00:00.000Z")


def test_the_holder_shows_its_lease() -> None:
    row = viewed(running_job(), boot=4.0)

    assert (row.holder, row.token, row.lease_ms, row.ttl_ms) == ("a", TOKEN, 11_000, 15_000)


def test_a_stopping_run_says_why() -> None:
    running = running_job()
    running.order(intent("stopped"))
    turn(running, boot=1.0)

    assert (viewed(running).state, viewed(running).why) == ("stopping", "stop was ordered")


def test_a_run_that_starts_late_is_still_stopping() -> None:
    running = running_job()
    running.order(intent("stopped"))
    turn(running, boot=0.1)

    turn(running, RunStarted(JOB, run_id(running), 4711), boot=0.2)

    assert viewed(running).state == "stopping"


def test_a_run_that_cannot_be_killed_says_what_is_left() -> None:
    running = running_job()

    turn(running, RunStuck(JOB, run_id(running), (11,), "in state D"), boot=1.0)

    assert viewed(running).why == "in state D (pid 11)"


def test_an_unproven_run_blocks() -> None:
    running = running_job()

    turn(running, RunUnproven(JOB, run_id(running), "its leash died"), boot=1.0)

    assert (viewed(running).state, viewed(running).why) == ("blocked", "its leash died")


def test_a_cron_job_waits_for_its_next_tick() -> None:
    row = viewed(held_job(cron()))

    assert (row.state, row.next, row.why) == ("waiting", "2027-01-15T08:01:00.000Z", "")


def test_a_service_in_backoff_says_what_happened_and_when_it_is_tried_again() -> None:
    running = running_job()
    turn(running, ended(run_id(running), exit_code=1), boot=1.0)

    row = viewed(running)

    assert (row.state, row.why) == ("backoff", "exit 1; try 2 follows")
    assert row.next is not None
    assert "2027-01-15T08:00:01" <= row.next <= "2027-01-15T08:00:02.1"


def test_a_service_that_was_given_up_says_how_to_go_on() -> None:
    running = running_job(service(backoff=Backoff(max_failures=1)))

    turn(running, ended(run_id(running), exit_code=1), boot=1.0)

    row = viewed(running)
    assert row.state == "failed"
    assert row.why == "exit 1; 1 failure in a row, `orchestrator start` tries again"


def test_a_service_that_is_done_is_stopped() -> None:
    running = running_job(service(restart=Restart.NEVER))

    turn(running, ended(run_id(running)), boot=1.0)

    assert (viewed(running).state, viewed(running).why) == ("stopped", "done (exit 0)")


def test_a_lease_on_its_way_back_is_stopping() -> None:
    held = held_job()
    held.here.urgency = 0

    turn(held, boot=1.0)

    assert held.lease.value is not None
    assert held.run is None
    assert published_state(held, at(1.0))["why"] == "the node leaves"


# Not held here


def test_a_standby_shows_the_holder_it_saw() -> None:
    standby = job()
    turn(standby, seen(left_ms=10_000))

    row = viewed(standby)

    assert (row.state, row.holder, row.token, row.why) == ("standby", "b", TOKEN, "")
    assert row.lease_ms == 9100


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("hint", "the lease is left to the node it was handed to"),
        ("young", "its last holder may still be alive by its own clock"),
        ("vanished", "the lease key vanished, but its holder may still be alive by its own clock"),
        ("clock", "about to ask for the lease"),
    ],
)
def test_an_unheld_job_says_why_it_was_refused(reason: str, why: str) -> None:
    standby = job()
    turn(standby, ABSENT)

    turn(standby, refused(reason), boot=0.5)

    assert (viewed(standby, 0.5).state, viewed(standby, 0.5).why) == ("unheld", why)


def test_a_job_in_quarantine_says_for_how_long() -> None:
    standby = job()
    standby.server.on_met(met(1.0, epoch="9|r|run1"), 1.0, 15.0, vouched=False)

    row = viewed(standby, 2.0)

    assert row.state == "blocked"
    assert row.why == "Redis lost data or another server answers: a lease still alive may come back for 14 s more"


def test_before_the_first_answer_nothing_is_known() -> None:
    standby = job()
    standby.server = server(met_at=None)

    assert (viewed(standby).state, viewed(standby).why) == ("unheld", "Redis has not answered yet")


def test_a_job_that_is_being_asked_for_says_so() -> None:
    standby = job()

    turn(standby, ABSENT)

    assert viewed(standby).why == "asking for the lease"


def test_a_stopped_job_names_who_stopped_it() -> None:
    standby = job()
    standby.order(intent("stopped", why="new credentials"))

    assert (viewed(standby).state, viewed(standby).why) == ("stopped", "stopped by ann@desk: new credentials")


def test_a_disabled_job_is_stopped() -> None:
    assert viewed(job(service(enabled=False))).state == "stopped"


def test_a_job_that_may_not_be_asked_for_is_blocked() -> None:
    row = viewed(job(member=False))

    assert (row.state, row.why) == ("blocked", "the node has not joined the cluster yet")


def test_a_run_whose_lease_is_lost_blocks_until_it_is_over() -> None:
    running = running_job()

    turn(running, LeaseLost(JOB, TOKEN, "node b holds it", asked_at=1.0), boot=1.0)

    row = viewed(running)
    assert (row.state, row.holder) == ("blocked", None)
    assert row.why == "its run is being ended: the lease is lost"


# What the holder publishes


def test_what_the_holder_publishes_does_not_change_by_itself() -> None:
    running = running_job()
    turn(running, RunStarted(JOB, run_id(running), 4711), boot=0.5)

    assert published_state(running, at(1.0)) == published_state(running, at(14.0))


def test_the_end_of_a_backoff_does_not_wander_while_it_is_published() -> None:
    running = running_job()
    turn(running, ended(run_id(running), exit_code=1), boot=1.0)

    assert published_state(running, at(1.0)) == published_state(running, at(1.05))


def test_a_row_says_what_kind_of_job_it_is() -> None:
    row = viewed(job(cron(name=JobName("worker.1"), tags=("billing",))))

    assert (row.name, row.kind, row.tags) == ("worker.1", "cron", ("billing",))


def test_the_last_run_stays_in_view() -> None:
    running = running_job()
    run: RunId = run_id(running)
    turn(running, ended(run, exit_code=1), boot=1.0)

    last = viewed(running).last

    assert last is not None
    assert (last["run"], last["outcome"]) == (run, "failed")


def test_a_new_grant_shows_the_new_token() -> None:
    standby = job()
    turn(standby, ABSENT)

    turn(standby, granted(0.0), boot=0.1)

    assert viewed(standby).token == TOKEN


def test_while_redis_is_silent_every_row_says_so() -> None:
    running, standby = running_job(), job()
    running.here.silence = standby.here.silence = "connection refused"

    assert viewed(running).why == "the lease is not renewed: Redis does not answer (connection refused)"
    assert viewed(standby).why == "waits for its lease: Redis does not answer (connection refused)"
    assert viewed(standby).state == "unheld"
