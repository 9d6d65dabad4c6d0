"""What a node believes of Redis: when absence of a key proves nothing, and for how long."""

from dataclasses import replace

import pytest

from orchestrator.core.server import Server
from tests.core.house import BUCKET, EPOCH, at, met, server, server_ms

TTL_S = 15.0
QUARANTINE_S = TTL_S * 1.01
OTHER = f"{server_ms(10)}|r|run1"


def fresh() -> Server:
    return server(met_at=None)


# Rule 1: another epoch


def test_another_epoch_begins_a_quarantine_of_one_longest_ttl() -> None:
    belief = server(met_at=0.0)

    why = belief.on_met(met(10.0, epoch=OTHER), 10.0, TTL_S, vouched=False)

    assert why == belief.why == "Redis lost data or another server answers"
    assert belief.epoch == OTHER
    assert belief.quarantined(10.0 + QUARANTINE_S - 0.01)
    assert not belief.quarantined(10.0 + QUARANTINE_S)


def test_nobody_can_vouch_for_an_epoch_that_replaces_a_known_one() -> None:
    belief = server(met_at=0.0)

    assert belief.on_met(met(10.0, epoch=OTHER), 10.0, TTL_S, vouched=True)
    assert belief.quarantined(20.0)


def test_the_same_epoch_begins_nothing() -> None:
    belief = server(met_at=0.0)

    assert belief.on_met(met(3.0), 3.001, TTL_S, vouched=False) == ""
    assert not belief.quarantined(3.001)


def test_the_quarantine_reckons_with_the_longest_ttl_of_the_bucket() -> None:
    belief = server(met_at=0.0)

    belief.on_met(met(10.0, epoch=OTHER), 10.0, 3600.0, vouched=False)

    assert belief.quarantine_until == pytest.approx(10.0 + 3636.0)


def test_a_second_quarantine_never_ends_before_the_first() -> None:
    belief = server(met_at=0.0)
    belief.on_met(met(10.0, epoch=OTHER), 10.0, 60.0, vouched=False)

    belief.on_met(met(13.0), 13.0, 5.0, vouched=False)

    assert belief.quarantine_until == pytest.approx(10.0 + 60.6)


# Rule 2: first contact


def test_a_young_epoch_at_first_contact_is_waited_for_until_it_is_a_ttl_old() -> None:
    belief = fresh()

    why = belief.on_met(met(2.0, epoch=f"{server_ms(0)}|r|run0"), 2.0, TTL_S, vouched=False)

    assert why == "first contact with a fresh Redis"
    assert belief.quarantine_until == pytest.approx(QUARANTINE_S)


def test_an_epoch_of_the_future_is_as_young_as_can_be() -> None:
    belief = fresh()

    belief.on_met(met(2.0, epoch=f"{server_ms(9999)}|r|run0"), 2.0, TTL_S, vouched=False)

    assert belief.quarantine_until == pytest.approx(2.0 + QUARANTINE_S)


def test_a_node_without_a_past_lets_holders_put_back_for_two_heartbeats_and_a_request() -> None:
    belief = fresh()

    why = belief.on_met(met(2.0), 2.0, TTL_S, vouched=False)

    assert why == "first contact with Redis"
    assert belief.quarantine_until == pytest.approx(2.0 + 2 * 3.0 + 1.0)


def test_a_server_that_our_own_up_vouches_for_is_trusted_at_once() -> None:
    belief = fresh()

    assert belief.on_met(met(0.0, epoch=f"{server_ms(0)}|r|run0"), 0.0, TTL_S, vouched=True) == ""
    assert not belief.quarantined(0.0)


def test_an_epoch_that_cannot_be_read_has_no_age() -> None:
    belief = fresh()

    assert belief.on_met(met(2.0, epoch="garbage"), 2.0, TTL_S, vouched=False) == "first contact with Redis"


# Rule 3: the clock


@pytest.mark.parametrize("ahead_s", [60.0, -60.0, 1.4, -1.4], ids=lambda ahead_s: f"{ahead_s:+g} s")
def test_a_clock_that_jumped_begins_a_quarantine(ahead_s: float) -> None:
    belief = server(met_at=0.0)

    why = belief.on_met(met(3.0, ahead_s=ahead_s), 3.0, TTL_S, vouched=False)

    assert why == "the clock of Redis jumped"
    assert belief.quarantine_until == pytest.approx(3.0 + QUARANTINE_S)


@pytest.mark.parametrize("ahead_s", [1.3, -1.3, 0.0], ids=lambda ahead_s: f"{ahead_s:+g} s")
def test_a_clock_within_the_request_timeout_and_slewing_did_not_jump(ahead_s: float) -> None:
    belief = server(met_at=0.0)

    assert belief.on_met(met(3.0, ahead_s=ahead_s), 3.0, TTL_S, vouched=False) == ""


def test_a_jump_is_one_jump_and_the_new_clock_is_the_known_one() -> None:
    belief = server(met_at=0.0)
    belief.on_met(met(3.0, ahead_s=60.0), 3.0, TTL_S, vouched=False)

    assert belief.on_met(met(6.0, ahead_s=60.0), 6.0, TTL_S, vouched=False) == ""
    assert belief.expected_ms(9.0) == server_ms(69.0)


def test_a_server_that_was_paused_answers_late_and_has_not_jumped() -> None:
    belief = server(met_at=0.0)

    # Written at 3, carried out at 8 when the pause ended, read at 8.
    assert belief.on_met(met(3.0, ahead_s=5.0), 8.0, TTL_S, vouched=False) == ""


def test_the_tolerance_grows_with_the_time_since_the_last_look() -> None:
    belief = server(met_at=0.0)

    assert belief.tolerance_ms(0.0) == 1300
    assert belief.tolerance_ms(100.0) == 2300


def test_a_refusal_for_the_clock_is_judged_like_a_meeting() -> None:
    late, jumped = server(met_at=0.0), server(met_at=0.0)

    assert late.on_clock_refused(server_ms(5.0), 3.0, 5.0, TTL_S) == ""
    assert jumped.on_clock_refused(server_ms(60.0), 3.0, 5.0, TTL_S) == "the clock of Redis jumped"
    assert not late.quarantined(5.0)
    assert jumped.quarantine_until == pytest.approx(5.0 + QUARANTINE_S)


# Rule 4: ticks of a lost memory


def test_ticks_due_before_the_loss_are_settled_and_later_ones_are_not() -> None:
    belief = server(met_at=0.0)

    belief.on_met(met(100.0, epoch=f"{server_ms(90)}|r|run1"), 100.0, TTL_S, vouched=False)

    # The last contact was at 0; a claim after it came with the next heartbeat and request at the latest.
    assert belief.settled_ms == server_ms(3.0 + 1.0)


def test_what_was_due_after_the_birth_of_the_new_memory_is_not_settled() -> None:
    belief = server(met_at=0.0)

    belief.on_met(met(3.0, epoch=f"{server_ms(1)}|r|run1"), 3.0, TTL_S, vouched=False)

    assert belief.settled_ms == server_ms(1)


def test_without_an_earlier_contact_everything_before_the_birth_of_the_memory_is_settled() -> None:
    belief = fresh()

    belief.on_met(met(2.0), 2.0, TTL_S, vouched=False)

    assert belief.settled_ms == int(EPOCH.partition("|")[0])


def test_a_new_cluster_has_no_ticks_to_settle() -> None:
    assert server(met_at=0.0).settled_ms == 0


def test_what_was_settled_stays_settled() -> None:
    belief = fresh()
    belief.on_met(met(0.0, epoch=f"{server_ms(50)}|r|run0"), 0.0, TTL_S, vouched=False)

    belief.on_met(met(3.0, epoch=f"{server_ms(1)}|r|run1"), 3.0, TTL_S, vouched=False)

    assert belief.settled_ms == server_ms(50)


def test_a_heartbeat_asks_the_server_who_it_is() -> None:
    meeting = server().meeting(at(7.0).boot)

    assert (meeting.bucket, meeting.asked_at) == (BUCKET, 7.0)


def test_a_node_that_did_not_even_ask_cannot_know_when_the_memory_was_lost() -> None:
    belief = server(met_at=0.0)
    belief.meeting(3.0)
    belief.meeting(100.0)  # it was suspended

    belief.on_met(met(100.0, epoch=f"{server_ms(90)}|r|run1"), 100.0, TTL_S, vouched=False)

    assert belief.lost_until_ms(at(100.0)) == server_ms(90)


def test_a_server_whose_clock_is_behind_settles_ticks_by_the_age_of_its_memory() -> None:
    belief = fresh()

    belief.on_met(met(100.0, epoch=f"{server_ms(90 - 40)}|r|run1", ahead_s=-40.0), 100.0, TTL_S, vouched=False)

    assert belief.lost_until_ms(at(100.0)) == server_ms(90)


def test_nothing_later_than_now_is_settled() -> None:
    belief = fresh()

    belief.on_met(met(100.0, epoch=f"{server_ms(90 + 400)}|r|run1", ahead_s=400.0), 100.0, TTL_S, vouched=False)

    assert belief.lost_until_ms(at(100.0)) == server_ms(100)


# Since when a node answers for the ticks (rule 6)


def test_a_node_answers_for_ticks_since_its_first_contact_and_not_since_it_got_the_lease() -> None:
    belief = fresh()
    belief.on_met(met(10.0), 10.0, TTL_S, vouched=False)

    assert belief.known_since_ms(at(25.0), at_least=0.0) == server_ms(10.0)


def test_after_a_loss_of_data_a_node_answers_for_ticks_since_the_loss() -> None:
    belief = server(met_at=0.0)
    belief.on_met(met(30.0, epoch=f"{server_ms(29.0)}|r|run1"), 30.0, TTL_S, vouched=False)

    assert belief.known_since_ms(at(45.0), at_least=0.0) == belief.lost_until_ms(at(45.0)) == server_ms(4.0)
    assert belief.doubt_ms(at(45.0)) == server_ms(0.0)


def test_a_node_never_answers_for_ticks_of_a_time_in_which_another_held_the_lease() -> None:
    belief = server(met_at=0.0)

    assert belief.known_since_ms(at(45.0), at_least=40.0) == server_ms(40.0)
    assert belief.known_since_ms(at(45.0), at_least=50.0) == server_ms(45.0)


# An answer that we take up late


def test_an_answer_that_a_busy_node_takes_up_late_is_no_jump_of_the_clock() -> None:
    belief = server()
    late = replace(met(3.0), asked_at=3.0)

    assert belief.on_met(late, 8.0, 15.0, vouched=False) == ""
    assert belief.on_met(met(9.0), 9.0, 15.0, vouched=False) == ""
    assert belief.expected_ms(9.0) == server_ms(9.0)


def test_where_the_first_answer_was_taken_up_late_the_next_one_is_no_jump_either() -> None:
    belief = server(met_at=None)
    belief.on_met(replace(met(0.0), asked_at=0.0), 5.0, 15.0, vouched=True)

    assert belief.on_met(met(6.0), 6.0, 15.0, vouched=False) == ""
    assert belief.expected_ms(6.0) == server_ms(6.0)
