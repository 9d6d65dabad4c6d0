"""A file that is read anew changes what it says differently, and nothing else."""

from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from orchestrator.core.answers import LeaseReleased, LeaseRenewed, StoreSilent, TickClaimed
from orchestrator.core.messages import Action, FileReloaded, RunStarted, StartRun, StopRun
from orchestrator.core.node import Node
from orchestrator.core.nouns import JobName, Token
from orchestrator.core.reload import Effect, compare, effect_of, refusal, substance
from orchestrator.core.requests import AcquireLease, ClaimTick, ReleaseLease
from orchestrator.core.spec import (
    Backoff,
    ClusterSpec,
    HealthSpec,
    HistorySpec,
    Hook,
    JobSpec,
    Kind,
    LogSpec,
    Misfire,
    OnCrashLoop,
    OnLost,
    OnRedisLoss,
    OnUnhealthy,
    Overlap,
    ReloadSpec,
    Restart,
    RetrySpec,
    ScheduleSpec,
    Scope,
    StopSpec,
    bucket_of,
)
from orchestrator.core.timing import LeaseTiming
from tests.core.house import (
    ABSENT,
    JOB,
    TOKEN,
    cron,
    ended,
    granted,
    joined,
    met,
    node,
    of,
    only,
    run_id,
    said,
    server_ms,
    service,
    told,
)

HOOK = Hook(("notify",))
OTHER: Mapping[str, tuple[object, Effect]] = {
    "name": (JobName("other"), Effect.ADDED),
    "job": ("other", Effect.MOVED),
    "kind": (Kind.CRON, Effect.MOVED),
    "argv": (("celery", "worker"), Effect.RESTARTED),
    "lease": (LeaseTiming.scaled(30.0), Effect.MOVED),
    "key": ("other", Effect.MOVED),
    "instance": (1, Effect.MOVED),
    "schedule": (ScheduleSpec(every_s=60.0), Effect.MOVED),
    "restart": (Restart.NEVER, Effect.APPLIED),
    "success_exit_codes": (frozenset({0, 3}), Effect.APPLIED),
    "backoff": (Backoff(delay_s=9.0), Effect.APPLIED),
    "stop": (StopSpec(timeout_s=99.0), Effect.RESTARTED),
    "log": (LogSpec(timestamps=True), Effect.RESTARTED),
    "on_redis_loss": (OnRedisLoss.KEEP, Effect.MOVED),
    "env": ({"A": "1"}, Effect.RESTARTED),
    "env_inherit": ("none", Effect.RESTARTED),
    "env_files": (("/etc/default/beat",), Effect.RESTARTED),
    "cwd": ("/srv", Effect.RESTARTED),
    "enabled": (False, Effect.APPLIED),
    "timeout_s": (60.0, Effect.APPLIED),
    "misfire_grace_s": (1.0, Effect.APPLIED),
    "tags": (("x",), Effect.APPLIED),
    "scope": (Scope.NODE, Effect.MOVED),
    "no_restart_exit_codes": (frozenset({7}), Effect.APPLIED),
    "on_crash_loop": (OnCrashLoop.KEEP, Effect.APPLIED),
    "max_age_s": (3600.0, Effect.APPLIED),
    "max_rss_bytes": (10**9, Effect.RESTARTED),
    "health": (HealthSpec(tcp="127.0.0.1:1"), Effect.RESTARTED),
    "on_unhealthy": (OnUnhealthy.RELEASE, Effect.APPLIED),
    "reload": (ReloadSpec(signal="SIGHUP"), Effect.RESTARTED),
    "on_start": (HOOK, Effect.RESTARTED),
    "on_success": (HOOK, Effect.RESTARTED),
    "on_failure": (HOOK, Effect.RESTARTED),
    "on_step_down": (HOOK, Effect.RESTARTED),
    "user": ("opsy", Effect.RESTARTED),
    "group": ("opsy", Effect.RESTARTED),
    "umask": (0o27, Effect.RESTARTED),
    "nice": (5, Effect.RESTARTED),
    "oom_score_adj": (5, Effect.RESTARTED),
    "limits": ((("nofile", 99),), Effect.RESTARTED),
    "priority": (5, Effect.APPLIED),
    "after": (("db",), Effect.APPLIED),
    "misfire": (Misfire.ALL, Effect.APPLIED),
    "overlap": (Overlap.QUEUE, Effect.APPLIED),
    "max_instances": (3, Effect.APPLIED),
    "on_lost": (OnLost.RERUN, Effect.APPLIED),
    "retries": (RetrySpec(count=3), Effect.APPLIED),
    "jitter_s": (30.0, Effect.APPLIED),
    "pause_after_failures": (3, Effect.APPLIED),
    "history": (HistorySpec(runs=5), Effect.APPLIED),
}
"""Of each field another value, and what that does."""


def other(name: str, value: object) -> JobSpec:
    """Return the job with another value in one field."""
    return replace(service(), **{name: value, "definition": "d2"})  # type: ignore[arg-type] # a test names the field


def test_every_field_of_a_job_is_compared() -> None:
    assert OTHER.keys() == {field.name for field in fields(JobSpec)} - {"definition"}


@pytest.mark.parametrize(("name", "value", "effect"), [(name, *other) for name, other in OTHER.items()], ids=OTHER)
def test_a_changed_field_has_its_effect(name: str, value: object, effect: Effect) -> None:
    first, *_ = compare(cluster(service()), cluster(other(name, value)))

    assert first.effect is effect
    assert bool(first.fields) is (effect is not Effect.ADDED)


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"argv": ("a", "b")}, {"command": ("celery beat", "a b")}),
        ({"umask": 0o22}, {"umask": ("-", "022")}),
        ({"limits": (("nofile", 100),)}, {"limits": ("-", "nofile=100")}),
        ({"stop": StopSpec(timeout_s=3.0)}, {"stop.timeout": ("10s", "3s")}),
        ({"lease": LeaseTiming.scaled(30.0)}, {"lease.ttl": ("15s", "30s")}),
        ({"key": "other"}, {"lease.key": ("beat", "other")}),
        (
            {"backoff": Backoff(delay_s=9.0, max_failures=3)},
            {"backoff.delay": ("1s", "9s"), "max_failures": ("-", "3")},
        ),
        ({"enabled": False}, {"enabled": ("true", "false")}),
    ],
    ids=["command", "umask", "limits", "stop", "ttl", "key", "backoff", "enabled"],
)
def test_what_differs_is_shown_in_the_words_of_the_file(
    change: dict[str, object], shown: dict[str, tuple[str, str]]
) -> None:
    ((name, value),) = change.items()

    (found,) = compare(cluster(service()), cluster(other(name, value)))

    assert dict(found.fields) == shown


def test_what_only_moved_within_the_file_or_was_commented_is_not_touched() -> None:
    one, two = named("one"), named("two")

    assert compare(cluster(one, two), cluster(two, replace(one, definition="d2"))) == ()


def test_of_two_changes_the_greater_one_counts() -> None:
    assert effect_of(frozenset({"tags", "argv"})) is Effect.RESTARTED
    assert effect_of(frozenset({"tags", "argv", "key"})) is Effect.MOVED


def test_values_of_the_environment_are_never_shown() -> None:
    (change,) = compare(
        cluster(service(env={"PASSWORD": "old", "GONE": "x"})), cluster(service(env={"PASSWORD": "new"}))
    )

    assert dict(change.fields) == {"env.PASSWORD": ("(not shown)", "(not shown)"), "env.GONE": ("(not shown)", "-")}


@pytest.mark.parametrize(
    ("change", "named_field"),
    [
        ({"cluster": "b"}, "cluster"),
        ({"redis": "redis://x"}, "redis"),
        ({"node": "n"}, "node.name"),
        ({"node_tags": ("t",)}, "node.tags"),
    ],
    ids=["cluster", "redis", "node name", "node tags"],
)
def test_what_a_running_node_cannot_follow_is_refused(change: dict[str, object], named_field: str) -> None:
    old = cluster(service())

    assert refusal(old, old) == ""
    assert f"`{named_field}` changed" in refusal(old, replace(old, **change))  # type: ignore[arg-type] # as above


def test_a_job_s_substance_is_what_runs_and_not_how_it_is_watched() -> None:
    differs = {name for name, (value, _) in OTHER.items() if substance(other(name, value)) != substance(service())}

    assert differs == {
        *("name", "job", "kind", "argv", "instance", "schedule", "env", "env_inherit", "env_files", "cwd"),
        *("scope", "on_start", "on_success", "on_failure", "on_step_down"),
        *("user", "group", "umask", "nice", "oom_score_adj", "limits"),
    }


# What the node does


def cluster(*jobs: JobSpec) -> ClusterSpec:
    return ClusterSpec("shop", jobs)


def named(name: str, **changes: object) -> JobSpec:
    return service(**{"name": JobName(name), "job": name, "key": name, **changes})


def running_node(spec: JobSpec | None = None) -> Node:
    """Return a member whose only job runs."""
    machine = joined(node(spec or service()))
    told(machine, ABSENT)
    told(machine, granted(0.0))
    told(machine, RunStarted(JOB, run_id(machine.jobs[JOB]), 4711), boot=0.2)
    return machine


def reloaded(machine: Node, *jobs: JobSpec, boot: float = 1.0) -> list[Action]:
    return told(machine, FileReloaded(cluster(*jobs)), boot=boot)


def test_an_unchanged_job_is_not_touched() -> None:
    machine = running_node()
    before = machine.jobs[JOB]

    actions = reloaded(machine, service(definition="d2"), named("new"))

    assert not of(StopRun, actions)
    assert not of(ReleaseLease, actions)
    assert machine.jobs[JOB] is before
    assert list(machine.jobs) == [JOB, "new"]


def test_a_change_that_only_decides_is_taken_over_while_it_runs() -> None:
    machine = running_node()

    actions = reloaded(machine, service(stop=StopSpec(), backoff=Backoff(delay_s=9.0), tags=("x",)))

    assert of(StopRun, actions) == []
    assert machine.jobs[JOB].spec.backoff.delay_s == 9.0


def test_a_service_with_another_command_is_restarted_once_under_its_lease() -> None:
    machine = running_node()
    changed = service(argv=("celery", "worker"))

    stop = only(StopRun, reloaded(machine, changed))
    assert stop.why == "its definition changed"
    assert of(StopRun, told(machine, boot=2.0)) == []
    actions = told(machine, ended(stop.run, cause="stop"), boot=3.0)

    assert only(StartRun, actions).token == TOKEN
    assert machine.jobs[JOB].spec is changed
    assert of(ReleaseLease, actions) == []
    assert machine.jobs[JOB].restarts.failures == 0


def test_a_cron_s_run_goes_on_to_its_end_and_the_next_is_by_the_new_definition() -> None:
    machine = joined(node(cron()))
    told(machine, ABSENT)
    told(machine, granted(0.0, last_tick_ms=server_ms(0.0)))
    job = machine.jobs[JOB]
    job.lease.renewed_at = 60.0
    claim = only(ClaimTick, told(machine, boot=60.0))
    start = only(StartRun, told(machine, TickClaimed(JOB, TOKEN, claim.tick_ms, claim.run, 60.0), boot=60.1))
    changed = cron(argv=("other",))

    assert of(StopRun, reloaded(machine, changed, boot=61.0)) == []
    assert job.spec.argv != changed.argv
    told(machine, ended(start.run), boot=62.0)

    assert job.spec is changed
    assert job.cron is not None
    assert job.cron.ticks.next == (server_ms(0.0) + 120_000) / 1000


def test_a_removed_job_is_stopped_and_its_lease_given_back() -> None:
    machine = running_node()

    stop = only(StopRun, reloaded(machine, named("new")))
    release = only(ReleaseLease, told(machine, ended(stop.run, cause="stop"), boot=2.0))
    assert JOB in machine.jobs
    actions = told(machine, LeaseReleased(JOB, release.value.token, was_ours=True, asked_at=2.0), boot=2.1)

    assert said(actions) == ["lease.released", "job.removed"]
    assert list(machine.jobs) == ["new"]


def test_a_job_under_another_key_gives_the_old_lease_back_before_it_asks_for_the_new_one() -> None:
    machine = running_node()
    moved = service(key="beat2")

    stop = only(StopRun, reloaded(machine, moved))
    actions = told(machine, ended(stop.run, cause="stop"), boot=2.0)
    assert only(ReleaseLease, actions).key == "beat"
    told(machine, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=2.0), boot=2.1)
    told(machine, replace(met(2.2), bucket=bucket_of("beat2")), boot=2.2)

    assert machine.jobs[JOB].spec is moved
    assert only(AcquireLease, told(machine, ABSENT, boot=2.3)).key == "beat2"


def test_a_lease_under_the_same_key_knows_what_the_old_one_knew() -> None:
    machine = running_node()
    stop = only(StopRun, reloaded(machine, service(lease=LeaseTiming.scaled(30.0))))
    told(machine, ended(stop.run, cause="stop"), boot=2.0)

    told(machine, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=2.0), boot=2.1)

    ask = only(AcquireLease, told(machine, ABSENT, boot=2.2))
    assert (ask.ran, ask.floor, ask.ttl_ms) == (TOKEN, TOKEN, 30_000)


def test_a_job_that_comes_back_while_it_is_being_removed_runs_again() -> None:
    machine = running_node()
    stop = only(StopRun, reloaded(machine, named("new")))

    reloaded(machine, service(), named("new"), boot=1.5)
    told(machine, ended(stop.run, cause="stop"), boot=2.0)
    told(machine, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=2.0), boot=2.1)

    assert only(AcquireLease, told(machine, ABSENT, boot=2.2)).key == "beat"


def test_a_job_that_comes_back_after_it_was_removed_never_adopts_the_token_that_it_ran() -> None:
    machine = running_node()
    stop = only(StopRun, reloaded(machine, named("new")))
    release = only(ReleaseLease, told(machine, ended(stop.run, cause="stop"), boot=2.0))
    told(machine, StoreSilent(release, "no answer"), boot=3.0)
    assert JOB not in machine.jobs

    reloaded(machine, service(), named("new"), boot=4.0)

    ask = only(AcquireLease, told(machine, ABSENT, boot=4.1))
    assert (ask.ran, ask.floor) == (TOKEN, TOKEN)


def test_a_job_that_changes_from_a_service_to_a_cron_begins_anew() -> None:
    machine = running_node()

    stop = only(StopRun, reloaded(machine, cron()))
    told(machine, ended(stop.run, cause="stop"), boot=2.0)
    told(machine, LeaseReleased(JOB, TOKEN, was_ours=True, asked_at=2.0), boot=2.1)

    assert machine.jobs[JOB].spec.kind is Kind.CRON
    assert only(AcquireLease, told(machine, ABSENT, boot=2.2)).schedule == "every 60s"


def test_an_unproven_run_keeps_its_job_and_its_lease_in_the_way() -> None:
    machine = running_node()
    reloaded(machine, named("new"))

    for boot in (2.0, 5.0, 20.0):
        told(machine, LeaseRenewed(JOB, Token(TOKEN), server_ms(boot), False, boot - 0.1), boot=boot)

    assert JOB in machine.jobs


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (service(), cron()),
        (cron(), cron(schedule=ScheduleSpec(every_s=30.0))),
        (cron(), cron(key="other")),
        (cron(enabled=False), cron()),
        (service(name=JobName("another"), job="another", key="beat"), cron(key="beat")),
    ],
    ids=["a service becomes a cron", "another schedule", "another lease key", "enabled again", "a new job"],
)
def test_an_edited_job_never_fires_for_the_past(before: JobSpec, after: JobSpec) -> None:
    machine = joined(node(before))
    told(machine, boot=100.0)
    reloaded(machine, after, boot=100.0)
    told(machine, replace(met(100.1), bucket=after.bucket), boot=100.1)

    ask = only(AcquireLease, told(machine, ABSENT, boot=100.2))

    assert server_ms(100.0) <= ask.tick_floor_ms <= server_ms(100.2)


def test_the_counts_are_told() -> None:
    machine = running_node()

    actions = reloaded(machine, service(tags=("x",)), named("new"))

    (say,) = [action for action in actions if getattr(action, "event", "") == "file.reloaded"]
    assert dict(say.fields) == {"applied": 1, "restarted": 0, "moved": 0, "added": 1, "removed": 0}  # type: ignore[union-attr] # a Say
