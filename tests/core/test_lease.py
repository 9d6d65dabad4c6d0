"""One lease as one node sees it, rule by rule of the head of `core/lease.py`."""

from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseRefused, LeaseRenewed, RenewalLate
from orchestrator.core.lease import NEVER, RANK_STAGGER_S, WAKE_AFTER_END_S, Phase
from orchestrator.core.nouns import NodeName, Token
from orchestrator.core.requests import LookAtLease, RenewLease
from orchestrator.core.spec import OnRedisLoss
from orchestrator.errors import InvariantError
from tests.core.house import (
    ABSENT,
    JOB,
    NEWER,
    TOKEN,
    at,
    cron,
    granted,
    holder,
    met,
    seen,
    server,
    server_ms,
    service,
    standby,
)


def renewed(asked_at: float, token: Token = TOKEN) -> LeaseRenewed:
    return LeaseRenewed(JOB, token, server_ms(asked_at), put_back=False, asked_at=asked_at)


def refused(reason: str, *, wait_ms: int = 0, node: str | None = None) -> LeaseRefused:
    value = seen(node).value if node else None
    return LeaseRefused(JOB, reason, value, wait_ms, server_ms(0), asked_at=0.0)


# Rule 1: the end is counted from before the request


def test_the_end_is_counted_from_before_the_request_and_not_from_its_answer() -> None:
    lease = standby()
    lease.ask(at(10.0), server())

    lease.on_granted(granted(10.0))  # however late it is read

    assert lease.ends_at() == pytest.approx(10.0 + 14.35)
    deadlines = lease.deadlines()
    assert deadlines is not None
    assert deadlines.kill_at == pytest.approx(10.0 + 13.35)


def test_a_grant_whose_answer_took_too_long_starts_nothing() -> None:
    lease = holder(asked_at=0.0)

    assert lease.may_start(8.34)
    assert not lease.may_start(8.36)


def test_under_kill_there_is_no_grace() -> None:
    deadlines = holder(service(on_redis_loss=OnRedisLoss.KILL)).deadlines()

    assert deadlines is not None
    assert deadlines.term_at == deadlines.kill_at == pytest.approx(13.35)


def test_under_keep_there_is_no_end() -> None:
    lease = holder(service(on_redis_loss=OnRedisLoss.KEEP))

    assert lease.deadlines() is None
    assert lease.ends_at() == NEVER
    assert lease.may_start(1e9)


# Rule 2: an answer moves an end only later, and only for its token


def test_a_renewal_moves_the_end() -> None:
    lease = holder()

    assert lease.on_renewed(renewed(3.0))
    assert lease.ends_at() == pytest.approx(3.0 + 14.35)


@pytest.mark.parametrize(
    "answer",
    [renewed(3.0), renewed(2.0), renewed(9.0, NEWER), renewed(9.0, Token(TOKEN - 1))],
    ids=["the same once more", "an older one that comes late", "another token", "an earlier token"],
)
def test_an_answer_that_is_old_news_moves_nothing(answer: LeaseRenewed) -> None:
    lease = holder()
    lease.on_renewed(renewed(3.0))

    assert not lease.on_renewed(answer)
    assert lease.renewed_at == 3.0


def test_a_renewal_that_comes_after_the_loss_holds_nothing() -> None:
    lease = holder()
    lease.lose()

    assert not lease.on_renewed(renewed(3.0))
    assert not lease.held


# Rule 3: what a standby remembers


def test_a_standby_asks_just_after_the_end_it_saw_reckoned_with_the_clocks_rates() -> None:
    lease = standby()

    lease.on_seen(seen(left_ms=10_000), 5.0)

    assert lease.ask_at == pytest.approx(5.0 + 10.1 + WAKE_AFTER_END_S)


def test_less_preferred_nodes_ask_a_little_later() -> None:
    lease = standby()
    lease.rank = 2

    lease.on_seen(seen(left_ms=10_000), 5.0)

    assert lease.ask_at == pytest.approx(5.0 + 10.1 + WAKE_AFTER_END_S + 2 * RANK_STAGGER_S)


def test_an_absent_key_is_asked_for_at_once_and_the_store_is_told_what_was_seen() -> None:
    lease = standby()
    lease.on_seen(seen(left_ms=10_000), 5.0)

    lease.on_seen(ABSENT, 8.0)

    assert lease.ask_at == 8.0
    assert lease.ask(at(8.0), server()).seen == TOKEN


def test_what_cannot_live_any_more_is_no_obstacle() -> None:
    lease = standby()
    lease.on_seen(seen(left_ms=10_000), 5.0)

    assert lease.ask(at(15.2), server()).seen == Token(0)


def test_the_memory_of_a_value_never_moves_earlier() -> None:
    lease = standby()
    lease.on_seen(seen(left_ms=10_000), 5.0)

    lease.on_seen(seen(left_ms=100), 6.0)

    assert lease.memory is not None
    assert lease.memory.until == pytest.approx(15.1)


def test_a_newer_token_is_remembered_with_its_own_end() -> None:
    lease = standby()
    lease.on_seen(seen(left_ms=10_000), 5.0)

    lease.on_seen(seen("c", NEWER, left_ms=100), 6.0)

    assert lease.memory is not None
    assert lease.memory.value.node == "c"
    assert lease.memory.until == pytest.approx(6.101)


def test_a_lower_token_of_a_stale_replica_frees_nothing() -> None:
    lease = standby()
    lease.on_seen(seen("c", NEWER, left_ms=10_000), 5.0)

    lease.on_seen(seen("b", TOKEN, left_ms=100), 6.0)

    assert lease.memory is not None
    assert lease.memory.value.token == NEWER
    assert lease.memory.until == pytest.approx(15.1)


def test_the_largest_ttl_that_was_seen_counts_for_quarantines_and_asks() -> None:
    lease = standby()

    lease.on_seen(seen(left_ms=3_600_000), 5.0)

    assert lease.ask(at(5.0), server()).longest_ttl_ms == 3_600_000


@pytest.mark.parametrize(
    "look",
    [ABSENT, seen(left_ms=-1), replace(seen("a"), value=holder().value)],
    ids=["absent", "a value without an expiry", "a grant of ours whose answer was lost"],
)
def test_what_only_an_ask_can_settle_is_asked_for(look: object) -> None:
    lease = standby()

    lease.on_seen(look, 5.0)  # type: ignore[arg-type] # parametrize loses the type

    assert lease.ask_at == 5.0


def test_a_look_that_is_answered_after_the_grant_changes_nothing() -> None:
    lease = holder()

    lease.on_seen(seen(left_ms=10_000), 5.0)

    assert lease.held
    assert lease.memory is None


def test_a_nudge_makes_a_standby_ask_in_the_order_of_preference() -> None:
    lease = standby()
    lease.rank = 1
    lease.on_seen(seen(left_ms=10_000), 5.0)

    lease.on_nudged(7.0)

    assert lease.ask_at == pytest.approx(7.0 + RANK_STAGGER_S)


def test_a_nudge_means_nothing_to_a_holder() -> None:
    lease = holder()

    lease.on_nudged(7.0)

    assert lease.ask_at == NEVER


# Rule 4: tokens


def test_a_token_that_was_run_is_never_adopted_again() -> None:
    lease = holder()
    lease.lose()

    assert lease.ask(at(20.0), server()).ran == TOKEN


def test_a_new_token_must_be_greater_than_every_one_that_was_seen() -> None:
    lease = standby(floor=Token(5))
    assert lease.ask(at(0.0), server()).floor == 5
    lease.on_ask_unanswered()

    lease.on_seen(seen(token=NEWER), 1.0)

    assert lease.ask(at(20.0), server()).floor == NEWER


def test_a_token_of_our_own_is_a_floor_too() -> None:
    assert holder().floor == TOKEN


def test_the_floor_never_falls() -> None:
    lease = standby(floor=NEWER)

    lease.on_seen(seen(token=TOKEN), 1.0)

    assert lease.floor == NEWER


# Rule 5: a vanished key


def test_a_renewal_says_until_when_a_vanished_key_may_be_put_back() -> None:
    lease = holder()
    lease.on_renewed(renewed(3.0))

    beat = lease.beat(6.0)

    assert isinstance(beat, RenewLease)
    assert beat.not_after_ms == server_ms(3.0) + 15_000
    assert (beat.ttl_ms, beat.asked_at) == (15_000, 6.0)


def test_the_first_renewal_counts_from_the_grant() -> None:
    beat = holder().beat(3.0)

    assert isinstance(beat, RenewLease)
    assert beat.not_after_ms == server_ms(0) + 15_000


def test_a_renewal_that_the_server_calls_late_is_asked_for_again_while_the_own_clock_holds() -> None:
    lease = holder()

    again = lease.on_late(RenewalLate(JOB, TOKEN, server_ms(63.0), asked_at=3.0), 3.0)

    assert again is not None
    assert again.not_after_ms == server_ms(63.0) + round(1000 * (14.35 - 3.0))


@pytest.mark.parametrize(
    ("token", "boot"), [(TOKEN, 13.36), (NEWER, 3.0)], ids=["past the own instant to kill", "another token"]
)
def test_a_late_renewal_is_not_asked_for_again(token: Token, boot: float) -> None:
    late = RenewalLate(JOB, token, server_ms(63.0), asked_at=3.0)

    assert holder().on_late(late, boot) is None


# Rule 6: nothing is assumed


def test_after_a_silent_ask_the_next_look_tells() -> None:
    lease = standby()
    lease.ask(at(0.0), server())

    lease.on_ask_unanswered()

    assert (lease.phase, lease.ask_at) == (Phase.STANDBY, NEVER)
    assert isinstance(lease.beat(3.0), LookAtLease)


def test_after_a_loss_the_next_look_tells() -> None:
    lease = holder()

    lease.lose()

    assert (lease.phase, lease.ask_at, lease.value) == (Phase.STANDBY, NEVER, None)


def test_one_ask_at_a_time() -> None:
    lease = standby()
    lease.on_seen(ABSENT, 0.0)

    lease.ask(at(0.0), server())

    assert lease.ask_at == NEVER
    assert lease.beat(3.0) is None


# What is asked of the store


def test_an_ask_says_what_the_store_must_check() -> None:
    belief = server()
    belief.on_met(met(1.0, epoch="1|r|run1"), 1.0, 15.0, vouched=False)

    ask = standby(cron()).ask(at(4.0), belief)

    assert (ask.node, ask.incarnation, ask.ttl_ms) == ("a", "a1", 15_000)
    assert (ask.epoch, ask.quarantined) == ("1|r|run1", True)
    assert ask.expected_ms == server_ms(4.0)
    assert ask.tick_floor_ms == belief.known_since_ms(at(4.0), at_least=0.0)
    assert ask.tolerance_ms == belief.tolerance_ms(4.0)
    assert ask.schedule == "every 60s"


def test_a_service_has_no_schedule_to_tell() -> None:
    assert standby().ask(at(0.0), server()).schedule == ""


def test_a_release_names_what_is_released_and_under_which_memory() -> None:
    lease, belief = holder(), server()

    release = lease.release(20.0, belief, next_node=NodeName("b"))

    assert release.value == lease.value
    assert (release.epoch, release.next_node) == (belief.epoch, "b")
    assert release.keep_note_ms >= 60_000
    assert lease.phase is Phase.RELEASING
    assert lease.beat(21.0) is None


def test_what_is_not_held_cannot_be_released() -> None:
    with pytest.raises(InvariantError, match="beat"):
        standby().release(0.0, server())


# What a refusal means


@pytest.mark.parametrize(
    ("answer", "ask_at"),
    [
        (refused("held", wait_ms=8000, node="b"), 1.0 + 8.08 + WAKE_AFTER_END_S),
        (refused("hint", wait_ms=2000), 1.0 + 2.02 + WAKE_AFTER_END_S),
        (refused("young", wait_ms=5000), 1.0 + 5.05 + WAKE_AFTER_END_S),
        (refused("epoch"), NEVER),
        (refused("clock"), NEVER),
    ],
    ids=["held", "left to another node", "its token is young", "another epoch", "another clock"],
)
def test_a_refusal_says_when_asking_again_makes_sense(answer: LeaseRefused, ask_at: float) -> None:
    lease = standby()
    lease.ask(at(0.0), server())

    lease.on_refused(answer, 1.0, server())

    assert lease.phase is Phase.STANDBY
    assert lease.refusal == answer.reason
    assert lease.ask_at == pytest.approx(ask_at)


def test_in_quarantine_the_end_of_it_is_waited_for() -> None:
    belief, lease = server(met_at=None), standby()
    belief.on_met(met(0.0), 0.0, 15.0, vouched=False)

    lease.on_refused(refused("quarantine"), 1.0, belief)

    assert lease.ask_at == pytest.approx(7.0 + WAKE_AFTER_END_S)


def test_a_vanished_key_is_asked_for_when_its_holder_cannot_live_any_more() -> None:
    lease = standby()
    lease.on_seen(seen(left_ms=10_000), 5.0)
    lease.ask(at(8.0), server())

    lease.on_refused(refused("vanished"), 8.0, server())

    assert lease.ask_at == pytest.approx(15.1 + WAKE_AFTER_END_S)


def test_a_grant_forgets_the_last_refusal() -> None:
    lease = standby()
    lease.on_refused(refused("young", wait_ms=100), 0.0, server())

    lease.on_granted(granted(1.0))

    assert lease.refusal == ""
    assert lease.holds(TOKEN)
    assert not lease.holds(NEWER)
