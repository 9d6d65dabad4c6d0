"""B20: sidekiq-scheduler#283, quartznet PR#3148 on quartz#1508.

A clock that was set forward started all jobs at once, one that was set back none for an hour; a check-in was missed
at each jump, since the sleep was reckoned on one clock and waited for on another. Here leases go by the boot clock,
ticks by the clock that is right: where a node's own was set, away from Redis's, time goes on as before. Where the whole
machine was set, Redis too, that time is another one: nothing runs twice, and at most one run catches up.
"""

from collections.abc import Callable

import pytest

from orchestrator.core.snapshot import State
from tests.bugs.days import HEARTBEAT_S, SERVICE, SOON_S, Days, OrderlyMachine, clock_time, cron, instant, service

EVERY_5_MINUTES = "*/5 * * * *"
HOUR_S = 3600.0
LOST = ("lease.lost", "lease.ended", "lease.acquired")

Clocks = Callable[[Days], list[OrderlyMachine]]
Jump = Callable[[Days, list[OrderlyMachine]], None]


def set_back(days: Days, machines: list[OrderlyMachine]) -> None:
    days.set_clocks(-HOUR_S, machines=machines)


def set_forward(days: Days, machines: list[OrderlyMachine]) -> None:
    days.set_clocks(1.5 * HOUR_S, machines=machines)


def smear(days: Days, machines: list[OrderlyMachine]) -> None:
    for second in range(1, 61):
        days.set_clocks(2.0 * second, machines=machines)
        days.pass_s(1.0)


def smear_back(days: Days, machines: list[OrderlyMachine]) -> None:
    for second in range(1, 61):
        days.set_clocks(-0.5 * second, machines=machines)
        days.pass_s(1.0)


def ticks(first: str, last: str) -> list[str]:
    """Return every fifth minute from `first` to `last`."""
    begin, end = instant(f"2027-01-15T{first}:00Z"), instant(f"2027-01-15T{last}:00Z")
    return [clock_time(begin + after) for after in range(0, round(end - begin) + 1, 300)]


def begun(nodes: int) -> Days:
    """Return nodes that have run a cron and a service for a quarter of an hour; it is 10:02."""
    days = Days(cron(EVERY_5_MINUTES), service(), nodes=nodes, begin="2027-01-15T09:47:00Z")
    days.go("10:02:00")
    assert days.ticks() == ticks("09:50", "10:00")
    return days


def assert_undisturbed(days: Days) -> None:
    """Assert that every lease is the one of the beginning, and the service's run as well."""
    assert [saying.event for saying in days.ledger.sayings if saying.event in LOST] == ["lease.acquired"] * 2
    assert len({start.token for start in days.of()}) == 1
    assert len(days.of(SERVICE)) == 1
    assert days.world.history.runs(SERVICE) == 1


# Of a node's own clock; Redis's goes on


@pytest.mark.parametrize("jump", [set_back, set_forward, smear, smear_back])
@pytest.mark.parametrize(
    ("nodes", "whose"),
    [
        pytest.param(1, lambda days: [days.holder()], id="of the only node"),
        pytest.param(3, lambda days: [days.holder()], id="of the holder among three"),
        pytest.param(3, lambda days: days.standbys(), id="of the two others"),
        pytest.param(3, lambda days: days.machines, id="of all three"),
    ],
)
def test_no_tick_notices_that_the_clock_of_a_node_was_set(nodes: int, whose: Clocks, jump: Jump) -> None:
    days = begun(nodes)
    machines = whose(days)

    jump(days, machines)
    days.go("10:22:00")
    days.set_clocks(0.0, machines=machines)
    days.go("10:42:00")

    assert days.ticks() == ticks("09:50", "10:40")
    assert {start.reason for start in days.of()} == {"schedule"}
    assert all(-SOON_S < start.late_s < HEARTBEAT_S + SOON_S for start in days.of())
    assert days.not_run() == []
    days.assert_every_tick_is_told_of()
    assert_undisturbed(days)


@pytest.mark.parametrize("jump", [set_back, set_forward])
def test_a_clock_that_is_wrong_is_said_and_so_is_that_it_is_right_again(jump: Jump) -> None:
    days = begun(1)

    jump(days, days.machines)
    days.go("10:12:00")
    days.set_clocks(0.0)
    days.go("10:22:00")

    assert len(days.said("clock.wrong")) == 1
    assert len(days.said("clock.right")) == 1


def test_a_node_that_takes_over_with_a_wrong_clock_neither_repeats_nor_loses_a_tick() -> None:
    days = begun(2)
    heir, heirless = days.standbys()[0], days.holder()
    days.set_clocks(-HOUR_S, machines=[heir])

    days.go("10:04:55")
    heirless.lose_power()
    days.go("11:02:00")

    assert days.ticks() == ticks("09:50", "11:00")
    assert {start.node for start in days.of() if start.tick is not None and start.tick > instant(MOVED)} == {heir.name}
    days.assert_every_tick_is_told_of()


MOVED = "2027-01-15T10:02:00Z"


# Of one machine: the node's and Redis's together


@pytest.mark.parametrize("nodes", [1, 3])
def test_where_all_clocks_are_set_back_nothing_runs_twice_and_the_row_says_why(nodes: int) -> None:
    days = begun(nodes)

    days.set_clocks(-HOUR_S, server=True)
    days.go("10:12:00")  # it shows 09:12

    row = days.holder().row()
    assert days.ticks() == ticks("09:50", "10:00")
    assert row.state == State.WAITING
    assert row.why == "the clock was set back: ticks until 2027-01-15T10:00:00.000Z have been"
    assert row.next == "2027-01-15T10:05:00.000Z"
    assert len(days.said("clock.set")) == nodes
    assert_undisturbed(days)


@pytest.mark.parametrize("nodes", [1, 3])
def test_where_all_clocks_are_set_back_it_goes_on_at_the_first_new_tick(nodes: int) -> None:
    days = begun(nodes)

    days.set_clocks(-HOUR_S, server=True)
    days.go("11:32:00")  # it shows 10:32

    assert days.ticks() == ticks("09:50", "10:30")
    after = [start for start in days.of() if start.tick is not None and start.tick > instant(MOVED)]
    assert all(abs(start.late_s - HOUR_S) < SOON_S for start in after)  # true time is an hour on
    assert days.holder().row().why == ""
    assert days.not_run() == []
    days.assert_every_tick_is_told_of()
    assert_undisturbed(days)


@pytest.mark.parametrize("nodes", [1, 3])
def test_where_all_clocks_are_set_forward_one_run_catches_up_and_the_others_are_told_as_missed(nodes: int) -> None:
    days = begun(nodes)

    days.set_clocks(1.5 * HOUR_S, server=True)
    days.go("10:12:00")  # it shows 11:42

    assert days.ticks() == [*ticks("09:50", "10:00"), *ticks("11:30", "11:40")]
    assert [start.reason for start in days.of()][-3:] == ["catch_up", "schedule", "schedule"]
    assert days.not_run() == [
        ("missed", "2027-01-15T10:05:00.000Z", "2027-01-15T11:20:00.000Z", 16, "later than misfire_grace"),
        (
            *("missed", "2027-01-15T11:25:00.000Z", "2027-01-15T11:25:00.000Z", 1),
            "a newer one is due (misfire: once)",
        ),
    ]
    days.assert_every_tick_is_told_of()
    assert_undisturbed(days)


def test_where_all_clocks_are_smeared_each_tick_runs_once_by_the_new_time() -> None:
    days = begun(1)

    for second in range(1, 61):
        days.set_clocks(2.0 * second, server=True)
        days.pass_s(1.0)
    days.go("10:12:00")  # it shows 10:14

    assert days.ticks() == ticks("09:50", "10:10")
    assert days.not_run() == []
    days.assert_every_tick_is_told_of()
    assert_undisturbed(days)


@pytest.mark.parametrize("ahead_s", [-HOUR_S, 1.5 * HOUR_S])
def test_history_is_in_utc(ahead_s: float) -> None:
    days = begun(1)

    days.set_clocks(ahead_s, server=True)
    days.go("11:32:00")

    instants = [entry[word] for entry in days.past().entries for word in ("started", "ended", "tick", "first", "last")]
    assert [told for told in instants if told is not None and not str(told).endswith("Z")] == []
