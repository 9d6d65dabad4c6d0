"""What a job remembers of its runs, records in the store, and shows to everybody."""

import json
from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseLost, RunRecorded, StatePublished, StoreSilent
from orchestrator.core.bulletin import MOST_UNRECORDED
from orchestrator.core.messages import RememberToken, RunEnded, StartRun
from orchestrator.core.minding import AT_ONCE
from orchestrator.core.nouns import RunId, Token
from orchestrator.core.reload import substance
from orchestrator.core.requests import PublishState, RecordRun
from orchestrator.core.spec import Backoff, OnRedisLoss
from tests.core.house import (
    JOB,
    NEWER,
    TOKEN,
    at,
    ended,
    job,
    of,
    only,
    run_id,
    running_job,
    seen,
    service,
    turn,
)

LOST = LeaseLost(JOB, TOKEN, "node b holds it", asked_at=3.0)


# What is remembered and recorded


def test_the_highest_token_is_remembered() -> None:
    standby = job()

    assert only(RememberToken, turn(standby, seen(token=NEWER))).token == NEWER
    assert of(RememberToken, turn(standby, seen(token=TOKEN))) == []


def test_the_end_of_a_run_is_recorded_until_the_store_has_it() -> None:
    running = running_job()
    run = run_id(running)

    record = only(RecordRun, turn(running, ended(run, exit_code=3, elapsed_s=1.5), boot=1.5))
    assert of(RecordRun, running.beat(at(3.0))) == [record]
    turn(running, RunRecorded(JOB, run, 3.0), boot=3.1)

    assert of(RecordRun, running.beat(at(6.0))) == []
    assert json.loads(record.record) == {
        "run": run,
        "node": "a",
        "token": TOKEN,
        "tick": None,
        "attempt": 1,
        "reason": "start",
        "started": "2027-01-15T08:00:00.000Z",
        "ended": "2027-01-15T08:00:01.500Z",
        "elapsed_s": 1.5,
        "outcome": "failed",
        "exit_code": 3,
        "signal": None,
        "error": "",
        "why": "",
        "first": None,
        "last": None,
        "count": None,
        "by_itself": True,
        "output": [],
        "substance": substance(service()),
        "order_ms": 0,
    }


def test_only_so_many_records_wait_for_the_store() -> None:
    running = running_job(service(on_redis_loss=OnRedisLoss.KEEP, backoff=Backoff(delay_s=0.0)))

    for number in range(MOST_UNRECORDED + 5):
        turn(running, ended(run_id(running), exit_code=1), boot=float(number))

    assert len(of(RecordRun, running.beat(at(100.0)))) == MOST_UNRECORDED


@pytest.mark.parametrize(
    ("end", "word"),
    [
        (ended("r"), "ok"),
        (ended("r", exit_code=1), "failed"),
        (ended("r", exit_code=None), "failed"),
        (ended("r", cause="deadline", exit_code=None), "lost"),
        (ended("r", cause="unproven", exit_code=None), "lost"),
        (ended("r", cause="stop", exit_code=None), "stopped"),
        (RunEnded(JOB, RunId("r"), None, 0, "no such file: x", "exit", 0.0), "failed"),
    ],
    ids=["exit 0", "exit 1", "a signal", "its deadline", "its leash died", "an order", "it could not start"],
)
def test_a_run_comes_out_in_one_word(end: RunEnded, word: str) -> None:
    running = running_job()

    turn(running, replace(end, run=run_id(running)), boot=1.0)

    assert running.last is not None
    assert running.last["outcome"] == word


@pytest.mark.parametrize(
    ("how", "word"),
    [("lost", "lost"), ("at once", "stopped"), ("timeout", "timeout")],
    ids=["its lease was lost", "a third order to go", "its time limit"],
)
def test_a_run_that_was_ended_by_us_says_why(how: str, word: str) -> None:
    running = running_job(service(timeout_s=5.0))
    run = run_id(running)
    if how == "at once":
        running.here.urgency = AT_ONCE
    turn(running, *([LOST] if how == "lost" else []), boot=5.0)

    turn(running, ended(run, cause="killed", exit_code=None), boot=6.0)

    assert running.last is not None
    assert running.last["outcome"] == word


def test_a_command_that_ends_by_itself_while_it_is_killed_is_lost_all_the_same() -> None:
    running = running_job()
    run = run_id(running)
    turn(running, LOST, boot=1.0)

    turn(running, ended(run, exit_code=0), boot=1.0)

    assert running.last is not None
    assert running.last["outcome"] == "lost"


def test_a_state_is_shown_once_and_one_at_a_time() -> None:
    running = running_job()

    assert of(PublishState, running.publish({"state": "starting"}, at(0.0)))
    assert list(running.publish({"state": "running"}, at(0.1))) == []
    turn(running, StatePublished(JOB, was_ours=True, asked_at=0.0), boot=0.2)
    assert list(running.publish({"state": "starting"}, at(0.2))) == []
    assert of(PublishState, running.publish({"state": "running"}, at(0.2)))


def test_a_state_whose_answer_was_lost_is_shown_again_with_the_heartbeat() -> None:
    running = running_job()
    request = only(PublishState, running.publish({"state": "running"}, at(0.0)))

    turn(running, StoreSilent(request, "no answer"), boot=1.0)
    assert list(running.publish({"state": "running"}, at(1.0))) == []
    list(running.beat(at(3.0)))

    assert of(PublishState, running.publish({"state": "running"}, at(3.0)))


def test_what_nobody_holds_here_is_not_shown() -> None:
    assert list(job().publish({"state": "running"}, at(0.0))) == []


def test_doing_what_follows_twice_changes_nothing() -> None:
    running = running_job()

    assert turn(running, boot=0.0) == []


def test_a_token_is_started_under_once_per_run() -> None:
    running = running_job()
    first = run_id(running)
    turn(running, ended(first, exit_code=1), boot=1.0)

    again = only(StartRun, turn(running, boot=running.restarts.ready_at))

    assert again.run != first
    assert again.token == Token(TOKEN)
