"""What follows from what other nodes tell of themselves, and from jobs that wait for others."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from orchestrator.core.answers import ClusterLeft, LeaseRefused
from orchestrator.core.job_view import job_view
from orchestrator.core.messages import Action, QuitNode, RunChecked, RunEnded, RunStarted, Say, StartRun, StopRun
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, LeaseValue, Member, NodeName
from orchestrator.core.requests import LeaveCluster
from orchestrator.core.spec import Backoff, ClusterSpec, HealthSpec, JobSpec, Restart, Scope
from tests.core.house import (
    JOB,
    TOKEN,
    at,
    ended,
    holding,
    joined,
    member,
    members,
    node,
    of,
    only,
    run_id,
    said,
    service,
    told,
)

ELSEWHERE = Member(NodeName("b"), "b1", 0, {"jobs": {"beat": "beat"}, "definitions": {"beat": "other"}})


def test_another_definition_on_another_node_is_said_once_and_shown() -> None:
    machine = holding()

    assert said(told(machine, members(member("a"), ELSEWHERE, asked_at=1.0), boot=1.0)) == ["file.differs"]
    assert said(told(machine, members(member("a"), ELSEWHERE, asked_at=2.0), boot=2.0)) == []
    assert job_view(machine.jobs[JOB], at(2.0)).why == "node b has another definition of it"


@pytest.mark.parametrize(
    "info",
    [{}, {"definitions": 5}, {"definitions": {"beat": "d1"}}, {"definitions": {"mail": "x"}}],
    ids=["an older version", "nonsense", "the same", "another job"],
)
def test_nodes_that_agree_or_do_not_say_are_not_complained_of(info: Mapping[str, object]) -> None:
    machine = joined(node())

    assert said(told(machine, members(member("a"), Member(NodeName("b"), "b1", 0, info), asked_at=1.0), boot=1.0)) == []


def test_a_job_knows_which_other_nodes_could_take_it() -> None:
    machine = joined(node())

    told(machine, members(member("a"), ELSEWHERE, member("c", keys={"beat": "another"}), asked_at=1.0), boot=1.0)

    assert machine.jobs[JOB].others == ("b",)


# after


def pair(*, health: HealthSpec | None = None) -> Node:
    """Return a node with a job that waits for another one; both run here alone, so that no lease is in the way."""
    db = service(name=JobName("db"), job="db", key="db", scope=Scope.NODE, health=health)
    app = service(name=JobName("app"), job="app", key="app", scope=Scope.NODE, after=("db",))
    return node(app, db)


def starts(actions: list[Action]) -> list[str]:
    return [start.job for start in of(StartRun, actions)]


def test_a_service_starts_after_the_one_it_waits_for() -> None:
    machine = pair()
    assert starts(told(machine)) == ["db"]
    assert job_view(machine.jobs[JobName("app")], at(0.0)).why == "waits for db (after), which does not run yet"

    assert starts(told(machine, RunStarted(JobName("db"), run_id(machine.jobs[JobName("db")]), 7), boot=0.1)) == ["app"]


def test_a_service_waits_until_the_other_is_healthy_where_it_has_a_health_check() -> None:
    machine = pair(health=HealthSpec(tcp="127.0.0.1:5432"))
    told(machine)
    db = machine.jobs[JobName("db")]
    assert starts(told(machine, RunStarted(db.spec.name, run_id(db), 7), boot=0.1)) == []

    assert starts(told(machine, RunChecked(db.spec.name, run_id(db), True, ""), boot=9.0)) == ["app"]


def test_a_service_that_runs_is_not_stopped_when_the_other_goes() -> None:
    machine = pair()
    told(machine)
    db = machine.jobs[JobName("db")]
    told(machine, RunStarted(db.spec.name, run_id(db), 7), boot=0.1)

    actions = told(machine, ended_of("db", run_id(db)), boot=1.0)

    assert of(StopRun, actions) == []


def test_a_job_that_another_node_holds_is_taken_for_up() -> None:
    app = service(name=JobName("app"), job="app", key="app", scope=Scope.NODE, after=("beat",))
    machine = joined(node(service(), app))
    assert job_view(machine.jobs[JobName("app")], at(0.0)).why == "waits for beat (after), which does not run yet"

    held = LeaseRefused(JOB, "held", LeaseValue(TOKEN, NodeName("b"), "b1"), 9000, 0, 1.0)

    assert starts(told(machine, held, boot=1.0)) == ["app"]


def ended_of(job: str, run: str) -> RunEnded:
    return replace(ended(run), job=JobName(job))


# exit-on-failure


def leaving(*specs: JobSpec) -> Node:
    """Return a node that leaves as soon as a job has failed for good."""
    given = node(*specs)
    return Node(ClusterSpec("shop", specs), given._identity, {}, exit_on_failure=True)


ONCE = service(scope=Scope.NODE, restart=Restart.NEVER)


@pytest.mark.parametrize(("exit_code", "status"), [(3, 3), (None, 143)], ids=["an exit code", "a signal"])
def test_the_node_goes_with_the_exit_status_of_the_job_that_failed_for_good(exit_code: int | None, status: int) -> None:
    machine = leaving(ONCE)
    told(machine)

    actions = told(machine, ended(run_id(machine.jobs[JOB]), exit_code=exit_code), boot=1.0)

    assert [say.event for say in of(Say, actions)][-1] == "node.failed"
    assert of(LeaveCluster, actions)
    assert only(QuitNode, told(machine, ClusterLeft(1.0), boot=1.1)) == QuitNode("", status)


@pytest.mark.parametrize(
    "spec",
    [ONCE, service(scope=Scope.NODE)],
    ids=["it ended well", "it is started again"],
)
def test_the_node_stays_while_nothing_has_failed_for_good(spec: JobSpec) -> None:
    machine = leaving(spec)
    told(machine)
    well = spec is ONCE

    assert of(LeaveCluster, told(machine, ended(run_id(machine.jobs[JOB]), exit_code=0 if well else 1), boot=1.0)) == []


def test_a_service_that_was_given_up_has_failed_for_good() -> None:
    machine = leaving(service(scope=Scope.NODE, backoff=Backoff(max_failures=1)))
    told(machine)

    assert of(LeaveCluster, told(machine, ended(run_id(machine.jobs[JOB]), exit_code=9), boot=1.0))
