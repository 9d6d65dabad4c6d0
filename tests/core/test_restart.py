"""When a service that ended is tried again."""

import pytest

from orchestrator.core.restart import LEAST_SHARE, Restarts
from orchestrator.core.spec import Backoff


def restarts(**backoff: float) -> Restarts:
    return Restarts(Backoff(**backoff), "beat|a")  # type: ignore[arg-type] # max_failures is an int where it is given


def test_a_delay_is_at_most_the_doubled_one_and_never_almost_nothing() -> None:
    counted = restarts(delay_s=1, factor=2, max_delay_s=60)

    for failures in range(1, 50):
        ceiling = min(60, 2 ** (failures - 1))
        assert LEAST_SHARE * ceiling <= counted.delay_s(failures) <= ceiling


def test_nodes_and_jobs_do_not_try_again_at_the_same_instant() -> None:
    delays = {Restarts(Backoff(), f"beat|node{number}").delay_s(5) for number in range(100)}

    assert len(delays) > 80


def test_the_delay_of_a_job_on_a_node_is_not_a_matter_of_chance() -> None:
    assert restarts().delay_s(3) == restarts().delay_s(3)


def test_an_end_puts_the_next_start_off() -> None:
    counted = restarts()

    counted.on_ended(0.0, 100.0)

    assert counted.failures == 1
    assert counted.ready_at == 100.0 + counted.delay_s(1)


def test_failures_in_a_row_are_counted_until_a_run_was_healthy() -> None:
    counted = restarts(healthy_after_s=10)
    for _ in range(3):
        counted.on_ended(9.9, 100.0)
    assert counted.failures == 3

    counted.on_ended(10.0, 200.0)

    assert counted.failures == 1


def test_no_run_is_healthy_where_nothing_counts_as_health() -> None:
    counted = restarts(healthy_after_s=0)

    for _ in range(3):
        counted.on_ended(1e6, 100.0)

    assert counted.failures == 3


@pytest.mark.parametrize(("failures", "given_up"), [(2, False), (3, True), (4, True)])
def test_the_job_is_given_up_after_so_many_failures_in_a_row(failures: int, given_up: bool) -> None:
    counted = restarts(max_failures=3)

    for _ in range(failures):
        counted.on_ended(0.1, 100.0)

    assert counted.given_up is given_up


def test_a_job_is_never_given_up_unless_the_file_says_so() -> None:
    counted = restarts()

    for _ in range(1000):
        counted.on_ended(0.1, 100.0)

    assert not counted.given_up


def test_an_order_to_start_forgets_all_failures() -> None:
    counted = restarts(max_failures=1)
    counted.on_ended(0.1, 100.0)

    counted.forget()

    assert (counted.failures, counted.ready_at, counted.given_up) == (0, 0.0, False)
