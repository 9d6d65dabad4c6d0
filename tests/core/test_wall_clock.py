"""Which wall clock counts: the table in the head of `core/wall_clock.py`, both directions, and what is said of it.

The clocks of a test show `UTC` at 0 s and go on with the boot clock; `own` says by how much the node's was set since.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.messages import Say
from orchestrator.core.node import Node
from orchestrator.core.nouns import Moment
from orchestrator.core.requests import ClaimTick, SettleTicks
from orchestrator.core.wall_clock import APART_S, MOST_SLEW, SET_S, TOGETHER_S, WallClock
from tests.core.house import ABSENT, UTC, granted, joined, members, met, minutely, node, of, server_ms, told

HOUR_S = 3600.0
BOTH_WAYS = pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])


def shown(clock: WallClock, boot: float, own: float = 0.0, redis: float | None = 0.0) -> float:
    """Return by how much the clock that counts has moved, where the two were set by so much."""
    moment = clock.right(Moment(boot, UTC + boot + own), None if redis is None else UTC + redis)
    assert moment.boot == boot
    return round(moment.utc - UTC - boot, 3)


def said(clock: WallClock, redis: float | None = 0.0) -> list[str]:
    return [say.event for say in clock.say(None if redis is None else UTC + redis)]


def known(own: float = 0.0, redis: float | None = 0.0) -> WallClock:
    """Return a clock that has looked at both once, and has said what there was to say."""
    clock = WallClock()
    shown(clock, 0.0, own, redis)
    said(clock, redis)
    return clock


# The own clock goes on


@pytest.mark.parametrize("redis", [None, 0.0, HOUR_S, -HOUR_S], ids=["unknown", "alike", "ahead", "behind"])
def test_a_node_is_believed_whatever_redis_shows(redis: float | None) -> None:
    clock = WallClock()

    assert shown(clock, 0.0, redis=redis) == 0.0
    assert shown(clock, 9.0, redis=redis) == 0.0


@BOTH_WAYS
def test_a_clock_of_redis_that_is_set_moves_nothing(step_s: float) -> None:
    clock = known()

    assert shown(clock, 3.0, redis=step_s) == 0.0
    assert shown(clock, 6.0, redis=step_s) == 0.0


def test_the_own_clock_counts_to_the_last_bit() -> None:
    clock = known()
    exact = Moment(3.000000123, UTC + 3.000000456)

    assert clock.right(exact, UTC + 0.004) is exact


@pytest.mark.parametrize("step_s", [SET_S, -SET_S, 0.1], ids=["forward", "back", "a little"])
def test_less_than_what_counts_as_set_is_followed(step_s: float) -> None:
    clock = known()

    assert shown(clock, 3.0, own=step_s) == step_s
    assert said(clock) == (["clock.differs"] if abs(step_s) > APART_S else [])


@pytest.mark.parametrize("rate", [0.08, -0.08, 0.0005], ids=["chrony's fastest", "backwards", "ntpd's"])
def test_slewing_is_followed_however_far_it_goes(rate: float) -> None:
    clock = known()

    for boot in range(3, 3600, 3):
        assert shown(clock, boot, own=rate * boot) == pytest.approx(rate * boot, abs=0.001)

    assert "clock.wrong" not in said(clock)


def test_the_sleep_of_the_machine_is_no_jump() -> None:
    clock = known()

    assert shown(clock, 8 * HOUR_S) == 0.0
    assert said(clock) == []


# The own clock was set, that of Redis goes on


@BOTH_WAYS
def test_a_clock_that_is_set_alone_moves_nothing(step_s: float) -> None:
    clock = known()

    assert [shown(clock, boot, own=step_s) for boot in (3.0, 6.0, HOUR_S)] == [0.0] * 3


@BOTH_WAYS
def test_when_it_is_right_again_it_counts(step_s: float) -> None:
    clock = known()
    shown(clock, 3.0, own=step_s)

    assert shown(clock, 6.0, own=0.1) == 0.1
    assert shown(clock, 9.0, own=0.2) == 0.2


@BOTH_WAYS
def test_while_it_is_wrong_time_follows_the_slewing_of_redis(step_s: float) -> None:
    clock = known()
    shown(clock, 3.0, own=step_s)

    assert shown(clock, 6.0, own=step_s, redis=0.2) == 0.2
    assert shown(clock, 9.0, own=step_s, redis=0.3) == 0.3


@BOTH_WAYS
def test_a_second_wrong_time_is_as_wrong_as_the_first(step_s: float) -> None:
    clock = known()
    shown(clock, 3.0, own=step_s)

    assert shown(clock, 6.0, own=2 * step_s) == 0.0
    assert said(clock) == ["clock.wrong"]


@BOTH_WAYS
def test_clocks_that_always_differed_are_held_against_their_own_past(step_s: float) -> None:
    clock = known(redis=7.0)

    assert shown(clock, 3.0, own=step_s, redis=7.0) == 0.0


@pytest.mark.parametrize("rate", [2.0, -2.0], ids=["forward", "back"])
@pytest.mark.parametrize("look_s", [0.1, 0.5, 1.0, 3.0])
def test_a_clock_that_runs_away_by_two_seconds_a_second_is_not_followed(rate: float, look_s: float) -> None:
    clock = known()
    looks = [look_s * number for number in range(1, round(60 / look_s) + 1)]

    moved = [shown(clock, boot, own=rate * boot) for boot in looks]

    assert max(map(abs, moved)) <= SET_S + MOST_SLEW * 60
    assert shown(clock, 90.0, own=rate * 60.0) == moved[-1]
    assert said(clock) == ["clock.wrong"]


# The own clock was put right


@pytest.mark.parametrize("wrong_s", [HOUR_S, -HOUR_S], ids=["an hour ahead", "an hour behind"])
def test_a_node_that_began_with_a_wrong_clock_counts_by_it_until_it_is_put_right(wrong_s: float) -> None:
    clock = known(own=wrong_s)

    assert shown(clock, 3.0, own=wrong_s) == wrong_s
    assert shown(clock, 6.0, own=0.0) == 0.0
    assert said(clock) == ["clock.set", "clock.agrees"]
    assert shown(clock, 9.0, own=0.0) == 0.0


@BOTH_WAYS
def test_nearer_to_redis_is_right_though_not_alike(step_s: float) -> None:
    clock = known(own=step_s)

    assert shown(clock, 3.0, own=3.0) == 3.0


# Both were set, or Redis's is not known


@BOTH_WAYS
def test_where_redis_is_unknown_the_own_clock_counts(step_s: float) -> None:
    clock = known(redis=None)

    assert shown(clock, 3.0, own=step_s, redis=None) == step_s
    assert said(clock, None) == ["clock.set"]


@BOTH_WAYS
def test_a_clock_that_was_set_before_redis_is_known_counts(step_s: float) -> None:
    clock = known(redis=None)

    assert shown(clock, 3.0, own=step_s, redis=0.0) == step_s


@BOTH_WAYS
def test_clocks_that_are_set_together_show_another_time(step_s: float) -> None:
    clock = known()

    assert shown(clock, 3.0, own=step_s, redis=step_s) == step_s
    assert said(clock, step_s) == ["clock.set"]


@BOTH_WAYS
def test_nor_does_it_matter_that_redis_is_seen_a_heartbeat_later(step_s: float) -> None:
    clock = known()

    assert shown(clock, 3.0, own=step_s, redis=0.0) == 0.0
    assert shown(clock, 6.0, own=step_s, redis=step_s) == step_s
    assert shown(clock, 9.0, own=step_s, redis=step_s) == step_s


@BOTH_WAYS
def test_nor_that_redis_is_set_first(step_s: float) -> None:
    clock = known()

    assert shown(clock, 3.0, own=0.0, redis=step_s) == 0.0
    assert shown(clock, 6.0, own=step_s, redis=step_s) == step_s


@BOTH_WAYS
def test_what_counted_once_both_were_set_is_what_is_held_against_later(step_s: float) -> None:
    clock = known()
    shown(clock, 3.0, own=step_s, redis=step_s)

    assert shown(clock, 6.0, own=0.0, redis=step_s) == step_s


# Whatever happens


jumps = st.lists(st.tuples(st.floats(0.001, 30.0), st.floats(-5000.0, 5000.0) | st.floats(-3.0, 3.0)), max_size=30)


@settings(deadline=None)
@given(jumps=jumps, apart_s=st.floats(-SET_S, SET_S))
def test_beside_a_redis_that_goes_on_no_setting_of_the_own_clock_moves_time(
    jumps: list[tuple[float, float]], apart_s: float
) -> None:
    clock = known(redis=apart_s)
    boot = own = 0.0

    for after_s, by_s in jumps:
        boot, own = boot + after_s, own + by_s
        assert abs(shown(clock, boot, own, apart_s) - apart_s) <= abs(apart_s) + SET_S + MOST_SLEW * boot + 0.01


@settings(deadline=None)
@given(looks=st.lists(st.tuples(st.floats(-5000.0, 5000.0), st.none() | st.floats(-5000.0, 5000.0)), max_size=20))
def test_each_look_shows_the_own_clock_or_goes_on_as_the_one_before(looks: list[tuple[float, float | None]]) -> None:
    clock, before = known(), 0.0

    for number, (own, redis) in enumerate(looks, start=1):
        now = shown(clock, float(number), own, redis)
        assert abs(now - own) <= 0.002 or abs(now - before) <= SET_S + 0.01
        before = now


# What is said


@BOTH_WAYS
def test_a_wrong_clock_is_said_once_and_once_that_it_is_right(step_s: float) -> None:
    clock = known()

    for boot in (3.0, 3.1, 6.0):
        shown(clock, boot, own=step_s)
    (wrong,) = clock.say(UTC)
    for boot in (9.0, 9.1):
        shown(clock, boot)

    assert wrong == Say("clock.wrong", {"by_s": step_s}, "warning")
    assert said(clock) == ["clock.right"]
    assert said(clock) == []


@BOTH_WAYS
def test_a_time_that_is_another_one_is_said_once(step_s: float) -> None:
    clock = known(redis=None)
    for boot in (3.0, 3.1, 6.0):
        shown(clock, boot, own=step_s, redis=None)

    (set_anew,) = clock.say(None)

    assert set_anew == Say("clock.set", {"by_s": step_s}, "warning")


@pytest.mark.parametrize(
    ("redis", "which"), [(-1.5, "ahead of"), (1.5, "behind")], ids=["the node is ahead", "the node is behind"]
)
def test_clocks_that_differ_are_said_once_with_their_distance(redis: float, which: str) -> None:
    clock = WallClock()
    shown(clock, 0.0, redis=redis)

    assert list(clock.say(UTC + redis)) == [Say("clock.differs", {"by_s": 1.5, "which": which}, "warning")]
    assert said(clock, redis) == []


def test_that_they_agree_again_is_said_only_when_they_clearly_do() -> None:
    clock = WallClock()
    shown(clock, 0.0)

    distances = (APART_S, APART_S + 0.1, APART_S - 0.1, TOGETHER_S + 0.1, TOGETHER_S - 0.1, APART_S)

    assert [said(clock, distance) for distance in distances] == [[], ["clock.differs"], [], [], ["clock.agrees"], []]


def test_nothing_is_said_before_anything_is_known() -> None:
    assert said(WallClock()) == []
    assert said(known(redis=None), None) == []


# The node goes by it


def waiting_node() -> Node:
    """Return a node whose cron waits for its tick of the first minute, half a minute before it."""
    machine = joined(node(minutely()))
    told(machine, ABSENT)
    told(machine, granted(0.0, last_tick_ms=server_ms(0)))
    told(machine, members(asked_at=3.0), met(3.0), boot=30.0)
    return machine


def asked(machine: Node, boot: float, own: float) -> list[int]:
    """Return the ticks that are claimed or settled in a turn by a clock that was set."""
    now = Moment(boot, UTC + boot + own)
    actions = [*machine.handle([], now), *machine.tick(now)]
    return [claim.tick_ms for claim in of(ClaimTick, actions)] + [ask.until_ms for ask in of(SettleTicks, actions)]


@BOTH_WAYS
def test_a_tick_runs_at_its_time_though_the_clock_of_its_node_is_set(step_s: float) -> None:
    machine = waiting_node()

    assert asked(machine, 31.0, step_s) == []
    assert asked(machine, 59.9, step_s) == []
    assert asked(machine, 60.0, step_s) == [server_ms(60)]


def test_the_boot_instant_at_which_the_node_wakes_is_not_moved_by_it() -> None:
    machine = waiting_node()
    machine._beating = True

    assert machine.next_deadline(Moment(31.0, UTC + 31.0 + HOUR_S)) == pytest.approx(60.0)
