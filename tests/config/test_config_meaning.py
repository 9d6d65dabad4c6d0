"""What a sound file means."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import config
from orchestrator.config import values
from orchestrator.config.document import Plain
from orchestrator.core.spec import (
    Backoff,
    ClusterSpec,
    JobSpec,
    Kind,
    LogSpec,
    OnRedisLoss,
    Restart,
    ScheduleSpec,
    StopSpec,
)
from orchestrator.core.timing import LeaseTiming


def jobs(text: str, environ: dict[str, str] | None = None) -> dict[str, JobSpec]:
    """Return the jobs of a file by name."""
    return {spec.name: spec for spec in config.parse(text, "f", environ or {}, source=Path("/srv/jobs.yaml")).jobs}


def only(keys: str, environ: dict[str, str] | None = None) -> JobSpec:
    """Return a job with these keys and a command."""
    return jobs(f"jobs: {{a: {{command: x, {keys}}}}}", environ)["a"]


def test_a_file_that_says_least_gets_all_defaults() -> None:
    cluster = config.parse("jobs: {a: {command: x}}", "f", {})

    (job,) = cluster.jobs
    assert cluster == ClusterSpec(cluster="default", jobs=(job,))
    assert job == JobSpec(
        name=job.name,
        job="a",
        kind=Kind.SERVICE,
        argv=("/bin/sh", "-c", "x"),
        lease=LeaseTiming.scaled(15.0),
        key="a",
        definition=job.definition,
    )


def test_every_key_reaches_its_place() -> None:
    text = """
        cluster: shop
        redis: unix:///run/redis.sock
        node: {name: n1, tags: [web], max_running: 50}
        jobs:
          service:
            command: [python, -m, worker]
            restart: on-failure
            success_exit_codes: [0, 3]
            backoff: {delay: 2s, factor: 1.5, max_delay: 1m}
            healthy_after: 30s
            max_failures: 5
            stop: {signal: int, timeout: 1h}
            lease: {ttl: 30s, heartbeat: 4s, request_timeout: 2s, step_down_grace: 8s, kill_time: 2s, margin: 1s,
                    clock_rate_error: 0.02, key: other}
            on_redis_loss: keep
            env: {A: 1, B: two}
            env_inherit: [PATH, LANG]
            cwd: app
            enabled: false
            log: {file: log/service.log, max_size: 512KiB, backups: 0}
            tags: [billing]
          cron:
            command: python report.py > report.txt
            cron: 0 3 * * mon-fri
            timezone: Europe/Berlin
            timeout: 1h30m
            misfire_grace: 2d
            log: none
          period:
            command: x
            every: 90s
    """

    cluster = config.parse(text, "f", {}, source=Path("/srv/jobs.yaml"))

    service, cron, period = cluster.jobs
    assert cluster == ClusterSpec(
        cluster="shop",
        jobs=cluster.jobs,
        redis="unix:///run/redis.sock",
        node="n1",
        node_tags=("web",),
        max_running=50,
        source="/srv/jobs.yaml",
    )
    assert service == JobSpec(
        name=service.name,
        job="service",
        kind=Kind.SERVICE,
        argv=("python", "-m", "worker"),
        lease=LeaseTiming(30.0, 4.0, 2.0, 8.0, 2.0, 1.0, 0.02),
        key="other",
        definition=service.definition,
        restart=Restart.ON_FAILURE,
        success_exit_codes=frozenset({0, 3}),
        backoff=Backoff(2.0, 1.5, 60.0, 30.0, 5),
        stop=StopSpec("SIGINT", 3600.0),
        log=LogSpec(file="/srv/log/service.log", max_bytes=512 * 1024, backups=0),
        on_redis_loss=OnRedisLoss.KEEP,
        env={"A": "1", "B": "two"},
        env_inherit=("PATH", "LANG"),
        cwd="/srv/app",
        enabled=False,
        tags=("billing",),
    )
    assert (cron.kind, cron.schedule) == (Kind.CRON, ScheduleSpec(cron="0 3 * * mon-fri", timezone="Europe/Berlin"))
    assert (cron.timeout_s, cron.misfire_grace_s, cron.log) == (5400.0, 172_800.0, LogSpec(mode="none"))
    assert (period.kind, period.schedule) == (Kind.CRON, ScheduleSpec(every_s=90.0))


def test_a_text_goes_to_the_shell_and_a_list_does_not() -> None:
    assert only("").argv == ("/bin/sh", "-c", "x")
    assert jobs("jobs: {a: {command: [echo, '$HOME', '']}}")["a"].argv == ("echo", "$HOME", "")


def test_a_command_is_never_expanded() -> None:
    text = "jobs: {a: {command: 'echo ${X} $$'}, b: {command: [echo, '${X}']}}"

    assert [spec.argv[-1] for spec in jobs(text, {"X": "no"}).values()] == ["echo ${X} $$", "${X}"]


def test_defaults_are_merged_key_by_key_and_a_jobs_own_win() -> None:
    text = """
        defaults:
          lease: {ttl: 30s, margin: 1s}
          stop: {signal: SIGINT, timeout: 5s}
          env: {A: all, B: all}
          log: {max_size: 1MB}
          timezone: Europe/Berlin
          restart: never
          tags: [all]
        jobs:
          a: {command: x, lease: {margin: 2s}, stop: {timeout: 0s}, env: {B: own}, log: {backups: 1}, tags: [own]}
          b: {command: x, cron: "@daily", log: none}
          c: {command: x}
    """

    a, b, c = jobs(text).values()

    assert (a.lease.ttl_s, a.lease.margin_s) == (30.0, 2.0)
    assert (a.stop, a.env, a.tags) == (StopSpec("SIGINT", 0.0), {"A": "all", "B": "own"}, ("own",))
    assert a.log == LogSpec(max_bytes=1_000_000, backups=1)
    assert (b.schedule, b.log) == (ScheduleSpec(cron="@daily", timezone="Europe/Berlin"), LogSpec(mode="none"))
    assert (c.restart, c.tags, c.log.max_bytes) == (Restart.NEVER, ("all",), 1_000_000)


def test_a_job_may_take_back_that_nothing_is_logged() -> None:
    text = "defaults: {log: none}\njobs: {a: {command: x}, b: {command: x, log: {backups: 2}}}"

    assert [spec.log for spec in jobs(text).values()] == [LogSpec(mode="none"), LogSpec(backups=2)]


def test_instances_have_names_keys_and_log_files_of_their_own() -> None:
    specs = jobs("jobs: {w: {command: x, instances: 3, lease: {key: k}, log: {file: /var/log/w.log}}}")

    assert [(spec.name, spec.instance, spec.key, spec.log.file) for spec in specs.values()] == [
        ("w", 0, "k", "/var/log/w.log"),
        ("w.1", 1, "k.1", "/var/log/w-1.log"),
        ("w.2", 2, "k.2", "/var/log/w-2.log"),
    ]
    assert {spec.job for spec in specs.values()} == {"w"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${X}", "x"),
        ("a-${X}-${X}", "a-x-x"),
        ("${EMPTY:-d}", "d"),
        ("${NO_SUCH:-d}", "d"),
        ("${NO_SUCH:-}", ""),
        ("${X:-d}", "x"),
        ("${NO_SUCH:-redis://h:6379/0}", "redis://h:6379/0"),
        ("$${X}", "${X}"),
        ("$$$$", "$$"),
        ("$X $(id) $", "$X $(id) $"),
        ("${NESTED}", "${X}"),
    ],
)
def test_variables_are_expanded_as_a_shell_would(written: str, expected: str) -> None:
    environ = {"X": "x", "EMPTY": "", "NESTED": "${X}"}

    assert only(f"env: {{V: '{written}'}}", environ).env == {"V": expected}


def test_variables_are_expanded_where_the_reference_says_so() -> None:
    text = """
        cluster: ${X}
        redis: ${URL}
        node: {name: "${X}"}
        jobs: {a: {command: x, cwd: "/srv/${X}", log: {file: "${X}.log"}}}
    """

    cluster = config.parse(text, "f", {"X": "x", "URL": "rediss://h"}, source=Path("/etc/jobs.yaml"))

    assert (cluster.cluster, cluster.redis, cluster.node) == ("x", "rediss://h", "x")
    assert (cluster.jobs[0].cwd, cluster.jobs[0].log.file) == ("/srv/x", "/etc/x.log")


def test_a_redis_whose_variables_come_out_empty_is_the_embedded_one() -> None:
    assert config.parse("redis: ${R:-}\njobs: {a: {command: x}}", "f", {}).redis is None


def test_a_file_without_jobs_on_purpose_is_sound() -> None:
    assert config.parse("jobs: {}", "f", {}).jobs == ()


def test_a_file_is_loaded_with_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs.yaml").write_bytes(b"\xef\xbb\xbfjobs:\r\n  a: {command: x, cwd: sub}\r\n")
    monkeypatch.chdir(tmp_path)

    cluster = config.load(Path("jobs.yaml"), {})

    assert cluster.source == str(tmp_path / "jobs.yaml")
    assert cluster.jobs[0].cwd == str(tmp_path / "sub")


@pytest.mark.parametrize(
    ("written", "duration_s"),
    [("500ms", 0.5), ("15s", 15.0), ("2m", 120.0), ("1h", 3600.0), ("1h30m", 5400.0), ("2d", 172_800.0), ("1.5s", 1.5)],
)
def test_a_duration_is_read_with_its_units(written: str, duration_s: float) -> None:
    assert values.seconds(Plain(written)) == duration_s


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_that_was_written_by_us_is_read_as_the_same(duration_ms: int) -> None:
    assert values.seconds(values.written(duration_ms / 1000)) == pytest.approx(duration_ms / 1000)


@pytest.mark.parametrize(
    ("written", "size_bytes"), [("4096B", 4096), ("10MB", 10**7), ("512KiB", 524_288), ("1GiB", 2**30), ("2kB", 2000)]
)
def test_a_size_is_read_with_its_unit(written: str, size_bytes: int) -> None:
    assert values.size(Plain(written)) == size_bytes


@pytest.mark.parametrize("written", ["TERM", "SIGTERM", "term"])
def test_a_signal_may_be_written_as_people_do(written: str) -> None:
    assert only(f"stop: {{signal: {written}}}").stop.signal == "SIGTERM"
