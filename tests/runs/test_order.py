"""What a child finds in its environment, and what must never get there."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.messages import StartRun
from orchestrator.core.nouns import JobName, RunId, Token
from orchestrator.core.spec import Hook, JobSpec, LogSpec, StopSpec
from orchestrator.runs.order import environment, err_log_path, inheritable, log_path, what_to_run
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
    "JOURNAL_STREAM": "8:1234",
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
        ("beat", LogSpec(mode="journal"), None),
    ],
    ids=["by its name", "by its instance", "within the directory", "as the file says", "nowhere", "to the journal"],
)
def test_where_the_output_goes(name: str, log: LogSpec, path: str | None) -> None:
    spec = replace(job(("true",)), name=JobName(name), log=log)

    assert log_path(Path("/state"), spec) == (Path(path) if path else None)


@pytest.mark.parametrize(
    ("log", "path"),
    [
        (LogSpec(), None),
        (LogSpec(stderr="separate"), "/state/logs/beat.err.log"),
        (LogSpec(stderr="separate", file="/var/log/beat.txt"), "/var/log/beat.err.txt"),
        (LogSpec(stderr="separate", file="/var/log/beat"), "/var/log/beat.err"),
        (LogSpec(stderr="separate", mode="none"), None),
    ],
    ids=["merged", "beside its log", "with the file's ending", "without an ending", "nowhere"],
)
def test_where_what_goes_to_stderr_goes(log: LogSpec, path: str | None) -> None:
    spec = replace(job(("true",)), name=JobName("beat"), log=log)

    assert err_log_path(Path("/state"), spec) == (Path(path) if path else None)


@pytest.mark.parametrize(
    ("log", "path", "err_path"),
    [
        (LogSpec(stderr="separate"), "/state/logs/beat~2.log", "/state/logs/beat~2.err.log"),
        (LogSpec(stderr="separate", file="/var/log/beat.txt"), "/var/log/beat~2.txt", "/var/log/beat~2.err.txt"),
        (LogSpec(file="/var/log/beat"), "/var/log/beat~2", None),
        (LogSpec(file="/dev/null"), "/dev/null", None),
        (LogSpec(mode="none"), None, None),
    ],
    ids=["by its name", "as the file says", "without an ending", "no file at all", "nowhere"],
)
def test_runs_that_are_alive_at_once_have_logs_of_their_own(
    log: LogSpec, path: str | None, err_path: str | None
) -> None:
    spec = replace(job(("true",)), name=JobName("beat"), log=log)

    assert log_path(Path("/state"), spec, 2) == (Path(path) if path else None)
    assert err_log_path(Path("/state"), spec, 2) == (Path(err_path) if err_path else None)


def sent(spec: JobSpec, **env: str) -> dict[str, object]:
    """Return what a leash gets, after the way through JSON."""
    order = StartRun(spec.name, RunId("r"), Token(1), None, env)
    what = what_to_run(
        spec, order, heritage=ENVIRON, directory=Path("/state"), open_files=1024, cgroup="/cgroup/run-1-2"
    )
    decoded: dict[str, object] = json.loads(json.dumps(what))
    return decoded


def test_a_plain_job_asks_for_nothing_special() -> None:
    what = sent(job(("sleep", "20")), ORCHESTRATOR_JOB="beat")

    assert (what["argv"], what["hooks"], what["stop_command"], what["success"]) == (["sleep", "20"], {}, None, [0])
    assert (what["named"], what["cgroup"]) == (["ORCHESTRATOR_JOB"], "/cgroup/run-1-2")
    assert what["identity"] == {
        **dict.fromkeys(("user", "group", "umask", "nice", "oom_score_adj")),
        "limits": [],
        "env_files": [],
    }


def test_who_the_first_process_is_to_be_and_what_its_file_sets_by_name() -> None:
    spec = replace(
        job(("true",)),
        env={"HOME": "/srv", "MODE": "fast"},
        user="www",
        umask=0o27,
        nice=5,
        limits=(("core", -1), ("nofile", 65536)),
        env_files=("/etc/one", "/etc/two"),
    )

    what = sent(spec, ORCHESTRATOR_JOB="beat")

    assert what["named"] == ["HOME", "MODE", "ORCHESTRATOR_JOB"]
    assert what["identity"] == {
        "user": "www",
        "group": None,
        "umask": 0o27,
        "nice": 5,
        "oom_score_adj": None,
        "limits": [["core", -1], ["nofile", 65536]],
        "env_files": ["/etc/one", "/etc/two"],
    }


def test_hooks_that_are_set_and_the_stop_command_are_sent() -> None:
    spec = replace(
        job(("true",)),
        stop=StopSpec(command=("bye", "now")),
        on_start=Hook(("hello",), 5.0),
        on_step_down=Hook(("down",)),
        success_exit_codes=frozenset({3, 0}),
    )

    what = sent(spec)

    assert what["hooks"] == {
        "on_start": {"argv": ["hello"], "timeout_s": 5.0},
        "on_step_down": {"argv": ["down"], "timeout_s": 30.0},
    }
    assert (what["stop_command"], what["success"]) == (["bye", "now"], [0, 3])


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (LogSpec(mode="none"), None),
        (
            LogSpec(file="/l/b.log", stderr="separate", timestamps=True),
            {"path": "/l/b.log", "err_path": "/l/b.err.log", "max_bytes": 10_000_000, "backups": 5, "timestamps": True},
        ),
        (
            LogSpec(mode="journal", stderr="separate"),
            {"journal": True, "name": "beat", "timestamps": False, "separate": True},
        ),
    ],
    ids=["nowhere", "two files", "the journal"],
)
def test_how_the_output_is_to_be_kept(log: LogSpec, what: object) -> None:
    assert sent(replace(job(("true",)), name=JobName("beat"), log=log))["log"] == what
