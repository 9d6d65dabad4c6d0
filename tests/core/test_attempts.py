"""How the starts of a cron are called and counted, and which one follows which: `core/attempts.py`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.attempts import (
    MOST_RERUNS,
    NODE_LEAVES,
    again,
    follower,
    ordered,
    rerun,
    retried,
    scheduled,
    told_of,
)
from orchestrator.core.messages import RunEnded
from orchestrator.core.nouns import LeaseValue, NodeName, OpenRun, RunId
from orchestrator.core.run import LEASE_LOST, Reason, Run
from orchestrator.core.spec import JobSpec, OnLost, RetrySpec
from orchestrator.core.ticks import DueTick
from tests.core.house import (
    JOB,
    RETRIED,
    TOKEN,
    UTC,
    at,
    ended,
    minutely,
    never_started,
    open_run,
    server_ms,
    trigger,
)

VALUE = LeaseValue(TOKEN, NodeName("a"), "a1")
TICK_ID = "beat@2027-01-15T08:01:00.000Z"


def run(*, attempt: int = 1, pid: int | None = 7, tick_ms: int | None = server_ms(60), stop_why: str = "") -> Run:
    """Return the run of a tick, under the retries of `RETRIED`."""
    alive = Run(RunId(TICK_ID), TOKEN, tick_ms, Reason.SCHEDULE, at(60.0), attempt, first_reason=Reason.SCHEDULE)
    alive.last_attempt = attempt > RETRIED.count
    alive.pid, alive.stop_why = pid, stop_why
    return alive


def followed(alive: Run, end: RunEnded, outcome: str, spec: JobSpec | None = None) -> OpenRun | None:
    return follower(spec or minutely(retries=RETRIED), alive, end, {"outcome": outcome}, VALUE, at(100.0))


# Names


@pytest.mark.parametrize(
    ("late", "after", "reason"),
    [
        (False, False, Reason.SCHEDULE),
        (True, False, Reason.CATCH_UP),
        (False, True, Reason.AFTER),
        (True, True, Reason.CATCH_UP),
    ],
    ids=["on time", "late", "after another job", "late after another job"],
)
def test_the_first_attempt_is_called_by_its_tick_and_knows_why_it_is_made(
    late: bool, after: bool, reason: Reason
) -> None:
    attempt = scheduled(JOB, DueTick(UTC + 60, late=late), after=after)

    assert (attempt.run, attempt.tick_ms, attempt.number) == (TICK_ID, server_ms(60), 1)
    assert (attempt.reason, attempt.first_reason) == (reason, reason)


def test_a_tick_between_two_seconds_is_told_from_its_neighbour() -> None:
    assert scheduled(JOB, DueTick(UTC + 60.125, late=False), after=True).run == "beat@2027-01-15T08:01:00.125Z"


def test_an_ordered_run_is_called_by_the_instant_of_its_order() -> None:
    attempt = ordered(trigger(5.0))

    assert attempt.run == f"beat@manual-{server_ms(5)}"
    assert (attempt.tick_ms, attempt.reason) == (None, Reason.MANUAL)


def test_a_run_that_was_ordered_for_a_tick_knows_the_tick_and_is_called_by_the_order() -> None:
    attempt = ordered(trigger(5.0, tick_at=-60.0))

    assert (attempt.run, attempt.tick_ms) == (f"beat@manual-{server_ms(5)}", server_ms(-60))


@pytest.mark.parametrize(("why", "told"), [("", "ordered by ann@desk"), ("a fix", "ordered by ann@desk: a fix")])
def test_who_ordered_it_is_told_in_one_clause(why: str, told: str) -> None:
    assert told_of(trigger(5.0, why=why)) == told
    assert ordered(trigger(5.0, why=why)).begun(minutely(), TOKEN, at(6.0), []).note == told


@pytest.mark.parametrize(
    ("ended_run", "number", "following"),
    [
        (TICK_ID, 1, f"{TICK_ID}.2"),
        (f"{TICK_ID}.2", 2, f"{TICK_ID}.3"),
        (f"{TICK_ID}.9", 9, f"{TICK_ID}.10"),
        (f"{TICK_ID}.10", 10, f"{TICK_ID}.11"),
        ("beat@manual-18", 1, "beat@manual-18.2"),
        ("beat.1@manual-18.2", 2, "beat.1@manual-18.3"),
        ("beat.2@manual-18", 2, "beat.2@manual-18.3"),
    ],
)
def test_the_next_attempt_is_called_by_its_number(ended_run: str, number: int, following: str) -> None:
    left = OpenRun(RunId(ended_run), None, TOKEN, NodeName("b"), number, "manual", server_ms(0))

    assert (again(left).run, again(left).number) == (following, number + 1)


@pytest.mark.parametrize(("by_loss", "reason"), [(False, Reason.RETRY), (True, Reason.RERUN)], ids=["failed", "lost"])
def test_it_says_what_became_of_the_one_before(by_loss: bool, reason: Reason) -> None:
    attempt = again(open_run(60.0, retry_at=90.0, rerun=by_loss))

    assert (attempt.reason, attempt.first_reason, attempt.tick_ms) == (reason, Reason.SCHEDULE, server_ms(60))


def test_a_reason_of_another_version_does_no_harm() -> None:
    left = OpenRun(RunId(TICK_ID), server_ms(60), TOKEN, NodeName("b"), 1, "eclipse", server_ms(90))

    assert again(left).first_reason is Reason.SCHEDULE


# A start


@pytest.mark.parametrize(("number", "last"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_run_knows_whether_another_one_follows_if_it_fails(number: int, last: bool) -> None:
    attempt = again(open_run(60.0, attempt=number - 1, retry_at=90.0)) if number > 1 else ordered(trigger(5.0))

    assert attempt.begun(minutely(retries=RETRIED), TOKEN, at(90.0), []).last_attempt is last


@pytest.mark.parametrize(("alive", "lane"), [([], 0), ([0], 1), ([1, 2], 0), ([0, 2], 1)])
def test_a_run_writes_where_no_other_one_does(alive: list[int], lane: int) -> None:
    assert ordered(trigger(5.0)).begun(minutely(), TOKEN, at(6.0), alive).lane == lane


def test_what_the_store_keeps_of_an_attempt_names_its_holder_and_the_reason_of_the_first() -> None:
    attempt = again(open_run(60.0, retry_at=90.0))

    assert attempt.opened(VALUE) == OpenRun(
        RunId(f"{TICK_ID}.2"), server_ms(60), TOKEN, NodeName("a"), 2, "schedule", retry_ms=0, rerun=False
    )


# Which one follows


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_a_run_that_failed_is_tried_again(outcome: str) -> None:
    left = followed(run(), ended(TICK_ID, exit_code=1), outcome)

    assert left is not None
    assert (left.retry_ms, left.rerun, left.attempt) == (server_ms(130), False, 1)


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_the_last_attempt_is_not(outcome: str) -> None:
    assert followed(run(attempt=3), ended(TICK_ID, exit_code=1), outcome) is None


@pytest.mark.parametrize("on_lost", list(OnLost))
@pytest.mark.parametrize(("outcome", "why"), [("ok", ""), ("stopped", "stop was ordered"), ("stopped", "replaced")])
def test_a_run_that_succeeded_or_was_stopped_is_done(on_lost: OnLost, outcome: str, why: str) -> None:
    spec = minutely(retries=RETRIED, on_lost=on_lost)

    assert followed(run(stop_why=why), ended(TICK_ID), outcome, spec) is None


@pytest.mark.parametrize(
    ("outcome", "why", "pid", "on_lost", "follows"),
    [
        ("lost", LEASE_LOST, 7, OnLost.SKIP, False),
        ("lost", LEASE_LOST, 7, OnLost.RERUN, True),
        ("lost", LEASE_LOST, None, OnLost.SKIP, True),
        ("stopped", NODE_LEAVES, 7, OnLost.SKIP, False),
        ("stopped", NODE_LEAVES, 7, OnLost.RERUN, True),
        ("lost", NODE_LEAVES, None, OnLost.SKIP, True),
    ],
    ids=[
        "lost while it ran: not by default",
        "lost while it ran: where on_lost says so",
        "lost before it ran: always",
        "its node leaves: not by default",
        "its node leaves: where on_lost says so",
        "its node leaves before it ran: always",
    ],
)
def test_when_a_run_that_was_cut_off_is_run_again(
    outcome: str, why: str, pid: int | None, on_lost: OnLost, follows: bool
) -> None:
    end = ended(TICK_ID, cause="killed", exit_code=None) if pid else never_started(TICK_ID)

    left = followed(run(pid=pid, stop_why=why), end, outcome, minutely(on_lost=on_lost))

    assert (left is not None) is follows
    at_s = 100 if pid else 103  # what kept it from starting is given a heartbeat to be over
    assert left is None or (left.rerun, left.retry_ms) == (True, server_ms(at_s))


# How late, and how often


@pytest.mark.parametrize(("attempt", "delay_s"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (1000, 300)])
def test_each_delay_is_the_longer_one_up_to_the_longest(attempt: int, delay_s: int) -> None:
    spec = minutely(retries=RetrySpec(count=1000, delay_s=30.0, backoff=2.0, max_delay_s=300.0))

    assert retried(spec, open_run(60.0, attempt=attempt), at(100.0)).retry_ms == server_ms(100 + delay_s)


def test_without_a_delay_it_is_tried_again_at_once() -> None:
    spec = minutely(retries=RetrySpec(count=3, delay_s=0.0))

    assert retried(spec, open_run(60.0), at(100.0)).retry_ms == server_ms(100)


@given(
    attempt=st.integers(1, 1_000_000),
    delay_s=st.floats(0, 1e6),
    backoff=st.floats(1, 100),
    max_delay_s=st.floats(0, 1e6),
)
def test_no_delay_is_longer_than_the_longest(attempt: int, delay_s: float, backoff: float, max_delay_s: float) -> None:
    spec = minutely(retries=RetrySpec(5, delay_s, backoff, max_delay_s))
    left = retried(spec, open_run(60.0, attempt=attempt), at(0.0))

    assert server_ms(0) <= left.retry_ms <= server_ms(max_delay_s) + 1


def test_reruns_make_no_delay_longer() -> None:
    spec = minutely(retries=RetrySpec(count=3, delay_s=30.0))

    assert retried(spec, open_run(60.0, attempt=3, reruns=2), at(100.0)).retry_ms == server_ms(130)


@pytest.mark.parametrize(("number", "reruns", "last"), [(3, 1, False), (3, 0, True), (5, 2, True), (5, 3, False)])
def test_a_rerun_takes_no_retry_away(number: int, reruns: int, last: bool) -> None:
    left = open_run(60.0, attempt=number - 1, retry_at=90.0, reruns=reruns)

    assert again(left).begun(minutely(retries=RETRIED), TOKEN, at(90.0), []).last_attempt is last


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_job_that_takes_its_node_with_it_is_run_again_three_times_however_many_retries_it_has(retries: int) -> None:
    spec, left = minutely(on_lost=OnLost.RERUN, retries=RetrySpec(count=retries)), open_run(60.0)
    runs = 0

    while (follows := rerun(spec, left, at(100.0), certain=False)) is not None:
        runs += 1
        left = again(follows).opened(VALUE)

    assert runs == MOST_RERUNS == 3


def test_nor_oftener_where_it_never_started() -> None:
    assert rerun(minutely(), open_run(60.0, attempt=4, reruns=3), at(100.0), certain=True) is None
