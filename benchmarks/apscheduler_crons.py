"""APScheduler 3 as people use it for commands: a BackgroundScheduler, and `subprocess.run` with captured output.

python -m benchmarks.apscheduler_crons COUNT COMMAND
"""

import signal
import subprocess
import sys
from importlib import import_module
from typing import Any

_THREADS = 100
"""Of its pool. Ten are its default, and hardly slower here; more only wait for each other."""
_GRACE_S = 60
"""With its default of one second it would drop what it starts late."""


def _run(command: str) -> None:
    subprocess.run(command, shell=True, capture_output=True, check=True)  # noqa: S602 - as a crontab's line is run


def _serve(count: int, command: str) -> None:
    scheduler: Any = import_module("apscheduler.schedulers.background").BackgroundScheduler(
        executors={"default": {"type": "threadpool", "max_workers": _THREADS}},
        job_defaults={"misfire_grace_time": _GRACE_S},
        timezone="UTC",
    )
    for _ in range(count):
        scheduler.add_job(_run, "cron", minute="*", args=(command,))
    scheduler.start()
    signal.sigwait({signal.SIGTERM})
    scheduler.shutdown()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _serve(int(sys.argv[1]), sys.argv[2])
