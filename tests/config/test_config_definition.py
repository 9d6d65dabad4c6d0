"""The hash by which nodes see that their files differ."""

import pytest

from orchestrator import config
from orchestrator.config.model import Backoff, Entry, Job, JobLease, Log, Stop

CHANGES: dict[str, str] = {
    "command": "y",
    "cron": "'@daily'",
    "every": "5s",
    "instances": "2",
    "timezone": "Europe/Berlin",
    "restart": "never",
    "success_exit_codes": "[1]",
    "backoff.delay": "2s",
    "backoff.factor": "3",
    "backoff.max_delay": "2m",
    "healthy_after": "1s",
    "max_failures": "1",
    "stop.signal": "SIGINT",
    "stop.timeout": "1s",
    "lease.ttl": "60s",
    "lease.heartbeat": "2s",
    "lease.request_timeout": "2s",
    "lease.step_down_grace": "1s",
    "lease.kill_time": "2s",
    "lease.margin": "1s",
    "lease.clock_rate_error": "0.02",
    "lease.key": "k",
    "on_redis_loss": "kill",
    "env": "{A: b}",
    "env_inherit": "none",
    "cwd": "/srv",
    "enabled": "false",
    "timeout": "1h",
    "misfire_grace": "1h",
    "log": "none",
    "log.file": "/x.log",
    "log.max_size": "1MB",
    "log.backups": "1",
    "tags": "[a]",
}
"""One other value for each key a job has."""
SECTIONS: dict[str, type[Entry]] = {"backoff": Backoff, "stop": Stop, "lease": JobLease, "log": Log}
KIND: dict[str, str] = {"timezone": "cron: '@hourly'", "timeout": "every: 9s", "misfire_grace": "every: 9s"}
"""What a key needs beside it to mean something."""


def definition(keys: str) -> str:
    """Return the definition of a job with these keys."""
    return config.parse(f"jobs: {{a: {{{keys}}}}}", "f", {}).jobs[0].definition


def test_every_key_of_the_model_is_changed_here() -> None:
    leaves = {key for key in Job.model_fields if key not in SECTIONS} | {"log"}
    leaves |= {f"{section}.{key}" for section, entry in SECTIONS.items() for key in entry.model_fields}

    assert set(CHANGES) == leaves


@pytest.mark.parametrize("key", CHANGES)
def test_a_change_of_any_key_changes_the_definition(key: str) -> None:
    section, _, inner = key.partition(".")
    change = f"{section}: {{{inner}: {CHANGES[key]}}}" if inner else f"{section}: {CHANGES[key]}"
    base = {"command": "command: x"} | ({"kind": KIND[key]} if key in KIND else {})

    changed = (base | {"command": change}) if key == "command" else (base | {"change": change})

    assert definition(", ".join(changed.values())) != definition(", ".join(base.values()))


def test_a_definition_does_not_depend_on_how_it_is_written() -> None:
    plain = definition("command: x, env: {A: 1, B: 2}, success_exit_codes: [0, 8, 16], stop: {timeout: 60s}")

    assert plain == definition("success_exit_codes: [16, 8, 0], stop: {timeout: 1m}, env: {B: '2', A: 1}, command: 'x'")


def test_a_key_that_only_repeats_its_default_changes_nothing() -> None:
    assert definition("command: x, restart: always, lease: {ttl: 15s}") == definition("command: x")


def test_all_instances_of_a_job_have_one_definition() -> None:
    specs = config.parse("jobs: {a: {command: x, instances: 3}}", "f", {}).jobs

    assert len({spec.definition for spec in specs}) == 1
