"""The successes of another job, as ticks of the one that runs after it (`after`)."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.successes import MOST_KEPT, Successes


def told(*at_ms: int) -> Successes:
    successes = Successes()
    successes.tell(at_ms)
    return successes


def test_where_none_is_known_none_follows() -> None:
    assert told().next_after(0.0) is None
    assert told().newest_in(0.0, 1e12) == (None, 0)


def test_the_next_one_is_strictly_later() -> None:
    successes = told(1000, 2500)

    assert [successes.next_after(utc) for utc in (0.0, 1.0, 2.4, 2.5)] == [1.0, 2.5, 2.5, None]


def test_a_span_is_open_where_it_begins_and_closed_where_it_ends() -> None:
    successes = told(1000, 2000, 3000)

    assert successes.newest_in(1.0, 3.0) == (3.0, 2)
    assert successes.newest_in(0.999, 2.999) == (2.0, 2)
    assert successes.newest_in(1.0, 1.5) == (None, 0)


def test_what_is_told_again_or_out_of_order_counts_once() -> None:
    successes = told(3000, 1000)
    successes.tell([1000, 2000])

    assert successes.newest_in(0.0, 9.0) == (3.0, 3)


def test_of_very_many_the_newest_are_kept() -> None:
    successes = told(*range(1000, 1000 * (MOST_KEPT + 2), 1000))

    assert successes.newest_in(0.0, 1e9) == (MOST_KEPT + 1.0, MOST_KEPT)


@given(at_ms=st.sets(st.integers(0, 50)), after=st.integers(-1, 51), until=st.integers(-1, 51))
def test_it_answers_as_a_schedule_of_these_instants_would(at_ms: set[int], after: int, until: int) -> None:
    successes = told(*at_ms)
    instants = sorted(at_ms)
    inside = [ms for ms in instants if after < ms <= until]
    place = bisect_right(instants, after)

    assert successes.next_after(after / 1000) == (instants[place] / 1000 if place < len(instants) else None)
    assert successes.newest_in(after / 1000, until / 1000) == ((inside[-1] / 1000 if inside else None), len(inside))
