"""From a job's spec and the order to start it to what a leash is sent: pure.

It knows what a child must find in its environment, and what must never get there.
"""

import fnmatch
import signal
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from orchestrator.core.messages import StartRun
from orchestrator.core.spec import JobSpec

LONGEST_REST_GRACE_S = 2.0
"""What a first process that exits by itself leaves behind has so long at most."""

NEVER_INHERITED = ("ORCHESTRATOR_REDIS*", "NOTIFY_SOCKET", "WATCHDOG_*", "LISTEN_*", "CREDENTIALS_DIRECTORY")
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


def log_path(directory: Path, spec: JobSpec) -> Path | None:
    """Return where the output of the job's runs goes, None where it is dropped."""
    if spec.log.mode == "none":
        return None
    if spec.log.file is not None:
        return Path(spec.log.file)
    return directory / "logs" / f"{quote(spec.name, safe=' @+=,:')}.log"


def what_to_run(
    spec: JobSpec, order: StartRun, *, heritage: Mapping[str, str], directory: Path, open_files: int
) -> dict[str, object]:
    """Return what the leash is sent, ready for JSON.

    Args:
        spec: The job.
        order: The order to start a run of it.
        heritage: What a child may inherit, see `inheritable`.
        directory: The state directory.
        open_files: The soft limit a child gets; main and the launcher may have raised their own.
    """
    path = log_path(directory, spec)
    return {
        "argv": list(spec.argv),
        "env": environment(heritage, spec, order),
        "cwd": spec.cwd,
        "open_files": open_files,
        "stop_signal": int(signal.Signals[spec.stop.signal]),
        "rest_grace_s": min(LONGEST_REST_GRACE_S, spec.stop.timeout_s),
        "abandon_grace_s": spec.lease.step_down_grace_s,
        "log": path and {"path": str(path), "max_bytes": spec.log.max_bytes, "backups": spec.log.backups},
    }
