"""The hash by which nodes see that their files differ."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType
from typing import get_args, get_type_hints

import pytest

from orchestrator import config
from orchestrator.config.entry import Entry
from orchestrator.config.model import Job
from orchestrator.config.specs import definition
from orchestrator.core.spec import HealthSpec, Hook, JobSpec, ReloadSpec, ScheduleSpec

CHANGES: dict[str, str] = {
    "command": "y",
    "cron": "'@daily'",
    "every": "5s",
    "at": "2026-12-24",
    "dst": "literal",
    "jitter": "1s",
    "not_before": "2026-12-24",
    "not_after": "2026-12-24",
    "misfire": "all",
    "overlap": "queue",
    "max_instances": "2",
    "on_lost": "rerun",
    "retries": "1",
    "retries.count": "1",
    "retries.delay": "1s, count: 1",
    "retries.backoff": "1, count: 1",
    "retries.max_delay": "1m, count: 1",
    "pause_after_failures": "1",
    "history.runs": "1",
    "history.max_size": "1MB",
    "instances": "2",
    "timezone": "Europe/Berlin",
    "restart": "never",
    "success_exit_codes": "[1]",
    "no_restart_exit_codes": "[1]",
    "backoff.delay": "2s",
    "backoff.factor": "3",
    "backoff.max_delay": "2m",
    "healthy_after": "1s",
    "max_failures": "1",
    "on_crash_loop": "keep",
    "max_age": "1d",
    "max_rss": "1GB",
    "health.exec": "y",
    "health.http": "'http://h/'",
    "health.tcp": "'h:1'",
    "health.interval": "1s, tcp: 'h:1'",
    "health.timeout": "1s, tcp: 'h:1'",
    "health.failures": "1, tcp: 'h:1'",
    "health.start_period": "1s, tcp: 'h:1'",
    "on_unhealthy": "release",
    "stop.signal": "SIGINT",
    "stop.timeout": "1s",
    "stop.command": "y",
    "reload.signal": "HUP",
    "reload.command": "y",
    "on_start": "y",
    "on_start.command": "y",
    "on_start.timeout": "1s, command: y",
    "on_success": "y",
    "on_success.command": "y",
    "on_success.timeout": "1s, command: y",
    "on_failure": "y",
    "on_failure.command": "y",
    "on_failure.timeout": "1s, command: y",
    "on_step_down": "y",
    "on_step_down.command": "y",
    "on_step_down.timeout": "1s, command: y",
    "scope": "node",
    "after": "[b]",
    "priority": "1",
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
    "env_file": "/etc/app.env",
    "env_inherit": "none",
    "cwd": "/srv",
    "user": "app",
    "group": "app",
    "umask": "077",
    "nice": "1",
    "oom_score_adj": "1",
    "limits.as": "1GB",
    "limits.core": "0",
    "limits.cpu": "1h",
    "limits.data": "1GB",
    "limits.fsize": "1GB",
    "limits.memlock": "1GB",
    "limits.nofile": "1",
    "limits.nproc": "1",
    "limits.rss": "1GB",
    "limits.stack": "unlimited",
    "enabled": "false",
    "timeout": "1h",
    "misfire_grace": "1h",
    "log": "none",
    "log.file": "/x.log",
    "log.max_size": "1MB",
    "log.backups": "1",
    "log.stderr": "separate",
    "log.timestamps": "true",
    "tags": "[a]",
}
"""One other value for each key a job has."""
IN_SHORT = {"log", "retries", "on_start", "on_success", "on_failure", "on_step_down"}
"""Keys that take a mapping or a word."""
BESIDE: dict[str, str] = {
    "timezone": "cron: '@hourly'",
    "dst": "cron: '@hourly'",
    "max_instances": "every: 9s, overlap: allow",
    **dict.fromkeys(
        (
            *("timeout", "jitter", "not_before", "not_after", "misfire", "misfire_grace", "overlap", "on_lost"),
            *("retries", "retries.count", "retries.delay", "retries.backoff", "retries.max_delay"),
            "pause_after_failures",
        ),
        "every: 9s",
    ),
    "on_unhealthy": "health: {exec: y}",
}
"""What a key needs beside it to mean something."""


def defined(keys: str) -> str:
    """Return the definition of a job with these keys."""
    jobs = config.parse(f"jobs: {{a: {{{keys}}}, b: {{command: x}}}}", "f", {}).jobs
    return next(spec.definition for spec in jobs if spec.name == "a")


def leaves(entry: type[Entry]) -> Iterator[str]:
    """Yield the keys of a mapping, and those of the mappings below it as `lease.ttl`."""
    for key in entry.fields_by_key():
        if below := entry.below(key):
            yield from (f"{key}.{leaf}" for leaf in leaves(below))
        if not below or key in IN_SHORT:
            yield key


def test_every_key_of_the_model_is_changed_here() -> None:
    assert set(CHANGES) == set(leaves(Job))


@pytest.mark.parametrize("key", CHANGES)
def test_a_change_of_any_key_changes_the_definition(key: str) -> None:
    section, _, inner = key.partition(".")
    change = f"{section}: {{{inner}: {CHANGES[key]}}}" if inner else f"{section}: {CHANGES[key]}"
    base = {"command": "command: x"} | ({"beside": BESIDE[key]} if key in BESIDE else {})

    changed = (base | {"command": change}) if key == "command" else (base | {"change": change})

    assert defined(", ".join(changed.values())) != defined(", ".join(base.values()))


def full_spec() -> JobSpec:
    """Return a spec in which every dataclass of the model stands."""
    spec = config.parse("jobs: {a: {command: x}}", "f", {}).jobs[0]
    hook = Hook(("x",))
    return replace(
        spec,
        schedule=ScheduleSpec(),
        health=HealthSpec(),
        reload=ReloadSpec(),
        on_start=hook,
        on_success=hook,
        on_failure=hook,
        on_step_down=hook,
    )


def paths(value: object, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the way to each field of a spec, through the dataclasses in it."""
    assert is_dataclass(value)
    for field in fields(value):
        here = (*above, field.name)
        if is_dataclass(inner := getattr(value, field.name)):
            yield from paths(inner, here)
        elif field.name != "definition":
            yield here


def with_other(value: object, path: tuple[str, ...]) -> object:
    """Return a dataclass with another value at the end of a path."""
    assert is_dataclass(value)
    assert not isinstance(value, type)
    name, *below = path
    now = getattr(value, name)
    new = with_other(now, tuple(below)) if below else another(now, get_type_hints(type(value))[name])
    return replace(value, **{name: new})


def another(now: object, hint: object) -> object:
    """Return another value than `now`, of a kind that may stand there."""
    match now:
        case Enum():
            return next(member for member in type(now) if member is not now)
        case bool():
            return not now
        case int() | float():
            return now + 1
        case str():
            return f"{now}x"
        case tuple():
            return (*now, "x")
        case frozenset():
            return now | {99}
        case dict():
            return now | {"X": "x"}
        case _:
            kind = next(kind for kind in get_args(hint) if kind is not NoneType)
            return {int: 7, float: 7.0, str: "x"}.get(kind, ("x",))


@pytest.mark.parametrize("path", list(paths(full_spec())), ids=".".join)
def test_a_change_of_any_field_of_a_spec_changes_the_definition(path: tuple[str, ...]) -> None:
    """Also of a dataclass that is new in it: the comparison is made from the model, not from a list."""
    spec = full_spec()
    other = with_other(spec, path)
    assert isinstance(other, JobSpec)

    assert definition(other, 1) != definition(spec, 1)


def test_no_dataclass_of_the_model_is_left_out_above() -> None:
    assert [name for name, value in vars_of(full_spec()) if value is None and may_be_dataclass(name)] == []


def vars_of(spec: JobSpec) -> list[tuple[str, object]]:
    """Return the fields of a spec with their values."""
    return [(field.name, getattr(spec, field.name)) for field in fields(spec)]


def may_be_dataclass(name: str) -> bool:
    """Say whether a field of the spec may hold a dataclass."""
    return any(is_dataclass(kind) for kind in get_args(get_type_hints(JobSpec)[name]))


def test_a_definition_does_not_depend_on_how_it_is_written() -> None:
    plain = defined("command: x, env: {A: 1, B: 2}, success_exit_codes: [0, 8, 16], stop: {timeout: 60s}")

    assert plain == defined("success_exit_codes: [16, 8, 0], stop: {timeout: 1m}, env: {B: '2', A: 1}, command: 'x'")


def test_the_short_form_of_a_hook_is_the_same_as_the_long_one() -> None:
    assert defined("command: x, on_start: y") == defined("command: x, on_start: {command: y, timeout: 30s}")


def test_a_key_that_only_repeats_its_default_changes_nothing() -> None:
    assert defined("command: x, restart: always, lease: {ttl: 15s}") == defined("command: x")


def test_a_default_that_means_nothing_for_a_job_changes_nothing() -> None:
    """Or a node with another `defaults` for services would seem to have other crons."""
    plain = "jobs: {a: {command: x, every: 5s}}"

    with_defaults = (
        f"defaults: {{restart: never, timezone: Europe/Berlin, health: {{tcp: 'h:1'}}, max_age: 1d}}\n{plain}"
    )

    assert config.parse(with_defaults, "f", {}).jobs == config.parse(plain, "f", {}).jobs


def test_all_instances_of_a_job_have_one_definition() -> None:
    specs = config.parse("jobs: {a: {command: x, instances: 3}}", "f", {}).jobs

    assert len({spec.definition for spec in specs}) == 1
