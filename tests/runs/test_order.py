"""What a child finds in its environment, and what must never get there."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.messages import StartRun
from orchestrator.core.nouns import JobName, RunId, Token
from orchestrator.core.spec import JobSpec, LogSpec
from orchestrator.runs.order import environment, inheritable, log_path
from tests.runs.node import job

ENVIRON = {
    "PATH": "/bin",
    "REDIS_URL": "redis://the-application's-own",
    "ORCHESTRATOR_REDIS": "redis://:secret@host",
    "ORCHESTRATOR_REDIS_PASSWORD": "secret",
    "NOTIFY_SOCKET": "/run/notify",
    "WATCHDOG_USEC": "1",
    "WATCHDOG_PID": "1",
    "LISTEN_FDS": "1",
    "CREDENTIALS_DIRECTORY": "/run/credentials",
}


def child(spec: JobSpec, **env: str) -> dict[str, str]:
    return environment(inheritable(ENVIRON), spec, StartRun(spec.name, RunId("r"), Token(1), None, env))


def test_what_is_ours_alone_is_never_inherited() -> None:
    assert child(job(("true",))) == {"PATH": "/bin", "REDIS_URL": "redis://the-application's-own"}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [("none", set()), (("PATH", "NOWHERE"), {"PATH"}), (("ORCHESTRATOR_REDIS",), set())],
    ids=["nothing", "by name", "ours by name"],
)
def test_a_job_inherits_what_its_file_says(wanted: str | tuple[str, ...], names: set[str]) -> None:
    assert set(child(replace(job(("true",)), env_inherit=wanted))) == names


def test_the_file_wins_over_what_is_inherited_and_the_order_over_the_file() -> None:
    spec = replace(job(("true",)), env={"PATH": "/opt/bin", "ORCHESTRATOR_JOB": "forged"})

    assert child(spec, ORCHESTRATOR_JOB="beat") == {
        "PATH": "/opt/bin",
        "REDIS_URL": "redis://the-application's-own",
        "ORCHESTRATOR_JOB": "beat",
    }


def test_what_the_file_sets_is_asked_for() -> None:
    spec = replace(job(("true",)), env={"ORCHESTRATOR_REDIS": "redis://asked-for"}, env_inherit="none")

    assert child(spec) == {"ORCHESTRATOR_REDIS": "redis://asked-for"}


@pytest.mark.parametrize(
    ("name", "log", "path"),
    [
        ("beat", LogSpec(), "/state/logs/beat.log"),
        ("worker.1", LogSpec(), "/state/logs/worker.1.log"),
        ("../../etc/passwd", LogSpec(), "/state/logs/..%2F..%2Fetc%2Fpasswd.log"),
        ("beat", LogSpec(file="/var/log/beat.log"), "/var/log/beat.log"),
        ("beat", LogSpec(mode="none"), None),
    ],
    ids=["by its name", "by its instance", "within the directory", "as the file says", "nowhere"],
)
def test_where_the_output_goes(name: str, log: LogSpec, path: str | None) -> None:
    spec = replace(job(("true",)), name=JobName(name), log=log)

    assert log_path(Path("/state"), spec) == (Path(path) if path else None)
