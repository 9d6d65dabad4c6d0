"""A node among others: its name, the keys that others name, standing orders, and how it goes."""

import pytest

from orchestrator.core.answers import ClusterLeft, IntentsRestored, MembersSeen, NameRefused, StoreSilent
from orchestrator.core.lease import NEVER
from orchestrator.core.messages import LeaveOrdered, QuitNode, StopRun
from orchestrator.core.nouns import JobName, NodeName
from orchestrator.core.requests import AcquireLease, KeepMembership, LeaveCluster, ReleaseLease, RestoreIntents
from tests.core.house import (
    ABSENT,
    JOB,
    at,
    ended,
    holding,
    intent,
    joined,
    member,
    members,
    met,
    node,
    of,
    only,
    run_id,
    said,
    seen,
    server_ms,
    told,
)


def refusal(*, same_state: bool, incarnation: str = "a0", left_ms: int = 12_000) -> NameRefused:
    return NameRefused(NodeName("a"), same_state, incarnation, "host:7", left_ms, asked_at=0.0)


# Rule 2: the name comes first


def test_before_the_name_is_ours_nothing_is_asked_for_and_looking_is_allowed() -> None:
    machine = node()
    told(machine)

    assert of(AcquireLease, told(machine, met(0.0), ABSENT)) == []
    assert machine.jobs[JOB].unwanted == "the node has not joined the cluster yet"

    assert of(AcquireLease, told(machine, members(), boot=0.1))


def test_a_node_says_once_that_it_joined() -> None:
    machine = node()
    told(machine)

    assert said(told(machine, members())) == ["node.joined"]
    told(machine, boot=3.0)
    assert said(told(machine, members(asked_at=3.0), boot=3.0)) == []


def test_a_stranger_with_our_name_makes_us_go() -> None:
    machine = node()
    told(machine)

    quit_node = only(QuitNode, told(machine, refusal(same_state=False)))

    assert "`a` is in use by host:7; choose another with --node" in quit_node.problem
    assert machine.next_deadline(at(0.0)) == NEVER


def test_our_own_past_is_waited_for() -> None:
    machine = node()
    told(machine)

    actions = told(machine, refusal(same_state=True, left_ms=12_000))

    assert said(actions) == ["node.waiting"]
    assert of(QuitNode, actions) == []
    assert machine.next_deadline(at(0.0)) == 3.0


def test_the_end_of_our_own_past_is_not_slept_through() -> None:
    machine = node()
    told(machine)

    told(machine, refusal(same_state=True, left_ms=500))

    assert machine.next_deadline(at(0.0)) == pytest.approx(0.55)


def test_a_copy_of_our_directory_that_goes_on_living_makes_us_go() -> None:
    machine = node()
    told(machine)
    told(machine, refusal(same_state=True, left_ms=12_000))
    told(machine, boot=3.0)
    assert of(QuitNode, told(machine, refusal(same_state=True), boot=15.0)) == []
    told(machine, boot=18.0)

    quit_node = only(QuitNode, told(machine, refusal(same_state=True), boot=18.1))

    assert "has a copy of this state directory" in quit_node.problem


def test_another_incarnation_of_our_past_is_waited_for_anew() -> None:
    machine = node()
    told(machine)
    told(machine, refusal(same_state=True, left_ms=12_000))
    told(machine, boot=18.0)

    assert of(QuitNode, told(machine, refusal(same_state=True, incarnation="other"), boot=18.1)) == []


def test_a_name_that_was_taken_while_we_were_away_makes_us_give_everything_back_and_go() -> None:
    machine = holding()
    told(machine, boot=3.0)

    stop = only(StopRun, told(machine, refusal(same_state=False), boot=3.1))
    assert stop.grace_s == 5.0
    released = told(machine, ended(run_id(machine.jobs[JOB]), cause="stop"), boot=4.0)
    assert of(ReleaseLease, released)


# Rule 4: one job, one key


def test_a_job_that_an_earlier_node_runs_under_another_key_is_not_asked_for() -> None:
    machine = node()
    told(machine)

    both = members(member("a", since_ms=2, keys={JOB: "beat"}), member("b", since_ms=1, keys={JOB: "old"}))
    actions = told(machine, met(0.0), ABSENT, both)

    assert of(AcquireLease, actions) == []
    assert machine.jobs[JOB].conflict == "node b runs it under the lease key `old`"


def test_the_key_of_the_node_that_joined_first_counts() -> None:
    machine = node()
    told(machine)

    told(machine, members(member("a", since_ms=1, keys={JOB: "beat"}), member("b", since_ms=2, keys={JOB: "new"})))

    assert machine.jobs[JOB].conflict == ""


def test_of_two_that_joined_together_the_name_decides() -> None:
    machine = node()
    told(machine)

    told(machine, members(member("b", keys={JOB: "new"}), member("a", keys={JOB: "beat"})))

    assert machine.jobs[JOB].conflict == ""


@pytest.mark.parametrize("keys", [{}, {"other": "x"}], ids=["names no keys", "does not have the job"])
def test_a_node_that_does_not_run_the_job_is_no_obstacle(keys: dict[str, str]) -> None:
    machine = node()
    told(machine)

    told(machine, members(member("b", keys=keys), member("a", since_ms=9, keys={JOB: "beat"})))

    assert machine.jobs[JOB].conflict == ""


def test_a_conflict_ends_with_the_node_that_made_it() -> None:
    machine = node()
    told(machine)
    told(machine, members(member("b", keys={JOB: "old"})))
    told(machine, boot=3.0)

    told(machine, members(member("a", keys={JOB: "beat"})), boot=3.1)

    assert machine.jobs[JOB].conflict == ""


def test_who_asks_first_follows_from_who_lives() -> None:
    machine = node()
    told(machine)

    told(machine, members(*(member(name) for name in "abcdefgh")))

    assert 0 <= machine.jobs[JOB].lease.rank <= 7


# Standing orders


def orders(version: int, asked_at: float, **wants: str) -> MembersSeen:
    intents = {JobName(name): intent(want, at_ms=version) for name, want in wants.items()}
    return MembersSeen((member("a"),), intents, version, server_ms(asked_at), asked_at)


def test_an_order_reaches_its_job() -> None:
    machine = holding()
    told(machine, boot=3.0)

    assert only(StopRun, told(machine, orders(7, 3.0, beat="stopped"), boot=3.1)).why == "stop was ordered"


def test_a_heartbeat_says_which_orders_are_known() -> None:
    machine = joined(node())
    told(machine, boot=3.0)
    told(machine, orders(7, 3.0, beat="stopped"), boot=3.1)

    assert only(KeepMembership, told(machine, boot=6.0)).intents_known == 7


def test_an_order_that_was_taken_back_is_no_order() -> None:
    machine = joined(node())
    told(machine, boot=3.0)
    told(machine, orders(7, 3.0, beat="stopped"), boot=3.1)
    told(machine, boot=6.0)

    told(machine, orders(8, 6.0), boot=6.1)

    assert machine.jobs[JOB].intent is None


def test_orders_that_the_store_forgot_are_put_back() -> None:
    machine = joined(node())
    told(machine, boot=3.0)
    told(machine, orders(7, 3.0, beat="stopped"), boot=3.1)
    told(machine, boot=6.0)

    restore = only(RestoreIntents, told(machine, members(asked_at=6.0), boot=6.1))

    assert restore.version == 7
    assert restore.intents == {JOB: intent("stopped", at_ms=7)}
    assert machine.jobs[JOB].intent == intent("stopped", at_ms=7)
    assert told(machine, IntentsRestored(7, 6.1), boot=6.2) == []


def test_where_no_order_was_ever_given_nothing_is_put_back() -> None:
    machine = joined(node())

    assert of(RestoreIntents, told(machine, members(), boot=1.0)) == []


# Leaving


def test_a_node_without_anything_leaves_at_once_and_is_done_when_that_is_answered() -> None:
    machine = joined(node())
    told(machine, seen(left_ms=10_000))

    actions = told(machine, LeaveOrdered(0), boot=1.0)

    assert said(actions) == ["node.leaving"]
    assert of(LeaveCluster, actions)
    assert only(QuitNode, told(machine, ClusterLeft(1.0), boot=1.1)).problem == ""


def test_a_node_leaves_only_when_everything_is_stopped_and_released() -> None:
    machine = holding()

    assert of(LeaveCluster, told(machine, LeaveOrdered(0), boot=1.0)) == []
    released = told(machine, ended(run_id(machine.jobs[JOB]), cause="stop"), boot=2.0)
    assert of(LeaveCluster, released) == []
    request = only(ReleaseLease, released)
    assert of(LeaveCluster, told(machine, StoreSilent(request, "no answer"), boot=3.0))


def test_a_node_that_cannot_say_goodbye_goes_all_the_same() -> None:
    machine = joined(node())
    request = only(LeaveCluster, told(machine, LeaveOrdered(0), boot=1.0))

    assert of(QuitNode, told(machine, StoreSilent(request, "no answer"), boot=2.0))


def test_a_node_quits_once() -> None:
    machine = joined(node())
    told(machine, LeaveOrdered(0), boot=1.0)
    told(machine, ClusterLeft(1.0), boot=1.1)

    assert told(machine, ClusterLeft(1.0), boot=5.0) == []
    assert machine.next_deadline(at(5.0)) == NEVER


@pytest.mark.parametrize("urgency", [0, 1], ids=["the same", "a lesser one"])
def test_a_repeated_order_to_go_changes_nothing(urgency: int) -> None:
    machine = holding()
    told(machine, LeaveOrdered(1), boot=1.0)

    assert told(machine, LeaveOrdered(urgency), boot=1.1) == []


def test_a_node_that_leaves_asks_for_nothing_more() -> None:
    machine = holding()
    told(machine, LeaveOrdered(0), boot=1.0)

    assert of(AcquireLease, told(machine, ABSENT, boot=1.1)) == []
