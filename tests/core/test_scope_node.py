"""Jobs that run on every node need no lease, no token and no Redis."""

import json

from orchestrator.core.job import Job
from orchestrator.core.job_view import job_view
from orchestrator.core.messages import LeaveOrdered, StartRun, StopRun
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, Member, NodeName
from orchestrator.core.requests import AcquireLease, ClaimTick, KeepMembership, LeaveCluster, RecordRun
from orchestrator.core.snapshot import ClusterReading, JobView, cluster_view
from orchestrator.core.spec import JobSpec, Kind, ScheduleSpec, Scope
from tests.core.house import JOB, at, ended, intent, job, members, node, of, only, run_id, said, service, told, turn

SHIPPER = service(scope=Scope.NODE)
EVERY_MINUTE = service(scope=Scope.NODE, kind=Kind.CRON, schedule=ScheduleSpec(every_s=60.0))


def own(spec: JobSpec = SHIPPER) -> Job:
    """Return a job of a node that has not joined any cluster."""
    return job(spec, member=False)


def test_it_starts_before_redis_ever_answered() -> None:
    start = only(StartRun, turn(own()))

    assert start.deadlines is None
    assert "ORCHESTRATOR_FENCING_TOKEN" not in start.env
    assert start.run == "beat@a1.1"


def test_it_asks_redis_for_nothing() -> None:
    running = own()
    actions = turn(running)
    run = run_id(running)

    actions += [*running.beat(at(3.0)), *turn(running, ended(run, exit_code=1), boot=4.0)]
    actions += list(running.publish({"state": "running"}, at(4.0)))

    assert not of(AcquireLease, actions)
    assert not of(RecordRun, actions)
    assert all(not hasattr(action, "asked_at") for action in actions)


def test_it_backs_off_like_any_service() -> None:
    running = own()
    turn(running)

    turn(running, ended(run_id(running), exit_code=1), boot=1.0)

    assert job_view(running, at(1.0)).state == "backoff"
    assert of(StartRun, turn(running, boot=running.next_deadline(at(1.0))))


def test_it_is_stopped_and_started_by_order() -> None:
    running = own()
    turn(running)

    running.order(intent("stopped"))
    assert of(StopRun, turn(running, boot=1.0))
    turn(running, ended(run_id(running), cause="stop"), boot=2.0)
    assert running.idle
    assert job_view(running, at(2.0)).state == "stopped"

    running.order(intent("running", at_ms=2))
    assert of(StartRun, turn(running, boot=3.0))


def test_its_ticks_are_claimed_by_the_node_itself_and_none_of_the_past_runs() -> None:
    waiting = own(EVERY_MINUTE)
    assert turn(waiting, boot=30.0) == []

    (start,) = turn(waiting, boot=60.0)

    assert isinstance(start, StartRun)
    assert start.env["ORCHESTRATOR_TICK"] == "2027-01-15T08:01:00.000Z"
    assert turn(waiting, boot=60.0) == []
    assert of(ClaimTick, turn(waiting, ended(start.run), boot=61.0)) == []


def test_a_tick_that_comes_while_the_last_run_goes_on_is_skipped_and_said() -> None:
    waiting = own(EVERY_MINUTE)
    turn(waiting, boot=30.0)
    turn(waiting, boot=60.0)

    assert said(turn(waiting, boot=120.0)) == ["tick.skipped"]


def cluster(*specs: JobSpec) -> Node:
    """Return a node with these jobs that has just been started."""
    machine = node(*specs)
    told(machine)
    return machine


def test_its_state_is_told_to_the_others_with_the_membership() -> None:
    machine = cluster(SHIPPER)
    told(machine, members(), boot=1.0)

    beat = only(KeepMembership, told(machine, boot=3.1))

    info = json.loads(beat.info)
    assert info["local"] == {"beat": ["starting", ""]}
    assert info["jobs"] == {}


def test_a_node_with_such_jobs_leaves_when_they_are_over() -> None:
    machine = cluster(SHIPPER)
    told(machine, members(), boot=1.0)
    run = run_id(machine.jobs[JOB])

    assert only(StopRun, told(machine, LeaveOrdered(0), boot=2.0)).run == run
    actions = told(machine, ended(run, cause="stop"), boot=3.0)

    assert of(LeaveCluster, actions)


def reading(**states: list[str]) -> ClusterReading:
    """Return what Redis says where each node tells a state and why."""
    present = tuple(Member(NodeName(name), "i", 0, {"local": {"beat": state}}) for name, state in states.items())
    return ClusterReading(present, {}, {}, 0)


def row_of(seen: ClusterReading, own_row: JobView | None = None) -> JobView:
    """Return the row that is shown."""
    bare = [JobView("beat", "service", scope="node")]
    own_view = None if own_row is None else cluster_view("shop", [own_row], None)
    found = cluster_view("shop", bare, seen, own_view).job(JobName("beat"))
    assert found is not None
    return found


def test_its_row_shows_the_state_that_most_wants_looking_after() -> None:
    row = row_of(reading(a=["running", ""], b=["backoff", "exit 1"], c=["running", ""]))

    assert (row.state, row.why, row.holder) == ("backoff", "on b: exit 1", None)


def test_its_row_names_the_nodes_where_all_is_well() -> None:
    assert row_of(reading(b=["running", ""], a=["running", ""])).why == "on a, b"


def test_what_makes_no_sense_in_a_membership_is_passed_over() -> None:
    row = row_of(reading(a=["running"], b=["running", ""]))

    assert row.why == "on b"
    assert row_of(reading(a=["ill", ""])).state == "ill"
