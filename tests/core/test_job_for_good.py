"""When a service is not started again, and when rather by another node."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseReleased
from orchestrator.core.job import Job
from orchestrator.core.job_view import job_view
from orchestrator.core.messages import StartRun
from orchestrator.core.requests import AcquireLease, RecordRun, ReleaseLease
from orchestrator.core.restart import CRASH_LOOP_FAILURES
from orchestrator.core.spec import Backoff, JobSpec, OnCrashLoop, Restart
from tests.core.house import (
    ABSENT,
    JOB,
    TOKEN,
    at,
    ended,
    granted,
    intent,
    job,
    of,
    only,
    run_id,
    running_job,
    seen,
    service,
    turn,
)

ONCE = service(restart=Restart.NEVER, argv=("task",))
QUICK = Backoff(delay_s=1.0, factor=1.0, max_delay_s=60.0)


def record_of(spec: JobSpec, *, exit_code: int = 0) -> Mapping[str, object]:
    """Return what one node records of a run that came to its end."""
    running = running_job(spec)
    done = only(RecordRun, turn(running, ended(run_id(running), exit_code=exit_code), boot=1.0))
    found: dict[str, object] = json.loads(done.record)
    return found


def taken_over(spec: JobSpec, record: Mapping[str, object] | None, *, ordered_ms: int = 0) -> Job:
    """Return the job on a node that gets the lease afterwards."""
    heir = job(spec)
    heir.order(intent("running", at_ms=ordered_ms) if ordered_ms else None)
    turn(heir, ABSENT)
    list(heir.handle(replace(granted(0.0), last=record), at(0.0)))
    return heir


# Ends for good


@pytest.mark.parametrize(
    ("spec", "exit_code", "state", "why"),
    [
        (ONCE, 0, "stopped", "done (exit 0)"),
        (ONCE, 3, "failed", "exit 3; it wants no restart, `orchestrator start` tries again"),
        (replace(ONCE, restart=Restart.ON_FAILURE), 0, "stopped", "done (exit 0)"),
        (
            replace(ONCE, restart=Restart.ON_FAILURE, success_exit_codes=frozenset({0, 3})),
            3,
            "stopped",
            "done (exit 3, expected)",
        ),
        (
            replace(ONCE, restart=Restart.ALWAYS, no_restart_exit_codes=frozenset({64})),
            64,
            "failed",
            "exit 64; it wants no restart, `orchestrator start` tries again",
        ),
    ],
    ids=["never, well", "never, badly", "on failure, well", "on failure, expected", "a code that ends it"],
)
def test_a_service_that_is_done_says_so_and_is_done_for_every_node(
    spec: JobSpec, exit_code: int, state: str, why: str
) -> None:
    heir = taken_over(spec, record_of(spec, exit_code=exit_code))

    assert of(StartRun, heir.advance(at(0.0))) == []
    row = job_view(heir, at(0.0))
    assert (row.state, row.why) == (state, why)


@pytest.mark.parametrize(
    ("change", "starts"),
    [
        ({}, False),
        ({"tags": ("x",)}, False),
        ({"argv": ("task", "--again")}, True),
        ({"env": {"A": "1"}}, True),
        ({"restart": Restart.ALWAYS}, True),
    ],
    ids=["nothing changed", "only a tag", "another command", "another environment", "restarted always"],
)
def test_what_was_done_is_done_again_only_where_something_else_would_run(
    change: dict[str, object], starts: bool
) -> None:
    heir = taken_over(replace(ONCE, **change), record_of(ONCE))  # type: ignore[arg-type] # a test names the fields it changes

    assert bool(of(StartRun, heir.advance(at(0.0)))) is starts


def test_an_order_to_start_that_came_after_the_end_starts_it_again() -> None:
    heir = taken_over(ONCE, record_of(ONCE), ordered_ms=5)

    assert of(StartRun, heir.advance(at(0.0)))


def test_an_order_that_the_last_run_had_obeyed_does_not_start_it_again() -> None:
    running = job(ONCE)
    running.order(intent("running", at_ms=5))
    turn(running, ABSENT)
    list(running.handle(granted(0.0), at(0.0)))
    assert of(StartRun, running.advance(at(0.0)))
    done = only(RecordRun, turn(running, ended(run_id(running)), boot=1.0))

    heir = taken_over(ONCE, json.loads(done.record), ordered_ms=5)

    assert of(StartRun, heir.advance(at(0.0))) == []


def test_a_run_that_was_stopped_is_not_an_end_for_good() -> None:
    running = running_job(ONCE)
    stopped = only(RecordRun, turn(running, ended(run_id(running), cause="stop"), boot=1.0))

    heir = taken_over(ONCE, json.loads(stopped.record))

    assert of(StartRun, heir.advance(at(0.0)))


@pytest.mark.parametrize(
    "record", [None, {}, {"substance": 1, "order_ms": "x"}, {"by_itself": [], "outcome": {}}], ids=repr
)
def test_a_record_that_makes_no_sense_keeps_nothing_from_starting(record: Mapping[str, object] | None) -> None:
    assert of(StartRun, taken_over(ONCE, record).advance(at(0.0)))


# Crash loops


def looping(**changes: object) -> tuple[Job, float]:
    """Return a service that has failed so often that it is a crash loop, and when it last did."""
    running = running_job(service(**{"backoff": QUICK, **changes}))
    running.others = ("b",)
    boot = 0.0
    for _ in range(CRASH_LOOP_FAILURES):
        boot = max(boot, running.restarts.ready_at) + 0.1
        running.lease.renewed_at = boot
        turn(running, boot=boot)
        turn(running, ended(run_id(running), exit_code=1, elapsed_s=0.05), boot=boot)
    return running, boot


def test_a_crash_loop_gives_the_lease_to_another_node() -> None:
    running, _ = looping()

    assert running.lease.phase == "releasing"
    assert running.restarts.rest_why == "5 failures in a row"


@pytest.mark.parametrize(
    "changes",
    [{"on_crash_loop": OnCrashLoop.KEEP}, {"backoff": replace(QUICK, max_failures=5)}],
    ids=["the file says keep", "it was given up"],
)
def test_a_crash_loop_keeps_the_lease_where_the_file_says_so_or_nobody_is_to_try_again(
    changes: dict[str, object],
) -> None:
    running, _ = looping(**changes)

    assert running.lease.held


def test_a_crash_loop_keeps_the_lease_where_no_other_node_could_take_it() -> None:
    running, boot = looping(on_crash_loop=OnCrashLoop.KEEP)
    running.spec = replace(running.spec, on_crash_loop=OnCrashLoop.RELEASE)
    running.others = ()
    running.lease.renewed_at = boot = running.restarts.ready_at + 0.1

    (start,) = of(StartRun, turn(running, boot=boot))
    actions = turn(running, ended(start.run, exit_code=1, elapsed_s=0.05), boot=boot)

    assert of(ReleaseLease, actions) == []
    assert running.next_deadline(at(boot)) == running.restarts.ready_at


def test_a_lease_that_was_left_is_asked_for_again_after_a_while_if_nobody_took_it() -> None:
    running, boot = looping()
    turn(running, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=boot), boot=boot)

    assert of(AcquireLease, turn(running, ABSENT, boot=boot + 1.0)) == []
    row = job_view(running, at(boot + 1.0))
    assert (row.state, row.why) == ("unheld", "left to another node (5 failures in a row); asks again in 59 s")

    assert of(AcquireLease, turn(running, ABSENT, boot=boot + 60.0))


def test_a_lease_that_was_left_and_taken_is_a_standby_s() -> None:
    running, boot = looping()
    turn(running, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=boot), boot=boot)

    turn(running, seen("b"), boot=boot + 1.0)

    assert job_view(running, at(boot + 1.0)).state == "standby"


def test_an_order_to_start_tries_here_again_at_once() -> None:
    running, boot = looping()
    turn(running, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=boot), boot=boot)

    running.order(intent("running"))

    assert of(AcquireLease, turn(running, ABSENT, boot=boot + 1.0))
