"""What the keys of a job's process, health, hooks and dependencies mean."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import config
from orchestrator.config import process_values
from orchestrator.config.document import Plain
from orchestrator.core.spec import (
    HealthSpec,
    Hook,
    JobSpec,
    LogSpec,
    OnCrashLoop,
    OnRedisLoss,
    OnUnhealthy,
    ReloadSpec,
    Scope,
    StopSpec,
)


def jobs(text: str, environ: dict[str, str] | None = None) -> dict[str, JobSpec]:
    """Return the jobs of a file by name."""
    return {spec.name: spec for spec in config.parse(text, "f", environ or {}, source=Path("/srv/jobs.yaml")).jobs}


def only(keys: str, environ: dict[str, str] | None = None) -> JobSpec:
    """Return a job with these keys and a command."""
    return jobs(f"jobs: {{a: {{command: x, {keys}}}}}", environ)["a"]


def shell(line: str) -> tuple[str, ...]:
    """Return what is exec'd for a command that is a text."""
    return ("/bin/sh", "-c", line)


def test_every_key_of_a_service_reaches_its_place() -> None:
    text = """
        jobs:
          db: {command: x}
          service:
            command: x
            no_restart_exit_codes: [3, 4]
            on_crash_loop: keep
            max_age: 1d
            max_rss: 512MiB
            health: {http: "http://127.0.0.1:80/", interval: 5s, timeout: 2s, failures: 5, start_period: 1m}
            on_unhealthy: release
            stop: {command: [nginx, -s, quit]}
            reload: {signal: usr1}
            on_start: echo start
            on_success: [echo, success]
            on_failure: {command: echo failure, timeout: 5s}
            on_step_down: {command: [echo, down]}
            priority: -5
            after: [db]
            user: www-data
            group: 33
            umask: 027
            nice: -5
            oom_score_adj: 500
            limits: {nofile: 65536, core: unlimited, memlock: 64MiB, as: 1GB, cpu: 1h, stack: 0}
            env_file: [app.env, /etc/app.env]
            log: {stderr: separate, timestamps: true}
    """

    spec = jobs(text)["service"]

    assert spec.no_restart_exit_codes == frozenset({3, 4})
    assert (spec.on_crash_loop, spec.max_age_s, spec.max_rss_bytes) == (OnCrashLoop.KEEP, 86400.0, 512 * 2**20)
    assert spec.health == HealthSpec(
        http="http://127.0.0.1:80/", interval_s=5.0, timeout_s=2.0, failures=5, start_period_s=60.0
    )
    assert spec.on_unhealthy is OnUnhealthy.RELEASE
    assert (spec.stop, spec.reload) == (StopSpec(command=("nginx", "-s", "quit")), ReloadSpec(signal="SIGUSR1"))
    assert (spec.on_start, spec.on_success) == (Hook(shell("echo start")), Hook(("echo", "success")))
    assert (spec.on_failure, spec.on_step_down) == (Hook(shell("echo failure"), 5.0), Hook(("echo", "down"), 30.0))
    assert (spec.priority, spec.after) == (-5, ("db",))
    assert (spec.user, spec.group, spec.umask) == ("www-data", "33", 0o027)
    assert (spec.nice, spec.oom_score_adj) == (-5, 500)
    assert spec.limits == (
        *(("as", 10**9), ("core", -1), ("cpu", 3600), ("memlock", 64 * 2**20), ("nofile", 65536), ("stack", 0)),
    )
    assert spec.env_files == ("/srv/app.env", "/etc/app.env")
    assert spec.log == LogSpec(stderr="separate", timestamps=True)


def test_a_cron_takes_the_keys_that_mean_something_for_it() -> None:
    cron = only("every: 5s, scope: node, priority: 3, on_success: y, user: app, stop: {command: z}, log: journal")

    assert (cron.scope, cron.priority, cron.on_success, cron.user) == (Scope.NODE, 3, Hook(shell("y")), "app")
    assert (cron.stop.command, cron.log) == (shell("z"), LogSpec(mode="journal"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [("{exec: [curl, x]}", HealthSpec(exec=("curl", "x"))), ("{tcp: '[::1]:5432'}", HealthSpec(tcp="[::1]:5432"))],
    ids=["by a command", "by a connection"],
)
def test_health_is_checked_by_one_of_three(written: str, expected: HealthSpec) -> None:
    assert only(f"health: {written}").health == expected


def test_a_jobs_own_health_check_takes_the_place_of_the_default_one() -> None:
    text = """
        defaults: {health: {tcp: "localhost:1", interval: 3s}, reload: {signal: HUP}}
        jobs:
          a: {command: x, health: {exec: y}, reload: {command: z}}
          b: {command: x}
    """

    a, b = jobs(text).values()

    assert a.health == HealthSpec(exec=shell("y"), interval_s=3.0)
    assert a.reload == ReloadSpec(command=shell("z"))
    assert (b.health, b.reload) == (HealthSpec(tcp="localhost:1", interval_s=3.0), ReloadSpec(signal="SIGHUP"))


def test_numbers_of_health_in_the_defaults_check_nothing_by_themselves() -> None:
    text = "defaults: {health: {interval: 3s}}\njobs: {a: {command: x}, b: {command: x, health: {tcp: 'h:1'}}}"

    a, b = jobs(text).values()

    assert (a.health, b.health) == (None, HealthSpec(tcp="h:1", interval_s=3.0))


def test_hooks_and_limits_of_the_defaults_are_merged_key_by_key() -> None:
    text = """
        defaults:
          on_failure: {command: alert, timeout: 5s}
          limits: {nofile: 100, as: 1GB}
          env_file: all.env
        jobs:
          a: {command: x, on_failure: own, limits: {nofile: 200}, env_file: []}
          b: {command: x}
    """

    a, b = jobs(text).values()

    assert (a.on_failure, b.on_failure) == (Hook(shell("own"), 5.0), Hook(shell("alert"), 5.0))
    assert (a.limits, b.limits) == ((("as", 10**9), ("nofile", 200)), (("as", 10**9), ("nofile", 100)))
    assert (a.env_files, b.env_files) == ((), ("/srv/all.env",))


def test_defaults_that_mean_nothing_for_a_job_are_left_aside() -> None:
    text = """
        defaults:
          {max_age: 1d, max_rss: 1GB, health: {tcp: "h:1"}, on_unhealthy: release, reload: {signal: HUP},
           no_restart_exit_codes: [3], on_redis_loss: keep, lease: {ttl: 60s}, on_crash_loop: keep, timeout: 5s}
        jobs:
          cron: {command: x, every: 5s}
          everywhere: {command: x, scope: node}
    """

    cron, everywhere = jobs(text).values()

    assert (cron.max_age_s, cron.max_rss_bytes, cron.health, cron.reload) == (None, None, None, None)
    assert (cron.no_restart_exit_codes, cron.on_unhealthy) == (frozenset(), OnUnhealthy.RESTART)
    assert (cron.on_redis_loss, cron.lease.ttl_s, cron.timeout_s) == (OnRedisLoss.KEEP, 60.0, 5.0)
    assert (everywhere.on_redis_loss, everywhere.lease.ttl_s) == (OnRedisLoss.STEP_DOWN, 15.0)
    assert (everywhere.on_crash_loop, everywhere.on_unhealthy) == (OnCrashLoop.RELEASE, OnUnhealthy.RESTART)
    assert (everywhere.max_age_s, everywhere.timeout_s) == (86400.0, None)


def test_jobs_stand_in_the_order_of_their_start() -> None:
    text = """
        jobs:
          last: {command: x, priority: 10}
          a: {command: x}
          first: {command: x, priority: -1, instances: 2}
          b: {command: x, every: 5s}
    """

    assert list(jobs(text)) == ["first", "first.1", "a", "b", "last"]


def test_a_service_may_wait_for_one_further_down_and_for_one_that_waits_itself() -> None:
    text = "jobs: {a: {command: x, after: [b, c]}, b: {command: x, after: [c]}, c: {command: x}}"

    assert [spec.after for spec in jobs(text).values()] == [("b", "c"), ("c",), ()]


def test_a_long_chain_of_services_is_no_circle() -> None:
    """Python's own recursion ends at a thousand."""
    count = 3000
    text = "jobs:\n" + "".join(f"  j{n}: {{command: x, after: [j{n + 1}]}}\n" for n in range(count))

    assert len(jobs(f"{text}  j{count}: {{command: x}}\n")) == count + 1


@pytest.mark.parametrize(
    ("written", "expected"),
    [("027", 0o027), ("27", 0o27), ("'0077'", 0o77), ("0", 0), ("777", 0o777)],
    ids=["with a zero", "without", "with two, in quotes", "nothing", "everything"],
)
def test_a_umask_is_read_in_octal(written: str, expected: int) -> None:
    assert only(f"umask: {written}").umask == expected


@given(st.integers(min_value=0, max_value=0o777))
def test_every_umask_is_read_as_it_is_usually_written(mask: int) -> None:
    assert process_values.umask(Plain(f"{mask:03o}")) == mask


@pytest.mark.parametrize(
    "written", ["app", "_apt", "www-data", "a.b", "machine$", "me@example.org", "'DOMAIN\\me'", "0"]
)
def test_a_user_is_a_name_or_a_number(written: str) -> None:
    assert only(f"user: {written}").user == written.strip("'")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *(("nofile: unlimited", -1), ("nproc: 512", 512), ("core: 0", 0), ("core: 0B", 0), ("fsize: 1kB", 1000)),
        *(("cpu: 90", 90), ("cpu: 1m30s", 90), ("cpu: unlimited", -1), ("data: '1KiB'", 1024), ("rss: 2GiB", 2**31)),
    ],
)
def test_a_limit_is_read_in_its_own_unit(written: str, expected: int) -> None:
    assert only(f"limits: {{{written}}}").limits == ((written.split(":", maxsplit=1)[0], expected),)


@pytest.mark.parametrize("written", ["HUP", "SIGUSR2", "winch", "TTIN"])
def test_a_reload_may_be_by_any_signal_that_can_be_handled(written: str) -> None:
    """Gunicorn counts workers up and down by TTIN and TTOU, and counts as reloading what WINCH does."""
    reload = only(f"reload: {{signal: {written}}}").reload

    assert reload is not None
    assert reload.signal == f"SIG{written.upper().removeprefix('SIG')}"


def test_variables_are_expanded_in_env_files_and_where_health_is_asked() -> None:
    environ = {"PORT": "8080", "SHOP": "shop"}
    text = """
        jobs:
          a: {command: x, env_file: ["${SHOP}.env", "${NO_SUCH:-}"], health: {http: "http://h:${PORT}/"}}
          b: {command: x, env_file: "/etc/${SHOP}.env", health: {tcp: "h:${PORT}"}}
    """

    a, b = jobs(text, environ).values()

    assert (a.env_files, a.health) == (("/srv/shop.env",), HealthSpec(http="http://h:8080/"))
    assert (b.env_files, b.health) == (("/etc/shop.env",), HealthSpec(tcp="h:8080"))


def test_a_command_of_any_kind_is_never_expanded() -> None:
    keys = "stop: {command: 'a $$ ${X}'}, reload: {command: 'b ${X}'}, health: {exec: 'c ${X}'}, on_start: 'd ${X}'"

    spec = only(keys, {"X": "no"})

    assert spec.reload is not None
    assert spec.health is not None
    assert spec.on_start is not None
    assert (spec.stop.command, spec.reload.command) == (shell("a $$ ${X}"), shell("b ${X}"))
    assert (spec.health.exec, spec.on_start.command) == (shell("c ${X}"), shell("d ${X}"))


def test_a_log_may_be_named_after_another_jobs_stderr_where_that_is_merged() -> None:
    assert len(jobs("jobs: {a: {command: x}, a.err: {command: x}}")) == 2
