"""Whether a running service may go on."""

import pytest

from orchestrator.core.answers import LeaseReleased
from orchestrator.core.fitness import Fitness
from orchestrator.core.job import Job
from orchestrator.core.messages import RunChecked, RunExited, RunMeasured, RunStarted, StartRun, StopRun
from orchestrator.core.nouns import RunId
from orchestrator.core.requests import ReleaseLease
from orchestrator.core.spec import HealthSpec, OnUnhealthy
from tests.core.house import JOB, TOKEN, at, ended, of, only, run_id, running_job, service, turn

RUN = RunId("beat@1.1")
HEALTH = HealthSpec(tcp="127.0.0.1:1", failures=3, start_period_s=20.0)
GOOD = RunChecked(JOB, RUN, healthy=True, why="")
BAD = RunChecked(JOB, RUN, healthy=False, why="HTTP 503")


def fitness(**changes: object) -> Fitness:
    """Return what is known of a run that began at 0."""
    judged = Fitness(service(**{"health": HEALTH, **changes}))
    judged.begin(RUN, at(0.0))
    return judged


def test_a_service_is_unhealthy_after_so_many_failed_checks_in_a_row() -> None:
    judged = fitness()

    for check in (GOOD, BAD, BAD, GOOD, BAD, BAD):
        judged.on_checked(check, at(30.0))
    assert judged.verdict(at(30.0)) is None
    assert judged.note == "health check failed 2 of 3: HTTP 503"

    judged.on_checked(BAD, at(30.0))
    verdict = judged.verdict(at(30.0))
    assert verdict is not None
    assert (verdict.why, verdict.failure, verdict.release) == ("unhealthy: HTTP 503", True, False)


def test_failures_in_the_start_period_do_not_count_until_a_check_succeeded() -> None:
    judged = fitness()

    for _ in range(9):
        judged.on_checked(BAD, at(19.9))
    assert judged.verdict(at(19.9)) is None
    assert judged.note == "not healthy yet: HTTP 503"

    judged.on_checked(GOOD, at(19.9))
    for _ in range(3):
        judged.on_checked(BAD, at(19.9))
    assert judged.verdict(at(19.9)) is not None


def test_the_failures_of_one_run_are_not_held_against_the_next() -> None:
    judged = fitness(health=HealthSpec(tcp="127.0.0.1:1", failures=2))
    judged.on_checked(BAD, at(1.0))

    judged.begin(RunId("beat@1.2"), at(2.0))
    judged.on_checked(BAD, at(3.0))

    assert judged.verdict(at(3.0)) is None


@pytest.mark.parametrize(("held_bytes", "too_much"), [(99_000_000, False), (100_000_000, False), (101_000_000, True)])
def test_a_service_may_hold_so_much_memory(held_bytes: int, too_much: bool) -> None:
    judged = fitness(max_rss_bytes=100_000_000)

    judged.on_measured(RunMeasured(JOB, RUN, held_bytes))

    assert (judged.verdict(at(1.0)) is not None) is too_much


def test_a_service_grows_old_within_a_tenth_around_its_max_age_and_not_all_at_once() -> None:
    ages = set()
    for number in range(200):
        judged = Fitness(service(max_age_s=1000.0))
        judged.begin(f"beat@1.{number}", at(50.0))
        ages.add(judged.due_at() - 50.0)

    assert min(ages) >= 900.0
    assert max(ages) <= 1100.0
    assert len(ages) > 190
    assert max(ages) - min(ages) > 150.0


def test_a_service_that_reached_its_age_is_started_anew_at_once_and_nothing_counts_as_a_failure() -> None:
    running = started(max_age_s=100.0)
    due_at = running.fitness.due_at()
    running.lease.renewed_at = due_at

    stop = only(StopRun, turn(running, boot=due_at))
    assert (stop.why, stop.failure) == ("it reached max_age", False)
    actions = turn(running, ended(stop.run, cause="stop", elapsed_s=due_at), boot=due_at + 0.1)

    assert of(StartRun, actions)
    assert running.restarts.failures == 0


def test_an_unhealthy_service_is_stopped_once_and_backs_off() -> None:
    running = started(health=HealthSpec(tcp="127.0.0.1:1", failures=1))
    run = run_id(running)

    stop = only(StopRun, turn(running, RunChecked(JOB, run, False, "exit 1"), boot=2.0))
    assert (stop.why, stop.failure) == ("unhealthy: exit 1", True)
    assert of(StopRun, turn(running, RunChecked(JOB, run, False, "exit 1"), boot=2.1)) == []
    actions = turn(running, ended(run, cause="stop", elapsed_s=2.0), boot=2.5)

    assert of(StartRun, actions) == []
    assert running.restarts.failures == 1
    assert running.last is not None
    assert (running.last["outcome"], running.last["error"]) == ("failed", "unhealthy: exit 1")


def test_no_limit_of_the_command_cuts_the_hook_that_runs_after_it() -> None:
    running = started(max_age_s=1.0, health=HealthSpec(tcp="127.0.0.1:1", failures=1))
    run = run_id(running)

    turn(running, RunExited(JOB, run), boot=1.0)

    assert turn(running, RunChecked(JOB, run, False, "exit 1"), boot=2.0)[1:] == []
    turn(running, ended(run, exit_code=7), boot=3.0)
    assert running.last is not None
    assert (running.last["outcome"], running.last["exit_code"], running.last["error"]) == ("failed", 7, "")


def test_a_check_of_an_earlier_run_changes_nothing() -> None:
    running = started(health=HealthSpec(tcp="127.0.0.1:1", failures=1))

    assert turn(running, RunChecked(JOB, RunId("beat@1.99"), False, "exit 1"), boot=2.0) == []


@pytest.mark.parametrize("others", [("b",), ()], ids=["another node could take it", "nobody else could"])
def test_the_lease_of_an_unhealthy_service_is_given_to_another_node_if_there_is_one(others: tuple[str, ...]) -> None:
    running = started(health=HealthSpec(tcp="127.0.0.1:1", failures=1), on_unhealthy=OnUnhealthy.RELEASE)
    running.others = others
    run = run_id(running)

    turn(running, RunChecked(JOB, run, False, "exit 1"), boot=2.0)
    actions = turn(running, ended(run, cause="stop", elapsed_s=2.0), boot=2.5)

    assert bool(of(ReleaseLease, actions)) is bool(others)
    turn(running, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=2.5), boot=2.6)


def started(**changes: object) -> Job:
    """Return a service that runs."""
    running = running_job(service(**changes))
    turn(running, RunStarted(JOB, run_id(running), 4711), boot=0.5)
    return running
