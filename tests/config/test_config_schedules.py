"""When a job of a file is due, and what becomes of its ticks."""

from datetime import UTC, datetime

import pytest

from orchestrator import config
from orchestrator.core.spec import (
    Dst,
    HistorySpec,
    JobSpec,
    Kind,
    Misfire,
    OnLost,
    Overlap,
    RetrySpec,
    ScheduleSpec,
)


def jobs(text: str) -> dict[str, JobSpec]:
    """Return the instances of a file by name."""
    return {spec.name: spec for spec in config.parse(text, "f", {}).jobs}


def only(keys: str) -> JobSpec:
    """Return the one job of a file that has these keys."""
    return jobs(f"jobs: {{a: {{command: x, {keys}}}}}")["a"]


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_every_key_of_a_cron_reaches_its_place() -> None:
    text = """
        jobs:
          a:
            command: x
            cron: 0 3 * * *
            timezone: Europe/Berlin
            dst: literal
            jitter: 5m
            not_before: 2026-12-24
            not_after: 2027-12-24T18:00:30.5+01:00
            misfire: all
            overlap: allow
            max_instances: 3
            on_lost: rerun
            retries: {count: 4, delay: 1m, backoff: 1.5, max_delay: 1h}
            pause_after_failures: 5
            history: {runs: 20, max_size: 1MiB}
    """

    (job,) = jobs(text).values()

    assert job.schedule == ScheduleSpec(
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        dst=Dst.LITERAL,
        not_before_utc=utc("2026-12-23T23:00"),
        not_after_utc=utc("2027-12-24T17:00:30.5"),
    )
    assert (job.jitter_s, job.pause_after_failures) == (300.0, 5)
    assert (job.misfire, job.overlap, job.max_instances) == (Misfire.ALL, Overlap.ALLOW, 3)
    assert (job.on_lost, job.retries) == (OnLost.RERUN, RetrySpec(4, 60.0, 1.5, 3600.0))
    assert job.history == HistorySpec(20, 2**20)


def test_a_cron_that_says_least_gets_all_defaults() -> None:
    job = only("every: 5s")

    assert job == JobSpec(
        name=job.name,
        job="a",
        kind=Kind.CRON,
        argv=job.argv,
        lease=job.lease,
        key="a",
        definition=job.definition,
        schedule=ScheduleSpec(every_s=5.0),
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param("at: 2026-12-24T18:00", "2026-12-24T18:00", id="utc where no zone is given"),
        pytest.param("at: '2026-12-24T18:00'", "2026-12-24T18:00", id="in quotes"),
        pytest.param("at: 2026-12-24 18:00:01.5", "2026-12-24T18:00:01.5", id="a blank and a fraction"),
        pytest.param("at: 2026-12-24t18:00z", "2026-12-24T18:00", id="small letters"),
        pytest.param("at: 2026-12-24", "2026-12-24T00:00", id="a date"),
        pytest.param("at: 2026-12-24, timezone: Europe/Berlin", "2026-12-23T23:00", id="a date in a zone"),
        pytest.param("at: 2026-12-24T18:00+0545", "2026-12-24T12:15", id="an offset without a colon"),
        pytest.param("at: 2026-12-24T18:00-03:30", "2026-12-24T21:30", id="an offset to the west"),
        pytest.param(
            "at: 2026-12-24T18:00Z, timezone: Asia/Tokyo", "2026-12-24T18:00", id="an offset wins over a zone"
        ),
        pytest.param("at: 2025-03-30T02:30, timezone: Europe/Berlin", "2025-03-30T01:00", id="where a gap ends"),
        pytest.param("at: 2025-10-26T02:30, timezone: Europe/Berlin", "2025-10-26T00:30", id="the first of two passes"),
        pytest.param("at: 2011-12-30, timezone: Pacific/Apia", "2011-12-30T10:00", id="a date that did not exist"),
    ],
)
def test_an_instant_is_read_as_it_was_meant(keys: str, expected: str) -> None:
    job = only(keys)

    assert job.kind is Kind.CRON
    assert job.schedule is not None
    assert job.schedule.at_utc == utc(expected)


def test_an_instant_of_the_defaults_is_read_in_the_zone_of_each_job() -> None:
    text = """
        defaults: {not_before: 2026-12-24}
        jobs:
          a: {command: x, every: 5s, timezone: Asia/Tokyo}
          b: {command: x, cron: '@daily', timezone: Europe/Berlin}
          c: {command: x, every: 5s}
          service: {command: x}
    """

    schedules = [job.schedule for job in jobs(text).values()]

    assert [schedule and schedule.not_before_utc for schedule in schedules] == [
        *(utc("2026-12-23T15:00"), utc("2026-12-23T23:00"), utc("2026-12-24T00:00")),
        None,
    ]


def test_a_number_of_retries_may_stand_alone_and_takes_the_rest_from_the_defaults() -> None:
    text = """
        defaults: {retries: {count: 2, delay: 5s}}
        jobs:
          a: {command: x, every: 5s, retries: 3}
          b: {command: x, every: 5s, retries: {backoff: 1}}
          c: {command: x, every: 5s}
          d: {command: x, every: 5s, retries: 0}
          service: {command: x}
    """

    assert [job.retries for job in jobs(text).values()] == [
        RetrySpec(3, 5.0),
        RetrySpec(2, 5.0, 1.0),
        RetrySpec(2, 5.0),
        RetrySpec(0, 5.0),
        RetrySpec(),
    ]


def test_delays_of_the_defaults_try_nothing_again_by_themselves() -> None:
    text = "defaults: {retries: {delay: 5s}}\njobs: {a: {command: x, every: 5s}}"

    assert jobs(text)["a"].retries.count == 0


def test_defaults_of_crons_are_left_aside_where_they_mean_nothing() -> None:
    text = """
        defaults:
          {misfire: all, overlap: allow, max_instances: 2, on_lost: rerun, retries: 1, jitter: 1s, dst: literal,
           timezone: Europe/Berlin, not_after: 2030-01-01, pause_after_failures: 3, history: {runs: 7}}
        jobs:
          service: {command: x}
          tick: {command: x, every: 5s, overlap: skip}
          follower: {command: x, after: [tick]}
          everywhere: {command: x, every: 5s, scope: node}
    """
    plain = "jobs: {service: {command: x, history: {runs: 7}}}"

    found = jobs(text)

    assert found["service"] == jobs(plain)["service"]
    assert (found["tick"].max_instances, found["follower"].max_instances) == (10, 2)
    assert found["follower"].schedule == ScheduleSpec(after="tick")
    assert (found["follower"].jitter_s, found["tick"].jitter_s) == (0.0, 1.0)
    everywhere = found["everywhere"]
    assert (everywhere.on_lost, everywhere.pause_after_failures) == (OnLost.SKIP, None)
    assert (everywhere.history, everywhere.misfire) == (HistorySpec(), Misfire.ALL)


def test_a_job_after_a_cron_alone_is_a_cron() -> None:
    text = """
        jobs:
          last: {command: x, after: [middle], retries: 1}
          middle: {command: x, after: [tick], misfire: skip}
          tick: {command: x, at: 2026-12-24}
          waiting: {command: x, after: [base]}
          base: {command: x}
    """

    found = jobs(text)

    assert {name: job.kind.value for name, job in found.items()} == {
        "last": "cron",
        "middle": "cron",
        "tick": "cron",
        "waiting": "service",
        "base": "service",
    }
    assert (found["last"].schedule, found["last"].after) == (ScheduleSpec(after="middle"), ())
    assert found["middle"].schedule == ScheduleSpec(after="tick")
    assert (found["waiting"].schedule, found["waiting"].after) == (None, ("base",))


def test_a_long_chain_of_crons_is_read_to_its_end() -> None:
    chain = "".join(f"  j{n}: {{command: x, after: [j{n + 1}]}}\n" for n in range(2000))

    found = jobs(f"jobs:\n{chain}  j2000: {{command: x, every: 5s}}\n")

    assert {job.kind for job in found.values()} == {Kind.CRON}


def test_a_jitter_may_come_close_to_the_shortest_interval() -> None:
    assert only("cron: '0,10 3 * * *', jitter: 9m59s").jitter_s == 599.0
    assert only("cron: 0 3 * * mon, jitter: 6d").jitter_s == 518_400.0
    assert only("at: 2026-12-24, jitter: 30d").jitter_s == 2_592_000.0
