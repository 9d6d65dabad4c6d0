"""From a job's spec and the order to start it to what a leash is sent: pure.

It knows what a child must find in its environment, what must never get there, and where its output goes.

Two writers never share a log file, or each would rotate it away from under the other. A job's runs follow one another
in one file; those that are alive at once (`overlap: allow`) have a lane each, and a lane has files of its own:

    lane 0    beat.log       beat.log.1 ...      beat.err.log       what every other job has
    lane 1    beat~1.log     beat~1.log.1 ...    beat~1.err.log     no job's or instance's name has a `~`

A `file` of the job's own gets its lanes in the same way. What is no file stays one for all: what leads below /dev.
"""

import fnmatch
import signal
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from orchestrator.core.messages import StartRun
from orchestrator.core.spec import Hook, JobSpec

LONGEST_REST_GRACE_S = 2.0
"""What a first process that exits by itself leaves behind has so long at most."""

NEVER_INHERITED = (
    *("ORCHESTRATOR_REDIS*", "NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM"),
)
"""Ours alone: the Redis URL holds a password, and systemd's variables speak to main and to nobody below it."""


def inheritable(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what of main's environment a job may inherit at all."""
    return {
        name: value
        for name, value in environ.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in NEVER_INHERITED)
    }


def environment(heritage: Mapping[str, str], spec: JobSpec, order: StartRun) -> dict[str, str]:
    """Return the child's environment: what it inherits, over that the file's `env`, over that the order's.

    What the file sets by name is asked for, so it may bear any name.
    """
    wanted = spec.env_inherit
    if wanted == "none":
        inherited: Mapping[str, str] = {}
    elif wanted == "all":
        inherited = heritage
    else:
        inherited = {name: heritage[name] for name in wanted if name in heritage}
    return {**inherited, **spec.env, **order.env}


def log_path(directory: Path, spec: JobSpec, lane: int = 0) -> Path | None:
    """Return the file that the output of the job's runs in a lane goes to, None where it goes to no file."""
    if spec.log.mode != "file":
        return None
    path = directory / "logs" / f"{quote(spec.name, safe=' @+=,:')}.log"
    if spec.log.file is not None:
        path = Path(spec.log.file)
    if not lane or path.parts[:2] == ("/", "dev"):
        return path
    return path.with_name(f"{path.stem}~{lane}{path.suffix}")


def err_log_path(directory: Path, spec: JobSpec, lane: int = 0) -> Path | None:
    """Return the file that the job's stderr goes to, None where it has none of its own."""
    path = log_path(directory, spec, lane)
    if path is None or spec.log.stderr != "separate":
        return None
    return path.with_name(f"{path.stem}.err{path.suffix}")


def what_to_run(
    spec: JobSpec,
    order: StartRun,
    *,
    heritage: Mapping[str, str],
    directory: Path,
    open_files: int,
    cgroup: str | None = None,
) -> dict[str, object]:
    """Return what the leash is sent, ready for JSON.

    Args:
        spec: The job.
        order: The order to start a run of it.
        heritage: What a child may inherit, see `inheritable`.
        directory: The state directory.
        open_files: The soft limit a child gets; main and the launcher may have raised their own.
        cgroup: The directory of the run's own cgroup, which its leash makes; None: it gets none.
    """
    stop = spec.stop
    hooks = {name: hook for name, hook in _hooks(spec, order).items() if hook is not None}
    log = _log(directory, spec, order.lane)
    return {
        "argv": list(spec.argv),
        "env": environment(heritage, spec, order),
        "named": [*spec.env, *order.env],  # these win over files of variables, and over what is the user's
        "cwd": spec.cwd,
        "open_files": open_files,
        "identity": _identity(spec),
        "cgroup": cgroup,
        "stop_signal": int(signal.Signals[stop.signal]),
        "stop_command": stop.command,
        "rest_grace_s": min(LONGEST_REST_GRACE_S, stop.timeout_s),
        "abandon_grace_s": spec.lease.step_down_grace_s,
        "success": sorted(spec.success_exit_codes),
        "hooks": {name: {"argv": hook.command, "timeout_s": hook.timeout_s} for name, hook in hooks.items()},
        "log": log,
        "separate": log is not None and spec.log.stderr == "separate",
    }


def _identity(spec: JobSpec) -> dict[str, object]:
    return {
        "user": spec.user,
        "group": spec.group,
        "umask": spec.umask,
        "nice": spec.nice,
        "oom_score_adj": spec.oom_score_adj,
        "limits": [list(limit) for limit in spec.limits],
        "env_files": list(spec.env_files),
    }


def _hooks(spec: JobSpec, order: StartRun) -> dict[str, Hook | None]:
    return {
        "on_start": spec.on_start,
        "on_success": spec.on_success,
        "on_failure": spec.on_failure if order.last_attempt else None,
        "on_step_down": spec.on_step_down,
    }


def _log(directory: Path, spec: JobSpec, lane: int) -> dict[str, object] | None:
    log, path = spec.log, log_path(directory, spec, lane)
    if log.mode == "journal":
        separate = log.stderr == "separate"
        return {"journal": True, "name": spec.name, "timestamps": log.timestamps, "separate": separate}
    if path is None:
        return None
    err_path = err_log_path(directory, spec, lane)
    return {
        "path": str(path),
        "err_path": err_path and str(err_path),
        "max_bytes": log.max_bytes,
        "backups": log.backups,
        "timestamps": log.timestamps,
    }
