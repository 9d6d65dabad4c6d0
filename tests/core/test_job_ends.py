"""What an end means: for restarts, for its tick, for what people read."""

import pytest

from orchestrator.core.answers import StatePublished, TickClaimed
from orchestrator.core.bulletin import PUBLISH_AGAIN_BEATS
from orchestrator.core.ends import describe_end
from orchestrator.core.job_view import published_state
from orchestrator.core.messages import RunEnded, RunStarted, RunUnproven, Say, StartRun
from orchestrator.core.requests import ClaimTick, PublishState
from orchestrator.core.spec import Backoff, Restart, ScheduleSpec
from tests.core.house import (
    JOB,
    TOKEN,
    at,
    cron,
    ended,
    held_job,
    intent,
    of,
    only,
    run_id,
    running_job,
    service,
    turn,
)

OFTEN = cron(schedule=ScheduleSpec(every_s=5.0))


def test_a_service_that_takes_its_leash_with_it_is_backed_off_like_any_other_failure() -> None:
    running = running_job(service(backoff=Backoff(delay_s=2.0, max_failures=2)))

    turn(running, RunUnproven(JOB, run_id(running), "its leash died"), boot=1.0)
    actions = turn(running, ended(run_id(running), cause="unproven", exit_code=None, elapsed_s=1.0), boot=1.1)

    assert of(StartRun, actions) == []
    assert running.restarts.failures == 1
    assert running.restarts.ready_at > 1.1


def test_a_service_that_is_to_run_once_does_not_run_again_because_its_leash_died() -> None:
    running = running_job(service(restart=Restart.NEVER))

    turn(running, ended(run_id(running), cause="unproven", exit_code=None), boot=1.0)

    assert running.restarts.done == "done (its leash died)"


@pytest.mark.parametrize("cause", ["stop", "killed", "deadline"], ids=lambda cause: f"by {cause}")
def test_an_end_that_we_ordered_is_no_failure(cause: str) -> None:
    running = running_job()
    running.order(intent("stopped"))
    turn(running, boot=1.0)

    turn(running, ended(run_id(running), cause=cause, exit_code=None), boot=2.0)

    assert running.restarts.failures == 0


def test_a_tick_whose_run_was_ended_before_it_could_start_is_said_to_be_lost() -> None:
    due = held_job(OFTEN)
    claim = only(ClaimTick, turn(due, boot=5.0))
    turn(due, TickClaimed(JOB, TOKEN, claim.tick_ms, claim.run, asked_at=5.0), boot=5.0)
    due.order(intent("stopped"))
    turn(due, boot=6.0)

    actions = turn(due, RunEnded(JOB, claim.run, None, 0, "", "stop", 0.0), boot=6.5)

    lost = next(say for say in of(Say, actions) if say.event == "tick.lost")
    assert lost.fields == {"job": "beat", "tick": "2027-01-15T08:00:05.000Z", "why": "stop was ordered"}
    assert due.last is not None
    assert due.last["outcome"] == "lost"


def test_a_tick_whose_run_had_started_is_not_lost_by_a_stop() -> None:
    due = held_job(OFTEN)
    claim = only(ClaimTick, turn(due, boot=5.0))
    turn(due, TickClaimed(JOB, TOKEN, claim.tick_ms, claim.run, asked_at=5.0), boot=5.0)
    turn(due, RunStarted(JOB, claim.run, 7), boot=5.1)
    due.order(intent("stopped"))
    turn(due, boot=6.0)

    actions = turn(due, ended(claim.run, cause="stop", exit_code=None), boot=6.5)

    assert "tick.lost" not in [say.event for say in of(Say, actions)]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"outcome": "ok", "exit_code": 0, "error": "the node leaves"}, "exit 0"),
        ({"outcome": "stopped", "exit_code": 3, "error": "stop was ordered"}, "exit 3"),
        ({"outcome": "stopped", "exit_code": None, "signal": 15, "error": "stop was ordered"}, "signal 15"),
        ({"outcome": "stopped", "exit_code": None, "error": "stop was ordered"}, "it never started: stop was ordered"),
        ({"outcome": "lost", "exit_code": None, "error": "its leash died"}, "its leash died"),
        ({"outcome": "failed", "exit_code": None, "error": "no such file: x"}, "no such file: x"),
        ({"outcome": "failed", "exit_code": 1, "error": ""}, "exit 1"),
    ],
    ids=["well, while it was stopped", "stopped", "stopped by signal", "never started", "leash", "no start", "failed"],
)
def test_an_end_is_told_in_one_clause(record: dict[str, object], words: str) -> None:
    assert describe_end(record) == words


def test_a_published_state_that_somebody_deleted_stands_again_within_so_many_heartbeats() -> None:
    held = held_job()
    state = published_state(held, at(1.0))
    first = only(PublishState, held.publish(state, at(1.0)))
    list(held.handle(StatePublished(JOB, was_ours=True, asked_at=first.asked_at), at(1.0)))

    published = 0
    for beat in range(PUBLISH_AGAIN_BEATS):
        list(held.beat(at(2.0 + beat)))
        published += len(of(PublishState, held.publish(state, at(2.0 + beat))))

    assert published == 1
