"""The room of one node for runs of crons (`max_running`), and whose turn it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.capacity import Capacity
from orchestrator.core.nouns import JobName

A, B, C, D = (JobName(name) for name in "abcd")


def full(limit: int = 1) -> Capacity:
    """Return a node whose room is taken by one job."""
    capacity = Capacity(limit)
    capacity.hold(D, limit)
    return capacity


def test_without_a_limit_everybody_may_start_and_nobody_waits() -> None:
    capacity = Capacity()
    capacity.hold(A, 1000)

    assert capacity.admits(B)
    assert capacity.turn() == []


def test_as_many_run_as_the_limit_says() -> None:
    capacity = Capacity(2)
    assert capacity.admits(A)
    capacity.hold(A, 1)
    assert capacity.admits(B)
    capacity.hold(B, 1)

    assert not capacity.admits(C)


def test_two_runs_of_one_job_take_two_places() -> None:
    capacity = Capacity(2)
    capacity.hold(A, 2)

    assert not capacity.admits(A)


def test_what_a_job_holds_is_what_it_said_last() -> None:
    capacity = Capacity(2)
    capacity.hold(A, 2)
    capacity.hold(A, 1)

    assert capacity.admits(B)


def test_who_asks_again_does_not_wait_twice() -> None:
    capacity = full()
    assert [capacity.admits(A), capacity.admits(A)] == [False, False]

    capacity.hold(D, 0)

    assert capacity.turn() == [A]


def test_who_waited_longest_is_first_whoever_asks() -> None:
    capacity = full()
    assert not capacity.admits(A)
    assert not capacity.admits(B)
    capacity.hold(D, 0)

    assert not capacity.admits(B)
    assert not capacity.admits(C)
    assert capacity.admits(A)


def test_who_has_room_beside_those_that_wait_need_not_wait() -> None:
    capacity = full(3)
    assert not capacity.admits(A)
    capacity.hold(D, 1)

    assert capacity.admits(B)


def test_those_have_their_turn_for_whom_there_is_room() -> None:
    capacity = full(2)
    assert not any(capacity.admits(job) for job in (A, B, C))

    assert capacity.turn() == []
    capacity.hold(D, 0)

    assert capacity.turn() == [A, B]


def test_who_leaves_is_in_nobodys_way() -> None:
    capacity = full()
    assert not capacity.admits(A)
    assert not capacity.admits(B)

    capacity.leave(A)
    capacity.hold(D, 0)

    assert capacity.turn() == [B]


def test_who_starts_waits_no_more() -> None:
    capacity = full()
    assert not capacity.admits(A)
    capacity.hold(D, 0)
    assert capacity.admits(A)

    assert capacity.turn() == []


def test_who_waited_and_has_started_is_last_when_it_comes_again() -> None:
    capacity = full()
    assert not any(capacity.admits(job) for job in (A, B))
    capacity.hold(D, 0)
    assert capacity.admits(A)
    capacity.hold(A, 1)
    assert not capacity.admits(A)
    capacity.hold(A, 0)

    assert capacity.turn() == [B]


@pytest.mark.parametrize(("limit", "admitted"), [(3, True), (1, False)], ids=["raised", "lowered"])
def test_another_limit_counts_at_once_and_ends_no_run(limit: int, admitted: bool) -> None:
    capacity = full(2)

    capacity.limit = limit

    assert capacity.admits(A) is admitted
    assert capacity.turn() == []


def test_a_limit_that_is_taken_away_leaves_nobody_waiting() -> None:
    capacity = full()
    assert not capacity.admits(A)

    capacity.limit = None
    assert capacity.admits(A)
    capacity.limit = 1
    capacity.hold(D, 0)

    assert capacity.turn() == []
    assert capacity.admits(B)


@given(
    limit=st.integers(1, 3),
    steps=st.lists(st.tuples(st.sampled_from([A, B, C, D]), st.sampled_from(["start", "end", "leave"]))),
)
def test_the_limit_is_never_passed_and_who_has_a_turn_can_start(limit: int, steps: list[tuple[JobName, str]]) -> None:
    capacity, runs = Capacity(limit), dict.fromkeys((A, B, C, D), 0)

    for job, step in steps:
        if step == "start" and capacity.admits(job):
            runs[job] += 1
        elif step == "end" and runs[job]:
            runs[job] -= 1
        elif step == "leave":
            capacity.leave(job)
        capacity.hold(job, runs[job])
        assert sum(runs.values()) <= limit

    for job in capacity.turn():
        assert capacity.admits(job)
        runs[job] += 1
        capacity.hold(job, runs[job])
    assert sum(runs.values()) <= limit
