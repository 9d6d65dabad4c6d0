"""The numbers of a lease, and what else a specification works out by itself."""

import pytest

from orchestrator.core.spec import ScheduleSpec, bucket_of
from orchestrator.core.timing import LeaseTiming


@pytest.mark.parametrize(
    ("ttl_s", "heartbeat_s", "request_timeout_s", "grace_s", "kill_time_s", "margin_s"),
    [
        (2, 0.4, 0.167, 0.667, 0.133, 0.2),
        (3, 0.6, 0.25, 1, 0.2, 0.2),
        (15, 3, 1, 5, 1, 0.5),
        (60, 12, 1, 20, 1, 0.5),
    ],
    ids=["the shortest ttl", "a short ttl", "the default ttl", "a long ttl"],
)
def test_the_other_numbers_scale_with_the_ttl(
    ttl_s: float, heartbeat_s: float, request_timeout_s: float, grace_s: float, kill_time_s: float, margin_s: float
) -> None:
    timing = LeaseTiming.scaled(ttl_s)

    assert timing.heartbeat_s == pytest.approx(heartbeat_s)
    assert timing.request_timeout_s == pytest.approx(request_timeout_s, abs=5e-4)
    assert timing.step_down_grace_s == pytest.approx(grace_s, abs=5e-4)
    assert timing.kill_time_s == pytest.approx(kill_time_s, abs=5e-4)
    assert timing.margin_s == pytest.approx(margin_s)
    assert timing.clock_rate_error == 0.01


@pytest.mark.parametrize("ttl_s", [2, 3, 15, 60, 3600])
def test_the_scaled_numbers_satisfy_their_own_rule(ttl_s: float) -> None:
    assert LeaseTiming.scaled(ttl_s).problem() == ""


@pytest.mark.parametrize(
    ("timing", "words"),
    [
        (LeaseTiming.scaled(5, heartbeat_s=5), ["2 x heartbeat", "4.95s < 2 x 5s", "lower heartbeat", "1s"]),
        (LeaseTiming.scaled(6, heartbeat_s=4), ["2 x heartbeat", "5.94s < 2 x 4s", "lower heartbeat", "1.2s"]),
        (LeaseTiming.scaled(0.2), ["the shortest ttl is 2s", "0.2s"]),
    ],
    ids=["a heartbeat as long as the ttl", "no room for a second heartbeat", "a ttl of 200 ms"],
)
def test_numbers_that_cannot_keep_the_promise_are_refused_with_the_rule(timing: LeaseTiming, words: list[str]) -> None:
    problem = timing.problem()

    assert [word for word in words if word not in problem] == []


def test_a_timing_that_fits_exactly_is_accepted() -> None:
    assert LeaseTiming(10, 2, 1, 3, 1, 0.9, clock_rate_error=0.01).problem() == ""
    assert LeaseTiming(10, 2, 1, 3, 1, 0.91, clock_rate_error=0.01).problem() != ""


def test_the_instants_of_a_run_lie_before_the_end_of_its_lease() -> None:
    timing = LeaseTiming.scaled(15)

    deadlines = timing.deadlines(100.0)

    assert timing.ends_at(100.0) == pytest.approx(114.35)
    assert deadlines.kill_at == pytest.approx(113.35)
    assert deadlines.term_at == pytest.approx(108.35)


def test_another_grace_moves_only_the_first_signal() -> None:
    deadlines = LeaseTiming.scaled(15).deadlines(100.0, grace_s=0.0)

    assert deadlines.term_at == deadlines.kill_at == pytest.approx(113.35)


def test_a_key_is_always_in_the_same_one_of_sixteen_buckets() -> None:
    assert bucket_of("beat") == 12
    assert {bucket_of(f"job{number}") for number in range(500)} == set(range(16))


@pytest.mark.parametrize(
    ("schedule", "identity"),
    [
        (ScheduleSpec(cron="0 3 * * *", timezone="Europe/Berlin"), "0 3 * * *@Europe/Berlin"),
        (ScheduleSpec(every_s=90), "every 90s"),
    ],
    ids=["an expression in its zone", "a period"],
)
def test_a_schedule_is_told_from_another_by_its_identity(schedule: ScheduleSpec, identity: str) -> None:
    assert schedule.identity == identity
