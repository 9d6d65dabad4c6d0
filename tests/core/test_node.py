"""One node: its heartbeats, its patience with Redis, and its turns."""

import json
from dataclasses import replace

import pytest

from orchestrator.core.answers import LeaseRefused, ServerMet, StoreSilent
from orchestrator.core.here import MOST_ASKS
from orchestrator.core.info import Identity
from orchestrator.core.messages import Action, Nudged, Say
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, NodeName
from orchestrator.core.requests import AcquireLease, KeepMembership, LookAtLease, MeetServer, PublishState
from orchestrator.core.spec import ClusterSpec, bucket_of
from orchestrator.core.timing import LeaseTiming
from tests.core.house import (
    ABSENT,
    JOB,
    NEWER,
    TOKEN,
    at,
    granted,
    holding,
    joined,
    members,
    met,
    node,
    of,
    only,
    said,
    seen,
    server_ms,
    service,
    told,
)


def silence(machine: Node, boot: float, problem: str = "connection refused") -> list[Action]:
    """Let the heartbeat that is under way, or the next one, come to nothing."""
    request = KeepMembership(NodeName("a"), "a1", "state-a", 15_000, "", 0, asked_at=boot)
    return told(machine, StoreSilent(request, problem), boot=boot)


# Rule 1: one heartbeat is one batch


def test_a_heartbeat_is_the_membership_the_servers_and_every_lease() -> None:
    machine = node(service(), service(name=JobName("bot"), key="bot"))

    beat = told(machine)

    assert [type(action) for action in beat] == [KeepMembership, MeetServer, MeetServer, LookAtLease, LookAtLease]
    assert {action.bucket for action in of(MeetServer, beat)} == {bucket_of("beat"), bucket_of("bot")}


def test_a_membership_says_what_others_must_know() -> None:
    keep = only(KeepMembership, told(node(service(key="old-beat"))))

    info = json.loads(keep.info)
    assert (keep.node, keep.incarnation, keep.state_id, keep.ttl_ms) == ("a", "a1", "state-a", 15_000)
    assert (info["host"], info["pid"], info["version"]) == ("host", 1, "1.0")
    assert info["jobs"] == {JOB: "old-beat"}


def test_the_next_heartbeat_waits_for_the_answer_of_this_one() -> None:
    machine = node()
    told(machine)
    assert of(KeepMembership, told(machine, boot=10.0)) == []

    assert of(KeepMembership, told(machine, members(), boot=10.5))


def test_the_shortest_heartbeat_of_all_jobs_sets_the_pace() -> None:
    fast = service(name=JobName("bot"), key="bot", lease=LeaseTiming.scaled(5.0))
    machine = joined(node(service(), fast))

    assert machine.next_deadline(at(0.0)) == 1.0


def test_after_a_silence_the_next_heartbeat_comes_sooner() -> None:
    machine = joined(node())
    told(machine, boot=3.0)

    silence(machine, 4.0)

    assert machine.next_deadline(at(4.0)) == pytest.approx(4.0 + 3.0 / 4)


def test_a_nudge_for_everybody_brings_the_next_heartbeat_forward() -> None:
    machine = joined(node())

    assert of(KeepMembership, told(machine, Nudged(None), boot=1.0))


def test_an_answer_about_a_job_that_is_not_in_the_file_is_ignored() -> None:
    machine = joined(node())

    assert told(machine, Nudged(JobName("stranger")), boot=1.0) == []


# Rule 3: a node never goes because the store is away


def test_a_silence_is_said_once_and_the_node_stays() -> None:
    machine = joined(node())
    told(machine, boot=3.0)

    assert said(silence(machine, 4.0)) == ["redis.silent"]
    for boot in range(5, 2000, 5):
        told(machine, boot=float(boot))
        assert silence(machine, boot + 1.0) == []
    assert machine.view(at(2000.0)).redis == {
        "ok": False,
        "problem": "connection refused",
        "since": "2027-01-15T08:00:04.000Z",
    }


def test_another_problem_is_another_line() -> None:
    machine = joined(node())
    told(machine, boot=3.0)
    silence(machine, 4.0)
    told(machine, boot=5.0)

    assert said(silence(machine, 6.0, "READONLY")) == ["redis.silent"]
    assert machine.view(at(6.0)).redis["since"] == "2027-01-15T08:00:04.000Z"


def test_an_answer_after_a_silence_is_said() -> None:
    machine = joined(node())
    told(machine, boot=3.0)
    silence(machine, 4.0)
    told(machine, boot=4.75)

    answers = only(Say, told(machine, members(asked_at=4.75), boot=5.0))

    assert (answers.event, answers.fields) == ("redis.answers", {"after_s": 1.0})
    assert machine.view(at(5.0)).redis == {"ok": True, "problem": ""}


# Quarantine


def test_a_new_memory_of_redis_is_said_and_puts_its_jobs_into_quarantine() -> None:
    machine = joined(node())

    actions = told(machine, met(3.0, epoch="9|r|run1"), ABSENT, boot=3.0)

    assert said(actions) == ["quarantine.began"]
    assert only(AcquireLease, actions).quarantined


def test_a_quarantine_of_all_buckets_is_said_once() -> None:
    other = service(name=JobName("bot"), key="bot")
    machine = joined(node(service(), other))

    meetings = [replace(met(3.0, epoch="9|r|run1"), bucket=bucket_of(key)) for key in ("beat", "bot")]

    assert said(told(machine, *meetings, boot=3.0)) == ["quarantine.began"]


def test_the_longest_ttl_that_was_seen_in_a_bucket_sets_its_quarantine() -> None:
    machine = joined(node())
    told(machine, seen(left_ms=600_000), boot=1.0)

    told(machine, met(3.0, epoch="9|r|run1"), boot=3.0)

    assert machine.jobs[JOB].server.quarantine_until == pytest.approx(3.0 + 606.0)


def test_a_refusal_for_the_epoch_brings_the_next_heartbeat_forward() -> None:
    machine = joined(node())
    told(machine, ABSENT)

    actions = told(machine, LeaseRefused(JOB, "epoch", None, 0, server_ms(1), asked_at=0.0), boot=1.0)

    assert of(KeepMembership, actions)


def test_a_refusal_for_a_clock_that_jumped_begins_a_quarantine() -> None:
    machine = joined(node())
    told(machine, ABSENT)

    actions = told(machine, LeaseRefused(JOB, "clock", None, 0, server_ms(99), asked_at=0.0), boot=0.1)

    assert said(actions) == ["quarantine.began"]
    assert machine.jobs[JOB].server.quarantined(0.2)


def test_a_first_contact_without_a_voucher_waits() -> None:
    machine = node(new_cluster=False)
    told(machine)

    assert "quarantine.began" in said(told(machine, members(), met(0.0)))
    assert only(AcquireLease, told(machine, ABSENT, boot=0.1)).quarantined


# Turns, and what is shown


def test_after_a_turn_every_deadline_lies_in_the_future() -> None:
    machine = holding()

    for boot in (0.0, 3.0, 8.4, 13.4, 14.4, 20.0):
        told(machine, boot=boot)
        assert machine.next_deadline(at(boot)) > boot


def test_a_holder_shows_its_state_and_a_standby_does_not() -> None:
    machine = joined(node())
    assert of(PublishState, told(machine, seen(left_ms=10_000))) == []

    holder = joined(node())
    told(holder, ABSENT)

    state = only(PublishState, told(holder, granted(0.0))).state
    assert json.loads(state)["state"] == "starting"
    assert json.loads(state)["token"] == TOKEN


def test_the_floors_of_the_state_directory_reach_the_leases() -> None:
    identity = Identity(NodeName("a"), "a1", "state-a", "host", 1, "1.0")
    floored = Node(ClusterSpec("shop", (service(),)), identity, {JOB: NEWER}, new_cluster=True)
    joined(floored)

    assert only(AcquireLease, told(floored, ABSENT)).floor == NEWER


def test_a_node_shows_its_own_truth() -> None:
    view = holding().view(at(1.0))

    assert (view.cluster, view.node) == ("shop", "a")
    assert [row.name for row in view.nodes] == ["a"]
    assert [(row.name, row.state) for row in view.jobs] == [("beat", "starting")]


def test_a_meeting_of_a_bucket_is_kept_with_its_bucket() -> None:
    other = service(name=JobName("bot"), key="bot")
    machine = joined(node(service(), other))

    told(machine, ServerMet(bucket_of("bot"), "5|r|run9", False, server_ms(0), 0.0))

    assert machine.jobs[JOB].server.epoch != "5|r|run9"
    assert machine.jobs[JobName("bot")].server.epoch == "5|r|run9"


# Rule 4: a turn for whoever waits for room


def test_leases_are_asked_for_in_batches_that_one_request_timeout_can_carry() -> None:
    names = [JobName(f"job{number}") for number in range(MOST_ASKS + 50)]
    machine = node(*(service(name=name, job=name, key=name) for name in names))
    told(machine)
    buckets = {bucket_of(name) for name in names}
    first = told(machine, members(), *(replace(met(0.0), bucket=bucket) for bucket in buckets))

    asked = of(AcquireLease, [*first, *told(machine, *(replace(ABSENT, job=name) for name in names))])
    assert [ask.job for ask in asked] == names[:MOST_ASKS]
    assert machine.next_deadline(at(0.0)) > 0.0
    answers = [replace(granted(0.0), job=ask.job) for ask in asked[:60]]

    assert [ask.job for ask in of(AcquireLease, told(machine, *answers))] == names[MOST_ASKS:]
